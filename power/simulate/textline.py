r"""A microcontroller with an INA228 that prints a line per reading.

It speaks the line that we suggest, or the other notations that the driver takes: ``csv``,
``csv-de`` (``;`` and decimal commas), ``pairs`` and ``json``.
"""

import math

from edgeperf.power.base import MeterInputError
from edgeperf.power.simulate.bench import Bench

BOOT = b"ets Jul 29 2019 12:21:46\r\n\xff\xfe\x00INA228 ready\r\n"
HEADER = b"# time_ms,bus_mV,current_mA,power_mW\r\n"
FORMATS = ("csv", "csv-de", "pairs", "json")


class TextLineDevice:
    """The microcontroller.

    Args:
        bench: What its sensor sees.
        rate_hz: Lines per second.
        notation: One of :data:`FORMATS`.
        energy: Whether it prints the sensor's 40-bit energy accumulator.
        checksum: Whether lines end in ``*XX``.
    """

    queue_bytes = 2048

    def __init__(
        self,
        bench: Bench,
        *,
        rate_hz: float = 100.0,
        notation: str = "csv",
        energy: bool = False,
        checksum: bool = True,
    ) -> None:
        if notation not in FORMATS:
            raise MeterInputError(f"textline: notation {notation!r}: not one of {FORMATS}")
        self.tick_s = 1 / rate_hz
        self._bench = bench
        self._notation = notation
        self._energy = energy
        self._checksum = checksum
        self._boot_s: float | None = None
        self._count = 0
        self._sum_j = 0.0

    def answer(self, data: bytes, now_s: float) -> bytes:
        """Ignore the host, as such boards do."""
        del data, now_s
        return b""

    def stream(self, now_s: float) -> list[bytes]:
        """Return the lines that are due."""
        if self._boot_s is None:
            self._boot_s = now_s
            return [BOOT, HEADER]
        lines = []
        while (due_s := self._boot_s + self._count * self.tick_s) <= now_s:
            lines.append(self._line(due_s, self._count * self.tick_s))
            self._count += 1
        return lines

    def _line(self, t_s: float, age_s: float) -> bytes:
        power_w = float(self._bench.power_w(t_s))
        volts = self._bench.voltage_v
        if self._count:
            self._sum_j += self._bench.waveform.energy_j(t_s - self.tick_s, t_s)
        if self._bench.over(t_s):
            power_w = volts = math.nan
        numbers = [age_s * 1e3, volts * 1e3, power_w / volts * 1e3, power_w * 1e3]
        body = self._notate(numbers, self._sum_j * 1e6)
        if self._checksum and self._notation != "json":
            xor = 0
            for byte in body.encode():
                xor ^= byte
            body += f"*{xor:02X}"
        return body.encode() + b"\r\n"

    def _notate(self, numbers: list[float], energy_uj: float) -> str:
        ms, mv, ma, mw = numbers
        if self._notation == "pairs":
            tail = f" E={energy_uj * 1e-6:.6f}J" if self._energy else ""
            return f"t={ms:.3f}ms V={mv * 1e-3:.4f}V I={ma:.3f}mA P={mw * 1e-3:.5f}W{tail}"
        if self._notation == "json":
            tail = f', "energy_uJ": {energy_uj:.0f}' if self._energy else ""
            return (
                f'{{"time_ms": {ms:.3f}, "voltage": {mv * 1e-3:.4f}, "current_mA": {ma:.3f}, '
                f'"power_mW": {mw:.3f}{tail}}}'
            ).replace("nan", "NaN")
        fields = [f"{ms:.3f}", f"{mv:.3f}", f"{ma:.3f}", f"{mw:.3f}"]
        fields += [f"{energy_uj:.0f}"] if self._energy else []
        if self._notation == "csv-de":
            return ";".join(fields).replace(".", ",")
        return ",".join(fields)
