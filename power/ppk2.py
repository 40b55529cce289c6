"""Nordic Power Profiler Kit II: 100 000 currents a second, no voltage.

As an ammeter it sits in the board's supply line; as a source it *is* the supply. Either
way the voltage is what the user says, because it measures none. Samples are averaged to
bins of 1 ms: each bin is the mean of its 100 samples, so no energy is lost, a ten-minute
trace has 600 000 rows instead of 60 million, and a peak means "in 1 ms".

The trap is the calibration text: it comes in pieces, behind stale samples, and a tool
that goes on without it shows plausible, wrong currents. Here no text, no measurement.
"""

import contextlib
import time
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from edgeperf.power.base import (
    Boundary,
    Chunk,
    Identity,
    MeterError,
    MeterInputError,
    MeterReplyError,
    Method,
    Quantity,
    SourceInfo,
    State,
)
from edgeperf.power.faults import count_fault
from edgeperf.power.ppk2_format import (
    END,
    RANGES,
    SAMPLE_NS,
    TRUSTED_WORDS,
    WORD_BYTES,
    Calibration,
    Floats,
    Words,
    amps_of,
    find_words,
    parse_calibration,
    ranges_of,
    smooth_switches,
    steady_words,
    words_at,
)
from edgeperf.power.samples import EMPTY, Samples
from edgeperf.power.serial_meter import SerialMeter

#: More is not a load (the unit gives 1 A) but a shifted or damaged word.
MOST_A = 1.1
#: Bytes are left to pile up for so long, so that the reader wakes 50 times a second only.
PILE_S = 0.02
PATIENCE_S = 2.0
#: Words that may begin a stream: nothing was on the line before them.
FIRST_WORDS = 4
#: Words that are checked at once, so that a damaged stream stays cheap.
BLOCK_WORDS = 4096
QUIET_S = 0.1
START, STOP, METADATA = b"\x06", b"\x07", b"\x19"
AMMETER, SOURCE, POWER_ON = b"\x11\x01", b"\x11\x02", b"\x0c\x01"


class Ppk2Decoder:
    """Words to bins.

    Attributes:
        faults: What was refused so far.
    """

    def __init__(self, calibration: Calibration, voltage_v: float, bin_samples: int) -> None:
        self.faults: dict[str, int] = {}
        self._calibration = calibration
        self._voltage_v = voltage_v
        self._bin = bin_samples
        self._rest = b""
        self._started = False
        self._count = 0  # samples since the stream began, gaps left out
        self._open = np.empty(0, dtype=np.uint32)  # words of the bin that is not full yet
        self._last = self._open  # the last good word, whose counter the next one follows

    def feed(self, chunk: Chunk) -> Samples:
        """Return the bins that *chunk* completes."""
        data, parts, at = self._rest + chunk.data, [], 0
        while True:
            if not self._started:
                found = self._find(data, at)
                if found is None:
                    at = max(at, len(data) - TRUSTED_WORDS * WORD_BYTES)
                    break
                at, self._started = found, True
            words = words_at(data, at)[:BLOCK_WORDS]
            if not len(words):
                break
            good = self._steady(words)
            parts.append(self._bins(words[:good], chunk.t_ns))
            at += good * WORD_BYTES
            if good < len(words):
                parts.append(self._gap(chunk.t_ns))
        self._rest = data[at:]
        return Samples.concatenate(parts)

    def _find(self, data: bytes, at: int) -> int | None:
        """Find trusted words; the very first ones may stand alone, the line was silent before."""
        fresh = not self._count and not self.faults
        if fresh and steady_words(words_at(data, at)[:FIRST_WORDS]) == FIRST_WORDS:
            return at
        return find_words(data, at)

    def _steady(self, words: Words) -> int:
        """Return how many of *words* follow the last good word and one another."""
        good = steady_words(np.concatenate([self._last, words])) - len(self._last)
        beyond = np.flatnonzero(np.greater_equal(ranges_of(words), RANGES))
        return min(good, int(beyond[0])) if len(beyond) else good

    def _gap(self, t_ns: int) -> Samples:
        count_fault(self.faults, "breaks in the sample counter")
        self._started = False
        self._open = self._last = self._open[:0]
        return _rows(t_ns, np.array([np.nan]), np.array([np.nan]), np.array([-1]), State.GAP)

    def _bins(self, words: Words, t_ns: int) -> Samples:
        self._last = words[-1:] if len(words) else self._last
        words = np.concatenate([self._open, words])
        whole = len(words) // self._bin * self._bin
        self._open = words[whole:]
        if not whole:
            return EMPTY
        amps = amps_of(words[:whole], self._calibration, self._voltage_v)
        amps = smooth_switches(amps, ranges_of(words[:whole])).reshape(-1, self._bin)
        ends = self._count + self._bin * np.arange(1, len(amps) + 1)
        self._count += whole
        mean_a = amps.mean(axis=1)
        rows = _rows(t_ns, mean_a * self._voltage_v, mean_a, ends * SAMPLE_NS, State.OK)
        beyond = np.greater(amps.max(axis=1), MOST_A)
        if beyond.any():
            count_fault(self.faults, "currents over 1.1 A", int(np.count_nonzero(beyond)))
            rows.state[beyond] = State.INVALID
            rows.power_w[beyond] = np.nan
        return rows


def _rows(t_ns: int, power_w: Floats, amps: Floats, tick_ns: Any, state: State) -> Samples:
    size = len(power_w)
    return Samples(
        t_ns=np.full(size, t_ns, dtype=np.int64),
        power_w=power_w,
        voltage_v=np.full(size, np.nan),
        current_a=amps,
        energy_j=np.full(size, np.nan),
        tick_ns=tick_ns.astype(np.int64),
        state=np.full(size, state, dtype=np.uint8),
    )


class Ppk2(SerialMeter):
    """A PPK2 on its measurement port, the first of the two that newer firmware shows."""

    kind: ClassVar[str] = "ppk2"

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of a PPK2.

        Attributes:
            voltage: Supply voltage of the board. Needed: a PPK2 measures current only.
            voltage_tolerance: Relative limit of what the real supply may differ by.
            mode: ``ampere`` measures another supply's current; ``source`` supplies the
                board itself, with ``voltage``.
            bin_us: Length of a bin, in steps of 10.
            gain: Relative limit of error of the current.
            boundary: Where the meter sits.
        """

        voltage: Annotated[float, msgspec.Meta(ge=0.8, le=5.0)] | None = None
        voltage_tolerance: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.02
        mode: Annotated[str, msgspec.Meta(pattern="^(ampere|source)$")] = "ampere"
        bin_us: Annotated[int, msgspec.Meta(ge=10, le=100_000, multiple_of=10)] = 1000
        gain: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.10
        boundary: Boundary = Boundary.DC_INPUT

    def __init__(self, port: str, options: Options) -> None:
        super().__init__(port)
        self._options = options
        self._metadata = b""

    def info(self) -> SourceInfo:
        """Say what the numbers are worth."""
        options = self._options
        rate_hz = 1e6 / options.bin_us
        return SourceInfo(
            kind=self.kind,
            measures=Quantity.CURRENT,
            boundary=options.boundary,
            method=Method.MEAN,
            rate_hz=rate_hz,
            bandwidth_hz=rate_hz / 2,
            gain=options.gain,
            offset_a=0.0002,
            edge_s=0.001,
            voltage_v=options.voltage,
            voltage_gain=options.voltage_tolerance if options.mode == "ampere" else 0.01,
            max_power_w=MOST_A * (options.voltage or 5.0),
            tick_tolerance=0.001,
            stale_after_s=1.0,
            notes=("The voltage is assumed, not measured; negative currents cannot be seen.",),
        )

    def identify(self) -> Identity:
        """Ask for the calibration; once more if the first answer is damaged.

        Raises:
            MeterReplyError: There is none that can be used; says what came.
        """
        calibration = self._calibration()
        return Identity(
            model="PPK2",
            details={"HW": str(calibration.hardware), "VDD": f"{calibration.vdd_mv:g}"},
        )

    def _calibration(self) -> Calibration:
        problem = ""
        for _ in range(2):
            self.line.write(STOP)
            self.line.drain(QUIET_S, limit_s=0.5)
            self.line.write(METADATA)
            text = self._text()
            try:
                calibration = parse_calibration(text)
            except ValueError as error:
                problem = f"{error} (saw {text[:24]!r})" if text else _SILENT
                continue
            self._metadata = text
            return calibration
        raise MeterReplyError(self.port, f"no calibration: {problem}")

    def _text(self) -> bytes:
        text = b""
        deadline_s = time.monotonic() + PATIENCE_S
        while b"\n" + END not in text and (left_s := deadline_s - time.monotonic()) > 0:
            text += self.line.read_some(left_s)
        return text

    def start(self) -> None:
        """Set the mode and begin.

        Raises:
            MeterInputError: The voltage was not given.
        """
        options = self._options
        if options.voltage is None:
            raise MeterInputError(
                f"meter ppk2:{self.port}: voltage missing: a PPK2 measures current only; "
                f"say ppk2:{self.port},voltage=5.0 with your board's supply voltage"
            )
        if options.mode == "source":
            self.line.write(b"\x0d" + round(options.voltage * 1000).to_bytes(2, "big"))
            self.line.write(SOURCE)
        else:
            self.line.write(AMMETER)
        self.line.write(POWER_ON)  # also an ammeter lets current through only when on
        self.line.write(START)

    def header(self) -> Mapping[str, Any]:
        """Return the calibration text and what the user said."""
        return {
            "metadata": self._metadata.decode("latin-1"),
            "voltage": self._options.voltage,
            "bin": self._options.bin_us * 1000 // SAMPLE_NS,
        }

    @classmethod
    def decoder(cls, header: Mapping[str, Any]) -> Ppk2Decoder:
        """Make a decoder with the calibration of the unit that sent the bytes."""
        calibration = parse_calibration(header["metadata"].encode("latin-1"))
        return Ppk2Decoder(calibration, header["voltage"], header["bin"])

    def read(self) -> list[Chunk]:
        """Let bytes pile up for 20 ms and return them."""
        data = self.line.read_some(0.2)
        if not data:
            return []
        time.sleep(PILE_S)
        while more := self.line.read_some(0):
            data += more
        return [Chunk(time.monotonic_ns(), data)]

    def stop(self) -> None:
        """Stop sampling; a board that it supplies stays on."""
        with contextlib.suppress(MeterError):
            self.line.write(STOP)


_SILENT = (
    "it answered nothing; the measurement port of a PPK2 is its first interface "
    "(...-if01), the other one is a shell"
)
