"""Power over time that a simulated meter measures, with its exact integral.

Times are seconds of CLOCK_MONOTONIC, so what a recorder integrates can be compared with
the truth over the very same window.
"""

import math
import os
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgeperf.power.base import MeterInputError

Floats = NDArray[np.float64]


class Waveform(Protocol):
    """Power as a function of time."""

    def power_w(self, t_s: Any) -> Floats:
        """Return the power at *t_s* (a number or an array), watts, same shape."""
        ...

    def energy_j(self, start_s: float, end_s: float) -> float:
        """Return the exact energy between two moments."""
        ...


class Constant:
    """The same power for ever."""

    def __init__(self, power_w: float) -> None:
        self._power_w = power_w

    def power_w(self, t_s: Any) -> Floats:
        """Return the power."""
        return np.full_like(np.asarray(t_s, dtype=np.float64), self._power_w)

    def energy_j(self, start_s: float, end_s: float) -> float:
        """Return power times duration."""
        return self._power_w * (end_s - start_s)


class Step:
    """A square wave: *low_w* for half a period, then *high_w*, and so on."""

    def __init__(self, low_w: float, high_w: float, period_s: float) -> None:
        self._low_w, self._high_w, self._period_s = low_w, high_w, period_s

    def power_w(self, t_s: Any) -> Floats:
        """Return the power."""
        cycles = np.asarray(t_s, dtype=np.float64) / self._period_s
        return np.where(cycles % 1.0 * 2 < 1, self._low_w, self._high_w)

    def energy_j(self, start_s: float, end_s: float) -> float:
        """Return the integral of the square wave."""

        def high_s(t_s: float) -> float:
            cycles, rest = divmod(t_s, self._period_s)
            return cycles * self._period_s / 2 + max(0.0, rest - self._period_s / 2)

        on_s = high_s(end_s) - high_s(start_s)
        return self._low_w * (end_s - start_s) + (self._high_w - self._low_w) * on_s


class Sine:
    """*mean_w* plus a sine of *amplitude_w*."""

    def __init__(self, mean_w: float, amplitude_w: float, period_s: float) -> None:
        self._mean_w, self._amplitude_w = mean_w, amplitude_w
        self._omega = 2 * math.pi / period_s

    def power_w(self, t_s: Any) -> Floats:
        """Return the power."""
        t = np.asarray(t_s, dtype=np.float64)
        return np.asarray(self._mean_w + self._amplitude_w * np.sin(self._omega * t))

    def energy_j(self, start_s: float, end_s: float) -> float:
        """Return the integral of the sine."""
        swing = math.cos(self._omega * start_s) - math.cos(self._omega * end_s)
        return self._mean_w * (end_s - start_s) + self._amplitude_w * swing / self._omega


class Replay:
    """Points ``SECONDS WATTS`` of a file, straight lines between, repeated for ever."""

    def __init__(self, path: Path) -> None:
        try:
            points = np.loadtxt(path, delimiter=None, ndmin=2, dtype=np.float64)
        except (OSError, ValueError) as error:
            raise MeterInputError(f"waveform {path}: {error}") from error
        shapely = points.shape == (len(points), 2) and points.size > 2  # noqa: PLR2004
        if not shapely or np.any(np.diff(points[:, 0]) <= 0):
            raise MeterInputError(
                f"waveform {path}: expected at least two lines SECONDS WATTS, seconds rising"
            )
        self._t_s = points[:, 0] - points[0, 0]
        self._w = points[:, 1]
        steps_j = np.diff(self._t_s) * (self._w[1:] + self._w[:-1]) / 2
        self._sum_j = np.concatenate([[0.0], np.cumsum(steps_j)])

    def power_w(self, t_s: Any) -> Floats:
        """Return the power."""
        t = np.asarray(t_s, dtype=np.float64) % self._t_s[-1]
        return np.asarray(np.interp(t, self._t_s, self._w))

    def energy_j(self, start_s: float, end_s: float) -> float:
        """Return the integral of the lines."""

        def upto_j(t_s: float) -> float:
            cycles, rest = divmod(t_s, float(self._t_s[-1]))
            i = int(np.searchsorted(self._t_s, rest, side="right")) - 1
            mean_w = (float(self.power_w(rest)) + float(self._w[i])) / 2
            inside = float(self._sum_j[i]) + mean_w * (rest - float(self._t_s[i]))
            return cycles * float(self._sum_j[-1]) + inside

        return upto_j(end_s) - upto_j(start_s)


class CpuLoad:
    """This machine's CPU load, from *idle_w* when it rests to *full_w* when all cores work.

    It has no exact integral: :meth:`energy_j` takes the latest power for the whole time.
    """

    def __init__(self, idle_w: float, full_w: float, stat: Path = Path("/proc/stat")) -> None:
        self._idle_w, self._full_w, self._stat = idle_w, full_w, stat
        self._last = self._read()
        self._next_s = 0.0
        self._now_w = idle_w

    def _read(self) -> tuple[int, int]:
        fields = [int(text) for text in self._stat.read_text().split("\n", 1)[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]

    def power_w(self, t_s: Any) -> Floats:
        """Return the power of the last 50 ms."""
        t = np.asarray(t_s, dtype=np.float64)
        if t.size and (newest_s := float(t.max())) >= self._next_s:
            total, idle = self._read()
            all_ticks, idle_ticks = total - self._last[0], idle - self._last[1]
            if all_ticks >= (os.cpu_count() or 1):  # less is too coarse to divide by
                busy = 1.0 - idle_ticks / all_ticks
                self._now_w = self._idle_w + busy * (self._full_w - self._idle_w)
                self._last = (total, idle)
            self._next_s = newest_s + 0.05
        return np.full_like(t, self._now_w)

    def energy_j(self, start_s: float, end_s: float) -> float:
        """Return the latest power times the duration."""
        return self._now_w * (end_s - start_s)


def parse_waveform(text: str) -> Waveform:
    """Make a waveform.

    Args:
        text: ``constant:6``, ``step:2,8,1``, ``sine:6,2,1``, ``file:PATH`` or ``cpu:2,8``.

    Raises:
        MeterInputError: It is none of these.
    """
    name, _, rest = text.partition(":")
    if name == "file":
        return Replay(Path(rest))
    kinds = {"constant": (Constant, 1), "step": (Step, 3), "sine": (Sine, 3), "cpu": (CpuLoad, 2)}
    make, count = kinds.get(name, (None, 0))
    try:
        numbers = [float(part) for part in rest.split(",")]
    except ValueError:
        numbers = []
    if make is None or len(numbers) != count or not all(map(math.isfinite, numbers)):
        raise MeterInputError(
            f"waveform {text!r}: expected constant:WATTS, step:LOW,HIGH,PERIOD_S, "
            "sine:MEAN,AMPLITUDE,PERIOD_S, cpu:IDLE,FULL or file:PATH"
        )
    wave: Waveform = make(*numbers)
    return wave
