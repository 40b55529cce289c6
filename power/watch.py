"""What a meter is doing right now: watts, and whether to believe them.

The recorder looks through this while it records, so that a frozen, unplugged or over-range
meter is known within two seconds, not after the run. The trace is judged again afterwards,
on better times; this here only has to be quick and never wrong for long.
"""

import math
from typing import Any

import numpy as np

from edgeperf.power.base import Chunk, Decoder, SourceInfo, State
from edgeperf.power.faults import count_fault
from edgeperf.power.live import Live
from edgeperf.power.samples import Samples

#: Live watts are the mean of so much time, or of 1.5 periods of a slow meter.
MEAN_NS = 500_000_000


class Watch:
    """Follows one meter.

    Args:
        info: Of the meter.
        decoder: Its decoder, fed with everything that comes.
        now_ns: CLOCK_MONOTONIC.
    """

    def __init__(self, info: SourceInfo, decoder: Decoder, now_ns: int) -> None:
        self._info = info
        self._decoder = decoder
        self._faults: dict[str, int] = {}
        self._readings = 0
        self._last_ok_ns = self._changed_ns = now_ns
        self._newest = State.OK
        self._row: tuple[float, ...] = ()
        self._recent: list[tuple[int, float]] = []
        self._lost = ""

    @property
    def readings(self) -> int:
        """Usable readings so far."""
        return self._readings

    def take(self, chunk: Chunk) -> None:
        """Take in what came from the meter."""
        if chunk.fault:
            count_fault(self._faults, chunk.fault)
        samples = self._decoder.feed(chunk)
        if not len(samples):
            return
        self._newest = State(int(samples.state[-1]))
        good = samples.ok
        if good.any():
            self._readings += int(np.count_nonzero(good))
            self._last_ok_ns = chunk.t_ns
            self._recent.append((chunk.t_ns, float(np.mean(samples.power_w[good]))))
            self._follow(samples, good, chunk.t_ns)
        if self._newest is State.INVALID:
            count_fault(self._faults, "invalid readings", int(np.count_nonzero(~good)))

    def _follow(self, samples: Samples, good: Any, t_ns: int) -> None:
        """Note when the readings changed last."""
        columns = (samples.voltage_v, samples.current_a, samples.power_w, samples.energy_j)
        rows = np.nan_to_num(np.stack([column[good] for column in columns]), nan=-1.0)
        row = tuple(rows[:, -1].tolist())
        if row != self._row or (rows != rows[:, -1:]).any():
            self._changed_ns = t_ns
        self._row = row

    def lost(self, problem: str) -> None:
        """Note that the meter is gone."""
        if not self._lost:
            count_fault(self._faults, "meter lost")
        self._lost = problem

    def found(self, decoder: Decoder, now_ns: int) -> None:
        """Note that the meter is back, with a decoder for what it sends now."""
        for phrase, times in self._decoder.faults.items():
            count_fault(self._faults, phrase, times)
        self._decoder, self._lost, self._newest = decoder, "", State.OK
        self._last_ok_ns = self._changed_ns = now_ns
        self._row = ()

    def look(self, now_ns: int) -> Live:
        """Say how it is."""
        state, problem = self._judge(now_ns)
        mean_ns = max(MEAN_NS, 1.5e9 / self._info.rate_hz)
        self._recent = [(t, w) for t, w in self._recent if now_ns - t <= mean_ns]
        watts = [w for _, w in self._recent] if state is State.OK else []
        mean = sum(watts) / len(watts) if watts else math.nan
        faults = dict(self._faults)
        for phrase, times in self._decoder.faults.items():
            count_fault(faults, phrase, times)
        return Live(
            t_mono_ns=now_ns,
            power_w=mean if math.isfinite(mean) else None,
            state=state.name.lower(),
            readings=self._readings,
            faults=faults,
            problem=problem,
        )

    def _judge(self, now_ns: int) -> tuple[State, str]:
        if self._lost:
            return State.LOST, self._lost
        if self._newest is State.INVALID:
            return State.INVALID, "the meter is over range or has no data"
        silent_s = (now_ns - self._last_ok_ns) * 1e-9
        if silent_s > self._info.longest_silence_s:
            return State.GAP, f"no reading for {silent_s:.1f} s"
        same_s = (self._last_ok_ns - self._changed_ns) * 1e-9
        if self._info.stale_after_s is not None and same_s > self._info.stale_after_s:
            return State.STALE, f"the meter repeats itself since {same_s:.1f} s"
        return State.OK, ""
