"""What a power measurement says, as plain data: no numpy, ready for ``result.json``."""

import enum

import msgspec

from edgeperf.power.base import Boundary, Identity, Method, Quantity

#: What ``details`` of an identity say where a program plays the meter, and no device is there.
PORT, PSEUDO_TERMINAL = "port", "pseudo-terminal"


class Estimate(msgspec.Struct, frozen=True):
    """A number with its uncertainty.

    Attributes:
        value: The number, in the unit that the field's name ends in.
        uncertainty: Expanded uncertainty in the same unit, coverage factor k = 2, that is,
            about 95 % of the truth lies within plus or minus this.
    """

    value: float
    uncertainty: float


class Grade(str, enum.Enum):
    """How much of the window the meter saw."""

    COMPLETE = "complete"  # 99 % or more
    PARTIAL = "partial"  # 95 % or more: joules with a warning
    NONE = "none"  # less: no joules


class Gap(msgspec.Struct, frozen=True):
    """A stretch of the window in which nothing is known.

    Attributes:
        start_mono_ns: Where it begins, CLOCK_MONOTONIC.
        end_mono_ns: Where it ends.
        why: ``lost``, ``stale``, ``invalid``, ``gap`` or ``outside`` (before the first or
            after the last sample).
    """

    start_mono_ns: int
    end_mono_ns: int
    why: str


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Energy of the window and what follows from it.

    Attributes:
        energy_j: Energy of the window. Where coverage is not full, the average of the
            covered part stands for the rest, and the uncertainty says what that is worth.
        average_w: Energy over duration.
        energy_per_sample_j: Joules per sample.
        energy_per_query_j: Joules per query.
        samples_per_joule: Samples per joule; None when the energy is not positive.
        inferences_per_kwh: Samples per kilowatt-hour; None likewise.
    """

    energy_j: Estimate
    average_w: Estimate
    energy_per_sample_j: Estimate | None = None
    energy_per_query_j: Estimate | None = None
    samples_per_joule: Estimate | None = None
    inferences_per_kwh: Estimate | None = None


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """The board at rest, measured by the same meter.

    Attributes:
        average_w: Mean power of all idle windows.
        duration_s: Their total length.
        drift_w: Last window's mean minus the first one's; 0 with one window.
    """

    average_w: Estimate
    duration_s: float
    drift_w: float


class PowerResult(msgspec.Struct, frozen=True, kw_only=True):
    """Power and energy over one window.

    Attributes:
        meter: The meter spec.
        identity: Which instrument it was.
        measures: What it measures.
        boundary: What its joules include.
        method: How samples became energy.
        rate_hz: New values per second.
        bandwidth_hz: Faster changes are averaged away; None is unknown.
        start_mono_ns: Begin of the window, CLOCK_MONOTONIC.
        end_mono_ns: End of the window.
        duration_s: Its length.
        coverage: Share of the window that the meter saw, 0 to 1.
        grade: What that allows.
        samples: Samples that the run answered in the window; None if not said.
        queries: Queries likewise.
        readings: Usable readings of the meter in the window.
        gross: Energy as measured; None without joules.
        net: The same less the idle power; None without joules or idle windows.
        median_w: Median power, weighted by time.
        peak_w: Highest reading. It depends on the bandwidth: shorter peaks are not seen.
        idle: The board at rest; None if it was not measured.
        gaps: Where nothing is known, longest first, at most 100.
        problems: What a reader must know before believing a number, one sentence each;
            empty if nothing went wrong.
        notes: Known biases of this kind of meter.
        official: Whether MLPerf accepts this kind of measurement; otherwise informative.
    """

    meter: str
    identity: Identity
    measures: Quantity
    boundary: Boundary
    method: Method
    rate_hz: float
    bandwidth_hz: float | None
    start_mono_ns: int
    end_mono_ns: int
    duration_s: float
    coverage: float
    grade: Grade
    samples: int | None = None
    queries: int | None = None
    readings: int = 0
    gross: Metrics | None = None
    net: Metrics | None = None
    median_w: Estimate | None = None
    peak_w: Estimate | None = None
    idle: Idle | None = None
    gaps: tuple[Gap, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    official: bool = False

    @property
    def is_simulated(self) -> bool:
        """Whether a program plays the meter, so that joules are as real as that program."""
        return self.identity.details.get(PORT) == PSEUDO_TERMINAL
