"""Energy of a window: against exact integrals, over any sampling, with any gap."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.power.base import Boundary, Method, Quantity, Reading, SourceInfo, State
from edgeperf.power.samples import Samples
from edgeperf.power.simulate.waveform import Constant, Sine, Step
from edgeperf.power.window import look

S = 1_000_000_000


def info(method: Method = Method.TRAPEZOID, **changes: Any) -> SourceInfo:
    """Describe a meter of ten readings a second."""
    values: dict[str, Any] = {
        "kind": "test",
        "measures": Quantity.POWER,
        "boundary": Boundary.DC_INPUT,
        "method": method,
        "rate_hz": 10.0,
        "bandwidth_hz": None,
        "gain": 0.0,
    }
    return SourceInfo(**{**values, **changes})


def sampled(power_w: Any, *, rate_hz: float = 10.0, seconds: float = 10.0) -> Samples:
    """Sample a function of seconds at a steady rate from 0 on."""
    t_s = np.arange(round(seconds * rate_hz) + 1) / rate_hz
    return Samples.from_readings(
        Reading(round(t * 1e9), float(power_w(t)), voltage_v=5.0) for t in t_s
    )


@given(
    st.floats(0.0, 4.9),
    st.floats(0.05, 5.0),
    st.floats(-20, 20),
    st.floats(-20, 20),
)
def test_straight_lines_are_exact(
    begin_s: float, length_s: float, base: float, slope: float
) -> None:
    """A trapezoid with interpolated edges is exact for a straight line, sign kept."""
    samples = sampled(lambda t: base + slope * t)
    begin, end = round(begin_s * S), round((begin_s + length_s) * S)
    seen = look(samples, info(), begin, end)
    a, b = begin / S, end / S
    assert seen.energy_j == pytest.approx(base * (b - a) + slope * (b * b - a * a) / 2, abs=1e-6)
    assert seen.coverage == pytest.approx(1)


@given(st.floats(0.1, 9.9), st.sampled_from(list(Method)))
def test_windows_that_touch_add_up(cut_s: float, method: Method) -> None:
    """Energy and coverage of two halves are those of the whole, whatever the method."""
    wave = Sine(6, 4, 1.7)
    samples = sampled(wave.power_w)
    samples = _with_counter(samples, wave)
    cut = round(cut_s * S)
    whole = look(samples, info(method), 0, 10 * S)
    parts = [look(samples, info(method), 0, cut), look(samples, info(method), cut, 10 * S)]
    assert sum(part.energy_j for part in parts) == pytest.approx(whole.energy_j)
    assert sum(part.covered_s for part in parts) == pytest.approx(whole.covered_s)


def _with_counter(samples: Samples, wave: Any) -> Samples:
    counted = np.array([wave.energy_j(0, t * 1e-9) for t in samples.t_ns])
    return Samples(
        samples.t_ns, samples.power_w, samples.voltage_v, samples.current_a, counted,
        samples.tick_ns, samples.state,
    )  # fmt: skip


@pytest.mark.parametrize("wave", [Constant(6), Step(2, 8, 2), Sine(6, 4, 1)])
@pytest.mark.parametrize("method", [Method.TRAPEZOID, Method.HOLD, Method.MEAN])
def test_half_a_percent(wave: Any, method: Method) -> None:
    """At 100 readings a second every method is within 0.5 % on const, step and sine."""
    samples = sampled(wave.power_w, rate_hz=100, seconds=12)
    seen = look(samples, info(method, rate_hz=100), round(0.73 * S), round(11.31 * S))
    assert seen.energy_j == pytest.approx(wave.energy_j(0.73, 11.31), rel=0.005)


def test_uneven_sampling() -> None:
    """Energy is not mean times duration: readings crowd where the host had time."""
    t_ns = [0, 10, 20, 30, 40, 200, 210, 410]
    readings = [Reading(t * 1_000_000, 10.0 if t < 100 else 2.0) for t in t_ns]
    seen = look(Samples.from_readings(readings), info(), 0, 410_000_000)
    assert seen.energy_j == pytest.approx(10 * 0.04 + 6 * 0.16 + 2 * 0.21)


@given(st.integers(1, 97), st.integers(1, 40), st.sampled_from(list(Method)))
def test_coverage_is_what_was_lost(first: int, count: int, method: Method) -> None:
    """Readings that are missing leave a gap of their length; what is left is true."""
    kept = [i for i in range(101) if not first <= i < first + count]
    samples = Samples.from_readings(
        Reading(i * S // 10, 6.0, energy_j=0.6 * i, tick_ns=i) for i in kept
    )
    seen = look(samples, info(method), 0, 10 * S)
    lost_s = (count + 1 if first + count <= 100 else 101 - first) / 10
    whole = method is Method.COUNTER and first + count <= 100
    bridged = lost_s <= 0.2 + 1e-9 and first + count <= 100
    expected = 1.0 if whole or bridged else 1 - lost_s / 10
    assert seen.coverage == pytest.approx(expected)
    assert seen.average_w == pytest.approx(6)


@pytest.mark.parametrize("state", [State.INVALID, State.STALE, State.LOST, State.GAP])
def test_bad_samples_are_gaps(state: State) -> None:
    """A sample that is not OK takes the time on both sides with it, and is no zero."""
    readings = [
        Reading(i * S // 10, 6.0, state=state if i in (50, 51) else State.OK) for i in range(101)
    ]
    seen = look(Samples.from_readings(readings), info(), 0, 10 * S)
    assert seen.coverage == pytest.approx(0.97)
    assert seen.average_w == pytest.approx(6)
    assert [gap.why for gap in seen.gaps] == [state.name.lower()]
    assert (seen.gaps[0].start_mono_ns, seen.gaps[0].end_mono_ns) == (4_900_000_000, 5_200_000_000)


def test_nothing_is_extrapolated() -> None:
    """A meter that started late or stopped early must not look frugal."""
    samples = sampled(Constant(6).power_w, seconds=5)
    seen = look(samples, info(), -2 * S, 8 * S)
    assert seen.coverage == pytest.approx(0.5)
    assert seen.energy_j == pytest.approx(30)
    assert [gap.why for gap in seen.gaps] == ["outside", "outside"]


@pytest.mark.parametrize("window", [(-5, -1), (11, 12)])
def test_window_beside_the_trace(window: tuple[int, int]) -> None:
    """A window that the trace does not touch has no energy and no coverage."""
    seen = look(sampled(Constant(6).power_w), info(), window[0] * S, window[1] * S)
    assert (seen.energy_j, seen.coverage, seen.readings) == (0.0, 0.0, 0)
    assert math.isnan(seen.average_w)


def test_empty_trace() -> None:
    """A meter that sent nothing covers nothing."""
    seen = look(Samples.from_readings([]), info(), 0, S)
    assert (seen.energy_j, seen.coverage) == (0.0, 0.0)
    assert [gap.why for gap in seen.gaps] == ["outside"]


def counter(*points: tuple[float, float]) -> Samples:
    """Make readings of an energy counter: seconds, joules."""
    return Samples.from_readings(
        Reading(round(t * 1e9), power_w=1.0, energy_j=j) for t, j in points
    )


def test_counter_wrap_is_exact() -> None:
    """A counter that wraps adds its range, once; never negative joules (RAPL's numbers)."""
    samples = counter((0.0, 262143.0), (0.1, 5.0))
    rapl = info(Method.COUNTER, counter_wrap_j=262143.32885, max_power_w=100.0)
    assert look(samples, rapl, 0, S // 10).energy_j == pytest.approx(5.32885, abs=1e-6)


def test_counter_that_went_back_is_a_gap() -> None:
    """Without a known wrap a smaller count means a restarted meter, not energy."""
    samples = counter((0.0, 100.0), (0.1, 101.0), (0.2, 0.5), (0.3, 1.5))
    seen = look(samples, info(Method.COUNTER), 0, 3 * S // 10)
    assert seen.energy_j == pytest.approx(2.0)
    assert seen.coverage == pytest.approx(2 / 3)


def test_counter_jump_is_a_gap() -> None:
    """More energy than the meter could carry is damage."""
    samples = counter((0.0, 0.0), (0.1, 1e6), (0.2, 1e6 + 1))
    seen = look(samples, info(Method.COUNTER, max_power_w=100.0), 0, S // 5)
    assert seen.energy_j == pytest.approx(1.0)


def test_counter_bridges_silence_but_not_at_the_edges() -> None:
    """The meter counted on while it was not asked; where in that time, nobody knows."""
    samples = counter((0.0, 0.0), (0.1, 1.0), (2.1, 21.0), (2.2, 22.0))
    inside = look(samples, info(Method.COUNTER), 0, round(2.2 * S))
    assert (inside.coverage, inside.energy_j) == pytest.approx((1, 22))
    cut = look(samples, info(Method.COUNTER), 0, 1 * S)
    assert cut.coverage == pytest.approx(0.1)


def test_counter_may_not_wrap_twice() -> None:
    """Between two reads longer than a wrap at full power, the count means nothing."""
    samples = counter((0.0, 10.0), (5.0, 20.0), (5.1, 21.0))
    seen = look(samples, info(Method.COUNTER, counter_wrap_j=200.0, max_power_w=50.0), 0, 5 * S)
    assert seen.coverage == 0


def test_median_and_peak() -> None:
    """The median is weighted by time; the peak is the highest reading inside."""
    readings = [Reading(i * S // 10, 20.0 if i == 30 else 6.0) for i in range(101)]
    samples = Samples.from_readings(readings)
    seen = look(samples, info(), 0, 10 * S)
    assert (seen.median_w, seen.peak_w) == (6.0, 20.0)
    assert look(samples, info(), 4 * S, 10 * S).peak_w == 6.0


@given(
    st.lists(
        st.tuples(st.integers(0, 10**10), st.floats(allow_nan=True), st.sampled_from(list(State))),
        max_size=30,
        unique_by=lambda row: row[0],
    ),
    st.integers(-(10**9), 10**10),
    st.integers(1, 10**10),
    st.sampled_from(list(Method)),
)
def test_any_trace(
    rows: list[tuple[int, float, State]], begin: int, length: int, method: Method
) -> None:
    """Whatever the samples, coverage is a share and the energy is covered power times time."""
    samples = Samples.from_readings(
        Reading(t, p, energy_j=p, state=s if math.isfinite(p) else State.INVALID)
        for t, p, s in sorted(rows)
    )
    with np.errstate(over="ignore", invalid="ignore"):
        seen = look(samples, info(method), begin, begin + length)
    assert 0 <= seen.coverage <= 1
    assert len(seen.power_w) == len(seen.length_s)
    gap_s = sum(gap.end_mono_ns - gap.start_mono_ns for gap in seen.gaps) * 1e-9
    assert gap_s + seen.covered_s == pytest.approx(length * 1e-9, abs=1e-6)
