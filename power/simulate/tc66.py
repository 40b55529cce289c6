"""An RDTech TC66C: latches ten times a second, answers ``getva`` with three encrypted blocks."""

import struct

from edgeperf.power.crc import crc16_modbus
from edgeperf.power.simulate.bench import Bench
from edgeperf.power.tc66 import cipher

LATCH_S = 0.1
COMMANDS = (b"getva", b"query", b"gtrec", b"lastp", b"nextp", b"rotat")


class Tc66Device:
    """The instrument."""

    queue_bytes = 4096
    tick_s = 0.0

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._input = b""
        self._latched_s = -1.0
        self._numbers = (0, 0, 0)
        self._mwh = 2000.0
        self.answered = 0

    def answer(self, data: bytes, now_s: float) -> bytes:
        """Answer whole commands; bare ASCII, no terminator, anything else is skipped."""
        self._input += data
        reply = b""
        while len(self._input) >= len(COMMANDS[0]):
            command, self._input = self._input[:5], self._input[5:]
            if command not in COMMANDS:
                self._input = command[1:] + self._input
            elif command == b"getva":
                reply += self._packet(now_s)
                self.answered += 1
            elif command == b"query":
                reply += b"firm"
        return reply

    def stream(self, now_s: float) -> list[bytes]:
        """Send nothing unasked."""
        del now_s
        return []

    def _latch(self, now_s: float) -> None:
        slot_s = now_s // LATCH_S * LATCH_S
        if slot_s > self._latched_s:
            power_w = float(self._bench.power_w(slot_s))
            amps = power_w / self._bench.voltage_v
            self._numbers = (
                round(self._bench.voltage_v * 1e4),
                round(amps * 1e5),
                round(power_w * 1e4),
            )
            self._mwh += power_w * LATCH_S / 3.6
            self._latched_s = slot_s

    def _packet(self, now_s: float) -> bytes:
        self._latch(now_s)
        mwh = int(self._mwh)
        first = b"pac1TC66" + b"1.14" + struct.pack("<I28xI", 4711, 12)
        first += struct.pack("<3I", *self._numbers)
        second = b"pac2" + struct.pack("<9I", 43, mwh // 5, mwh, 0, 0, 0, 31, 60, 58)
        blocks = (first, second, b"pac3")
        encryptor = cipher().encryptor()
        return encryptor.update(b"".join(map(_sealed, blocks))) + encryptor.finalize()


def _sealed(content: bytes) -> bytes:
    body = content.ljust(60, b"\0")
    return body + struct.pack("<I", crc16_modbus(body))
