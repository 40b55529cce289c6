"""Sensors of the board itself: files of the kernel that are read when asked.

A reading is kept as lines ``NAME VALUE``, as the files said it, so that it can be decoded
later and elsewhere. Where the files are is looked up on opening, by what they say of
themselves: the numbers in ``hwmon3`` change from boot to boot.

The trap: reading costs 1 to 7 ms of a bus and some CPU time of the very board that is being
measured, so these meters are read 10 to 20 times a second, not more.
"""

import errno
import os
import re
from pathlib import Path
from typing import ClassVar

from edgeperf.power.base import MeterError, MeterLostError, MeterReplyError
from edgeperf.power.polled import Polled

_LINE = re.compile(rb"(\S{1,80}) (-?[0-9]{1,20})")
_GONE = (errno.ENOENT, errno.ENODEV, errno.ENXIO)


def read_text(path: Path) -> str:
    """Return what a small file says, empty if it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8", "replace").strip("\n\0 ")
    except OSError:
        return ""


def why_unreadable(path: Path) -> str:
    """Return why a file cannot be read, in the system's words; empty if it can."""
    try:
        path.read_bytes()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def read_number(path: Path) -> int | None:
    """Return the whole number that a file says, None if it says none or cannot be read."""
    text = read_text(path)
    return int(text) if re.fullmatch(r"-?[0-9]{1,20}", text) else None


def number_lines(data: bytes) -> dict[str, int] | None:
    """Read lines ``NAME VALUE``; None unless every line is one and no name comes twice."""
    found: dict[str, int] = {}
    for line in data.splitlines():
        match = _LINE.fullmatch(line)
        name = match.group(1).decode("latin-1") if match else ""
        if match is None or name in found:
            return None
        found[name] = int(match.group(2))
    return found


class FileMeter(Polled):
    """A meter whose readings are files.

    Attributes:
        kind: Name in :data:`edgeperf.power.METERS`.
        port: What the meter spec says which sensor to take; may be empty.
        files: Name in a reading -> file; set when opened.
        permission: What to do if they may not be read.
    """

    kind: ClassVar[str]
    permission: ClassVar[str] = "run it as a user who may read them"

    def __init__(self, port: str, root: str) -> None:
        self.port = port or self.kind
        self.root = Path(root)
        self.files: dict[str, Path] = {}

    def ask(self) -> bytes:
        """Read every file once."""
        return b"".join(
            b"%s %s\n" % (name.encode("utf-8"), self._read(path))
            for name, path in self.files.items()
        )

    def _read(self, path: Path) -> bytes:
        try:
            return path.read_bytes().strip()
        except OSError as error:
            if error.errno in _GONE:
                raise MeterLostError(
                    self.port, f"{path} is gone; was its driver removed?"
                ) from error
            raise MeterReplyError(self.port, f"{path.name}: {error.strerror}") from error

    def check_permission(self) -> None:
        """Read every file once, so that a forbidden one is found before the run.

        Raises:
            MeterError: One may not be read; says what to do.
        """
        for path in self.files.values():
            if why_unreadable(path) == os.strerror(errno.EACCES):
                raise MeterError(self.port, f"{path}: permission denied; {self.permission}")

    def start(self) -> None:
        """Do nothing: the sensor measures all the time."""

    def stop(self) -> None:
        """Do nothing: the sensor measures all the time."""

    def close(self) -> None:
        """Do nothing: no file stays open."""
