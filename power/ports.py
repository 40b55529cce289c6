"""Serial ports, opened so that neither the meter nor another program is disturbed.

A port is locked two ways: ``flock`` keeps out other careful programs, ``TIOCEXCL`` keeps
out all others. DTR is left as the kernel sets it on opening (many boards reset when it
moves) and not dropped on closing. Reading goes around pyserial's own loop: it has to hand
over whatever is there, at once, with the moment it came.

The trap: a device that was unplugged reads as ready with no data, as EIO, or as ENXIO,
depending on the driver. All of them are :class:`MeterLostError` here.
"""

import contextlib
import errno
import fcntl
import os
import select
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import serial

from edgeperf.power.base import MeterError, MeterInputError, MeterLostError

READ_BYTES = 1 << 18


def holders_of(port: str) -> list[str]:
    """Name the programs that have *port* open, as ``name (pid)``; only those we may see."""
    target = os.path.realpath(port)
    found = []
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):
            if any(os.path.realpath(link) == target for link in folder.iterdir()):
                name = (folder.parent / "comm").read_text().strip()
                found.append(f"{name} ({folder.parent.name})")
    return found


def is_pseudo_terminal(port: str) -> bool:
    """Say whether behind *port* is a program, as with a simulated meter, and no device."""
    return os.path.realpath(port).startswith("/dev/pts/")


class SerialPort:
    """An open serial port that belongs to one meter.

    Args:
        port: Device path.
        baud: Bits per second; USB devices ignore it.
        stopbits: 1 or 2.
        dtr: What to do with DTR: None leaves it alone, False drops it on opening.

    Raises:
        MeterInputError: There is no such port, or it is not a serial port.
        MeterError: It is busy or forbidden; says who holds it or what to do.
    """

    def __init__(self, port: str, baud: int, *, stopbits: int = 1, dtr: bool | None = None) -> None:
        self.port = port
        self._serial = serial.Serial(exclusive=True, stopbits=stopbits, timeout=0)
        self._serial.port = port
        self._serial.dsrdtr = dtr is None  # pyserial then does not touch DTR
        if dtr is not None:
            self._serial.dtr = dtr
        try:
            self._serial.baudrate = baud
            self._serial.open()
        except (serial.SerialException, OSError, ValueError) as error:
            raise _open_error(port, error) from error
        self._fd: int = self._serial.fileno()
        with contextlib.suppress(OSError, termios.error):
            fcntl.ioctl(self._fd, termios.TIOCEXCL)
            attributes = termios.tcgetattr(self._fd)
            attributes[2] &= ~termios.HUPCL
            termios.tcsetattr(self._fd, termios.TCSANOW, attributes)

    def read_some(self, timeout_s: float) -> bytes:
        """Return what is there, waiting at most *timeout_s* for the first byte.

        Raises:
            MeterLostError: The device is gone.
        """
        with self._lost():
            ready, _, _ = select.select([self._fd], [], [], max(timeout_s, 0.0))
            if not ready:
                return b""
            data = os.read(self._fd, READ_BYTES)
        if not data:
            raise MeterLostError(self.port, "unplugged (ready to read, but no data)")
        return data

    def read_exactly(self, size: int, timeout_s: float) -> bytes:
        """Return *size* bytes, or fewer if *timeout_s* passes first.

        Raises:
            MeterLostError: The device is gone.
        """
        deadline_s = time.monotonic() + timeout_s
        data = bytearray()
        while len(data) < size:
            left_s = deadline_s - time.monotonic()
            with self._lost():
                ready, _, _ = select.select([self._fd], [], [], max(left_s, 0.0))
                if not ready:
                    break
                got = os.read(self._fd, size - len(data))
            if not got:
                raise MeterLostError(self.port, "unplugged (ready to read, but no data)")
            data += got
        return bytes(data)

    def read_until(self, end: bytes, timeout_s: float, *, limit: int = 65536) -> bytes:
        """Return bytes up to and including *end*, or what came before the timeout.

        Raises:
            MeterLostError: The device is gone.
        """
        deadline_s = time.monotonic() + timeout_s
        data = bytearray()
        while not data.endswith(end) and len(data) < limit:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not (got := self.read_exactly(1, left_s)):
                break
            data += got
        return bytes(data)

    def write(self, data: bytes, timeout_s: float = 1.0) -> None:
        """Send *data*.

        Raises:
            MeterLostError: The device is gone, or takes nothing for *timeout_s*.
        """
        deadline_s = time.monotonic() + timeout_s
        left = memoryview(data)
        while left:
            with self._lost():
                _, ready, _ = select.select(
                    [], [self._fd], [], max(deadline_s - time.monotonic(), 0.0)
                )
                if not ready:
                    raise MeterLostError(self.port, f"took no data for {timeout_s:g} s")
                left = left[os.write(self._fd, left) :]

    def drain(self, quiet_s: float = 0.1, *, limit_s: float = 2.0) -> bytes:
        """Throw away what is in the buffers until the line is silent for *quiet_s*.

        Returns:
            What was thrown away, for error messages.
        """
        deadline_s = time.monotonic() + limit_s
        dropped = bytearray()
        while time.monotonic() < deadline_s:
            data = self.read_some(quiet_s)
            if not data:
                break
            dropped += data
        return bytes(dropped)

    def close(self) -> None:
        """Let go of the port. Calling it twice, or on an unplugged device, does no harm."""
        with contextlib.suppress(OSError, serial.SerialException, termios.error):
            fcntl.ioctl(self._fd, termios.TIOCNXCL)
        with contextlib.suppress(OSError, serial.SerialException, termios.error):
            self._serial.close()

    @contextlib.contextmanager
    def _lost(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, TypeError, serial.SerialException) as error:
            raise MeterLostError(self.port, f"unplugged ({error})") from error


def _open_error(port: str, error: Exception) -> MeterInputError | MeterError:
    number = getattr(error, "errno", None)
    if number in (errno.ENOENT, errno.ENXIO, errno.ENODEV):
        return MeterInputError(
            f"meter on {port}: no such port; plug it in, or see `edgeperf meter ls`"
        )
    if number in (errno.EACCES, errno.EPERM):
        return MeterError(
            port,
            "permission denied; run `sudo usermod -a -G dialout $USER`, log out and in again",
        )
    if number in (errno.EBUSY, errno.EAGAIN) or "exclusively lock" in str(error):
        names = ", ".join(holders_of(port)) or "a program of another user"
        return MeterError(port, f"busy: held by {names}; end it, or choose another port")
    if isinstance(error, ValueError):
        return MeterInputError(f"meter on {port}: {error}")
    return MeterInputError(f"meter on {port}: not a serial port ({error})")
