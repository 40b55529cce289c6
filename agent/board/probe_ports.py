"""Probes of serial ports, of who else wants them, and of the meters on them."""

import contextlib
import grp
import os
from collections.abc import Iterator
from pathlib import Path

from edgeperf.agent.board.findings import Area, Board, Finding, may
from edgeperf.agent.board.kernel_files import read_text

_AREA = Area("ports")

#: USB meters, and the UARTs of a board's own header.
_PATTERNS = ("ttyUSB*", "ttyACM*", "ttyAMA*", "ttyTHS*")

#: Programs that open serial ports unasked -> how to keep them away.
_INTRUDERS = {
    "ModemManager": "it talks to new serial ports: install edgeperf's udev rules"
    " (deploy/install.sh), or sudo systemctl disable --now ModemManager",
    "brltty": "it takes some USB-serial chips for Braille displays: sudo apt remove brltty",
}
_RULES = "99-edgeperf.rules"


def probe_ports(board: Board) -> Iterator[Finding]:
    """Serial ports and permissions, programs that grab them, meters."""
    ports = _ports(board.root)
    if not ports:
        text = "plug a meter in; without one energy is not measured"
        yield _AREA.missing("serial ports", "none", text)
    for port, stable in ports.items():
        yield _port(port, stable, board.root)
    if ports:
        yield from _intruders(board.root)
    if board.meters is not None:
        yield from board.meters()


def _ports(root: Path) -> dict[Path, str]:
    """Return each port and its stable name, itself where it has none."""
    stable: dict[Path, str] = {}
    # by-id wins; by-path is for clones that share one serial number.
    for folder in ("dev/serial/by-path", "dev/serial/by-id"):
        for link in sorted((root / folder).glob("*")):
            with contextlib.suppress(OSError):
                stable[link.resolve(strict=True)] = f"/{link.relative_to(root)}"
    found = sorted(path for pattern in _PATTERNS for path in (root / "dev").glob(pattern))
    return {path: stable.get(path.resolve(), f"/{path.relative_to(root)}") for path in found}


def _port(port: Path, stable: str, root: Path) -> Finding:
    name = f"port {stable}"
    shown = f"/{port.relative_to(root)}"
    if may(port, os.R_OK | os.W_OK):
        return _AREA.ok(name, f"{shown} may be opened")
    group = _group(port)
    text = f"join its group: sudo usermod -aG {group} $USER, then log in again"
    return _AREA.warn(name, f"{shown} may not be opened by this user", text)


def _group(port: Path) -> str:
    number = port.stat().st_gid
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _intruders(root: Path) -> Iterator[Finding]:
    if any(
        (root / folder / _RULES).exists() for folder in ("etc/udev/rules.d", "lib/udev/rules.d")
    ):
        return
    running = {read_text(path) for path in root.glob("proc/[0-9]*/comm")}
    for program, text in _INTRUDERS.items():
        if program in running:
            yield _AREA.warn(program, f"{program} is running", text)
