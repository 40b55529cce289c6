r"""An ST LPM01A: commands with acknowledgements, and a stream in text or binary."""

import math

import numpy as np

from edgeperf.power.simulate.bench import Bench

PROMPT = "PowerShield > "
BLOCK = 1000
KNOWN = (
    "htc", "hrc", "version", "volt", "freq", "acqtime", "acqmode", "funcmode", "output", "format",
    "trigsrc", "trigdelay", "pwr", "start", "stop", "lcd", "status", "powershield", "echo",
)  # fmt: skip
SUMMARY = b"\r\nsummary beg\r\ncurrent mean 1234-06\r\nsummary end\r\nAcquisition completed\r\n"
UNITS = {"k": 1e3, "m": 1e-3, "u": 1e-6}


def number_of(text: str) -> float:
    """Read a number with a unit letter."""
    return float(text[:-1]) * UNITS[text[-1]] if text[-1:] in UNITS else float(text)


def text_sample(value: float) -> bytes:
    """Write a value as four digits and an exponent."""
    exponent = 3 - math.floor(math.log10(value)) if value > 0 else 0
    mantissa = round(value * 10**exponent)
    if mantissa > 9999:  # noqa: PLR2004  # rounded up to five digits
        exponent, mantissa = exponent - 1, round(mantissa / 10)
    return f"{mantissa:04d}-{exponent:02d}\r\n".encode("ascii")


def word_samples(values: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> bytes:
    """Write values as big-endian words of a hexadecimal exponent and a 12-bit mantissa."""
    with np.errstate(divide="ignore"):
        exponent = np.floor(np.log(4095.4 / values) / math.log(16)).clip(0, 14).astype(np.int64)
    mantissa = np.rint(values * 16.0**exponent).astype(np.int64)
    return (exponent << 12 | mantissa).astype(">u2").tobytes()


class Lpm01aDevice:
    """The meter.

    Args:
        bench: Its load; the current follows from the set voltage.
        refuse_first: Whether it refuses the first ``htc``, as the real one often does.
    """

    tick_s = 0.02
    queue_bytes = 1 << 16

    def __init__(self, bench: Bench, *, refuse_first: bool = True) -> None:
        self._bench = bench
        self._refuse = refuse_first
        self._seen = b""
        self._set = {"volt": "3300m", "freq": "100", "format": "ascii_dec", "output": "current"}
        self._start_s: float | None = None
        self._count = 0

    def answer(self, data: bytes, now_s: float) -> bytes:
        """Carry out whole lines."""
        *lines, self._seen = (self._seen + data)[-4096:].split(b"\n")
        return b"".join(self._command(line.decode("latin-1").strip(), now_s) for line in lines)

    def _command(self, line: str, now_s: float) -> bytes:
        name, _, argument = line.partition(" ")
        if name == "htc" and self._refuse:
            self._refuse = False
            return f"{PROMPT}error htc\r\nError detail: busy\r\n".encode("ascii")
        if name == "stop":
            return self._stop()
        if not line:
            return b"\r\n" + PROMPT.encode("ascii")
        if name not in KNOWN:
            return f"{PROMPT}error {line}\r\nError detail: unknown command\r\n".encode("ascii")
        ack = f"{PROMPT}ack {line}"
        if line == "volt get":
            ack += f" {self._set['volt'][:-1]}-03"
        elif name == "version":
            ack += "\r\n1.0.6"
        elif name == "start":
            self._start_s, self._count = now_s, 0
        elif argument:
            self._set[name] = argument
        return ack.encode("ascii") + b"\r\n"

    def _stop(self) -> bytes:
        if self._start_s is None:
            return f"{PROMPT}ack stop\r\n".encode("ascii")
        self._start_s = None
        return (b"end" if self._text else b"\xf0\xf4\xff\xff") + SUMMARY

    @property
    def _text(self) -> bool:
        return self._set["format"] == "ascii_dec"

    def stream(self, now_s: float) -> list[bytes]:
        """Return the samples that are due: whole lines, or whole blocks in binary."""
        if self._start_s is None:
            return []
        rate_hz = number_of(self._set["freq"])
        due = int((now_s - self._start_s) * rate_hz)
        messages = []
        while self._count + (1 if self._text else BLOCK) <= due:
            size = min(due - self._count, BLOCK - self._count % BLOCK)
            t_s = self._start_s + (self._count + 0.5 + np.arange(size)) / rate_hz
            messages += self._messages(self._bench.power_w(t_s), rate_hz)
            self._count += size
            if self._count % BLOCK == 0:
                messages.append(self._mark(round(self._count / rate_hz * 1000)))
        return messages

    def _messages(
        self, power_w: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]", rate_hz: float
    ) -> list[bytes]:
        volts = number_of(self._set["volt"])
        values = power_w / rate_hz if self._set["output"] == "energy" else power_w / volts
        if self._text:
            return [text_sample(float(value)) for value in values]
        return [word_samples(values)]

    def _mark(self, time_ms: int) -> bytes:
        if self._text:
            seconds, rest = divmod(time_ms, 1000)
            return f"TimeStamp: {seconds:03d}s {rest:03d}ms, buff 03%\r\n".encode("ascii")
        return b"\xf0\xf3" + time_ms.to_bytes(4, "big") + b"\x03\xff\xff"
