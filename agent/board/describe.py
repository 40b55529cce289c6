"""What the board is: everything about it that explains a number and does not change in a run.

Taken once per run and kept in the result. Nothing here identifies a person or one
specimen of a board, apart from the host name.
"""

import os
import platform
import sys
from pathlib import Path

import msgspec

from edgeperf.agent.board.cores import Core, cores
from edgeperf.agent.board.cpufreq import FrequencyPolicy, boost_enabled, frequency_policies
from edgeperf.agent.board.host import memory_total_bytes, swap_total_bytes
from edgeperf.agent.board.kernel_files import read_text
from edgeperf.agent.board.machine import (
    cpu_model,
    jetpack_release,
    l4t_release,
    machine_model,
    microcode,
    nvpmodel_mode,
    pi_revision,
    soc_ids,
    virtualisation,
)


class BoardInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One board. What could not be found is None or empty.

    Attributes:
        hostname: Its name on the network.
        model: Model as the firmware names it.
        cpu_model: Name of the processor.
        microcode: Version of its microcode (x86).
        soc: What the kernel knows of the system on chip.
        pi_revision: Revision code of a Raspberry Pi.
        l4t: Jetson Linux release.
        jetpack: JetPack release.
        power_mode: Mode of ``nvpmodel`` on a Jetson.
        arch: Machine of the kernel: ``aarch64``, ``x86_64``, ...
        pointer_bits: Width of this Python; 32 under a 64-bit kernel is a 32-bit system.
        os_release: Name of the distribution.
        kernel: Release of the kernel.
        kernel_version: Build of the kernel, which tells PREEMPT_RT.
        libc: C library and version: ``glibc 2.36``.
        python: Version of Python.
        memory_bytes: Physical memory.
        swap_bytes: Swap space, zram included.
        cores: Every core.
        frequency: Who decides the clocks, and between which limits.
        boost: Whether clocks above the nominal one are allowed.
        virtualisation: Hints of a container or a virtual machine.
    """

    hostname: str | None
    model: str | None
    cpu_model: str | None
    microcode: str | None
    soc: dict[str, str]
    pi_revision: str | None
    l4t: str | None
    jetpack: str | None
    power_mode: str | None
    arch: str
    pointer_bits: int
    os_release: str | None
    kernel: str | None
    kernel_version: str | None
    libc: str | None
    python: str
    memory_bytes: int | None
    swap_bytes: int | None
    cores: tuple[Core, ...]
    frequency: tuple[FrequencyPolicy, ...]
    boost: bool | None
    virtualisation: tuple[str, ...]


def describe_board(root: Path = Path("/")) -> BoardInfo:
    """Return what the board is.

    Args:
        root: Root of the file tree. Python, C library and pointer width are always
            those of this process.
    """
    kernel = root / "proc/sys/kernel"
    return BoardInfo(
        hostname=read_text(kernel / "hostname"),
        model=machine_model(root),
        cpu_model=cpu_model(root),
        microcode=microcode(root),
        soc=soc_ids(root),
        pi_revision=pi_revision(root),
        l4t=l4t_release(root),
        jetpack=jetpack_release(root),
        power_mode=nvpmodel_mode(root),
        # The file is there since Linux 6.1.
        arch=read_text(kernel / "arch") or platform.machine(),
        pointer_bits=64 if sys.maxsize > 1 << 32 else 32,
        os_release=_os_release(root),
        kernel=read_text(kernel / "osrelease"),
        kernel_version=read_text(kernel / "version"),
        libc=_libc(),
        python=platform.python_version(),
        memory_bytes=memory_total_bytes(root),
        swap_bytes=swap_total_bytes(root),
        cores=cores(root),
        frequency=frequency_policies(root),
        boost=boost_enabled(root),
        virtualisation=virtualisation(root),
    )


def _os_release(root: Path) -> str | None:
    for line in (read_text(root / "etc/os-release") or "").splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return value.strip("\"'")
    return None


def _libc() -> str | None:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):  # musl has no such name
        return None
