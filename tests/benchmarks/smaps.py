"""Memory of processes, as the kernel adds it up."""

import contextlib
from collections.abc import Iterable
from pathlib import Path


def rollup(pid: int) -> dict[str, int]:
    """Return the sums over all mappings of a process, bytes; empty when it is gone."""
    sizes: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, *fields = line.split()
            if fields[-1:] == ["kB"]:
                sizes[name.rstrip(":")] = int(fields[0]) * 1024
    return sizes


def own_bytes(pids: Iterable[int]) -> int:
    """Return what these processes themselves have in memory.

    Files that are mapped, such as a runtime's library, and shared blocks do not count; a
    page that a fork shares with its parent counts once.
    """
    return sum(rollup(pid).get("Pss_Anon", 0) for pid in pids)
