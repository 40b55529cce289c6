"""Columns of samples: what decoders produce and integration reads."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from edgeperf.power.base import NAN, Chunk, Reading, State
from edgeperf.power.faults import count_fault


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of one meter, one array per column, all of shape ``(n,)``, oldest first.

    Attributes:
        t_ns: CLOCK_MONOTONIC of each sample, int64.
        power_w: Power, float64, NaN where the state is not OK.
        voltage_v: Voltage, float64, NaN where unknown.
        current_a: Current, float64, NaN where unknown.
        energy_j: The meter's energy counter, float64, NaN where it has none.
        tick_ns: The meter's own clock, int64, -1 where it has none.
        state: :class:`~edgeperf.power.base.State` as uint8.
    """

    t_ns: NDArray[np.int64]
    power_w: NDArray[np.float64]
    voltage_v: NDArray[np.float64]
    current_a: NDArray[np.float64]
    energy_j: NDArray[np.float64]
    tick_ns: NDArray[np.int64]
    state: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.t_ns)

    def __getitem__(self, rows: slice) -> "Samples":
        return Samples(*(getattr(self, field.name)[rows] for field in fields(self)))

    @property
    def ok(self) -> NDArray[np.bool_]:
        """Which samples may be used."""
        return np.equal(self.state, State.OK)

    @classmethod
    def from_readings(cls, readings: Iterable[Reading]) -> "Samples":
        """Make columns of readings; a missing power becomes voltage times current."""
        rows = list(readings)
        if not rows:
            return EMPTY
        t_ns, power, voltage, current, energy, tick, state = zip(*rows, strict=True)
        volts = np.array(voltage, dtype=np.float64)
        amps = np.array(current, dtype=np.float64)
        watts = np.array(power, dtype=np.float64)
        watts = np.where(np.isnan(watts), volts * amps, watts)
        states = np.array(state, dtype=np.uint8)
        return cls(
            t_ns=np.array(t_ns, dtype=np.int64),
            power_w=np.where(states == State.OK, watts, NAN),
            voltage_v=volts,
            current_a=amps,
            energy_j=np.array(energy, dtype=np.float64),
            tick_ns=np.array(tick, dtype=np.int64),
            state=states,
        )

    @classmethod
    def concatenate(cls, parts: Sequence["Samples"]) -> "Samples":
        """Join *parts* in order."""
        if not parts:
            return EMPTY
        columns = (np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls))
        return cls(*columns)


EMPTY = Samples(
    t_ns=np.empty(0, dtype=np.int64),
    power_w=np.empty(0),
    voltage_v=np.empty(0),
    current_a=np.empty(0),
    energy_j=np.empty(0),
    tick_ns=np.empty(0, dtype=np.int64),
    state=np.empty(0, dtype=np.uint8),
)


class ReadingDecoder:
    """Base of decoders of slow meters: implement :meth:`parse`, one chunk to readings.

    Attributes:
        faults: What was refused so far: short phrase to count.
    """

    def __init__(self) -> None:
        self.faults: dict[str, int] = {}

    def parse(self, chunk: Chunk) -> Iterable[Reading]:
        """Return the readings that *chunk* completes; never raises, never invents one."""
        raise NotImplementedError

    def refuse(self, phrase: str) -> None:
        """Count something that was refused."""
        count_fault(self.faults, phrase)

    def feed(self, chunk: Chunk) -> Samples:
        """Return the samples that *chunk* completes, oldest first."""
        return Samples.from_readings(self.parse(chunk))
