"""Lines of a text-line meter to readings: layout, checksum, restarts and wraps of its clock."""

import math
from collections.abc import Iterator

from edgeperf.power.base import NAN, Chunk, Reading, State
from edgeperf.power.samples import ReadingDecoder
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
#: A clock that went back wrapped, if that explains it within so much time.
LONGEST_PAUSE_NS = 60_000_000_000
_WRAP = 1 << 32


class TextLineDecoder(ReadingDecoder):
    """Lines to readings.

    Args:
        layout: The columns, where they are known.
        checked: Whether lines are known to end in a checksum.
    """

    def __init__(self, layout: Layout | None = None, *, checked: bool = False) -> None:
        super().__init__()
        self.layout = layout
        self.checked = checked
        self._rest = b""
        self._synced = False
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
        if self.checked and not checked:
            raise ValueError(line)
        found = named_values(body)
        if found is None:
            fields, comma = split_fields(body)
            layout = layout_of(fields)
            if layout.usable():
                self.layout = layout
                return None
            found = self._columns(fields, comma=comma)
        _check(found)
        self.checked = checked
        return found

    def _columns(self, fields: list[str], *, comma: bool) -> dict[str, float]:
        layout = self.layout or _ours(len(fields))
        if len(fields) != len(layout.columns):
            raise ValueError(fields)
        values = [number_of(field, comma=comma) for field in fields]
        self.layout = layout
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
