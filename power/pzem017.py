"""PZEM-003 and PZEM-017: DC voltage, current and power over RS-485.

Power comes in steps of 0.1 W about once a second, so this suits boards above 10 W. The meter
scales its current by a shunt code that somebody once set: a wrong one makes every reading 2
to 6 times wrong, with a valid checksum. So the shunt that is really fitted must be named
(``shunt=50``), and the meter's own setting must agree.

The trap: 8N2, two stop bits; with one it may stay silent.

Source:
    PZEM-003/017 user manual, 1.1-1.5 and 2.1-2.4; ``facts``: croutonso/PZEM017modbus#3.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec

from edgeperf.power.base import (
    Boundary,
    Chunk,
    Identity,
    MeterInputError,
    MeterReplyError,
    Method,
    Quantity,
    Reading,
    SourceInfo,
    State,
)
from edgeperf.power.modbus import READ_HOLDING, READ_INPUT, ModbusMeter, find_registers
from edgeperf.power.samples import ReadingDecoder

REGISTERS = 8
#: Shunt code in holding register 3 -> amperes of the shunt it stands for.
SHUNTS_A = {0: 100, 1: 50, 2: 200, 3: 300}
#: The PZEM-003 has its shunt inside and no register for it.
BUILT_IN_A = 10
_FLAGS = (0x0000, 0xFFFF)


class Values(NamedTuple):
    """What one reply says."""

    voltage_v: float
    current_a: float
    power_w: float
    energy_wh: int


def values_of(registers: tuple[int, ...]) -> Values | None:
    """Scale the input registers; None if they contradict one another."""
    volts, amps, watts, watts_high, wh, wh_high, *alarms = registers
    values = Values(
        volts / 100,
        amps / 100,
        (watts | watts_high << 16) / 10,
        wh | wh_high << 16,
    )
    product_w = values.voltage_v * values.current_a
    slack_w = 0.1 * product_w + 0.02 * values.voltage_v + 0.2  # both are rounded
    consistent = abs(values.power_w - product_w) <= slack_w
    return values if consistent and all(flag in _FLAGS for flag in alarms) else None


class Pzem017Decoder(ReadingDecoder):
    """Replies to readings.

    Args:
        address: Who was asked.
    """

    def __init__(self, address: int = 1) -> None:
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
        dead = values.voltage_v == 0 and values.current_a == 0
        yield Reading(
            chunk.middle_ns,
            values.power_w,
            values.voltage_v,
            values.current_a,
            values.energy_wh * 3600.0,
            state=State.INVALID if dead else State.OK,
        )


class Pzem017(ModbusMeter):
    """The meter."""

    kind: ClassVar[str] = "pzem017"
    baud = 9600
    stopbits = 2
    period_s = 0.2
    registers = REGISTERS
    advice = "check A and B of the RS-485 pair, and its 5 V supply if it measures below 7 V"

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options.

        Attributes:
            shunt: Amperes of the shunt that is fitted: 50, 100, 200 or 300, or 10 for a
                PZEM-003; must be given.
            address: Modbus address.
            boundary: Where the meter sits.
        """

        shunt: int = 0
        address: Annotated[int, msgspec.Meta(ge=1, le=247)] = 1
        boundary: Boundary = Boundary.DC_INPUT

    def __init__(self, port: str, options: Options) -> None:
        super().__init__(port)
        self.address = options.address
        self._options = options
        self._set_a: int | None = None

    def info(self) -> SourceInfo:
        """Say what the numbers are worth: the manual's class 1."""
        return SourceInfo(
            kind=self.kind,
            measures=Quantity.POWER,
            boundary=self._options.boundary,
            method=Method.HOLD,
            rate_hz=1.0,
            bandwidth_hz=0.5,
            gain=0.01,
            resolution_w=0.1,
            edge_s=0.6,
            max_power_w=90_000.0,
            notes=(
                "Power comes in steps of 0.1 W, current in steps of 10 mA: use it above 10 W.",
                "A frozen meter cannot be told from a steady load.",
            ),
        )

    def identify(self) -> Identity:
        """Read a reading and the shunt setting.

        Raises:
            MeterReplyError: Nobody, or another device; says what was seen.
        """
        registers = find_registers(self.ask(), self.address, READ_INPUT, REGISTERS)
        values = values_of(registers) if registers else None
        self._set_a = self._shunt_setting() if values else None
        if values is None or self._set_a is None:
            raise self.stranger(f"registers {registers} are no PZEM-003 or PZEM-017's")
        model = "PZEM-003" if self._set_a == BUILT_IN_A else "PZEM-017"
        return Identity(
            model=model,
            details={"shunt_a": str(self._set_a), "voltage_v": f"{values.voltage_v:.2f}"},
        )

    def _shunt_setting(self) -> int | None:
        """Return the amperes that the meter scales by, None if it is another device."""
        try:
            data = self.exchange(READ_HOLDING, 2, 2)
        except MeterReplyError:
            self.flush()
            data = self.exchange(READ_HOLDING, 2, 1)  # a PZEM-003 ends with its address
            found = find_registers(data, self.address, READ_HOLDING, 1)
            return BUILT_IN_A if found == (self.address,) else None
        found = find_registers(data, self.address, READ_HOLDING, 2)
        if found is None or found[0] != self.address:
            return None
        return SHUNTS_A.get(found[1])

    def start(self) -> None:
        """Compare the meter's shunt setting with the shunt that is fitted.

        Raises:
            MeterInputError: The shunt was not named, or the meter is set for another.
        """
        if self._set_a is None:
            self.identify()
        fitted, where = self._options.shunt, f"meter on {self.port}"
        if not fitted:
            raise MeterInputError(
                f"{where}: which shunt is fitted is not known (the meter is set for "
                f"{self._set_a} A); read it off the shunt and add shunt={self._set_a}"
            )
        if fitted != self._set_a:
            raise MeterInputError(
                f"{where}: set for a {self._set_a} A shunt, but shunt={fitted} is fitted: its "
                "currents are wrong; set its register 3, or correct shunt="
            )

    def header(self) -> Mapping[str, Any]:
        """Return the address that was asked."""
        return {"address": self.address}

    @classmethod
    def decoder(cls, header: Mapping[str, Any]) -> Pzem017Decoder:
        """Make a decoder of replies."""
        return Pzem017Decoder(int(header.get("address", 1)))
