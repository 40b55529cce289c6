"""What a Nordic PPK2 sends: its calibration text and its stream of 32-bit words.

A word, little endian, 100 000 a second::

    bits 0-13 adc    bits 14-16 range 0..4    bits 18-23 counter    bits 24-31 logic D0..D7

The counter is all there is to find words by: a byte that is lost shifts every word after
it, and the numbers still look like currents. So words count only where the counter steps
by one, and after a break the place where it does so again is searched for.

Source:
    pc-nrfconnect-ppk, ``src/device`` (the formula), read as facts; the code is our own.
"""

import math
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]
Floats = NDArray[np.float64]

RANGES = 5
WORD_BYTES = 4
SAMPLE_NS = 10_000
#: Words in a row whose counter steps by one before a place is believed.
TRUSTED_WORDS = 6
#: Searching goes by pieces of so many bytes: the place is usually near.
SEARCH_BYTES = 1024
#: Samples after a change of range that are the switch's noise, not the load.
SPIKE_SAMPLES = 3
END = b"END"
#: Resistors of a unit that was never calibrated.
FACTORY_R = (1031.64, 101.65, 10.15, 0.94, 0.043)
_ADC_MULT = 1.8 / 163840
_LINE = re.compile(r"\s*(\w+): (\S+)\s*")


@dataclass(frozen=True, slots=True)
class Calibration:
    """Constants of one unit, one value per range.

    Attributes:
        r: Shunt, ohms.
        gs: Gain, quadratic part.
        gi: Gain, linear part.
        o: Offset, ADC counts.
        s: Offset per volt of supply, amperes.
        i: Offset, amperes.
        ug: User's own gain.
        vdd_mv: Supply that the unit is set to.
        hardware: Its hardware number.
    """

    r: tuple[float, ...]
    gs: tuple[float, ...]
    gi: tuple[float, ...]
    o: tuple[float, ...]
    s: tuple[float, ...]
    i: tuple[float, ...]
    ug: tuple[float, ...]
    vdd_mv: float
    hardware: int


def parse_calibration(text: bytes) -> Calibration:
    """Read the calibration text, whatever stale samples stand in front of it.

    Raises:
        ValueError: It is not whole, or a constant is missing, twice there or no number.
            Nothing is ever filled in: the built-in constants of another tool once turned
            9.09 into 10.33 microamperes.
    """
    start, end = text.rfind(b"Calibrated:"), text.rfind(END)
    if start < 0 or end < start:
        raise ValueError("calibration is not whole")
    values: dict[str, float] = {}
    for line in text[start:end].decode("latin-1").splitlines():
        match = _LINE.fullmatch(line)
        if match is None or match[1] in values:
            raise ValueError(f"calibration has a line that is none: {line[:40]!r}")
        values[match[1]] = _finite(match[1], match[2])
    calibration = _calibration(values)
    if calibration.r == FACTORY_R:
        raise ValueError("this unit was never calibrated: it holds the design's own resistors")
    return calibration


def _finite(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(
            f"calibration constant {name} is {text[:20]!r}: the unit needs calibrating"
        )
    return value


def _calibration(values: dict[str, float]) -> Calibration:
    def per_range(name: str) -> tuple[float, ...]:
        return tuple(values[f"{name}{n}"] for n in range(RANGES))

    try:
        calibration = Calibration(
            r=per_range("R"),
            gs=per_range("GS"),
            gi=per_range("GI"),
            o=per_range("O"),
            s=per_range("S"),
            i=per_range("I"),
            ug=per_range("UG"),
            vdd_mv=values["VDD"],
            hardware=round(values["HW"]),
        )
    except KeyError as error:
        raise ValueError(f"calibration lacks {error.args[0]}") from None
    if 0.0 in calibration.r:
        raise ValueError("calibration has a shunt of 0 ohms")
    return calibration


def ranges_of(words: Words) -> NDArray[np.intp]:
    """Return the range of each word; above 4 is none."""
    return (words >> 14 & 7).astype(np.intp)


def counters_of(words: Words) -> NDArray[np.uint8]:
    """Return the counter of each word, 0..63."""
    return (words >> 18 & 63).astype(np.uint8)


def logic_of(words: Words) -> NDArray[np.uint8]:
    """Return the logic inputs of each word, D0 is bit 0."""
    return (words >> 24).astype(np.uint8)


def amps_of(words: Words, calibration: Calibration, vdd_v: float) -> Floats:
    """Return the current of each word, with no filter.

    Args:
        words: Shape ``(n,)``.
        calibration: Of the unit that sent them.
        vdd_v: Its supply.

    Returns:
        Amperes, shape ``(n,)``; NaN for a word without a range.
    """
    table = polynomials(calibration, vdd_v)
    which = ranges_of(words)
    adc = (words & 0x3FFF).astype(np.float64)
    amps: Floats = (table[0][which] * adc + table[1][which]) * adc + table[2][which]
    return amps


def polynomials(calibration: Calibration, vdd_v: float) -> Floats:
    """Return the current as a polynomial of the ADC value.

    ``amps = ug * (x * (gs * x + gi) + s * vdd + i)`` with ``x = (4 * adc - o) * k / r``.

    Returns:
        Coefficients of the square, of the value itself and of 1, shape ``(3, 8)``: one
        column per range, NaN for those that do not exist.
    """
    r, gs, gi, o = (np.array(getattr(calibration, name)) for name in ("r", "gs", "gi", "o"))
    s, i, ug = (np.array(getattr(calibration, name)) for name in ("s", "i", "ug"))
    slope, base = 4 * _ADC_MULT / r, -o * _ADC_MULT / r
    table: Floats = np.full((3, 8), np.nan)
    table[0, :RANGES] = ug * gs * slope**2
    table[1, :RANGES] = ug * slope * (2 * gs * base + gi)
    table[2, :RANGES] = ug * (base * (gs * base + gi) + s * vdd_v + i)
    return table


def smooth_switches(amps: Floats, ranges: NDArray[np.intp]) -> Floats:
    """Replace the samples after a change of range by a straight line across them."""
    switched = np.flatnonzero(ranges[1:] != ranges[:-1]) + 1
    if not len(switched):
        return amps
    noisy = np.zeros(len(amps), dtype=bool)
    for offset in range(SPIKE_SAMPLES):
        noisy[np.minimum(switched + offset, len(amps) - 1)] = True
    clean = np.flatnonzero(~noisy)
    if not len(clean):
        return amps
    smoothed: Floats = amps.copy()
    spikes = np.flatnonzero(noisy)
    smoothed[spikes] = np.interp(spikes, clean, amps[clean])
    return smoothed


def words_at(data: bytes, offset: int) -> Words:
    """Return the whole words from *offset* on."""
    count = max(len(data) - offset, 0) // WORD_BYTES
    return np.frombuffer(data, dtype="<u4", count=count, offset=offset if count else 0)


def steady_words(words: Words) -> int:
    """Return how many words from the first on have a counter that steps by one."""
    if len(words) < 2:  # noqa: PLR2004  # a step needs two
        return len(words)
    counters = counters_of(words)
    broken = np.flatnonzero((np.diff(counters) & 63) != 1)
    return int(broken[0]) + 1 if len(broken) else len(words)


def find_words(data: bytes, start: int) -> int | None:
    """Return the first offset from *start* on where words can be trusted; None if nowhere.

    The word before it, which has a fitting counter too, may be glued from two halves.
    """
    need = TRUSTED_WORDS * WORD_BYTES
    for begin in range(start, len(data) - need + 1, SEARCH_BYTES):
        found = _find_in(data[begin : begin + SEARCH_BYTES + need - 1])
        if found is not None:
            return begin + found + WORD_BYTES
    return None


def _find_in(data: bytes) -> int | None:
    best: int | None = None
    for shift in range(WORD_BYTES):
        words = words_at(data, shift)
        if len(words) < TRUSTED_WORDS:
            continue
        good = np.equal(np.diff(counters_of(words)) & 63, 1)
        good &= np.less(ranges_of(words)[1:], RANGES)
        run = np.convolve(good, np.ones(TRUSTED_WORDS - 1, dtype=int), mode="valid")
        found = np.flatnonzero(run == TRUSTED_WORDS - 1)
        if len(found):
            at = shift + int(found[0]) * WORD_BYTES
            best = at if best is None else min(best, at)
    return best
