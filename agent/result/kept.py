"""Percentiles of latency, and whether those that a result states are those of its raw times.

Apart from the rest, since the result itself is plain data and this needs numpy. The trap:
a result's latencies are as believable as the file they lie in; its digest is checked first.
"""

import math

import numpy as np
from numpy.typing import NDArray

from edgeperf.agent.result.figures import Percentiles
from edgeperf.agent.result.files import LATENCIES

_SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p97": 0.97, "p99": 0.99, "p99_9": 0.999}
#: The mean may be summed in another order.
_SAME = 1e-9


def percentiles(latency_ns: NDArray[np.int64]) -> Percentiles | None:
    """Return exact percentiles, LoadGen's way; None without a query.

    Source: LoadGen ``results.cc``: the value at ``floor(n * share)`` of the sorted ones.
    """
    if not latency_ns.size:
        return None
    ranked = np.sort(latency_ns)
    last = ranked.size - 1
    at = {
        name: float(ranked[min(last, int(ranked.size * share))]) for name, share in _SHARES.items()
    }
    return Percentiles(
        min=float(ranked[0]), max=float(ranked[-1]), mean=float(latency_ns.mean()), **at
    )


def contradiction(stated: Percentiles, latency_ns: NDArray[np.int64]) -> str | None:
    """Say which percentile is not that of the raw latencies; None where all are.

    Args:
        stated: What the result says.
        latency_ns: Latency of each query, ``(queries,)``.
    """
    found = percentiles(latency_ns)
    if found is None:
        return f"{LATENCIES} holds no query"
    for name in Percentiles.__struct_fields__:
        says, is_really = getattr(stated, name), getattr(found, name)
        if not math.isclose(says, is_really, rel_tol=_SAME):
            return (
                f"was altered: it says {name.replace('_', '.')} {says:.0f} ns, its {LATENCIES}"
                f" {is_really:.0f} ns"
            )
    return None
