"""When samples were taken, from a meter's own clock and the moments their bytes came.

Bytes are never early: a reading arrives after it was taken, sooner or later. So the line
that turns the meter's clock into ours is the one that lies under all arrivals and is as
close to them as possible. Among the lines under a set of points, the one with the least
sum of distances is the edge of the lower convex hull above the points' mean, which makes
the fit exact and quick.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeperf.power.base import State
from edgeperf.power.samples import Samples

Ints = NDArray[np.int64]

#: An arrival later than every one before it by so much, for good, means lost samples.
LATE_NS = 20_000_000
#: A clock rate needs at least so long to be told from the jitter of arrivals.
SHORTEST_FIT_NS = 2_000_000_000


class Fit(NamedTuple):
    """A line from the meter's clock to ours.

    Attributes:
        tick_ns: Where it starts, on the meter's clock.
        t_ns: The same moment on ours.
        rate: Our nanoseconds per one of theirs.
    """

    tick_ns: int
    t_ns: float
    rate: float

    def at(self, tick_ns: Ints) -> Ints:
        """Return our time of *tick_ns*."""
        moved: Ints = np.rint((tick_ns - self.tick_ns) * self.rate + self.t_ns).astype(np.int64)
        return moved


class Placed(NamedTuple):
    """When samples were taken.

    Attributes:
        t_ns: CLOCK_MONOTONIC of each, strictly rising.
        ppm: Error of the meter's clock, one for each stretch that had one.
        lost: Samples before which others are missing, as only their lateness shows.
    """

    t_ns: Ints
    ppm: tuple[float, ...]
    lost: tuple[int, ...]


def fit_line(tick_ns: Ints, t_ns: Ints, tolerance: float) -> Fit:
    """Fit the line under the arrivals.

    Args:
        tick_ns: The meter's clock, shape ``(n,)``, strictly rising.
        t_ns: Arrivals, shape ``(n,)``, rising.
        tolerance: How wrong the meter's clock may run; 0.02 is 2 %.

    Returns:
        The line; its rate is within the tolerance, 1 where the time is too short to tell.
    """
    x = (tick_ns - tick_ns[0]).astype(np.float64)
    y = (t_ns - t_ns[0]).astype(np.float64)
    rate = 1.0
    if x[-1] >= SHORTEST_FIT_NS:
        hull = _lower_hull(x, y)
        right = int(np.searchsorted(x[hull], x.mean()))
        a, b = hull[max(right - 1, 0)], hull[max(right, 1)]
        rate = float((y[b] - y[a]) / (x[b] - x[a]))
    rate = min(max(rate, 1 - tolerance), 1 + tolerance)
    start = float(np.min(y - rate * x))
    return Fit(int(tick_ns[0]), start + int(t_ns[0]), rate)


def _lower_hull(x: NDArray[np.float64], y: NDArray[np.float64]) -> list[int]:
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (x[b] - x[a]) * (y[i] - y[a]) > (y[b] - y[a]) * (x[i] - x[a]):
                break
            hull.pop()
        hull.append(i)
    return hull


def place(samples: Samples, period_ns: int, tolerance: float) -> Placed:
    """Find out when each sample was taken, on our clock.

    Args:
        samples: As the decoder gave them, stamped with their arrival.
        period_ns: Nominal time between samples, to spread a burst without a clock.
        tolerance: How wrong the meter's clock may run.
    """
    t_ns = _spread(samples.t_ns, period_ns)
    ppm: list[float] = []
    lost: list[int] = []
    todo = _stretches(samples)[::-1]
    while todo:
        first, last = todo.pop()
        fit, late = _fit_stretch(samples.tick_ns[first:last], samples.t_ns[first:last], tolerance)
        if late:  # samples are missing before this one, though the meter's clock ran on
            lost.append(first + late)
            todo += [(first + late, last), (first, first + late)]
        else:
            t_ns[first:last] = fit.at(samples.tick_ns[first:last])
            ppm.append((fit.rate - 1) * 1e6)
    breaks = _breaks(samples)
    breaks[lost] = True
    return Placed(_rise(t_ns, breaks), tuple(ppm), tuple(sorted(lost)))


def _fit_stretch(tick: Ints, arrival: Ints, tolerance: float) -> tuple[Fit, int]:
    """Fit one stretch; also return the first sample after which all come too late, or 0."""
    newest = np.append(arrival[1:] != arrival[:-1], [True])  # the last one of each read
    ticks, where = np.unique(tick[newest], return_index=True)
    fit = fit_line(ticks, arrival[newest][where], tolerance)
    delay = np.minimum.accumulate((arrival - fit.at(tick))[::-1])[::-1]
    settled = tick <= tick[-1] - SHORTEST_FIT_NS // 2
    late = np.flatnonzero(settled & (delay > LATE_NS))
    return fit, int(late[0]) if len(late) else 0


def _spread(t_ns: Ints, period_ns: int) -> Ints:
    """Part samples that came in one read, backwards from its arrival."""
    if not len(t_ns):
        return t_ns
    ends = np.flatnonzero(np.append(t_ns[1:] != t_ns[:-1], [True]))
    sizes = np.diff(ends, prepend=-1)
    room = np.diff(t_ns[ends], prepend=t_ns[ends[0]] - period_ns * sizes[0])
    step = np.minimum(period_ns, np.maximum(room // sizes, 1))
    before_end = np.repeat(ends, sizes) - np.arange(len(t_ns))
    spread: Ints = t_ns - before_end * np.repeat(step, sizes)
    return spread


def _rise(t_ns: Ints, breaks: NDArray[np.bool_]) -> Ints:
    """Make times rise strictly; a break moves before the sample that it precedes."""
    for i in np.flatnonzero(breaks)[::-1]:
        if i + 1 < len(t_ns):
            t_ns[i] = min(t_ns[i], t_ns[i + 1] - 1)
    ramp = np.arange(len(t_ns))
    risen: Ints = np.maximum.accumulate(t_ns - ramp) + ramp
    return risen


def _breaks(samples: Samples) -> NDArray[np.bool_]:
    return np.equal(samples.state, State.GAP) | np.equal(samples.state, State.LOST)


def _stretches(samples: Samples) -> list[tuple[int, int]]:
    """Return the stretches of samples with a clock that runs on."""
    runs_on = np.greater_equal(samples.tick_ns, 0) & ~_breaks(samples)
    padded = np.concatenate([[False], runs_on, [False]])
    edges = np.flatnonzero(padded[1:] != padded[:-1])
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
