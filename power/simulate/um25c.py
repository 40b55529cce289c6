"""An RDTech UM24C, UM25C or UM34C: answers ``F0`` with 130 bytes, new ones every 0.4 s."""

import struct

from edgeperf.power.base import MeterInputError
from edgeperf.power.simulate.bench import Bench
from edgeperf.power.um25c import MODELS, XOR_BYTES

LATCH_S = 0.4


class Um25cDevice:
    """The instrument.

    Args:
        bench: The load.
        model: ``UM24C``, ``UM25C`` or ``UM34C``.
        late_bytes: So many bytes of an old answer come before the first new one.
    """

    queue_bytes = 4096
    tick_s = 0.0

    def __init__(self, bench: Bench, *, model: str = "UM25C", late_bytes: int = 0) -> None:
        known = {kind.name: number for number, kind in MODELS.items()}
        if model not in known:
            raise MeterInputError(f"um25c: model {model!r}: not one of {', '.join(known)}")
        self._bench = bench
        self._number, self._model = known[model], MODELS[known[model]]
        self._late = b"\0" * late_bytes
        self._latched_s = -1.0
        self._frame = b""

    def answer(self, data: bytes, now_s: float) -> bytes:
        """Answer each ``F0``; the other commands change only the screen."""
        late, self._late = self._late, b""
        return late + self._latch(now_s) * data.count(b"\xf0")

    def stream(self, now_s: float) -> list[bytes]:
        """Send nothing unasked."""
        del now_s
        return []

    def _latch(self, now_s: float) -> bytes:
        slot_s = now_s // LATCH_S * LATCH_S
        if slot_s > self._latched_s:
            self._frame = self._make(slot_s)
            self._latched_s = slot_s
        return self._frame

    def _make(self, t_s: float) -> bytes:
        power_w = float(self._bench.power_w(t_s))
        volts = round(self._bench.voltage_v / self._model.volt)
        amps = round(power_w / self._bench.voltage_v / self._model.ampere)
        head = struct.pack(">HHHIHHH", self._number, volts, amps, round(power_w * 1e3), 31, 88, 0)
        groups = struct.pack(">II", 392, 2000) * 10
        tail = struct.pack(">HHHIIHIHHHIH", 60, 58, 0, 392, 2000, 10, 3600, 1, 2, 3, 43, 0)
        body = (head + groups + tail).ljust(128, b"\0")
        if self._model.name != "UM34C":
            return body + b"\xff\xf1"
        xor = 0
        for at in XOR_BYTES:
            xor ^= body[at]
        return body + bytes([0xFF, xor])
