"""The slave side of Modbus RTU for simulated meters."""

from typing import Protocol

from edgeperf.power.modbus import ANY_ADDRESS, with_crc
from edgeperf.power.simulate.bench import Bench

REQUEST_BYTES = 8
RESET_ENERGY = 0x42
NO_SUCH_REGISTER = 2


class RegisterMap(Protocol):
    """What a slave's registers hold."""

    def registers(self, function: int, now_s: float) -> list[int]:
        """Return all registers of a function, empty if there is none."""
        ...


class ModbusSlave:
    """Answers requests for registers.

    Args:
        meter: Holds the registers.
        address: Own address.
        stray: Bytes that a line driver puts before each reply.
        echo: Whether the line echoes what the host sends.
    """

    tick_s = 0.0
    queue_bytes = 512

    def __init__(self, meter: RegisterMap, address: int, *, stray: bytes, echo: bool) -> None:
        self._meter = meter
        self._address = address
        self._stray = stray
        self._echo = echo
        self._seen = b""

    def answer(self, data: bytes, now_s: float) -> bytes:
        """Return the reply to what has been completed by *data*."""
        self._seen = (self._seen + data)[-64:]
        for size in (REQUEST_BYTES, 4):
            frame = self._seen[-size:]
            if len(frame) == size and frame == with_crc(frame[:-2]):
                self._seen = b""
                reply = self._reply(frame, now_s)
                return (frame if self._echo else b"") + self._stray + reply if reply else b""
        return b""

    def stream(self, now_s: float) -> list[bytes]:
        """Send nothing unasked."""
        del now_s
        return []

    def _reply(self, frame: bytes, now_s: float) -> bytes:
        if frame[0] not in (self._address, ANY_ADDRESS):
            return b""
        if frame[1] == RESET_ENERGY:
            return frame
        head = frame[:2]
        first, count = int.from_bytes(frame[2:4], "big"), int.from_bytes(frame[4:6], "big")
        values = self._meter.registers(frame[1], now_s)[first : first + count]
        if len(values) < count or not values:
            return with_crc(bytes([head[0], head[1] | 0x80, NO_SUCH_REGISTER]))
        body = b"".join(value.to_bytes(2, "big") for value in values)
        return with_crc(head + bytes([len(body)]) + body)


class LatchedPower:
    """Mean power of the last whole refresh period, renewed once a period.

    Args:
        bench: The load.
        period_s: Refresh period.
    """

    def __init__(self, bench: Bench, period_s: float = 1.0) -> None:
        self._bench = bench
        self._period_s = period_s
        self._count = -1
        self._power_w = 0.0
        self._energy_j = 0.0

    def at(self, now_s: float) -> tuple[float, float]:
        """Return power and energy so far, as the meter knows them at *now_s*."""
        count = int(now_s // self._period_s)
        if count != self._count:
            begin_s = (count - 1) * self._period_s
            moments = [begin_s + (i + 0.5) / 32 * self._period_s for i in range(32)]
            self._power_w = float(self._bench.power_w(moments).mean())
            missed = count - self._count if self._count >= 0 else 1
            self._energy_j += self._power_w * missed * self._period_s
            self._count = count
        return self._power_w, self._energy_j


def words(value: float) -> list[int]:
    """Return a 32-bit value as two registers, low word first."""
    whole = round(value) & 0xFFFFFFFF
    return [whole & 0xFFFF, whole >> 16]
