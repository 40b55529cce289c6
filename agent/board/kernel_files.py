"""Read the small files in which Linux describes itself.

Everything below takes the root of the tree as an argument, so that a test reads a tree
of ordinary files. A file that is missing, unreadable or refuses to answer is None: a
board without cpufreq is a board, not an error. Sensors do refuse: a Jetson's GPU zone
answers EAGAIN while the GPU sleeps.
"""

import os
from collections.abc import Iterable
from pathlib import Path

#: Longest file worth reading here; /proc/stat of a 256-core server has 150 kB.
_LIMIT_BYTES = 1 << 20


def read_text(path: Path | str) -> str | None:
    """Return the stripped text of *path*, None when it cannot be read."""
    # os.open and one read: half the cost of Path.read_text, and a sample reads dozens.
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        raw = b""
        while chunk := os.read(handle, _LIMIT_BYTES):
            raw += chunk
            if len(raw) >= _LIMIT_BYTES:
                break
    except OSError:
        return None
    finally:
        os.close(handle)
    # The device tree ends its strings with NUL.
    return raw.decode("utf-8", "replace").strip("\0 \t\r\n")


def read_int(path: Path | str) -> int | None:
    """Return the decimal integer in *path*, None when there is none."""
    text = read_text(path)
    try:
        return int(text) if text else None
    except ValueError:
        return None


def read_fields(path: Path | str) -> dict[str, str]:
    """Return the ``key: value`` lines of *path*; of a repeated key, the first."""
    fields: dict[str, str] = {}
    for line in (read_text(path) or "").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    return fields


def parse_core_list(text: str | None) -> tuple[int, ...]:
    """Return the cores in the kernel's list format, ``0-3,6``; none for anything else."""
    cores: set[int] = set()
    for part in (text or "").split(","):
        first, dash, last = part.strip().partition("-")
        try:
            cores.update(range(int(first), int(last if dash else first) + 1))
        except ValueError:
            continue
    return tuple(sorted(cores))


def format_core_list(cores: Iterable[int]) -> str:
    """Return *cores* in the kernel's list format: ``0-3,6``; ``none`` when empty."""
    runs: list[list[int]] = []
    for core in sorted(set(cores)):
        if runs and runs[-1][-1] == core - 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    parts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return ",".join(parts) or "none"


def numbered(folder: Path, prefix: str) -> list[tuple[int, Path]]:
    """Return the entries of *folder* that are *prefix* and a number, in numeric order."""
    try:
        entries = list(folder.iterdir())
    except OSError:
        return []
    numbers = ((e.name[len(prefix) :], e) for e in entries if e.name.startswith(prefix))
    return sorted((int(number), entry) for number, entry in numbers if number.isdecimal())
