"""When LoadGen meant each Server query to start.

LoadGen counts a Server query's latency from its scheduled time and keeps the schedule to
itself. But the schedule follows from a seed that it logs, so the second stopwatch can
draw the same one and need not take LoadGen's word for how late a query was.

The trap: the same seed gives the same gaps only with the same C++ library. Wheels and
builds by g++ use libstdc++, whose ``std::exponential_distribution`` is drawn here.
"""

import numpy as np
from numpy.typing import NDArray

_WORD = float(1 << 32)


def server_schedule_ns(count: int, *, seed: int, target_qps: float) -> NDArray[np.int64]:
    """Return when each query is due, nanoseconds after the first.

    Args:
        count: Number of queries.
        seed: ``effective_schedule_rng_seed`` of the detail log.
        target_qps: The rate as ``user.conf`` gives it: the log rounds to six digits.

    Source:
        LoadGen ``loadgen.cc``, ``ScheduleDistribution<Server>`` and ``GenerateQueries``;
        C++ standard [rand.util.canonical] as in libstdc++: 53 bits from two words of
        ``std::mt19937``, whose seed is taken modulo 2**32.
    """
    source = np.random.RandomState(seed % (1 << 32))
    words = source.randint(0, 1 << 32, size=2 * count, dtype=np.uint32).astype(np.float64)
    uniform = (words[0::2] + words[1::2] * _WORD) / (_WORD * _WORD)
    gaps_ns = (-np.log(1.0 - uniform) / target_qps * 1e9).astype(np.int64)
    return np.concatenate([[0], np.cumsum(gaps_ns)[:-1]]).astype(np.int64)


def scheduled_start_ns(
    issued_ns: NDArray[np.int64], due_ns: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the scheduled start of each query on the clock of *issued_ns*.

    A query is never issued early, and the promptest of them fixes where the schedule
    begins.
    """
    return due_ns + int((issued_ns - due_ns).min())
