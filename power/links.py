"""Links to instruments that speak text: a serial port, a TCP socket, a USBTMC device.

All of them offer what a driver needs of a line: write, read up to an end, throw away what is
stale, close. Foreign errors become ours here: an unreachable or forbidden device says what to
do, a closed connection is :class:`MeterLostError`.

The trap is USBTMC: the kernel's driver cannot be waited for with ``select``. A read blocks for
the driver's own timeout, 5 s unless it is set, which kernels before 4.20 do not allow.
"""

import array
import contextlib
import errno
import fcntl
import os
import select
import socket
import time
from pathlib import Path
from typing import Protocol

from edgeperf.power.base import MeterError, MeterInputError, MeterLostError
from edgeperf.power.ports import SerialPort, holders_of

CONNECT_S = 3.0
READ_BYTES = 65536
LONGEST_REPLY = 1 << 20
#: ``USBTMC_IOCTL_SET_TIMEOUT`` and ``USBTMC_IOCTL_CLEAR`` of ``linux/usb/tmc.h``.
_USBTMC_SET_TIMEOUT = 0x40045B0A
_USBTMC_CLEAR = 0x5B02


class Line(Protocol):
    """What a driver needs of a link; :class:`~edgeperf.power.ports.SerialPort` is one."""

    port: str

    def write(self, data: bytes) -> None:
        """Send *data*; MeterLostError if the device is gone."""
        ...

    def read_until(self, end: bytes, timeout_s: float) -> bytes:
        """Return bytes up to and including *end*, or what came before the timeout."""
        ...

    def drain(self, quiet_s: float = 0.1) -> bytes:
        """Throw away what is stale, and return it for error messages."""
        ...

    def close(self) -> None:
        """Let go; twice does no harm."""
        ...


def open_line(port: str, *, baud: int, tcp_port: int) -> Line:
    """Open whatever *port* names.

    Args:
        port: ``/dev/usbtmc0``, any other device path, or ``HOST[:PORT]``.
        baud: For a serial port.
        tcp_port: For a host without a port number.

    Raises:
        MeterInputError: There is no such port or host.
        MeterError: It is busy, forbidden or unreachable; says what to do.
    """
    if Path(port).name.startswith("usbtmc"):
        return UsbtmcPort(port)
    return SerialPort(port, baud) if "/" in port else TcpPort(port, tcp_port)


class TcpPort:
    """A TCP connection to an instrument or to a program that owns one.

    Args:
        port: ``HOST[:PORT]``; an IPv6 address stands in brackets.
        default: Port number if none is named.
    """

    def __init__(self, port: str, default: int) -> None:
        self.port = port
        self._buffer = b""
        host, number = _address(port, default)
        try:
            self._socket = socket.create_connection((host, number), timeout=CONNECT_S)
        except OSError as error:
            raise _connect_error(port, number, error) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def write(self, data: bytes) -> None:
        """Send *data*.

        Raises:
            MeterLostError: The connection is closed.
        """
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise MeterLostError(self.port, f"connection closed ({error})") from error

    def read_until(self, end: bytes, timeout_s: float) -> bytes:
        """Return bytes up to and including *end*, or what came before the timeout.

        Raises:
            MeterLostError: The connection is closed.
        """
        deadline_s = time.monotonic() + timeout_s
        while end not in self._buffer and len(self._buffer) < LONGEST_REPLY:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not (data := self._receive(left_s)):
                data, self._buffer = self._buffer, b""
                return data
            self._buffer += data
        head, found, self._buffer = self._buffer.partition(end)
        return head + found

    def drain(self, quiet_s: float = 0.1) -> bytes:
        """Throw away what came until nothing comes for *quiet_s*, at most 2 s long."""
        deadline_s = time.monotonic() + 2.0
        dropped, self._buffer = self._buffer, b""
        while time.monotonic() < deadline_s and (data := self._receive(quiet_s)):
            dropped += data
        return dropped

    def _receive(self, timeout_s: float) -> bytes:
        try:
            ready, _, _ = select.select([self._socket], [], [], timeout_s)
            if not ready:
                return b""
            data = self._socket.recv(READ_BYTES)
        except (OSError, ValueError) as error:
            raise MeterLostError(self.port, f"connection closed ({error})") from error
        if not data:
            raise MeterLostError(self.port, "connection closed by the other side")
        return data

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def _address(port: str, default: int) -> tuple[str, int]:
    host, colon, number = port.rpartition(":")
    if not colon or port.endswith("]"):
        host, number = port, str(default)
    if not host or not number.isascii() or not number.isdigit() or int(number) >= 1 << 16:
        raise MeterInputError(f"meter on {port}: expected a device path or HOST:PORT")
    return host.strip("[]"), int(number)


def _connect_error(port: str, number: int, error: OSError) -> MeterInputError | MeterError:
    if isinstance(error, socket.gaierror):
        return MeterInputError(f"meter on {port}: no such host ({error.strerror})")
    if isinstance(error, ConnectionRefusedError):
        return MeterError(
            port,
            f"nothing listens on TCP port {number} there; is it running, and is this its port?",
        )
    return MeterError(port, f"cannot be reached ({error}); check the address and the network")


class UsbtmcPort:
    """A USB test and measurement device behind the kernel's ``usbtmc`` driver.

    Args:
        port: Device path.
        timeout_s: How long the driver waits for a reply.
    """

    def __init__(self, port: str, timeout_s: float = 1.0) -> None:
        self.port = port
        self._fd = -1
        try:
            self._fd = os.open(port, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise _device_error(port, error) from error
        self._blocks = self._control(_USBTMC_SET_TIMEOUT, array.array("I", [int(timeout_s * 1e3)]))

    def _control(self, request: int, argument: "array.array[int] | int" = 0) -> bool:
        try:
            fcntl.ioctl(self._fd, request, argument)
        except OSError:
            return False
        return True

    def write(self, data: bytes) -> None:
        """Send one message.

        Raises:
            MeterLostError: The device is gone.
        """
        try:
            os.write(self._fd, data)
        except OSError as error:
            raise MeterLostError(self.port, f"unplugged ({error})") from error

    def read_until(self, end: bytes, timeout_s: float) -> bytes:
        """Return bytes up to and including *end*, or what came before the timeout.

        Raises:
            MeterLostError: The device is gone.
        """
        deadline_s = time.monotonic() + timeout_s
        data = b""
        while not data.endswith(end) and len(data) < LONGEST_REPLY:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not (got := self._read(left_s)):
                break
            data += got
        return data

    def _read(self, timeout_s: float) -> bytes:
        try:
            # A driver without timeouts of its own says at once that it is ready.
            if not self._blocks and not select.select([self._fd], [], [], timeout_s)[0]:
                return b""
            data = os.read(self._fd, READ_BYTES)
        except (OSError, ValueError) as error:
            if getattr(error, "errno", None) in (errno.ETIMEDOUT, errno.EAGAIN):
                return b""
            raise MeterLostError(self.port, f"unplugged ({error})") from error
        return data

    def drain(self, quiet_s: float = 0.1) -> bytes:
        """Throw away what is stale: clear the device, or read until it is silent."""
        if self._blocks:
            self._control(_USBTMC_CLEAR)
            return b""
        dropped = b""
        while len(dropped) < LONGEST_REPLY and (data := self._read(quiet_s)):
            dropped += data
        return dropped

    def close(self) -> None:
        """Let go of the device."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1


def _device_error(port: str, error: OSError) -> MeterInputError | MeterError:
    if error.errno in (errno.ENOENT, errno.ENXIO, errno.ENODEV):
        return MeterInputError(
            f"meter on {port}: no such device; plug it in, load the module usbtmc, or see "
            "`edgeperf meter ls`"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        rule = 'SUBSYSTEM=="usbmisc", KERNEL=="usbtmc*", MODE="0660", GROUP="plugdev"'
        return MeterError(port, f"permission denied; add the udev rule {rule} and join that group")
    if error.errno in (errno.EBUSY, errno.EAGAIN):
        names = ", ".join(holders_of(port)) or "a program of another user"
        return MeterError(port, f"busy: held by {names}; end it, or choose another port")
    return MeterInputError(f"meter on {port}: not a USBTMC device ({error})")
