"""How fast the SUT is before LoadGen asks: LoadGen's hints must be right.

Its SingleStream and MultiStream run out of queries when the hint is more than twice too
slow, Offline ends too early when it is too low, and Server has to be told the rate.
"""

import heapq
import time
from collections.abc import Callable, Sequence

import numpy as np

from edgeperf import InputError
from edgeperf.agent.run.calibration import Calibration
from edgeperf.agent.run.jobs import LoadPlan
from edgeperf.agent.run.loadgen import Hints
from edgeperf.agent.run.shared import MAX_CHUNKS
from edgeperf.agent.run.size import check_size, needed_hint_ns
from edgeperf.agent.run.team import Team, tell_nobody

#: Work that an Offline worker takes at a time: taking costs 3 µs, an idle end of the run
#: at most one chunk.
CHUNK_NS = 4_000_000
#: LoadGen generates queries ahead for the hinted latency; a run a little faster than
#: calibration must not run dry of them.
HINT_SHARE = 0.9
#: A hint above this share of the latency risks running dry (at 2 it surely does).
MOST_HINT_SHARE = 1.7
#: Offline issues samples for the minimum duration at the hinted rate, and one tenth more;
#: calibration under a passing load must not make it end too early.
OFFLINE_SHARE = 1.15
_WARMUP_INFERENCES = 5
_SLICES = 4
_ACCURACY_LOAD = 0.7
#: Of the latency bound: what simulation may use up, the rest is for what it cannot know.
_SERVER_MARGIN = 0.8
_SERVER_MOST_LOAD = 0.7
_SIMULATED_QUERIES = 6_000


def calibrate(
    plan: LoadPlan, team: Team, workers: int, samples: int, batch: int = 1
) -> Calibration:
    """Warm the SUT up and measure it the way the scenario will use it.

    Args:
        plan: The test.
        team: All workers.
        workers: How many they are.
        samples: Samples in memory, 0 to ``samples - 1``.
        batch: Samples per inference.
    """
    each = _WARMUP_INFERENCES * workers * batch
    team.take_all(np.arange(each, dtype=np.int32) % samples, batch, tell_nobody)
    if plan.scenario == "MultiStream":
        count = plan.samples_per_query
        query_ns, fast_ns = query_times_ns(_rotate(team.share, count, samples), plan.calibrate_s)
        rate = count * 1e9 / query_ns
        return Calibration(latency_ns=query_ns, throughput_sps=rate, fast_ns=fast_ns)
    if plan.scenario == "SingleStream":
        sample_ns, fast_ns = query_times_ns(_rotate(team.share, 1, samples), plan.calibrate_s)
        return Calibration(latency_ns=sample_ns, throughput_sps=1e9 / sample_ns, fast_ns=fast_ns)
    throughput = _throughput(team, workers, batch, samples=samples, seconds=plan.calibrate_s)
    return Calibration(latency_ns=workers * 1e9 / throughput, throughput_sps=throughput)


def _rotate(
    share: Callable[[Sequence[int]], None], count: int, samples: int
) -> Callable[[int], None]:
    def query(number: int) -> None:
        share([(number * count + place) % samples for place in range(count)])

    return query


def query_times_ns(query: Callable[[int], None], seconds: float) -> tuple[float, float]:
    """Return median and 10th percentile of *query* over *seconds*, of 5 calls at the least."""
    now = time.monotonic_ns
    until = now() + int(seconds * 1e9)
    times: list[int] = []
    while (begin := now()) < until or len(times) < _WARMUP_INFERENCES:
        query(len(times))
        times.append(now() - begin)
    return float(np.median(times)), float(np.percentile(times, 10))


def _throughput(team: Team, workers: int, batch: int, *, samples: int, seconds: float) -> float:
    """Return samples per second, the best of some slices of *seconds*.

    The best: Offline ends too early when the hint is too low, so a passing load during
    calibration must not lower it.
    """
    least, rate, best = 4 * workers * batch, 0.0, 0.0
    count = least
    for _ in range(_SLICES + 2):  # the first two find out how long a slice is
        begin = time.monotonic_ns()
        chunk = chunk_size(rate, workers, count, batch)
        team.take_all(np.arange(count, dtype=np.int32) % samples, chunk, tell_nobody)
        rate = count * 1e9 / (time.monotonic_ns() - begin)
        best = max(best, rate)
        count = max(least, int(rate * seconds / _SLICES))
    return best


def chunk_size(throughput_sps: float, workers: int, total: int = 0, batch: int = 1) -> int:
    """Return how many samples a worker takes at a time in Offline.

    Args:
        throughput_sps: Of all workers together.
        workers: How many they are.
        total: Samples of the query; its chunk numbers must fit the pipe.
        batch: Samples per inference; a chunk is whole batches.
    """
    by_time = int(CHUNK_NS * throughput_sps / workers / 1e9)
    return -(-max(1, by_time, -(-total // MAX_CHUNKS)) // batch) * batch


def hints_for(plan: LoadPlan, found: Calibration, *, available_bytes: int) -> Hints:
    """Return what LoadGen is told.

    Raises:
        InputError: The queries would not fit the memory that is free, or what one test keeps.
    """
    # Of the fast ones: a load that passes during calibration must not let LoadGen run dry.
    hint_ns, qps = HINT_SHARE * (found.fast_ns or found.latency_ns), found.throughput_sps
    if plan.accuracy:  # untimed, whatever rate was asked for
        return Hints(latency_ns=hint_ns, target_qps=_ACCURACY_LOAD * qps)
    if plan.scenario == "Offline":
        qps *= OFFLINE_SHARE
    elif plan.scenario == "Server":
        qps = plan.target_qps or qps
    else:
        hint_ns = max(
            hint_ns, min(needed_hint_ns(plan, available_bytes), MOST_HINT_SHARE * found.latency_ns)
        )
    check_size(plan, found, Hints(latency_ns=hint_ns, target_qps=qps), available_bytes)
    return Hints(latency_ns=hint_ns, target_qps=qps)


def sustainable_qps(service_ns: float, workers: int, bound_ns: int) -> float:
    """Return the highest rate whose simulated 99th percentile keeps the bound.

    The queue is simulated: arrivals as LoadGen makes them (exponential gaps), served in
    order by *workers* that take *service_ns* each; found by bisection. The same figures
    give the same rate.

    Raises:
        InputError: One sample alone takes longer than the bound.
    """
    allowed_ns = bound_ns * _SERVER_MARGIN
    if service_ns > allowed_ns:
        raise InputError(_too_slow(service_ns, bound_ns))
    gaps = np.random.default_rng(1).exponential(1.0, _SIMULATED_QUERIES)
    low, high = 0.0, _SERVER_MOST_LOAD * workers * 1e9 / service_ns
    if _simulated_p99_ns(gaps * 1e9 / high, service_ns, workers) <= allowed_ns:
        return high
    for _ in range(12):
        middle = (low + high) / 2
        if _simulated_p99_ns(gaps * 1e9 / middle, service_ns, workers) <= allowed_ns:
            low = middle
        else:
            high = middle
    if low <= 0.0:
        raise InputError(_too_slow(service_ns, bound_ns))
    return low


def _too_slow(service_ns: float, bound_ns: int) -> str:
    return (
        f"Server: one sample takes {service_ns / 1e6:.2f} ms here, too close to the bound of"
        f" {bound_ns / 1e6:g} ms on the 99th percentile; give a longer --target-latency, or a"
        " --target-qps to try it all the same"
    )


def _simulated_p99_ns(gaps_ns: np.ndarray, service_ns: float, workers: int) -> float:
    free = [0.0] * workers
    arrivals = np.cumsum(gaps_ns).tolist()
    latencies = []
    for arrival in arrivals:
        ends = max(arrival, heapq.heappop(free)) + service_ns
        heapq.heappush(free, ends)
        latencies.append(ends - arrival)
    return float(np.percentile(latencies, 99))
