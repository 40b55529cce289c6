"""A meter's trace: samples on the run's clock, with everything needed to judge them.

All times are CLOCK_MONOTONIC of the host that read the meter. Every process of the machine
shares that clock, so a query log and a trace can be laid over each other as they are. It
never steps, which wall time does; wall time is a label only.

A trace is derived from the recorder's raw file and can be derived again. It is stored as
NPZ: the columns of :class:`~edgeperf.power.samples.Samples` and one JSON text, ``about``.
"""

import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edgeperf.power import meter_class, parse_meter_spec
from edgeperf.power.base import (
    Decoder,
    Identity,
    MeterInputError,
    Reading,
    SourceInfo,
    State,
)
from edgeperf.power.faults import count_fault
from edgeperf.power.raw import Record, RecordKind, read_records
from edgeperf.power.samples import EMPTY, Samples
from edgeperf.power.timebase import Placed, place

FORMAT = 1


class Mark(msgspec.Struct, frozen=True):
    """A name that the run gave to a moment.

    Attributes:
        name: ``idle_begin``, ``idle_end``, ``power_begin``, ``power_end``, ...
        t_mono_ns: CLOCK_MONOTONIC.
    """

    name: str
    t_mono_ns: int


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace is besides its columns.

    Attributes:
        format: Version of the NPZ.
        meter: The meter spec.
        identity: Which instrument it was.
        info: What its numbers are worth.
        marks: Moments that the run named, oldest first.
        faults: What went wrong while recording and decoding: short phrase to count.
        clock_ppm: Error of the meter's own clock, one for each stretch that had one.
        boot_id: The boot whose CLOCK_MONOTONIC it is.
    """

    format: int = FORMAT
    meter: str = ""
    identity: Identity = msgspec.field(default_factory=lambda: Identity(model=""))
    info: SourceInfo
    marks: tuple[Mark, ...] = ()
    faults: Mapping[str, int] = msgspec.field(default_factory=dict)
    clock_ppm: tuple[float, ...] = ()
    boot_id: str = ""


@dataclass(frozen=True, slots=True)
class PowerTrace:
    """Samples of one meter, their times strictly rising, and what is known about them."""

    samples: Samples
    about: About

    def save(self, path: Path) -> None:
        """Write the NPZ, whole or not at all."""
        columns: dict[str, Any] = {
            field.name: getattr(self.samples, field.name) for field in fields(Samples)
        }
        about = np.frombuffer(msgspec.json.encode(self.about), dtype=np.uint8)
        fresh = path.with_name(path.name + ".tmp")
        with fresh.open("wb") as file:
            np.savez_compressed(file, about=about, **columns)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)

    @classmethod
    def load(cls, path: Path) -> "PowerTrace":
        """Read an NPZ.

        Raises:
            MeterInputError: It is not a trace of this version.
        """
        try:
            with np.load(path, allow_pickle=False) as stored:
                about = msgspec.json.decode(stored["about"].tobytes(), type=About)
                samples = Samples(**{field.name: stored[field.name] for field in fields(Samples)})
        except (OSError, ValueError, KeyError, zipfile.BadZipFile, msgspec.MsgspecError) as error:
            raise MeterInputError(f"{path}: not a power trace: {error}") from error
        if about.format != FORMAT:
            raise MeterInputError(f"{path}: power trace of version {about.format}, not {FORMAT}")
        return cls(samples, about)


class _Collector:
    """Walks a raw file and gathers what a trace is made of."""

    def __init__(self) -> None:
        self.parts: list[Samples] = []
        self.marks: list[Mark] = []
        self.faults: dict[str, int] = {}
        self.first: dict[str, Any] | None = None
        self._decoder: Decoder | None = None

    def take(self, record: Record) -> None:
        """Take one record in."""
        if record.kind is RecordKind.START:
            self._start(record)
        elif record.kind is RecordKind.MARK:
            self.marks.append(Mark(record.payload.decode("utf-8", "replace"), record.t_ns))
        elif record.kind is RecordKind.LOST:
            self.count("meter lost")
            self.parts.append(Samples.from_readings([Reading(record.t_ns, state=State.LOST)]))
        else:
            chunk = record.chunk()
            if chunk.fault:
                self.count(chunk.fault)
            if self._decoder is not None:
                self.parts.append(self._decoder.feed(chunk))

    def count(self, phrase: str, times: int = 1) -> None:
        """Count a fault."""
        count_fault(self.faults, phrase, times)

    def finish(self) -> None:
        """Add what the last decoder refused."""
        if self._decoder is not None:
            for phrase, times in self._decoder.faults.items():
                self.count(phrase, times)
        self._decoder = None

    def _start(self, record: Record) -> None:
        self.finish()
        content = record.json()
        if self.first is None:
            self.first = content
        else:
            self.parts.append(Samples.from_readings([Reading(record.t_ns, state=State.GAP)]))
        kind = parse_meter_spec(content["meter"]).kind
        self._decoder = meter_class(kind).decoder(content["header"])


def trace_of_raw(path: Path) -> PowerTrace:
    """Decode a recorder's raw file.

    Raises:
        MeterInputError: It is not one, or it holds not even its beginning.
    """
    collector = _Collector()
    for record in read_records(path):
        collector.take(record)
    collector.finish()
    if collector.first is None:
        raise MeterInputError(f"{path}: the recorder stopped before the meter had started")
    info = msgspec.convert(collector.first["info"], SourceInfo)
    samples = Samples.concatenate(collector.parts)
    placed = place(samples, round(1e9 / info.rate_hz), info.tick_tolerance)
    if placed.lost:
        collector.count("losses that only lateness shows", len(placed.lost))
    samples = mark_stale(_timed(samples, placed), info.stale_after_s)
    if stale := int(np.count_nonzero(np.equal(samples.state, State.STALE))):
        collector.count("frozen samples", stale)
    return PowerTrace(samples, _about(collector, info, placed))


def _timed(samples: Samples, placed: Placed) -> Samples:
    values = {field.name: getattr(samples, field.name) for field in fields(Samples)}
    state, power = samples.state.copy(), samples.power_w.copy()
    state[list(placed.lost)] = State.GAP
    power[list(placed.lost)] = np.nan
    return Samples(**{**values, "t_ns": placed.t_ns, "state": state, "power_w": power})


def _about(collector: _Collector, info: SourceInfo, placed: Placed) -> About:
    first = collector.first or {}
    return About(
        meter=first["meter"],
        identity=msgspec.convert(first["identity"], Identity),
        info=info,
        marks=tuple(collector.marks),
        faults=collector.faults,
        clock_ppm=placed.ppm,
        boot_id=first.get("boot_id", ""),
    )


def mark_stale(samples: Samples, stale_after_s: float | None) -> Samples:
    """Mark stretches in which a meter repeats itself; nothing is known but their first sample.

    Args:
        samples: With times.
        stale_after_s: Identical voltage, current, power and energy for longer is stale;
            None leaves all as they are.
    """
    if stale_after_s is None or len(samples) < len(EMPTY) + 2:
        return samples
    same = np.equal(samples.state[1:], State.OK) & np.equal(samples.state[:-1], State.OK)
    for column in (samples.voltage_v, samples.current_a, samples.power_w, samples.energy_j):
        new, old = column[1:], column[:-1]
        same &= np.equal(new, old) | (np.isnan(new) & np.isnan(old))
    edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
    state, power = samples.state.copy(), samples.power_w.copy()
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        if samples.t_ns[last] - samples.t_ns[first] > stale_after_s * 1e9:
            state[first + 1 : last + 1] = State.STALE
            power[first + 1 : last + 1] = np.nan
    values = {field.name: getattr(samples, field.name) for field in fields(Samples)}
    return Samples(**{**values, "state": state, "power_w": power})
