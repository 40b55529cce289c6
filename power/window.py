"""The energy under a trace between two moments, and how much of that time was seen.

Every pair of neighbouring samples spans an interval. An interval either counts or is a
gap; nothing is ever carried across a gap. What it holds depends on the meter: a straight
line between its ends, the value at its begin (a meter that latches), the value at its end
(a meter that averages), or the difference of the meter's own energy counter. The intervals
at the window's edges count by the part inside, so windows that touch add up.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeperf.power.base import Method, SourceInfo, State
from edgeperf.power.result import Gap
from edgeperf.power.samples import Samples

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: Noise may lift a counter's difference over its meter's limit by so much.
COUNTER_SLACK = 1.1
MOST_GAPS = 100


@dataclass(frozen=True, slots=True)
class Window:
    """What a trace says about a window.

    Attributes:
        start_ns: Begin.
        end_ns: End.
        energy_j: Energy of the covered part.
        covered_s: Length of the covered part.
        power_w: Mean power of each covered interval, shape ``(n,)``.
        length_s: Covered length of each, shape ``(n,)``.
        readings: Usable readings inside.
        changes: How often the reading changed, at least 1: how far rounding averages out.
        jumps_j: What the moments of change between point samples are worth, standard
            uncertainty.
        peak_w: Highest reading inside, NaN if none.
        edge_w: Power at both edges, NaN where it is not known.
        voltage_v: Mean voltage, NaN if unknown.
        current_a: Mean current, NaN if unknown.
        gaps: Where nothing is known, longest first, at most 100.
    """

    start_ns: int
    end_ns: int
    energy_j: float
    covered_s: float
    power_w: Floats
    length_s: Floats
    readings: int
    changes: int
    jumps_j: float
    peak_w: float
    edge_w: tuple[float, float]
    voltage_v: float
    current_a: float
    gaps: tuple[Gap, ...]

    @property
    def duration_s(self) -> float:
        """Length of the window."""
        return (self.end_ns - self.start_ns) * 1e-9

    @property
    def coverage(self) -> float:
        """Covered share, 0 to 1."""
        return min(round(self.covered_s / self.duration_s, 9), 1.0)

    @property
    def average_w(self) -> float:
        """Mean power of the covered part, NaN if there is none."""
        return self.energy_j / self.covered_s if self.covered_s > 0 else float("nan")

    @property
    def median_w(self) -> float:
        """Median power of the covered part, weighted by time, NaN if there is none."""
        if not len(self.power_w):
            return float("nan")
        order = np.argsort(self.power_w)
        passed = np.cumsum(self.length_s[order])
        return float(self.power_w[order][np.searchsorted(passed, passed[-1] / 2)])


def look(samples: Samples, info: SourceInfo, start_ns: int, end_ns: int) -> Window:
    """Integrate a trace over a window.

    Args:
        samples: Times strictly rising.
        info: Of the meter that took them.
        start_ns: Begin of the window, CLOCK_MONOTONIC.
        end_ns: End of the window, later.

    Source:
        MLPerf ``power_measurement.adoc``, "LoadGen and Start/End TimeStamps": power counts
        from the start to the end of the performance run, no other phase.
    """
    near = _near(samples, start_ns, end_ns)
    t_s = (near.t_ns - start_ns).astype(np.float64) * 1e-9
    end_s = (end_ns - start_ns) * 1e-9
    begin: Floats = np.maximum(t_s[:-1], 0.0)
    stop: Floats = np.minimum(t_s[1:], end_s)
    good, power_begin, power_end = _intervals(near, info, t_s, (begin, stop))
    good &= stop > begin
    length = (stop - begin)[good]
    mean = (power_begin[good] + power_end[good]) / 2
    inside = near.ok & (t_s >= 0) & (t_s <= end_s)
    return Window(
        start_ns=start_ns,
        end_ns=end_ns,
        energy_j=float(np.sum(mean * length)),
        covered_s=float(np.sum(length)),
        power_w=mean,
        length_s=length,
        readings=int(np.count_nonzero(inside)),
        changes=1 + int(np.count_nonzero(np.diff(near.power_w[inside]))),
        jumps_j=_jumps_j(near, info, good, stop - begin),
        peak_w=_peak(near, info, inside, mean),
        edge_w=(
            _first(power_begin, good & (begin <= 0)),
            _first(power_end, good & (stop >= end_s)),
        ),
        voltage_v=_mean(near.voltage_v[inside]),
        current_a=_mean(near.current_a[inside]),
        gaps=_gaps(near, good, begin, stop, (start_ns, end_ns)),
    )


def _near(samples: Samples, start_ns: int, end_ns: int) -> Samples:
    """Cut off what is further away than one sample from the window."""
    first = max(int(np.searchsorted(samples.t_ns, start_ns, side="right")) - 1, 0)
    last = int(np.searchsorted(samples.t_ns, end_ns, side="left")) + 1
    return samples[first:last]


def _intervals(
    samples: Samples, info: SourceInfo, t_s: Floats, cut: tuple[Floats, Floats]
) -> tuple[Bools, Floats, Floats]:
    """Say for each interval whether it counts, and the power at both ends of its cut part."""
    ok, state = samples.ok, samples.state
    span = t_s[1:] - t_s[:-1]
    short = span <= info.longest_interval_s
    here, after = samples.power_w[:-1], samples.power_w[1:]
    if info.method is Method.HOLD:
        return ok[:-1] & short & np.not_equal(state[1:], State.GAP), here, here
    if info.method is Method.MEAN:
        broken = np.equal(state[:-1], State.GAP) | np.equal(state[:-1], State.LOST)
        return ok[1:] & short & ~broken, after, after
    if info.method is Method.COUNTER:
        mean, sane = _counted(samples, info, span)
        whole = (cut[0] <= t_s[:-1]) & (cut[1] >= t_s[1:])
        return sane & (short | whole), mean, mean
    slope = (after - here) / span
    at_begin = here + slope * (cut[0] - t_s[:-1])
    at_end = here + slope * (cut[1] - t_s[:-1])
    return ok[:-1] & ok[1:] & short, at_begin, at_end


def _counted(samples: Samples, info: SourceInfo, span: Floats) -> tuple[Floats, Bools]:
    """Return the mean power of each interval by the counter, and whether it can be true."""
    step_j = np.diff(samples.energy_j)
    most_j = info.max_power_w * span * COUNTER_SLACK + 2 * info.resolution_j
    sane = samples.ok[:-1] & samples.ok[1:]
    if info.counter_wrap_j is not None:
        step_j = np.where(step_j < 0, step_j + info.counter_wrap_j, step_j)
        # Twice round looks like once round, so the meter must be read often enough.
        sane &= info.max_power_w * span <= info.counter_wrap_j
    with np.errstate(invalid="ignore"):
        sane &= (step_j >= 0) & (step_j <= most_j)
    return step_j / span, sane


def _jumps_j(samples: Samples, info: SourceInfo, good: Bools, length_s: Floats) -> float:
    if info.method not in (Method.TRAPEZOID, Method.HOLD):
        return 0.0
    jumps = np.nan_to_num(np.diff(samples.power_w)[good]) * length_s[good]
    return float(np.sqrt(np.sum(jumps**2) / 12))


def _peak(samples: Samples, info: SourceInfo, inside: Bools, mean: Floats) -> float:
    read = samples.power_w[inside]
    if info.method is Method.COUNTER and np.isnan(read).all():
        read = mean
    return float(np.max(read)) if len(read) else float("nan")


def _first(values: Floats, where: Bools) -> float:
    found = values[where]
    return float(found[0]) if len(found) else float("nan")


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.mean(known)) if len(known) else float("nan")


def _gaps(
    samples: Samples, good: Bools, begin: Floats, stop: Floats, window_ns: tuple[int, int]
) -> tuple[Gap, ...]:
    """List what is not covered, joined where it touches, longest first."""
    start_ns, end_ns = window_ns
    end_s = (end_ns - start_ns) * 1e-9
    found: list[tuple[float, float, int]] = []  # begin, end, worst state
    edges_s = [float(begin[0]), float(stop[-1])] if len(begin) else [end_s, end_s]
    outside = -1
    if edges_s[0] > 0:
        found.append((0.0, min(edges_s[0], end_s), outside))
    for i in np.flatnonzero(~good & (stop > begin)):
        why = max(int(samples.state[i]), int(samples.state[i + 1]))
        if found and found[-1][1] == begin[i] and found[-1][2] != outside:
            found[-1] = (found[-1][0], float(stop[i]), max(found[-1][2], why))
        else:
            found.append((float(begin[i]), float(stop[i]), why))
    if edges_s[1] < end_s:
        found.append((max(edges_s[1], 0.0), end_s, outside))
    found.sort(key=lambda gap: gap[0] - gap[1])
    return tuple(
        Gap(start_ns + round(a * 1e9), start_ns + round(b * 1e9), _why(why))
        for a, b, why in found[:MOST_GAPS]
    )


def _why(state: int) -> str:
    if state < 0:
        return "outside"
    return "gap" if state == State.OK else State(state).name.lower()
