"""What systemd is told."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeperf.agent.board import Supervisor


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """Listen where systemd would."""
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        listener.settimeout(5)
        yield address, listener


def test_each_message_arrives(systemd: tuple[str, socket.socket]) -> None:
    """Ready, alive, status and stopping are one datagram each; a status has one line."""
    address, listener = systemd
    supervisor = Supervisor({"NOTIFY_SOCKET": address})
    supervisor.ready()
    supervisor.alive()
    supervisor.status("idle\nREADY=0")
    supervisor.stopping()
    received = [listener.recv(100) for _ in range(4)]
    assert received == [b"READY=1", b"WATCHDOG=1", b"STATUS=idle", b"STOPPING=1"]


def test_an_abstract_address_is_understood() -> None:
    """A leading @ stands for the NUL of the abstract name space."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0edgeperf-test-notify")
        listener.settimeout(5)
        Supervisor({"NOTIFY_SOCKET": "@edgeperf-test-notify"}).ready()
        assert listener.recv(100) == b"READY=1"


def test_the_watchdog_is_answered_twice_as_often_as_it_asks() -> None:
    """Half of the period; nothing when it is another process's, or none."""
    mine = {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}
    assert Supervisor(dict(mine)).alive_period_s == 15
    assert Supervisor(mine | {"WATCHDOG_PID": "1"}).alive_period_s is None
    assert Supervisor({}).alive_period_s is None


def test_children_do_not_speak_for_the_service(systemd: tuple[str, socket.socket]) -> None:
    """The variables are gone from the environment that children inherit."""
    environment = {"NOTIFY_SOCKET": systemd[0], "WATCHDOG_USEC": "1", "HOME": "/"}
    Supervisor(environment)
    assert environment == {"HOME": "/"}


def test_nobody_listening_harms_nobody(tmp_path: Path) -> None:
    """Without systemd, or after it closed the socket, nothing happens."""
    Supervisor({}).ready()
    Supervisor({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()
