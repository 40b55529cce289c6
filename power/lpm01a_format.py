r"""The two data formats of an LPM01A, each with a decoder.

Text has a line for every sample, ``6409-07`` for 6409e-7 A. Binary has a 16-bit word,
``52A0`` for 0x2A0 * 16**-5 A, and no checksum at all, so a lost byte turns every word after
it into a plausible wrong one. What saves it is the mark behind every 1000 samples: samples
are believed when the mark after them stands where it must.

The trap: behind the end (``F0 F4 FF FF``) comes a summary in text. Read on, and "\r\n" is
3338 A.
"""

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from edgeperf.power.base import NAN, Chunk, Reading, State
from edgeperf.power.samples import Samples

Floats = NDArray[np.float64]

#: The board trips between 50 and 59 mA; more is no current but a fault.
MOST_A = 0.06
BLOCK = 1000
LONGEST_TEXT = 512
_SAMPLE = re.compile(r"(\d{4})([+-]\d{2})", re.ASCII)
_TIME = re.compile(r"TimeStamp:[ <>]*(\d{1,9})s (\d{1,3})ms, buff \d{1,3}%", re.ASCII)
_SERVICE = re.compile(r"PowerShield >.*|ack .*|event \d+ (ris|fal)", re.ASCII)
#: A word of exponent 15 is below 1e-14 A, so these bytes are never data.
_CONTROL = re.compile(rb"\xf0[\xf1-\xf7]")
_END = b"\xff\xff"


class LpmDecoder:
    """Keeps the meter's clock: sample *n* was taken *n* periods after the first.

    Args:
        rate_hz: Samples per second.
        voltage_v: Set voltage.
        energy: Whether samples are joules of a period instead of amperes.

    Attributes:
        faults: What was refused so far: short phrase to count.
    """

    def __init__(self, rate_hz: float, voltage_v: float, *, energy: bool) -> None:
        self.faults: dict[str, int] = {}
        self._rate_hz = rate_hz
        self._voltage_v = voltage_v
        self._energy = energy
        self._count = 0
        self._mark: tuple[int, int] | None = None  # milliseconds and count of the first one
        self._ended = False
        self._rest = b""

    def feed(self, chunk: Chunk) -> Samples:
        """Return the samples that *chunk* completes; nothing counts after the end."""
        self._rest += chunk.data
        parts = [] if self._ended else list(self._parse(chunk.t_ns))
        if self._ended:
            self._rest = b""
        return Samples.concatenate(parts)

    def _parse(self, t_ns: int) -> Iterator[Samples]:
        raise NotImplementedError

    def _refuse(self, phrase: str) -> None:
        self.faults[phrase] = self.faults.get(phrase, 0) + 1

    @staticmethod
    def _break(t_ns: int, state: State) -> Samples:
        return Samples.from_readings([Reading(t_ns, state=state)])

    def _values(self, values: Floats, t_ns: int) -> Samples:
        """Make samples of amperes (or joules of a period), and move the clock on."""
        size = len(values)
        ticks = (self._count + np.arange(size)) * 1e9 / self._rate_hz
        self._count += size
        power_w = values * (self._rate_hz if self._energy else self._voltage_v)
        bad = power_w > MOST_A * self._voltage_v
        if bad.any():
            self._refuse("currents that no LPM01A can measure")
        return Samples(
            t_ns=np.full(size, t_ns, dtype=np.int64),
            power_w=np.where(bad, NAN, power_w),
            voltage_v=np.full(size, NAN),
            current_a=power_w / self._voltage_v,
            energy_j=np.full(size, NAN),
            tick_ns=np.rint(ticks).astype(np.int64),
            state=np.where(bad, State.INVALID, State.OK).astype(np.uint8),
        )

    def _time(self, time_ms: int, t_ns: int) -> Iterator[Samples]:
        """Compare the meter's own time stamp with the samples that came."""
        if self._mark is None:
            self._mark = (time_ms, self._count)
            return
        first_ms, first = self._mark
        missing = (time_ms - first_ms) * self._rate_hz / 1000 - (self._count - first)
        if abs(missing) > 1.5 + 0.002 * self._rate_hz:  # stamps are whole milliseconds
            self._refuse("samples lost")
            self._count += max(round(missing), 1)
            self._mark = (time_ms, self._count)
            yield self._break(t_ns, State.GAP)


class LpmTextDecoder(LpmDecoder):
    """Lines to samples."""

    def _parse(self, t_ns: int) -> Iterator[Samples]:
        *lines, self._rest = self._rest.split(b"\n")
        if len(self._rest) > LONGEST_TEXT:
            self._refuse("bytes without a line end")
            self._rest = b""
        values: list[float] = []
        for raw in lines:
            line = raw.decode("latin-1").strip("\r\0 \t")
            match = _SAMPLE.fullmatch(line)
            if match:
                values.append(int(match[1]) * 10.0 ** int(match[2]))
                continue
            yield self._values(np.array(values, dtype=np.float64), t_ns)
            values = []
            yield from self._other(line, t_ns)
            if self._ended:
                return
        yield self._values(np.array(values, dtype=np.float64), t_ns)

    def _other(self, line: str, t_ns: int) -> Iterator[Samples]:
        """Take a line that is no sample."""
        if match := _TIME.fullmatch(line):
            yield from self._time(int(match[1]) * 1000 + int(match[2]), t_ns)
        elif line == "end":
            self._ended = True
        elif line.startswith("error"):
            self._refuse("errors that the meter reported")
            yield self._break(t_ns, State.INVALID)
        elif line and not _SERVICE.fullmatch(line):
            self._refuse("lines that are no reading")
            # Most likely a sample that lost a byte, or two that lost what parted them.
            self._count += max(1, round(len(line) / len("6409-07")))


class LpmBinaryDecoder(LpmDecoder):
    """Words to samples, a block of 1000 at a time."""

    def __init__(self, rate_hz: float, voltage_v: float, *, energy: bool) -> None:
        super().__init__(rate_hz, voltage_v, energy=energy)
        self._block: list[Floats] = []
        self._bad = False

    def _parse(self, t_ns: int) -> Iterator[Samples]:
        while not self._ended and (match := _CONTROL.search(self._rest)):
            body, control = self._rest[: match.start()], self._rest[match.start() :]
            size = _size(control)
            if size < 0:
                break
            self._take(body)
            self._rest = control[size:]
            yield from self._control(control[:size], t_ns)
        if len(self._rest) > 2 * BLOCK + LONGEST_TEXT and not self._ended:
            self._refuse("bytes without a mark")
            self._rest, self._bad = self._rest[-1:], True

    def _take(self, body: bytes) -> None:
        """Keep the words between two marks until the next one vouches for them."""
        if len(body) % 2:
            self._bad = True
            return
        words = np.frombuffer(body, dtype=">u2").astype(np.int64)
        self._block.append((words & 0xFFF) * 16.0 ** -(words >> 12))

    def _control(self, control: bytes, t_ns: int) -> Iterator[Samples]:
        kind = control[1]
        if len(control) == 2 and kind in (0xF1, 0xF2, 0xF3, 0xF4):  # noqa: PLR2004
            self._bad = True  # it looked like one and was none
        elif kind == 0xF3:  # noqa: PLR2004
            yield from self._finish(t_ns, whole=True)
            stamp = int.from_bytes(control[2:6], "big")
            if stamp >> 31:
                self._refuse("buffer of the meter overflowed")
                yield self._break(t_ns, State.GAP)
            yield from self._time(stamp & 0x7FFFFFFF, t_ns)
        elif kind == 0xF4:  # noqa: PLR2004
            yield from self._finish(t_ns, whole=False)
            self._ended = True
        elif kind in (0xF1, 0xF5, 0xF6):
            self._refuse("errors that the meter reported")
            yield from self._finish(t_ns, whole=False)
            yield self._break(t_ns, State.INVALID)

    def _finish(self, t_ns: int, *, whole: bool) -> Iterator[Samples]:
        """Hand out the samples of a block, or a gap if its size cannot be right."""
        values = np.concatenate([np.empty(0), *self._block])
        bad = self._bad or (whole and self._mark is not None and len(values) != BLOCK)
        self._block, self._bad = [], False
        if bad:
            self._refuse("blocks with bytes missing")
            self._count += BLOCK
            yield self._break(t_ns, State.GAP)
        else:
            yield self._values(values, t_ns)


def _size(control: bytes) -> int:
    """Return how long a control is, -1 if more bytes are needed, 2 if it cannot be one."""
    kind = control[1]
    if kind in (0xF1, 0xF2):
        end = control.find(_END)
        if end < 0:
            return -1 if len(control) < LONGEST_TEXT else 2
        return end + 2
    if kind in (0xF3, 0xF4):
        size = 9 if kind == 0xF3 else 4  # noqa: PLR2004
        if len(control) < size:
            return -1
        return size if control[size - 2 : size] == _END else 2
    size = 4 if kind == 0xF7 else 2  # noqa: PLR2004
    if len(control) < size + 2:
        return -1
    return size + 2 if control[size : size + 2] == _END else size
