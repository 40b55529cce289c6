"""What the harness itself adds to what it measures, found in the run itself.

Two parts. What LoadGen's call and completion take is the difference between its own
latencies and those of the second stopwatch, which stands inside the call. What handing
work to other workers takes is timed beforehand, with queries that ask for nothing. A
model that takes less than twenty times the sum is measured together with its harness.
"""

import time
from collections.abc import Callable

import numpy as np

from edgeperf.agent.result import LoadGen, Stopwatch
from edgeperf.agent.run.jobs import Done

#: What a model must take, as a multiple of what the harness adds, to be measured honestly.
HONEST = 20
#: Empty queries that are timed.
EMPTY_QUERIES = 200


def empty_ns(query: Callable[[], object], count: int = EMPTY_QUERIES) -> float:
    """Return the median time of *query*, which asks the workers for nothing."""
    now = time.monotonic_ns
    times: list[int] = []
    for _ in range(count):
        began = now()
        query()
        times.append(now() - began)
    return float(np.median(times))


def added_ns(loadgen: LoadGen, watch: Stopwatch | None, done: Done) -> float | None:
    """Return what the harness adds to a query; None where nothing tells.

    Args:
        loadgen: LoadGen's own account.
        watch: The second stopwatch.
        done: What the leader said.
    """
    if watch is None or "p50" not in loadgen.latency_ns:
        return None
    return done.handover_ns + max(0.0, loadgen.latency_ns["p50"] - watch.latency_ns.p50)


def added_offline_ns(samples_per_second: float | None, done: Done) -> float | None:
    """Return what the harness adds to a sample: the leader's time for all but inferring.

    Args:
        samples_per_second: LoadGen's figure, whose time contains making the lists of
            samples that the leader is handed.
        done: What the leader said.
    """
    if not samples_per_second or not done.samples:
        return None
    own_ns = done.window_end_mono_ns - done.window_start_mono_ns
    lists_ns = max(0.0, done.samples * 1e9 / samples_per_second - own_ns)
    return (lists_ns + done.completing_ns) / done.samples
