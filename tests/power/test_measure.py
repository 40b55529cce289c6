"""From a trace to a result: joules, what follows from them, and when there are none."""

from dataclasses import fields
from typing import Any

import msgspec
import numpy as np
import pytest

from edgeperf.power.base import (
    Boundary,
    Identity,
    MeterInputError,
    Method,
    Quantity,
    Reading,
    SourceInfo,
    State,
)
from edgeperf.power.measure import measure
from edgeperf.power.result import Grade, PowerResult
from edgeperf.power.samples import Samples
from edgeperf.power.trace import About, PowerTrace, mark_stale

S = 1_000_000_000


def trace_of(power_w: Any, *, seconds: int = 100, bad: Any = (), **changes: Any) -> PowerTrace:
    """Make a trace of ten readings a second."""
    values: dict[str, Any] = {
        "kind": "test",
        "measures": Quantity.POWER,
        "boundary": Boundary.DC_INPUT,
        "method": Method.TRAPEZOID,
        "rate_hz": 10.0,
        "bandwidth_hz": 5.0,
        "gain": 0.0,
        "edge_s": 0.0,
    }
    readings = [
        Reading(
            i * S // 10,
            float(power_w(i / 10)),
            voltage_v=5.0,
            current_a=float(power_w(i / 10)) / 5,
            state=State.INVALID if i in bad else State.OK,
        )
        for i in range(seconds * 10 + 1)
    ]
    info = SourceInfo(**{**values, **changes})
    about = About(meter="test:", identity=Identity(model="test"), info=info)
    return PowerTrace(Samples.from_readings(readings), about)


def busy(t_s: float) -> float:
    """Rest at 2 W, 8 W from 40 to 60 s."""
    return 8.0 if 40 <= t_s <= 60 else 2.0


def test_joules_and_what_follows() -> None:
    """Energy, average, per sample, per query and the inverse all come from one window."""
    result = measure(trace_of(busy), 40 * S, 60 * S, samples=1600, queries=200)
    assert result.grade is Grade.COMPLETE
    assert result.gross is not None
    assert result.gross.energy_j.value == pytest.approx(160)
    assert result.gross.average_w.value == pytest.approx(8)
    assert result.gross.energy_per_sample_j is not None
    assert result.gross.energy_per_sample_j.value == pytest.approx(0.1)
    assert result.gross.energy_per_query_j is not None
    assert result.gross.energy_per_query_j.value == pytest.approx(0.8)
    assert result.gross.samples_per_joule is not None
    assert result.gross.samples_per_joule.value == pytest.approx(10)
    assert result.gross.inferences_per_kwh is not None
    assert result.gross.inferences_per_kwh.value == pytest.approx(36e6)
    assert result.median_w is not None
    assert result.peak_w is not None
    assert (result.median_w.value, result.peak_w.value) == (8.0, 8.0)
    assert result.problems == ()
    assert not result.official


def test_net_of_idle() -> None:
    """The idle power of both idle windows is subtracted; gross stays."""
    result = measure(
        trace_of(busy), 40 * S, 60 * S, samples=100, idle=[(0, 30 * S), (65 * S, 95 * S)]
    )
    assert result.idle is not None
    assert result.net is not None
    assert result.gross is not None
    assert (result.idle.average_w.value, result.idle.duration_s) == pytest.approx((2, 60))
    assert result.net.energy_j.value == pytest.approx(120)
    assert result.gross.energy_j.value == pytest.approx(160)


def test_idle_that_was_not_seen() -> None:
    """Without a whole idle window there is no net energy, and the result says why."""
    result = measure(trace_of(busy, bad=range(100)), 40 * S, 60 * S, idle=[(0, 30 * S)])
    assert result.net is None
    assert any("idle window 1" in problem for problem in result.problems)


@pytest.mark.parametrize(
    ("lost", "grade"), [(1, Grade.COMPLETE), (4, Grade.PARTIAL), (20, Grade.NONE)]
)
def test_coverage_decides(lost: int, grade: Grade) -> None:
    """Under 99 % it is partial, under 95 % there are no joules; samples lost are named."""
    result = measure(trace_of(busy, bad=range(500, 500 + lost)), 40 * S, 60 * S)
    assert result.grade is grade
    assert (result.gross is None) == (grade is Grade.NONE)
    assert result.coverage == pytest.approx(1 - (lost + 1) / 200)
    assert any("over range or had no data" in problem for problem in result.problems)


def test_a_few_missing_readings_need_no_words() -> None:
    """Under one per cent of silence is no problem; a meter that was wrong always is one."""
    trace = trace_of(busy)
    kept = np.r_[0:500, 503 : len(trace.samples)]
    columns = (getattr(trace.samples, f.name)[kept] for f in fields(Samples))
    silent = PowerTrace(Samples(*columns), trace.about)
    result = measure(silent, 20 * S, 80 * S)
    assert result.coverage == pytest.approx(1 - 0.4 / 60)
    assert result.problems == ()
    assert measure(trace_of(busy, bad=[500]), 20 * S, 80 * S).problems != ()


def test_partial_energy_is_of_the_whole_window() -> None:
    """Joules per sample must not fall because readings are missing; the doubt grows instead."""
    whole = measure(trace_of(lambda t: 6 + t / 100), 0, 100 * S)
    part = measure(trace_of(lambda t: 6 + t / 100, bad=range(480, 500)), 0, 100 * S)
    assert whole.gross is not None
    assert part.gross is not None
    assert part.gross.energy_j.value == pytest.approx(whole.gross.energy_j.value, rel=1e-3)
    assert part.gross.energy_j.uncertainty > whole.gross.energy_j.uncertainty + 1


def test_current_without_a_voltage_gives_no_joules() -> None:
    """A current is no power until somebody says the voltage."""
    result = measure(trace_of(busy, measures=Quantity.CURRENT), 40 * S, 60 * S)
    assert result.gross is None
    assert "no voltage was stated" in result.problems[0]
    known = measure(
        trace_of(busy, measures=Quantity.CURRENT, voltage_v=5.0, voltage_gain=0.02), 40 * S, 60 * S
    )
    assert known.gross is not None
    assert known.gross.energy_j.uncertainty == pytest.approx(2 * 0.02 * 160 / 3**0.5)


def test_contract_values_give_no_joules() -> None:
    """A negotiated limit is no measurement."""
    result = measure(trace_of(busy, measures=Quantity.CONTRACT), 40 * S, 60 * S)
    assert result.gross is None


def test_negative_average_is_said() -> None:
    """Reversed leads keep their sign and are named; nothing is divided by them."""
    result = measure(trace_of(lambda _: -6.0), 40 * S, 60 * S, samples=10)
    assert result.gross is not None
    assert result.gross.energy_j.value == pytest.approx(-120)
    assert result.gross.samples_per_joule is None
    assert any("negative" in problem for problem in result.problems)


def test_uncertainty_adds_up() -> None:
    """Gain scales, the offset grows with time and cancels in net, edges count once each."""
    limits: dict[str, Any] = {"gain": 0.01, "offset_a": 0.01, "edge_s": 0.1}
    result = measure(trace_of(busy, **limits), 41 * S, 59 * S, idle=[(0, 30 * S)])
    assert result.gross is not None
    assert result.net is not None
    gain, offset, edge = 0.01 * 144 / 3**0.5, 0.05 * 18 / 3**0.5, 0.1 * 8 * 2**0.5
    assert result.gross.energy_j.uncertainty == pytest.approx(
        2 * float(np.hypot(np.hypot(gain, offset), edge)), rel=1e-6
    )
    net_gain = 0.01 * 108 / 3**0.5
    idle_edge = 0.1 * 2 * 2**0.5 * 18 / 30
    assert result.net.energy_j.uncertainty == pytest.approx(
        2 * float(np.hypot(np.hypot(net_gain, edge), idle_edge)), rel=1e-6
    )


def test_rounding_averages_out_only_if_digits_move() -> None:
    """A steady load shows one digit for ever: its rounding is then an offset."""
    steady = measure(trace_of(lambda _: 6.0, resolution_w=0.1), 0, 100 * S)
    moving = measure(trace_of(lambda t: 6 + t % 0.3, resolution_w=0.1), 0, 100 * S)
    assert steady.gross is not None
    assert moving.gross is not None
    assert steady.gross.average_w.uncertainty == pytest.approx(2 * 0.1 / 12**0.5)
    assert moving.gross.average_w.uncertainty < steady.gross.average_w.uncertainty / 10


def test_a_frozen_meter_is_a_gap() -> None:
    """Identical readings for longer than a second are the first one and nothing after it."""
    rows = [Reading(i * S // 10, 6.0 + (i * 0.01 if i < 50 else 0.5)) for i in range(101)]
    marked = mark_stale(Samples.from_readings(rows), 1.0)
    assert marked.state[:51].tolist() == [State.OK] * 51
    assert set(marked.state[51:].tolist()) == {State.STALE}
    assert mark_stale(Samples.from_readings(rows), None).ok.all()


def test_results_are_json() -> None:
    """A result survives JSON unchanged."""
    result = measure(trace_of(busy), 40 * S, 60 * S, samples=5, idle=[(0, 30 * S)])
    assert msgspec.json.decode(msgspec.json.encode(result), type=PowerResult) == result


def test_empty_window() -> None:
    """A window that ends before it begins is bad input."""
    with pytest.raises(MeterInputError, match="ends before it begins"):
        measure(trace_of(busy), 60 * S, 40 * S)


def test_traces_are_kept(tmp_path: Any) -> None:
    """A stored trace measures the same; something else is refused in one line."""
    trace = trace_of(busy)
    trace.save(tmp_path / "trace.npz")
    again = PowerTrace.load(tmp_path / "trace.npz")
    assert measure(again, 40 * S, 60 * S) == measure(trace, 40 * S, 60 * S)
    (tmp_path / "other.npz").write_bytes(b"no archive")
    with pytest.raises(MeterInputError, match="not a power trace"):
        PowerTrace.load(tmp_path / "other.npz")
