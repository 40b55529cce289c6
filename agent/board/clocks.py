"""The three clocks, read together, so that a step or a bent rate shows.

LoadGen times with the wall clock. CLOCK_MONOTONIC cannot step, but NTP bends the rate of
both alike; only CLOCK_MONOTONIC_RAW is left alone. So wall against monotonic shows steps
and nothing else, and monotonic against raw shows whether a second was a second.
"""

import time

import msgspec

#: Reads closer together than this are one moment; an interrupted reading is repeated.
_TOGETHER_NS = 20_000
_ATTEMPTS = 8


class Clocks(msgspec.Struct, frozen=True, kw_only=True):
    """One moment on three clocks, nanoseconds.

    Attributes:
        mono_ns: CLOCK_MONOTONIC.
        wall_ns: CLOCK_REALTIME.
        raw_ns: CLOCK_MONOTONIC_RAW.
    """

    mono_ns: int
    wall_ns: int
    raw_ns: int


def read_clocks() -> Clocks:
    """Read the clocks as close together as this machine lets us."""
    best: Clocks | None = None
    best_gap_ns = 0
    for _ in range(_ATTEMPTS):
        before_ns = time.monotonic_ns()
        wall_ns = time.time_ns()
        raw_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        after_ns = time.monotonic_ns()
        gap_ns = after_ns - before_ns
        if best is None or gap_ns < best_gap_ns:
            best = Clocks(mono_ns=before_ns + gap_ns // 2, wall_ns=wall_ns, raw_ns=raw_ns)
            best_gap_ns = gap_ns
        if gap_ns <= _TOGETHER_NS:
            break
    # The loop ran at least once.
    return best if best is not None else Clocks(mono_ns=0, wall_ns=0, raw_ns=0)


def step_between_ns(before: Clocks, after: Clocks) -> int:
    """Return how far the wall clock was set forward between two moments, nanoseconds.

    Zero but for the few microseconds between the reads of one moment, unless the clock
    was set (or, forward, the machine slept).
    """
    return (after.wall_ns - before.wall_ns) - (after.mono_ns - before.mono_ns)


def rate_error_ppm(before: Clocks, after: Clocks) -> float:
    """Return how much faster the monotonic clock ran than the raw one, parts per million."""
    raw_ns = after.raw_ns - before.raw_ns
    if raw_ns <= 0:
        return 0.0
    return ((after.mono_ns - before.mono_ns) - raw_ns) / raw_ns * 1e6
