"""PZEM-004T v3: mains voltage, current and power over TTL serial, isolated.

A wall meter for the price of a lunch, and good for what it costs: power in steps of 0.1 W,
renewed about once a second. It is polled faster, so that a change is seen soon; a value
counts until the next one. Its energy counter moves in steps of 1 Wh (3600 J), too coarse for
a run, and is kept only as evidence.

The trap: it answers only while its mains side is live.

Source:
    PZEM-004T V3.0 user manual, 1.1-1.6 and 2.3-2.4; ``facts``: mandulaj/PZEM-004T-v30#122.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec

from edgeperf.power.base import (
    Boundary,
    Chunk,
    Identity,
    Method,
    Quantity,
    Reading,
    SourceInfo,
    State,
)
from edgeperf.power.modbus import ANY_ADDRESS, READ_INPUT, ModbusMeter, find_registers
from edgeperf.power.samples import ReadingDecoder

REGISTERS = 10
_ALARMS = {0x0000: False, 0xFFFF: True}


class Values(NamedTuple):
    """What one reply says."""

    voltage_v: float
    current_a: float
    power_w: float
    energy_wh: int
    frequency_hz: float
    power_factor: float
    alarm: bool


def values_of(registers: tuple[int, ...]) -> Values | None:
    """Scale the input registers; None if they contradict one another.

    32-bit values come low word first.
    """
    volts, amps, amps_high, watts, watts_high, wh, wh_high, hertz, factor, alarm = registers
    values = Values(
        volts / 10,
        (amps | amps_high << 16) / 1000,
        (watts | watts_high << 16) / 10,
        wh | wh_high << 16,
        hertz / 10,
        factor / 100,
        _ALARMS.get(alarm, False),
    )
    apparent_va = values.voltage_v * values.current_a
    consistent = values.power_w <= 1.1 * apparent_va + 1 and values.power_factor <= 1
    return values if consistent and alarm in _ALARMS else None


class Pzem004tDecoder(ReadingDecoder):
    """Replies to readings.

    Args:
        address: Who was asked.
    """

    def __init__(self, address: int = ANY_ADDRESS) -> None:
        super().__init__()
        self._address = address

    def parse(self, chunk: Chunk) -> Iterator[Reading]:
        """Yield the reading of one reply."""
        if chunk.fault:
            return
        registers = find_registers(chunk.data, self._address, READ_INPUT, REGISTERS)
        values = values_of(registers) if registers else None
        if values is None:
            self.refuse("replies that fail their checks")
            return
        live = 80 <= values.voltage_v <= 260 and 45 <= values.frequency_hz <= 65  # noqa: PLR2004
        yield Reading(
            chunk.middle_ns,
            values.power_w,
            values.voltage_v,
            values.current_a,
            values.energy_wh * 3600.0,
            state=State.OK if live else State.INVALID,
        )


class Pzem004t(ModbusMeter):
    """The meter."""

    kind: ClassVar[str] = "pzem004t"
    baud = 9600
    period_s = 0.2
    registers = REGISTERS
    advice = "a PZEM-004T answers only while its mains side is live"

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options.

        Attributes:
            address: Modbus address, 1 to 247; 248 asks any meter and suits a single one.
            boundary: Where the meter sits.
        """

        address: Annotated[int, msgspec.Meta(ge=1, le=ANY_ADDRESS)] = ANY_ADDRESS
        boundary: Boundary = Boundary.WALL

    def __init__(self, port: str, options: Options) -> None:
        super().__init__(port)
        self.address = options.address
        self._boundary = options.boundary

    def info(self) -> SourceInfo:
        """Say what the numbers are worth: the manual's class, and +-0.3 W below 20 W."""
        return SourceInfo(
            kind=self.kind,
            measures=Quantity.POWER,
            boundary=self._boundary,
            method=Method.HOLD,
            rate_hz=1.0,
            bandwidth_hz=0.5,
            gain=0.005,
            offset_w=0.3,
            resolution_w=0.1,
            edge_s=0.6,
            max_power_w=23_000.0,
            notes=(
                "Power comes in steps of 0.1 W, none below 0.4 W: too coarse below 20 W.",
                "A frozen meter cannot be told from a steady load.",
            ),
        )

    def identify(self) -> Identity:
        """Ask once.

        Raises:
            MeterReplyError: Nobody, or another device; says what was seen.
        """
        registers = find_registers(self.ask(), self.address, READ_INPUT, REGISTERS)
        values = values_of(registers) if registers else None
        if values is None:
            raise self.stranger(f"registers {registers} are no PZEM-004T's")
        return Identity(
            model="PZEM-004T v3",
            details={
                "voltage_v": f"{values.voltage_v:.1f}",
                "frequency_hz": f"{values.frequency_hz:.1f}",
                "alarm": "over power" if values.alarm else "none",
            },
        )

    def header(self) -> Mapping[str, Any]:
        """Return the address that was asked."""
        return {"address": self.address}

    @classmethod
    def decoder(cls, header: Mapping[str, Any]) -> Pzem004tDecoder:
        """Make a decoder of replies."""
        return Pzem004tDecoder(int(header.get("address", ANY_ADDRESS)))
