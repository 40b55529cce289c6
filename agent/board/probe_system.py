"""Probes of the system: what runs on the board, and whether edgeperf can run on that."""

import platform
import re
import sys
from collections.abc import Iterator

from edgeperf.agent.board.describe import describe_board
from edgeperf.agent.board.findings import Area, Board, Finding
from edgeperf.agent.board.kernel_files import read_int, read_text

_AREA = Area("system")

#: Machines for which the runtimes have wheels.
_ARCHES = ("aarch64", "x86_64")
_PYTHON = (3, 10)

#: Oldest glibc of the runtimes' wheels: ai-edge-litert 2.x and onnxruntime 1.2x need 2.27,
#: openvino 2026 needs 2.35 (their manylinux tags).
_GLIBC_ANY, _GLIBC_ALL = (2, 27), (2, 35)

#: Clock sources that a program reads without a system call, or nearly so.
_FAST_CLOCKS = ("arch_sys_counter", "tsc", "kvm-clock", "hyperv_clocksource_tsc_page")


def probe_system(board: Board) -> Iterator[Finding]:
    """Model, distribution, architecture, Python, C library, virtualisation, kernel settings."""
    info = describe_board(board.root)
    yield _AREA.ok("board", info.model or "unknown model")
    yield _os(info.os_release, info.kernel)
    yield _arch(info.arch, info.pointer_bits)
    yield _python()
    yield _libc(info.libc)
    if info.virtualisation:
        yield _AREA.warn(
            "virtualisation",
            "; ".join(info.virtualisation),
            "expect stolen time and no control over clocks; measure on the board itself",
        )
    if info.jetpack:
        yield _AREA.ok("JetPack", f"{info.jetpack} (Jetson Linux {info.l4t})")
    if info.pi_revision:
        yield _AREA.ok("Raspberry Pi revision", info.pi_revision)
    yield _clock_source(board)
    yield _kernel_settings(board)


def _os(release: str | None, kernel: str | None) -> Finding:
    if sys.platform != "linux":
        value = f"{platform.system()} is not Linux"
        return _AREA.fail("OS", value, "use a 64-bit Linux")
    return _AREA.ok("OS", f"{release or 'unknown Linux'}, kernel {kernel or 'unknown'}")


def _arch(arch: str, pointer_bits: int) -> Finding:
    if arch not in _ARCHES:
        if arch.startswith("armv") or arch in ("i686", "i386"):
            return _AREA.fail(
                "architecture",
                f"{arch} is 32-bit; no runtime is made for it any more",
                "install a 64-bit OS",
            )
        text = "no runtime has ready-made wheels for it; build them"
        return _AREA.warn("architecture", arch, text)
    if pointer_bits != 64:  # noqa: PLR2004 - bits
        return _AREA.fail(
            "architecture",
            f"32-bit system on a 64-bit kernel ({arch})",
            "install a 64-bit OS (on a Raspberry Pi: the image named 64-bit)",
        )
    return _AREA.ok("architecture", f"{arch}, 64-bit")


def _python() -> Finding:
    value = platform.python_version()
    if sys.version_info < _PYTHON:
        return _AREA.fail("Python", value, "edgeperf needs Python 3.10 or newer")
    return _AREA.ok("Python", value)


def _libc(libc: str | None) -> Finding:
    found = re.fullmatch(r"glibc (\d+)\.(\d+).*", libc or "")
    if found is None:
        text = "the runtimes' wheels need glibc; build them, or use a distribution with glibc"
        return _AREA.warn("C library", libc or "not glibc", text)
    version = (int(found[1]), int(found[2]))
    if version < _GLIBC_ANY:
        text = "no current runtime has wheels for it; use a newer OS release"
        return _AREA.fail("C library", str(libc), text)
    if version < _GLIBC_ALL:
        text = "openvino's wheels need glibc 2.35; the other runtimes work"
        return _AREA.warn("C library", str(libc), text)
    return _AREA.ok("C library", str(libc))


def _clock_source(board: Board) -> Finding:
    folder = board.root / "sys/devices/system/clocksource/clocksource0"
    source = read_text(folder / "current_clocksource")
    if source is None:
        return _AREA.missing("clock source", "the kernel does not say", "")
    if source not in _FAST_CLOCKS:
        text = "reading it is slow and shows in short latencies; check the kernel's command line"
        return _AREA.warn("clock source", source, text)
    return _AREA.ok("clock source", source)


def _kernel_settings(board: Board) -> Finding:
    settings = ("kernel/perf_event_paranoid", "kernel/numa_balancing", "vm/swappiness")
    values = {name: read_int(board.root / "proc/sys" / name) for name in settings}
    shown = ", ".join(
        f"{name.replace('/', '.')}={value}" for name, value in values.items() if value is not None
    )
    if values["kernel/numa_balancing"]:
        text = "it moves pages while the clock runs: sudo sysctl kernel.numa_balancing=0"
        return _AREA.warn("kernel settings", shown, text)
    return _AREA.ok("kernel settings", shown or "none readable")
