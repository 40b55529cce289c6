r"""Meters that stream one line of text per reading: an INA219/226/228 on a microcontroller.

The line we suggest is ``ms,bus_mV,current_mA,power_mW[,energy_uJ]*XX\r\n``, XX the XOR of the
characters before ``*``; :mod:`~edgeperf.power.textline_format` says what else is taken. The
line's own clock, where there is one, times the samples; where not, its arrival does.

The trap is opening: many boards reset when a terminal connects, talk about their boot, and
the first line is half a line. Nothing before the first line end counts, and a line counts
only if all of it can be understood.
"""

import time
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

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
from edgeperf.power.discover import find_port
from edgeperf.power.ports import SerialPort
from edgeperf.power.serial_meter import SerialMeter
from edgeperf.power.textline_decoder import TextLineDecoder
from edgeperf.power.textline_format import (
    Column,
    Layout,
    layout_of,
)

#: How long a meter may take to send its first readings, boot included.
PATIENCE_S = 5.0
#: Readings that the rate is measured over, before the run.
FIRST_READINGS = 6


class TextLine(SerialMeter):
    """A board that prints readings on a serial port."""

    kind: ClassVar[str] = "textline"

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of a text-line meter.

        Attributes:
            baud: Bits per second.
            columns: Names of the columns joined by ``+``, such as ``ms+mV+mA``, for lines
                that do not say themselves.
            dtr: ``keep`` leaves DTR alone; ``off`` drops it on opening.
            gain: Relative limit of error of the power; 1 % fits an INA226 with a 1 % shunt.
            stale_after: Identical readings for more seconds mean a stuck sensor; 0 for a
                sensor so coarse that a quiet board shows the same for long.
            boundary: Where the meter sits.
        """

        baud: Annotated[int, msgspec.Meta(ge=50)] = 115_200
        columns: str = ""
        dtr: Annotated[str, msgspec.Meta(pattern="^(keep|off)$")] = "keep"
        gain: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01
        stale_after: Annotated[float, msgspec.Meta(ge=0)] = 1.0
        boundary: Boundary = Boundary.DC_INPUT

    def __init__(self, port: str, options: Options) -> None:
        super().__init__(port)
        self._options = options
        self._columns = [name for name in options.columns.split("+") if name]
        self._learned = TextLineDecoder()
        if self._columns and not layout_of(self._columns).usable():
            raise MeterInputError(
                f"meter textline:{port}: columns={options.columns}: expected one power, or one "
                "voltage and one current, with units, such as ms+mV+mA"
            )
        self._rate_hz = 100.0
        self._has_energy = False

    def info(self) -> SourceInfo:
        """Say what the numbers are worth; the rate was measured by :meth:`identify`."""
        patience_s = self._options.stale_after
        return SourceInfo(
            kind=self.kind,
            measures=Quantity.ENERGY if self._has_energy else Quantity.POWER,
            boundary=self._options.boundary,
            method=Method.COUNTER if self._has_energy else Method.TRAPEZOID,
            rate_hz=self._rate_hz,
            bandwidth_hz=self._rate_hz / 2,
            gain=self._options.gain,
            offset_w=0.002,
            resolution_w=0.001,
            resolution_j=1e-6,
            edge_s=0.002,
            max_power_w=1000.0,
            stale_after_s=max(patience_s, 10 / self._rate_hz) if patience_s else None,
        )

    def open(self) -> None:
        """Claim the port and throw away what was sent before."""
        dtr = None if self._options.dtr == "keep" else False
        self.port = self.port or find_port(self.kind)
        self._line = SerialPort(self.port, self._options.baud, dtr=dtr)

    def identify(self) -> Identity:
        """Wait for the first good readings and measure their rate.

        Raises:
            MeterReplyError: None came; says what did.
        """
        decoder = TextLineDecoder(layout_of(self._columns) if self._columns else None)
        seen = bytearray()
        readings: list[Reading] = []
        deadline_s = time.monotonic() + PATIENCE_S
        while len(readings) < FIRST_READINGS and time.monotonic() < deadline_s:
            data = self.line.read_some(deadline_s - time.monotonic())
            seen += data
            readings += decoder.parse(Chunk(time.monotonic_ns(), data))
        if not any(reading.state is State.OK for reading in readings):
            raise MeterReplyError(self.port, self._complaint(bytes(seen), decoder, readings))
        self._rate_hz = _rate_hz(readings, self._rate_hz)
        self._has_energy = decoder.has_energy
        self._learned = decoder
        return Identity(model="text lines", details={"line": decoder.last_line})

    def _complaint(self, seen: bytes, decoder: TextLineDecoder, readings: list[Reading]) -> str:
        if not seen:
            return (
                f"sent nothing for {PATIENCE_S:g} s at {self._options.baud} baud; "
                "is it running, and is this its port?"
            )
        if readings:
            return f"reads no power: {decoder.last_line!r}; check its sensor"
        if decoder.last_line and decoder.last_line.isprintable() and decoder.last_line.isascii():
            return f"not a reading: {decoder.last_line!r}; name its columns with columns=ms+mV+mA"
        return f"no text lines at {self._options.baud} baud (saw {seen[:24]!r}); give its baud="

    def header(self) -> Mapping[str, Any]:
        """Return what identifying taught: a header line may have come only once, at boot."""
        layout = self._learned.layout
        return {"columns": layout and list(layout.columns), "checked": self._learned.checked}

    @classmethod
    def decoder(cls, header: Mapping[str, Any]) -> TextLineDecoder:
        """Make a decoder of lines."""
        columns = header.get("columns")
        layout = columns and Layout(tuple(column and Column(*column) for column in columns))
        return TextLineDecoder(layout, checked=header.get("checked", False))

    def read(self) -> list[Chunk]:
        """Return the bytes that came."""
        data = self.line.read_some(0.2)
        return [Chunk(time.monotonic_ns(), data)] if data else []


def _rate_hz(readings: list[Reading], default_hz: float) -> float:
    """Return readings per second by the board's own clock, else by arrival."""
    good = [reading for reading in readings if reading.state is State.OK]
    if not good:
        return default_hz
    first, last = good[0], good[-1]
    spent_ns = last.tick_ns - first.tick_ns if first.tick_ns >= 0 else last.t_ns - first.t_ns
    return (len(good) - 1) * 1e9 / spent_ns if spent_ns > 0 else default_hz
