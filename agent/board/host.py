"""How much memory and disk are left."""

import os
from pathlib import Path

import msgspec

from edgeperf import InputError
from edgeperf.agent.board.cgroups import memory_left_bytes, memory_limit_bytes
from edgeperf.agent.board.kernel_files import read_fields


class DiskSpace(msgspec.Struct, frozen=True, kw_only=True):
    """Space of the file system that holds a folder.

    Attributes:
        free_bytes: What an ordinary user may still write.
        total_bytes: Its size.
        free_inodes: Files that can still be made; None where the file system has no limit.
    """

    free_bytes: int
    total_bytes: int
    free_inodes: int | None


def memory_total_bytes(root: Path = Path("/")) -> int | None:
    """Return the physical memory, or the control group's limit where that is lower."""
    return _lesser(_meminfo(root, "MemTotal"), memory_limit_bytes(root))


def available_memory_bytes(root: Path = Path("/")) -> int:
    """Return the memory that new processes can have without swapping, at most.

    Where /proc does not say, it is the memory that nothing at all uses.
    """
    available = _lesser(_meminfo(root, "MemAvailable"), memory_left_bytes(root))
    if available is None:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return available


def swap_total_bytes(root: Path = Path("/")) -> int | None:
    """Return the size of the swap space, zram included."""
    return _meminfo(root, "SwapTotal")


def disk_space(folder: Path) -> DiskSpace:
    """Return the space left for *folder*, which need not exist yet.

    Raises:
        InputError: Neither it nor any folder above it can be looked at.
    """
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        info = os.statvfs(place)
    except OSError as error:
        raise InputError(f"{folder}: cannot tell the free space: {error.strerror}") from error
    return DiskSpace(
        free_bytes=info.f_bavail * info.f_frsize,
        total_bytes=info.f_blocks * info.f_frsize,
        free_inodes=info.f_favail if info.f_files else None,
    )


def _lesser(size: int | None, limit: int | None) -> int | None:
    return size if size is None or limit is None else min(size, limit)


def _meminfo(root: Path, key: str) -> int | None:
    words = read_fields(root / "proc/meminfo").get(key, "").split()
    return int(words[0]) * 1024 if words and words[0].isdecimal() else None
