"""Bench supplies and multimeters that speak SCPI, over a serial port, TCP or USBTMC.

There is no one command that all of them know, so the questions are chosen by the maker's name
in ``*IDN?`` and can be given (``ask_voltage=MEAS:VOLT?``). Voltage and current are asked one
after the other, 20 to 100 ms apart: on a load that changes, their product is of no one moment.
A supply's own meter is far coarser than a power analyzer; take its limits from its data sheet
(``gain=``, ``offset_v=``, ``offset_a=``).

The trap: a multimeter in series knows only the current; without ``voltage=`` there are no
joules.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from edgeperf.power.base import (
    NAN,
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
from edgeperf.power.instrument import IDENTITY, Instrument
from edgeperf.power.samples import ReadingDecoder

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[Ee][+-]?\d+)?"
#: SCPI-99 7.2.1: 9.91E37 is "not a number", 9.9E37 is infinity.
SENTINEL = 9.8e37
#: Pattern of ``*IDN?`` -> what is put behind a question, ``{}`` being the channel.
CHANNELS: tuple[tuple[str, str], ...] = (
    (r"RIGOL.*,DP[789]", " CH{}"),
    (r"SIGLENT.*,SPD", " CH{}"),
    (r"(KEYSIGHT|AGILENT).*,E36[23]", " (@{})"),
)
QUESTIONS: dict[str, tuple[str, ...]] = {
    "voltage+current": ("MEAS:VOLT?", "MEAS:CURR?"),
    "power": ("MEAS:POW?",),
    "current": ("MEAS:CURR:DC?",),
}


class ScpiDecoder(ReadingDecoder):
    """Replies to readings.

    Args:
        measures: Key of :data:`QUESTIONS`.
        voltage_v: Assumed voltage of a meter that knows only the current.
    """

    def __init__(self, measures: str, voltage_v: float) -> None:
        super().__init__()
        self._measures = measures
        self._voltage_v = voltage_v

    def parse(self, chunk: Chunk) -> Iterator[Reading]:
        """Yield the reading of one exchange: one line a question."""
        lines = chunk.data.decode("latin-1").split()
        if chunk.fault or not lines:
            return
        good = all(re.fullmatch(_NUMBER, line, re.ASCII) for line in lines)
        if not good or len(lines) != len(QUESTIONS[self._measures]):
            self.refuse("replies that are no reading")
            return
        values = [float(line) for line in lines]
        power_w, volts, amps = NAN, self._voltage_v, values[-1]
        if self._measures == "power":
            power_w, amps = values[0], NAN
        elif self._measures != "current":
            volts = values[0]
        over = any(not math.isfinite(value) or abs(value) >= SENTINEL for value in values)
        dead = volts == 0 and amps == 0
        state = State.INVALID if over or dead else State.OK
        yield Reading(chunk.middle_ns, power_w, volts, amps, state=state)


class Scpi(Instrument):
    """A supply or multimeter."""

    kind: ClassVar[str] = "scpi"

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options.

        Attributes:
            measures: ``voltage+current``, ``power`` or ``current``.
            channel: Output or input of an instrument that has several.
            voltage: Voltage of the load, needed if only the current is measured.
            voltage_tolerance: Relative limit of what the real voltage may differ by.
            ask_voltage: Question for the voltage, where the usual one is wrong.
            ask_current: Question for the current, likewise.
            ask_power: Question for the power, likewise.
            rate: Readings per second.
            gain: Relative limit of error of the power.
            offset_v: Limit of a constant error of the voltage.
            offset_a: Limit of a constant error of the current.
            baud: For a serial port.
            boundary: Where the instrument sits.
        """

        measures: Annotated[str, msgspec.Meta(pattern=r"^(voltage\+current|power|current)$")] = (
            "voltage+current"
        )
        channel: Annotated[int, msgspec.Meta(ge=1, le=99)] = 1
        voltage: Annotated[float, msgspec.Meta(gt=0, le=1000)] | None = None
        voltage_tolerance: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.02
        ask_voltage: Annotated[str, msgspec.Meta(pattern="^[ -~]*$")] = ""
        ask_current: Annotated[str, msgspec.Meta(pattern="^[ -~]*$")] = ""
        ask_power: Annotated[str, msgspec.Meta(pattern="^[ -~]*$")] = ""
        rate: Annotated[float, msgspec.Meta(gt=0, le=100)] = 5.0
        gain: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01
        offset_v: Annotated[float, msgspec.Meta(ge=0)] = 0.02
        offset_a: Annotated[float, msgspec.Meta(ge=0)] = 0.01
        baud: Annotated[int, msgspec.Meta(ge=300)] = 9600
        boundary: Boundary = Boundary.DC_INPUT

    def __init__(self, port: str, options: Options) -> None:
        super().__init__(port, options.baud)
        self._options = options
        self.period_s = 1 / options.rate
        self._questions = self._given(QUESTIONS[options.measures], "")

    def _given(self, usual: tuple[str, ...], suffix: str) -> tuple[str, ...]:
        """Put the user's questions in place of the usual ones."""
        options = self._options
        given = {
            "voltage+current": (options.ask_voltage, options.ask_current),
            "power": (options.ask_power,),
            "current": (options.ask_current,),
        }[options.measures]
        return tuple(own or theirs + suffix for own, theirs in zip(given, usual, strict=True))

    def info(self) -> SourceInfo:
        """Say what the numbers are worth: the limits that the user gave."""
        options = self._options
        quantity = {
            "voltage+current": Quantity.VOLTAGE_CURRENT,
            "power": Quantity.POWER,
            "current": Quantity.CURRENT,
        }[options.measures]
        notes = ["Limits of error are assumed unless gain=, offset_v= and offset_a= are given."]
        if quantity is Quantity.CURRENT:
            notes.append("The voltage is assumed, not measured.")
        if quantity is Quantity.VOLTAGE_CURRENT:
            notes.append("Voltage and current are measured one after the other.")
        return SourceInfo(
            kind=self.kind,
            measures=quantity,
            boundary=options.boundary,
            method=Method.TRAPEZOID,
            rate_hz=options.rate,
            bandwidth_hz=None,
            gain=options.gain,
            offset_v=options.offset_v,
            offset_a=options.offset_a,
            resolution_v=0.001,
            resolution_a=0.001,
            edge_s=0.1,
            voltage_v=options.voltage,
            voltage_gain=options.voltage_tolerance if quantity is Quantity.CURRENT else 0.0,
            notes=tuple(notes),
        )

    def identify(self) -> Identity:
        """Ask who is there, and choose the questions by the answer.

        Raises:
            MeterReplyError: Nobody, or a device without a SCPI identity; says what was seen.
        """
        text = self.query("*IDN?", IDENTITY)
        maker, model, serial, firmware = (part.strip() for part in text.split(",", 3))
        suffix = ""
        for pattern, form in CHANNELS:
            if re.match(pattern, text, re.IGNORECASE):
                suffix = form.format(self._options.channel)
        self._questions = self._given(QUESTIONS[self._options.measures], suffix)
        return Identity(model=f"{maker} {model}", serial=serial, firmware=firmware)

    def start(self) -> None:
        """Clear its errors and see whether it understands the questions.

        Raises:
            MeterInputError: Only the current is measured and no voltage was given.
            MeterReplyError: It does not; says with which error.
        """
        if self._options.measures == "current" and self._options.voltage is None:
            raise MeterInputError(
                f"meter scpi:{self.port}: voltage missing: it measures current only; add your "
                "board's supply voltage, such as voltage=5.0"
            )
        self.tell("*CLS")
        self.ask()
        error = self.query("SYST:ERR?", r"[+-]?[0-9]{1,5}(,.*)?")
        if int(error.partition(",")[0]):
            asked = ", ".join(self._questions)
            raise MeterReplyError(
                self.port, f"error {error} after {asked}; give ask_voltage= or ask_current="
            )

    def ask(self) -> bytes:
        """Ask every question once."""
        return "".join(f"{self.query(each, _NUMBER)}\n" for each in self._questions).encode("ascii")

    def header(self) -> Mapping[str, Any]:
        """Return what the replies hold."""
        options = self._options
        return {"measures": options.measures, "voltage_v": options.voltage}

    @classmethod
    def decoder(cls, header: Mapping[str, Any]) -> ScpiDecoder:
        """Make a decoder of replies."""
        measures = str(header.get("measures", "voltage+current"))
        return ScpiDecoder(measures, float(header.get("voltage_v") or NAN))
