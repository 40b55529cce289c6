"""Korad KA and KD bench supplies, and those sold as Velleman, Tenma, RND or Stamos.

They speak without any line ends, in either direction: a reply is as long as it always is. Its
5 characters are read within a deadline and must look like a number, then the line is drained,
which also keeps the 50 ms that the supply wants between commands.

The trap: within 0.2 V of the set voltage the supply reports the set voltage, not what it
measures. So the voltage is known to 0.2 V only, and that is what the uncertainty says.

Source:
    libsigrok's wiki on the KAxxxxP series; whiteboard.ping.se "KORAD PSU", "Voltage error".
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from edgeperf.power.base import (
    NAN,
    Boundary,
    Chunk,
    Identity,
    MeterReplyError,
    Method,
    Quantity,
    Reading,
    SourceInfo,
    State,
)
from edgeperf.power.polled import Polled
from edgeperf.power.samples import ReadingDecoder
from edgeperf.power.serial_meter import SerialMeter

VALUE_BYTES = 5
PATIENCE_S = 0.15
PAUSE_S = 0.05
OUTPUT_ON = 0x40
_REPLY = re.compile(rb"(\d\d\.\d\d)(\d\.\d\d\d)([\x00-\xff])", re.DOTALL)
_MAKERS = re.compile(rb"KORAD|VELLEMAN|TENMA|RND|STAMOS|^K[AD]\d{4}P", re.IGNORECASE)


class KoradDecoder(ReadingDecoder):
    """Replies (voltage, current, status byte) to readings."""

    def parse(self, chunk: Chunk) -> Iterator[Reading]:
        """Yield the reading of one exchange; an output that is off is no reading."""
        if chunk.fault:
            return
        match = _REPLY.fullmatch(chunk.data)
        if match is None:
            self.refuse("replies that are no reading")
            return
        volts, amps = float(match.group(1)), float(match.group(2))
        off = not match.group(3)[0] & OUTPUT_ON
        state = State.INVALID if off or volts == 0 else State.OK
        yield Reading(chunk.middle_ns, NAN, volts, amps, state=state)


class Korad(Polled, SerialMeter):
    """The supply."""

    kind: ClassVar[str] = "korad"
    baud = 9600
    period_s = 0.3

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options.

        Attributes:
            baud: Bits per second.
            gain: Relative limit of error of the power.
            offset_a: Limit of a constant error of the current.
            boundary: Where the supply sits.
        """

        baud: Annotated[int, msgspec.Meta(ge=300)] = 9600
        gain: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01
        offset_a: Annotated[float, msgspec.Meta(ge=0)] = 0.005
        boundary: Boundary = Boundary.DC_INPUT

    def __init__(self, port: str, options: Options) -> None:
        super().__init__(port)
        self.baud = options.baud
        self._options = options

    def info(self) -> SourceInfo:
        """Say what the numbers are worth."""
        return SourceInfo(
            kind=self.kind,
            measures=Quantity.VOLTAGE_CURRENT,
            boundary=self._options.boundary,
            method=Method.TRAPEZOID,
            rate_hz=1 / self.period_s,
            bandwidth_hz=None,
            gain=self._options.gain,
            offset_v=0.2,
            offset_a=self._options.offset_a,
            resolution_v=0.01,
            resolution_a=0.001,
            edge_s=0.15,
            max_power_w=300.0,
            notes=(
                "Within 0.2 V of the set voltage the supply reports the set voltage.",
                "Voltage and current are measured one after the other.",
            ),
        )

    def identify(self) -> Identity:
        """Ask who is there.

        Raises:
            MeterReplyError: Nobody, or another device; says what was seen.
        """
        self.line.drain(0.0)
        self.line.write(b"*IDN?")
        seen = self.line.read_until(b"\n", 0.5)  # no end comes: all of 0.5 s
        if not seen:
            raise MeterReplyError(
                self.port, f"no reply to *IDN? at {self.baud} baud; is it on, and a Korad?"
            )
        if not _MAKERS.search(seen):
            raise MeterReplyError(self.port, f"not a Korad supply (saw {seen[:40]!r})")
        text = seen.decode("latin-1").strip("\r\n\0 ")
        return Identity(model=text)

    def ask(self) -> bytes:
        """Read voltage, current and status."""
        volts = self._value(b"VOUT1?", VALUE_BYTES)
        amps = self._value(b"IOUT1?", VALUE_BYTES)
        reply = volts + amps + self._value(b"STATUS?", 1)
        if not _REPLY.fullmatch(reply):
            raise MeterReplyError(self.port, f"a reply that is no number (saw {reply!r})")
        return reply

    def _value(self, question: bytes, size: int) -> bytes:
        self.line.write(question)
        value = self.line.read_exactly(size, PATIENCE_S)
        if len(value) < size:
            asked = question.decode("ascii")
            raise MeterReplyError(self.port, f"no whole reply to {asked} (saw {value!r})")
        self.line.drain(PAUSE_S)
        return value

    def flush(self) -> None:
        """Throw away what a bad exchange left."""
        self.line.drain(PAUSE_S)

    def header(self) -> Mapping[str, Any]:
        """Return nothing: the replies say all."""
        return {}

    @classmethod
    def decoder(cls, header: Mapping[str, Any]) -> KoradDecoder:
        """Make a decoder of replies."""
        del header
        return KoradDecoder()
