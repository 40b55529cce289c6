"""Times of samples from a meter's clock and late arrivals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.power.base import Reading, State
from edgeperf.power.samples import Samples
from edgeperf.power.timebase import place

MS = 1_000_000


def arrived(
    ticks_ms: np.ndarray, delays_ms: np.ndarray, rate: float = 1.0, start_ms: float = 5000.0
) -> Samples:
    """Make readings whose bytes came *delays_ms* after they were taken."""
    t_ms = start_ms + ticks_ms * rate + delays_ms
    t_ms = np.maximum.accumulate(t_ms)
    return Samples.from_readings(
        Reading(round(t * MS), 1.0, tick_ns=round(tick * MS))
        for t, tick in zip(t_ms, ticks_ms, strict=True)
    )


@given(st.integers(0, 2**32), st.floats(-0.015, 0.015))
def test_jitter_is_removed(seed: int, error: float) -> None:
    """Exponential delays of 8 ms leave times true to 1 ms, and the clock's error is found."""
    delays = np.random.default_rng(seed).exponential(8.0, 1000)
    ticks = np.arange(1000) * 10.0
    placed = place(arrived(ticks, delays, 1 + error), 10 * MS, 0.02)
    truth_ms = 5000 + ticks * (1 + error)
    assert np.abs(placed.t_ns / MS - truth_ms).max() < 1.5
    assert placed.ppm[0] == pytest.approx(error * 1e6, abs=400)
    assert placed.lost == ()


def test_a_clock_beyond_its_tolerance_is_not_followed() -> None:
    """A rate that the meter cannot have means lost samples, and they are counted."""
    ticks = np.arange(100_000) * 0.1
    lost_ms = np.where(ticks > 5000, 200.0, 0.0)
    placed = place(arrived(ticks, lost_ms), 100_000, 0.001)
    assert len(placed.lost) == 1
    assert placed.lost[0] == pytest.approx(50_001, abs=300)
    assert (placed.t_ns[-1] - placed.t_ns[0]) / MS == pytest.approx(10_200, rel=0.001)


def test_bursts_without_a_clock_are_spread() -> None:
    """Readings that came in one read are parted by their period, backwards."""
    readings = [Reading(t * MS, 1.0) for t in (100, 140, 140, 140, 140, 150)]
    placed = place(Samples.from_readings(readings), 10 * MS, 0.02)
    assert (placed.t_ns / MS).tolist() == [100, 110, 120, 130, 140, 150]


def test_each_stretch_has_its_own_clock() -> None:
    """After a restart the meter's clock is fitted anew, and the break lies between."""
    first = arrived(np.arange(500) * 10.0, np.zeros(500))
    again = arrived(np.arange(500) * 10.0 + 5000, np.zeros(500), start_ms=6000.0)
    gap = Samples.from_readings([Reading(again.t_ns[0] + 3 * MS, state=State.GAP)])
    samples = Samples.concatenate([first, gap, again])
    placed = place(samples, 10 * MS, 0.02)
    assert len(placed.ppm) == 2
    assert (np.diff(placed.t_ns) > 0).all()
    assert placed.t_ns[500] == placed.t_ns[501] - 1
    assert placed.t_ns[501] / MS == pytest.approx(11_000, abs=0.01)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**12), st.integers(-1, 10**12), st.sampled_from([State.OK, State.GAP])
        ),
        max_size=40,
    )
)
def test_times_always_rise(rows: list[tuple[int, int, State]]) -> None:
    """Whatever arrivals and clocks a stream claims, times rise strictly."""
    arrivals = sorted(row[0] for row in rows)
    samples = Samples.from_readings(
        Reading(t, 1.0, tick_ns=row[1], state=row[2]) for t, row in zip(arrivals, rows, strict=True)
    )
    placed = place(samples, MS, 0.02)
    assert (np.diff(placed.t_ns) > 0).all()
