"""Probes of heat, supply, memory and time."""

import os
from collections.abc import Iterator

from edgeperf.agent.board.conditions import Sensors, Snapshot
from edgeperf.agent.board.findings import Area, Board, Finding, may
from edgeperf.agent.board.host import available_memory_bytes, swap_total_bytes
from edgeperf.agent.board.machine import pi_revision

_AREA = Area("condition")

#: Boards start to hold back between 80 and 85 degrees (the Raspberry Pi's soft limit is 80).
_HOT_C = 80.0

#: One runtime and a small model want about 300 MB; below this, runs fail at random.
_LEAST_MEMORY_BYTES = 500_000_000

#: Enough for latencies on one board, and for comparing time stamps across a shelf of them.
_GOOD_ERROR_NS = 1_000_000_000


def probe_health(board: Board) -> Iterator[Finding]:
    """Thermal zones, throttle flags, supply, memory, clock."""
    sensors = Sensors(board.root)
    snapshot = sensors.snapshot()
    yield _temperatures(snapshot)
    yield _throttle(board, sensors)
    if snapshot.throttle.active or snapshot.throttle.happened:
        yield _held_back(snapshot)
    yield _pressure(snapshot)
    yield _memory(board)
    yield _clock(board)


def _temperatures(snapshot: Snapshot) -> Finding:
    zones = snapshot.temperatures_c
    if not zones:
        text = "runs cannot tell heat; watch for falling clocks"
        return _AREA.missing("thermal zones", "none", text)
    value = ", ".join(f"{name} {zones[name]:.0f} °C" for name in sorted(zones))
    if max(zones.values()) >= _HOT_C:
        return _AREA.warn("thermal zones", value, "let it cool, or cool it")
    return _AREA.ok("thermal zones", value)


def _throttle(board: Board, sensors: Sensors) -> Finding:
    names = sensors.throttle_names
    mailbox = board.root / "dev/vcio"
    if mailbox.exists() and not may(mailbox, os.R_OK | os.W_OK):
        value = "the firmware may not be asked (/dev/vcio)"
        text = "join the group video: sudo usermod -aG video $USER, then log in again"
        return _AREA.warn("throttle flags", value, text)
    if names:
        return _AREA.ok("throttle flags", ", ".join(names))
    if pi_revision(board.root):
        text = "install vcgencmd: sudo apt install raspi-utils (or libraspberrypi-bin)"
        return _AREA.warn("throttle flags", "no vcgencmd here", text)
    text = "runs show held-back clocks only where the frequency is readable"
    return _AREA.missing("throttle flags", "this board tells none", text)


def _held_back(snapshot: Snapshot) -> Finding:
    state = snapshot.throttle
    now = f"now: {', '.join(state.active) or 'nothing'}"
    value = f"{now}; earlier: {', '.join(state.happened) or 'nothing'}"
    text = "use the board's own supply and a short cable; cool it; look again"
    return _AREA.warn("held back", value, text)


def _pressure(snapshot: Snapshot) -> Finding:
    if not snapshot.pressure:
        text = "boot with psi=1 to see stalls for want of CPU, memory and disk"
        return _AREA.missing("pressure (PSI)", "the kernel does not count it", text)
    return _AREA.ok("pressure (PSI)", ", ".join(snapshot.pressure))


def _memory(board: Board) -> Finding:
    available = available_memory_bytes(board.root)
    swap = swap_total_bytes(board.root)
    value = f"{available / 1e9:.1f} GB available, {(swap or 0) / 1e9:.1f} GB swap"
    if available < _LEAST_MEMORY_BYTES:
        text = "stop other programs (a desktop takes half a gigabyte)"
        return _AREA.warn("memory", value, text)
    return _AREA.ok("memory", value)


def _clock(board: Board) -> Finding:
    clock = board.kernel_clock()
    if clock is None:
        return _AREA.missing("clock sync", "the kernel does not say")
    if not clock.synchronised:
        text = "sudo timedatectl set-ntp true; without it times of boards do not compare"
        return _AREA.warn("clock sync", "no NTP client keeps the clock", text)
    error = f"error at most {clock.max_error_ns / 1e6:.0f} ms"
    value = f"synchronised, {error}, crystal {clock.frequency_ppm:+.1f} ppm"
    if clock.max_error_ns > _GOOD_ERROR_NS:
        text = "the NTP server has not been heard for long; check the network"
        return _AREA.warn("clock sync", value, text)
    return _AREA.ok("clock sync", value)
