"""Modbus RTU, as much as reading registers takes.

A reply counts only if address, function, byte count and CRC are right. What stands before it
(a stray zero of an RS-485 line that turns round, the echo of our own request, a program that
sent ``AT`` to every port) is skipped, never interpreted.

The trap: the CRC travels low byte first, whatever some data sheets print.
"""

import struct
import time

from edgeperf.power.base import MeterReplyError
from edgeperf.power.crc import crc16_modbus
from edgeperf.power.polled import Polled
from edgeperf.power.serial_meter import SerialMeter

READ_HOLDING = 3
READ_INPUT = 4
#: An address that every slave answers, for a line with one meter only.
ANY_ADDRESS = 0xF8
#: How long a slave at 9600 baud may take, its thinking included.
PATIENCE_S = 0.3
LONGEST_REPLY = 512
_REASONS = {1: "no such function", 2: "no such register", 3: "bad count", 4: "it failed"}


def with_crc(body: bytes) -> bytes:
    """Return *body* followed by its CRC, low byte first."""
    return body + struct.pack("<H", crc16_modbus(body))


def read_request(address: int, function: int, first: int, count: int) -> bytes:
    """Return the request for *count* registers from *first* on."""
    return with_crc(struct.pack(">BBHH", address, function, first, count))


def find_registers(data: bytes, address: int, function: int, count: int) -> tuple[int, ...] | None:
    """Return the registers of the last valid reply in *data*, None if there is none.

    Args:
        data: Everything that came since the request.
        address: Who was asked; :data:`ANY_ADDRESS` takes a reply from anyone.
        function: What was asked.
        count: How many registers were asked for.
    """
    size = 2 * count
    for start in range(len(data) - size - 5, -1, -1):
        frame = data[start : start + size + 5]
        if frame[1:3] == bytes([function, size]) and _speaks(frame, address):
            return struct.unpack(f">{count}H", frame[3:-2])
    return None


def find_refusal(data: bytes, address: int, function: int) -> int | None:
    """Return the exception code of a valid refusal in *data*, None if there is none."""
    for start in range(len(data) - 4):
        frame = data[start : start + 5]
        if frame[1] == function | 0x80 and _speaks(frame, address):
            return frame[2]
    return None


def _speaks(frame: bytes, address: int) -> bool:
    named = frame[0] == address or (address == ANY_ADDRESS and 0 < frame[0] <= ANY_ADDRESS)
    return named and frame == with_crc(frame[:-2])


class ModbusMeter(Polled, SerialMeter):
    """A meter whose readings are input registers.

    Attributes:
        address: Slave address.
        registers: How many input registers hold a reading.
        advice: What to check if nobody answers.
    """

    address: int = 1
    registers: int
    advice: str

    def ask(self) -> bytes:
        """Read the input registers once; returns all bytes of the reply."""
        return self.exchange(READ_INPUT, 0, self.registers)

    def flush(self) -> None:
        """Wait until the line is silent, as a slave needs to see where a frame begins."""
        self.line.drain(0.05)

    def exchange(self, function: int, first: int, count: int) -> bytes:
        """Ask for registers and return everything that came, a valid reply among it.

        Raises:
            MeterReplyError: No valid reply, or the slave refused; says what was seen.
            MeterLostError: The port is gone.
        """
        self.line.drain(0.0)
        self.line.write(read_request(self.address, function, first, count))
        deadline_s = time.monotonic() + PATIENCE_S
        data = b""
        while len(data) < LONGEST_REPLY and (left_s := deadline_s - time.monotonic()) > 0:
            data += self.line.read_some(left_s)
            if find_registers(data, self.address, function, count) is not None:
                return data
            if (code := find_refusal(data, self.address, function)) is not None:
                why = f"Modbus exception {code} ({_REASONS.get(code, 'unknown')})"
                raise MeterReplyError(self.port, f"refused: {why}; another device?")
        raise MeterReplyError(self.port, self._complaint(data))

    def stranger(self, seen: str) -> MeterReplyError:
        """Make the error for a device that speaks Modbus but is not this meter."""
        return MeterReplyError(self.port, f"not a {self.kind}: {seen}; choose another kind or port")

    def _complaint(self, data: bytes) -> str:
        where = f"at {self.baud} baud, {self.stopbits} stop bits, from address {self.address}"
        seen = f" (saw {data[:24].hex(' ')})" if data else ""
        what = "no valid Modbus reply" if data else "no reply"
        return f"{what} {where}{seen}; {self.advice}"
