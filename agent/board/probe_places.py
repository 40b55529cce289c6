"""Probes of the places results go to: folders on this board, a broker, the fleet."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from edgeperf import InputError
from edgeperf.agent.board.findings import Area, Board, Finding, may
from edgeperf.agent.board.host import disk_space

_AREA = Area("places")

#: Default port by URL scheme.
_PORTS = {"mqtt": 1883, "tcp": 1883, "mqtts": 8883, "ssl": 8883}

_CONNECT_TIMEOUT_S = 5.0

#: A long run's raw latencies and logs take some 100 MB.
_FULL_BYTES = 100_000_000
_LOW_BYTES = 1_000_000_000

#: A run makes a dozen files.
_FEW_INODES = 1000


def probe_places(board: Board) -> Iterator[Finding]:
    """Folders, the broker where one is named, the fleet where the board may be in one.

    Raises:
        InputError: The broker's URL is none.
    """
    for purpose, folder in board.folders.items():
        yield _folder(purpose, folder)
    if board.broker is not None:
        yield _broker(*parse_broker(board.broker))
    if board.fleet is not None:
        yield from board.fleet()


def parse_broker(url: str) -> tuple[str, int]:
    """Return host and port of an MQTT URL; a bare host is taken as ``mqtt://HOST``.

    Raises:
        InputError: It names no host, a scheme that is not MQTT's, or a port that is none.
    """
    expected = "expected mqtt://HOST[:PORT] or mqtts://HOST[:PORT]"
    parts = urlsplit(url if "://" in url else f"mqtt://{url}")
    try:
        port = parts.port
    except ValueError as error:
        raise InputError(f"broker {url!r}: {error}; {expected}") from error
    if parts.scheme not in _PORTS or not parts.hostname:
        raise InputError(f"broker {url!r}: not the URL of an MQTT broker; {expected}")
    return parts.hostname, port or _PORTS[parts.scheme]


def _broker(host: str, port: int) -> Finding:
    where = f"{host}:{port}"
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S):
            return _AREA.ok("broker", f"{where} answers")
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        text = "check address, network and firewall, and that the broker runs"
        return _AREA.fail("broker", f"{where} cannot be reached: {reason}", text)


def _folder(purpose: str, folder: Path) -> Finding:
    name = f"folder for {purpose}"
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if problem := _problem(place):
        return _AREA.fail(name, f"{folder}: {problem}", "choose another folder")
    space = disk_space(folder)
    value = f"{folder}: {space.free_bytes / 1e9:.1f} GB free"
    if space.free_bytes < _FULL_BYTES:
        return _AREA.fail(name, value, "make room: a run needs 100 MB")
    if space.free_bytes < _LOW_BYTES:
        return _AREA.warn(name, value, "make room: long runs keep much")
    if space.free_inodes is not None and space.free_inodes < _FEW_INODES:
        return _AREA.warn(name, f"{value}, {space.free_inodes} inodes", "delete files")
    return _AREA.ok(name, value)


def _problem(place: Path) -> str | None:
    if not place.is_dir():
        return f"{place} is not a folder"
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return f"{place} is mounted read-only"
    if not may(place, os.W_OK | os.X_OK):
        return f"this user may not write to {place}"
    return None
