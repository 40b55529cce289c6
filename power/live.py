"""A look at a meter that is being recorded; plain data, no numpy."""

import msgspec


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """A look at a recording meter.

    Attributes:
        t_mono_ns: CLOCK_MONOTONIC of the look.
        power_w: Mean power of the last half second or so; None if it is not known.
        state: ``ok``, ``stale``, ``gap``, ``lost`` or ``invalid``.
        readings: Usable readings so far.
        faults: What went wrong so far: short phrase to count.
        problem: What is wrong now, as one sentence; empty if nothing is.
    """

    t_mono_ns: int
    power_w: float | None
    state: str
    readings: int
    faults: dict[str, int] = msgspec.field(default_factory=dict)
    problem: str = ""
