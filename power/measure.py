"""From a trace and a window to joules that can be believed, or to the reason why not.

The uncertainty adds, in squares: the meter's gain and offset limits, rounding, how well the
window's edges are known on the meter's clock, what may hide in gaps, and, for a meter that
knows no voltage, the assumed one. Limits of a data sheet are taken as half the width of a
rectangular distribution, hence the roots of 3 and 12. Between two point samples the power
may have changed at any moment, so every difference counts for its interval.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from edgeperf.power.base import Boundary, MeterInputError, Quantity, SourceInfo
from edgeperf.power.result import Estimate, Grade, Idle, Metrics, PowerResult
from edgeperf.power.trace import PowerTrace
from edgeperf.power.window import Window, look

#: Share of the window that must be seen for joules without a warning, and for any.
COMPLETE = 0.99
ENOUGH = 0.95
K = 2.0
JOULES_PER_KWH = 3.6e6
#: Kinds that MLPerf's power rules accept; all others are informative.
OFFICIAL = frozenset({"ptdaemon"})

Span = tuple[int, int]


class _Parts(NamedTuple):
    """Standard uncertainties of an energy, joules: what scales with it, what does not."""

    gain: float
    offset: float
    random: float

    def total(self) -> float:
        return math.hypot(*self)


def measure(
    trace: PowerTrace,
    window_start_mono_ns: int,
    window_end_mono_ns: int,
    *,
    samples: int | None = None,
    queries: int | None = None,
    idle: Sequence[Span] = (),
) -> PowerResult:
    """Say how much energy went into a window.

    Args:
        trace: Of a meter that recorded before, during and after it.
        window_start_mono_ns: Begin of the timed window, CLOCK_MONOTONIC.
        window_end_mono_ns: End of the timed window.
        samples: Samples that were answered in exactly this window.
        queries: Queries likewise.
        idle: Begin and end of the windows in which the board rested.

    Returns:
        The result; without joules where less than 95 % of the window was seen.

    Raises:
        MeterInputError: The window is empty.
    """
    if window_end_mono_ns <= window_start_mono_ns:
        window = f"{window_start_mono_ns}..{window_end_mono_ns} ns"
        raise MeterInputError(f"window {window}: ends before it begins")
    info = trace.about.info
    seen = look(trace.samples, info, window_start_mono_ns, window_end_mono_ns)
    rests = [look(trace.samples, info, begin, end) for begin, end in idle if end > begin]
    grade = _grade(seen, info)
    joules, counts = grade is not Grade.NONE, (samples, queries)
    rested = joules and bool(rests) and all(rest.coverage >= ENOUGH for rest in rests)
    return PowerResult(
        meter=trace.about.meter,
        identity=trace.about.identity,
        measures=info.measures,
        boundary=info.boundary,
        method=info.method,
        rate_hz=info.rate_hz,
        bandwidth_hz=info.bandwidth_hz,
        start_mono_ns=window_start_mono_ns,
        end_mono_ns=window_end_mono_ns,
        duration_s=seen.duration_s,
        coverage=seen.coverage,
        grade=grade,
        samples=samples,
        queries=queries,
        readings=seen.readings,
        gross=_gross(seen, info, counts) if joules else None,
        net=_net(seen, rests, info, counts) if rested else None,
        median_w=_reading(seen.median_w, seen, info),
        peak_w=_reading(seen.peak_w, seen, info),
        idle=_idle(rests, info) if rested else None,
        gaps=seen.gaps,
        problems=tuple(_problems(trace, seen, rests, grade)),
        notes=info.notes,
        official=info.kind in OFFICIAL and info.boundary is Boundary.WALL,
    )


def _grade(seen: Window, info: SourceInfo) -> Grade:
    no_voltage = info.measures is Quantity.CURRENT and info.voltage_v is None
    if seen.coverage < ENOUGH or no_voltage or info.measures is Quantity.CONTRACT:
        return Grade.NONE
    return Grade.COMPLETE if seen.coverage >= COMPLETE else Grade.PARTIAL


def _known(value: float) -> float:
    return 0.0 if math.isnan(value) else abs(value)


def _step_w(seen: Window, steps: tuple[float, float, float]) -> float:
    """Turn a step of power, voltage and current into one of power."""
    watts, volts, amps = steps
    return watts + _known(seen.current_a) * volts + _known(seen.voltage_v) * amps


def _parts(seen: Window, info: SourceInfo) -> _Parts:
    """Return the standard uncertainties of the energy of the whole window."""
    duration_s = seen.duration_s
    energy_j = abs(seen.average_w) * duration_s
    offset_w = _step_w(seen, (info.offset_w, info.offset_v, info.offset_a))
    round_w = _step_w(seen, (info.resolution_w, info.resolution_v, info.resolution_a))
    rounding_j = round_w / math.sqrt(12 * seen.changes) * duration_s
    counting_j = info.resolution_j / math.sqrt(6)  # read twice
    edge_j = math.hypot(*map(_known, seen.edge_w)) * info.edge_s
    range_w = float(seen.power_w.max() - seen.power_w.min()) if len(seen.power_w) else 0.0
    gap_j = (duration_s - seen.covered_s) * range_w
    return _Parts(
        gain=math.hypot(info.gain, info.voltage_gain) * energy_j / math.sqrt(3),
        offset=offset_w * duration_s / math.sqrt(3),
        random=math.hypot(rounding_j, counting_j, edge_j, gap_j, seen.jumps_j),
    )


def _metrics(energy: Estimate, duration_s: float, counts: tuple[int | None, int | None]) -> Metrics:
    samples, queries = counts

    def over(count: float) -> Estimate:
        return Estimate(energy.value / count, energy.uncertainty / count)

    def per_joule(count: float) -> Estimate | None:
        if energy.value <= 0:
            return None
        value = count / energy.value
        return Estimate(value, value * energy.uncertainty / energy.value)

    return Metrics(
        energy_j=energy,
        average_w=over(duration_s),
        energy_per_sample_j=over(samples) if samples else None,
        energy_per_query_j=over(queries) if queries else None,
        samples_per_joule=per_joule(samples) if samples else None,
        inferences_per_kwh=per_joule(samples * JOULES_PER_KWH) if samples else None,
    )


def _gross(seen: Window, info: SourceInfo, counts: tuple[int | None, int | None]) -> Metrics:
    energy_j = seen.average_w * seen.duration_s
    return _metrics(Estimate(energy_j, K * _parts(seen, info).total()), seen.duration_s, counts)


def _net(
    seen: Window, rests: Sequence[Window], info: SourceInfo, counts: tuple[int | None, int | None]
) -> Metrics:
    """Subtract the idle power; the same meter's offset cancels, its gain acts on the rest."""
    duration_s = seen.duration_s
    rest_w, random_w, drift_w = _rest(rests, info)
    energy_j = (seen.average_w - rest_w) * duration_s
    gain_j = math.hypot(info.gain, info.voltage_gain) * abs(energy_j) / math.sqrt(3)
    drift_j = abs(drift_w) / math.sqrt(12) * duration_s
    u_j = math.hypot(gain_j, _parts(seen, info).random, random_w * duration_s, drift_j)
    return _metrics(Estimate(energy_j, K * u_j), duration_s, counts)


def _rest(rests: Sequence[Window], info: SourceInfo) -> tuple[float, float, float]:
    """Return mean power of the idle windows, its random uncertainty, and last less first."""
    total_s = sum(rest.duration_s for rest in rests)
    mean_w = sum(rest.average_w * rest.duration_s for rest in rests) / total_s
    random_w = math.hypot(*(_parts(rest, info).random for rest in rests)) / total_s
    return mean_w, random_w, rests[-1].average_w - rests[0].average_w


def _idle(rests: Sequence[Window], info: SourceInfo) -> Idle:
    mean_w, random_w, drift_w = _rest(rests, info)
    total_s = sum(rest.duration_s for rest in rests)
    parts = [_parts(rest, info) for rest in rests]
    common_j = math.hypot(sum(part.gain for part in parts), sum(part.offset for part in parts))
    uncertainty_w = K * math.hypot(common_j / total_s, random_w)
    return Idle(average_w=Estimate(mean_w, uncertainty_w), duration_s=total_s, drift_w=drift_w)


def _reading(value_w: float, seen: Window, info: SourceInfo) -> Estimate | None:
    """Give one reading its uncertainty."""
    if math.isnan(value_w):
        return None
    u_w = math.hypot(
        math.hypot(info.gain, info.voltage_gain) * value_w / math.sqrt(3),
        _step_w(seen, (info.offset_w, info.offset_v, info.offset_a)) / math.sqrt(3),
        _step_w(seen, (info.resolution_w, info.resolution_v, info.resolution_a)) / math.sqrt(12),
    )
    return Estimate(value_w, K * u_w)


def _problems(trace: PowerTrace, seen: Window, rests: Sequence[Window], grade: Grade) -> list[str]:
    """Say what a reader must know before believing a number."""
    info = trace.about.info
    found = []
    if info.measures is Quantity.CURRENT and info.voltage_v is None:
        found.append("the meter measures current only and no voltage was stated: no joules")
    if info.measures is Quantity.CONTRACT:
        found.append("the values are negotiated limits, not measurements: no joules")
    if seen.coverage < COMPLETE:
        limit = "95 %: no joules" if seen.coverage < ENOUGH else "99 %: partial"
        found.append(f"the meter saw {seen.coverage:.1%} of the window, less than {limit}")
    for why, text in _GAP_TEXTS.items():
        spans = [gap for gap in seen.gaps if gap.why == why]
        harmless = why in _SILENCES and seen.coverage >= COMPLETE
        if spans and not harmless:
            total_s = sum(gap.end_mono_ns - gap.start_mono_ns for gap in spans) * 1e-9
            at_s = min(gap.start_mono_ns for gap in spans) - seen.start_ns
            found.append(f"{text} for {total_s:.2f} s, first {at_s * 1e-9:.2f} s into the window")
    if grade is not Grade.NONE and seen.average_w < 0:
        found.append("the average power is negative: leads reversed, or the board feeds back")
    found += [
        f"idle window {i}: the meter saw {rest.coverage:.1%} of it: no net energy"
        for i, rest in enumerate(rests, 1)
        if rest.coverage < ENOUGH
    ]
    return found


#: Missing readings that are few need no words; a meter that was wrong always does.
_SILENCES = {"gap", "outside"}
_GAP_TEXTS = {
    "lost": "the meter was gone",
    "stale": "the meter was frozen",
    "invalid": "the meter was over range or had no data",
    "gap": "the meter sent nothing",
    "outside": "the meter was not being recorded",
}
