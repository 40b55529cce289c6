"""Serial ports: claimed, locked, refused in one line, lost and found."""

import errno
import fcntl
import os
import pty
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeperf.power.base import MeterError, MeterInputError, MeterLostError
from edgeperf.power.ports import SerialPort, holders_of


class Wire:
    """Both ends of a pty."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        tty.setraw(self.slave)
        self.port = os.ttyname(self.slave)

    def unplug(self) -> None:
        """Close the far end."""
        if self.master >= 0:
            os.close(self.slave)
            os.close(self.master)
            self.master = -1


@pytest.fixture
def wire() -> Iterator[Wire]:
    """A wire with nothing at its far end."""
    made = Wire()
    yield made
    made.unplug()


def test_reading_and_writing(wire: Wire) -> None:
    """Bytes pass unchanged both ways; reads end at their size, end or time."""
    port = SerialPort(wire.port, 115_200)
    os.write(wire.master, b"one\ntwo\nthree")
    assert port.read_until(b"\n", 1) == b"one\n"
    assert port.read_exactly(2, 1) == b"tw"
    assert port.read_some(1) == b"o\nthree"
    assert port.read_some(0.01) == b""
    assert port.read_exactly(3, 0.01) == b""
    assert port.read_until(b"\n", 0.01) == b""
    port.write(bytes(range(256)))
    assert os.read(wire.master, 300) == bytes(range(256))
    port.close()
    port.close()


def test_stale_bytes_are_drained(wire: Wire) -> None:
    """Draining waits for silence and says what it threw away."""
    port = SerialPort(wire.port, 9600)
    os.write(wire.master, b"stale")
    assert port.drain(0.05) == b"stale"
    assert port.read_some(0) == b""
    port.close()


def test_unplugging_is_one_error(wire: Wire) -> None:
    """Whatever the kernel says about a device that is gone, it is a lost meter."""
    port = SerialPort(wire.port, 9600)
    wire.unplug()
    for act in (
        lambda: port.read_some(1),
        lambda: port.read_exactly(1, 1),
        lambda: port.read_until(b"\n", 1),
        lambda: port.write(b"x"),
        port.drain,
    ):
        with pytest.raises(MeterLostError, match="unplugged"):
            act()
    port.close()


def test_silence_is_no_loss(wire: Wire) -> None:
    """A meter that says nothing is not gone."""
    port = SerialPort(wire.port, 9600)
    assert port.read_some(0.05) == b""
    port.close()


def test_busy_port_names_its_holder(wire: Wire) -> None:
    """The one that has the port is named, with its process id."""
    code = (
        "import sys, time; from edgeperf.power.ports import SerialPort\n"
        "port = SerialPort(sys.argv[1], 9600); print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, wire.port], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    assert any(f"({holder.pid})" in name for name in holders_of(wire.port))
    with pytest.raises(MeterError, match=rf"busy: held by .*\({holder.pid}\)"):
        SerialPort(wire.port, 9600)
    holder.kill()
    holder.wait()
    holder.stdout.close()
    # A device forgets at the last close who had it for himself; this wire stays open here.
    fcntl.ioctl(wire.slave, termios.TIOCNXCL)
    SerialPort(wire.port, 9600).close()


def test_port_is_exclusive_and_dtr_stays(wire: Wire) -> None:
    """Others are kept out while it is open, and closing drops no line."""
    port = SerialPort(wire.port, 9600)
    with pytest.raises(OSError) as refused:  # noqa: PT011 - which, is asked below
        fcntl.flock(os.open(wire.port, os.O_RDONLY | os.O_NOCTTY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    # Root may open it, and finds the lock.
    assert refused.value.errno == (errno.EAGAIN if os.getuid() == 0 else errno.EBUSY)
    assert not termios.tcgetattr(port._fd)[2] & termios.HUPCL
    port.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_no_permission_says_what_to_do(wire: Wire) -> None:
    """A port of another group is one line with the cure, and no traceback."""
    Path(wire.port).chmod(0o600)
    code = (
        "import os, pwd, sys; from edgeperf.power.ports import SerialPort\n"
        "from edgeperf import EdgeperfError\n"
        "nobody = pwd.getpwnam('nobody')\n"
        "os.setgroups([]); os.setgid(nobody.pw_gid); os.setuid(nobody.pw_uid)\n"
        "try: SerialPort(sys.argv[1], 9600)\n"
        "except EdgeperfError as error: print(error)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, wire.port], capture_output=True, text=True, check=True
    )
    assert "permission denied; run `sudo usermod -a -G dialout $USER`" in told.stdout


@pytest.mark.parametrize(
    ("port", "complaint"),
    [("/dev/no-such-port", "no such port"), ("/dev/null", "not a serial port"), ("/", "not a se")],
)
def test_what_is_no_port(port: str, complaint: str) -> None:
    """What is not there or no serial port is bad input."""
    with pytest.raises(MeterInputError, match=complaint):
        SerialPort(port, 9600)


def test_a_port_that_takes_nothing_is_lost(wire: Wire) -> None:
    """Writing does not hang on a device that stopped reading."""
    port = SerialPort(wire.port, 9600)
    begin_s = time.monotonic()
    with pytest.raises(MeterLostError, match=r"took no data for 0\.2 s"):
        port.write(b"x" * 1_000_000, 0.2)
    assert time.monotonic() - begin_s < 5
    port.close()
