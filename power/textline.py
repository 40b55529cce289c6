r"""Meters that stream one line of text per reading: an INA219/226/228 on a microcontroller.

The line we suggest is ``ms,bus_mV,current_mA,power_mW[,energy_uJ]*XX\r\n``, XX the XOR of the
characters before ``*``; :mod:`~edgeperf.power.textline_format` says what else is taken. The
line's own clock, where there is one, times the samples; where not, its arrival does.

The trap is opening: many boards reset when a terminal connects, talk about their boot, and
the first line is half a line. Nothing before the first line end counts, and a line counts
only if all of it can be understood.
"""

import math
import time
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
from edgeperf.power.discover import find_port
from edgeperf.power.ports import SerialPort
from edgeperf.power.samples import ReadingDecoder
from edgeperf.power.serial_meter import SerialMeter
from edgeperf.power.textline_format import (
    OURS,
    Layout,
    layout_of,
    named_values,
    number_of,
    split_fields,
    strip_checksum,
)

#: A line that does not end after so many bytes is noise.
LONGEST_LINE = 512
#: How long a meter may take to send its first readings, boot included.
PATIENCE_S = 5.0
#: Readings that the rate is measured over, before the run.
FIRST_READINGS = 6
#: A clock that went back wrapped, if that explains it within so much time.
LONGEST_PAUSE_NS = 60_000_000_000
_WRAP = 1 << 32


class TextLineDecoder(ReadingDecoder):
    """Lines to readings.

    Args:
        columns: Names of the columns, where the user gave them.
    """

    def __init__(self, columns: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._layout = layout_of(list(columns)) if columns else None
        self._rest = b""
        self._synced = False
        self._checked = False
        self._tick = -1
        self._epoch_ns = 0
        self.last_line = ""
        self.has_energy = False

    def parse(self, chunk: Chunk) -> Iterator[Reading]:
        """Yield the readings of the lines that *chunk* completes."""
        *lines, self._rest = (self._rest + chunk.data).split(b"\n")
        if lines and not self._synced:
            lines = lines[1:]  # it may have begun before we listened
            self._synced = True
        if len(self._rest) > LONGEST_LINE:
            self.refuse("bytes without a line end")
            self._rest, self._synced = b"", False
        for line in lines:
            yield from self._line(line, chunk.t_ns)

    def _line(self, raw: bytes, t_ns: int) -> Iterator[Reading]:
        line = raw.decode("latin-1").strip("\r\0 \t")
        if not line or line.startswith("#"):
            return
        self.last_line = line
        try:
            values = self._values(line)
        except ValueError:
            self.refuse("lines that are no reading")
            return
        if values is None:
            return
        self.has_energy = self.has_energy or "energy" in values
        tick_ns, restarted = self._clock(values)
        if restarted:
            yield Reading(t_ns, state=State.GAP)
        yield _reading(t_ns, tick_ns, values)

    def _values(self, line: str) -> dict[str, float] | None:
        """Return SI values by quantity, None for a header, ValueError for anything else."""
        body, checked = strip_checksum(line)
        if self._checked and not checked:
            raise ValueError(line)
        found = named_values(body)
        if found is None:
            fields, comma = split_fields(body)
            layout = layout_of(fields)
            if layout.usable():
                self._layout = layout
                return None
            found = self._columns(fields, comma=comma)
        _check(found)
        self._checked = checked
        return found

    def _columns(self, fields: list[str], *, comma: bool) -> dict[str, float]:
        layout = self._layout or _ours(len(fields))
        if len(fields) != len(layout.columns):
            raise ValueError(fields)
        values = [number_of(field, comma=comma) for field in fields]
        self._layout = layout
        return {
            column.quantity: value * column.scale
            for column, value in zip(layout.columns, values, strict=True)
            if column is not None
        }

    def _clock(self, values: dict[str, float]) -> tuple[int, bool]:
        """Unwrap the board's own clock; return it and whether the board was restarted."""
        time_s = values.get("time", NAN)
        if not math.isfinite(time_s) or time_s < 0:
            return -1, False
        tick_ns = round(time_s * 1e9)
        last_ns, self._tick = self._tick, tick_ns
        restarted = False
        if 0 <= tick_ns < last_ns:
            for unit_ns in (1_000, 1_000_000):  # a u32 of micro- or milliseconds
                if 0 <= tick_ns + _WRAP * unit_ns - last_ns < LONGEST_PAUSE_NS:
                    self._epoch_ns += _WRAP * unit_ns
                    break
            else:
                restarted = True
                self._epoch_ns += last_ns + 1_000_000
        return self._epoch_ns + tick_ns, restarted


def _ours(count: int) -> Layout:
    if count not in (4, 5):
        raise ValueError(count)
    return layout_of(list(OURS[:count]))


def _check(values: dict[str, float]) -> None:
    """Refuse a line whose numbers contradict one another: a digit was lost on the way."""
    if "power" not in values and not {"voltage", "current"} <= set(values):
        raise ValueError(values)
    product = values.get("voltage", NAN) * values.get("current", NAN)
    power = values.get("power", NAN)
    if abs(abs(product) - abs(power)) > 0.25 * max(abs(product), abs(power)) + 0.05:
        raise ValueError(values)


def _reading(t_ns: int, tick_ns: int, values: dict[str, float]) -> Reading:
    voltage, current = values.get("voltage", NAN), values.get("current", NAN)
    power = values.get("power", voltage * current)
    if voltage * current < 0 < power:  # the power register of an INA219/226 has no sign
        power = -power
    # A failed I2C read returns 0 for everything; a board that is off is not being measured.
    dead = voltage == 0 and current == 0
    bad = dead or not math.isfinite(power)
    state = State.INVALID if bad else State.OK
    return Reading(t_ns, power, voltage, current, values.get("energy", NAN), tick_ns, state)


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
        self._columns = tuple(name for name in options.columns.split("+") if name)
        if self._columns and not layout_of(list(self._columns)).usable():
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
        decoder = TextLineDecoder(self._columns)
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
        """Return the names of the columns, where the user gave them."""
        return {"columns": list(self._columns)}

    @classmethod
    def decoder(cls, header: Mapping[str, Any]) -> TextLineDecoder:
        """Make a decoder of lines."""
        return TextLineDecoder(tuple(header.get("columns", ())))

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
