"""A Nordic PPK2: commands in, 100 000 words a second out, calibration text on request."""

import numpy as np
from numpy.typing import NDArray

from edgeperf.power.ppk2_format import RANGES, SAMPLE_NS, parse_calibration, polynomials
from edgeperf.power.simulate.bench import Bench
from edgeperf.power.simulate.waveform import Floats

Ints = NDArray[np.int64]

#: Where the unit changes to the next coarser range, amperes.
RANGE_ENDS_A = (50e-6, 500e-6, 5e-3, 60e-3)
LONGEST_BURST_S = 0.05

CALIBRATION = """\
Calibrated: 1
R0: 1002.5000
R1: 101.8000
R2: 10.2500
R3: 0.9620
R4: 0.0555
GS0: 0.0000
GS1: 110.0000
GS2: 18.5000
GS3: 2.4000
GS4: 0.0700
GI0: 1.0000
GI1: 0.9700
GI2: 0.9600
GI3: 0.9530
GI4: 0.9570
O0: 140.0000
O1: 80.0000
O2: 65.0000
O3: 52.0000
O4: 90.0000
VDD: {vdd_mv}
HW: 9173
mode: 2
S0: 0.0000000500
S1: 0.0000006000
S2: 0.0000052000
S3: 0.0000620000
S4: 0.0029000000
I0: -0.0000000100
I1: -0.0000001400
I2: 0.0000036000
I3: -0.0000370000
I4: -0.0009300000
UG0: 1.00
UG1: 1.00
UG2: 1.00
UG3: 1.00
UG4: 1.00
IA: 56
END
"""
#: Arguments that follow each command byte.
ARGUMENTS = {
    0x06: 0,
    0x07: 0,
    0x0C: 1,
    0x0D: 2,
    0x11: 1,
    0x15: 0,
    0x16: 0,
    0x19: 0,
    0x20: 0,
    0x25: 5,
}


class Ppk2Device:
    """The instrument.

    Args:
        bench: The load.
        mute: Play the second port of newer firmware, which answers nothing.
        piece_bytes: The calibration text leaves in pieces of this size.
        ppm: Error of its sample clock.
    """

    queue_bytes = 400_000
    tick_s = 0.005

    def __init__(
        self, bench: Bench, *, mute: bool = False, piece_bytes: int = 64, ppm: float = 0.0
    ) -> None:
        self._bench = bench
        self._mute = mute
        self._piece_bytes = piece_bytes
        self._sample_s = SAMPLE_NS * 1e-9 / (1 + ppm * 1e-6)
        self._input = b""
        self._text = b""
        self._start_s: float | None = None
        self._count = 0
        self._now_s = 0.0
        self.vdd_mv = 3300
        self.powered = False

    def answer(self, data: bytes, now_s: float) -> bytes:
        """Take commands; nothing is answered at once."""
        self._input += b"" if self._mute else data
        while self._input:
            size = 1 + ARGUMENTS.get(self._input[0], 0)
            if len(self._input) < size:
                break
            self._command(self._input[:size], now_s)
            self._input = self._input[size:]
        return b""

    def _command(self, command: bytes, now_s: float) -> None:
        match command[0]:
            case 0x06:
                self._start_s, self._count = now_s, 0
            case 0x07:
                self._start_s = None
            case 0x0C:
                self.powered = command[1] == 1
            case 0x0D:
                self.vdd_mv = int.from_bytes(command[1:3], "big")
            case 0x19:
                self._text += CALIBRATION.format(vdd_mv=self.vdd_mv).encode()

    def stream(self, now_s: float) -> list[bytes]:
        """Return the next piece of text, and the words that are due."""
        messages = []
        if self._text:
            messages.append(self._text[: self._piece_bytes])
            self._text = self._text[self._piece_bytes :]
        if self._start_s is not None:
            due = int((now_s - self._start_s) / self._sample_s)
            due = min(due, self._count + int(LONGEST_BURST_S / self._sample_s))
            if due > self._count:
                messages.append(self._words(np.arange(self._count, due, dtype=np.int64)))
                self._count = due
        return messages

    def _words(self, numbers: Ints) -> bytes:
        t_s = (self._start_s or 0.0) + (numbers + 0.5) * self._sample_s
        amps = self._bench.current_a(t_s)
        self._now_s = float(t_s[-1])
        if self._bench.over(float(t_s[-1])):
            amps = np.full_like(amps, 1.3)
        which = np.searchsorted(np.array(RANGE_ENDS_A), amps).astype(np.int64)
        adc = self._adc(amps, which)
        words: Ints = adc | which << 14 | (numbers & 63) << 18
        return words.astype("<u4").tobytes()

    def _adc(self, amps: Floats, which: Ints) -> Ints:
        """Invert the calibration: the ADC value that stands for a current."""
        text = CALIBRATION.format(vdd_mv=self.vdd_mv).encode()
        table = polynomials(parse_calibration(text), self._bench.voltage_v)[:, :RANGES]
        square, linear, constant = (row[which] for row in table)
        beyond = amps - constant
        adc = 2 * beyond / (linear + np.sqrt(np.maximum(linear**2 + 4 * square * beyond, 0)))
        adc += self._bench.jitter(self._now_s, adc.shape)
        clipped: Ints = np.clip(np.rint(adc), 0, 0x3FFF).astype(np.int64)
        return clipped
