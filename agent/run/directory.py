"""The result directory: written under another name, complete or not there at all.

Everything goes into ``.ID.partial`` beside the final place, is flushed to the disk, and
the folder is renamed as the last act. What ends early removes it.
"""

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from edgeperf import EdgeperfError, InputError
from edgeperf.agent.result import File, Result, result_to_json
from edgeperf.agent.result.files import RESULT
from edgeperf.agent.run.watchdog import StartError

#: Files of a run that are of no use to a reader once it has ended well.
_SCAFFOLD = ("no-audit.config",)
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG)
#: Room that a run needs at the least: logs, latencies, the result.
LEAST_FREE_BYTES = 20_000_000
#: Start, end and latency of each query, 8 bytes each.
_BYTES_PER_QUERY = 24


class OutputError(InputError):
    """The output directory cannot be written."""


class DiskError(EdgeperfError):
    """The disk did not take the result."""


class ResultDirectory:
    """Where a run writes; a context manager that leaves the whole or nothing.

    Attributes:
        path: Where to write until :meth:`finish`.
        final: Where it will be.
    """

    def __init__(self, parent: Path, run_id: str) -> None:
        self.final = parent / run_id
        self.path = parent / f".{run_id}.partial"
        self._made: list[Path] = []

    def __enter__(self) -> "ResultDirectory":
        parent = self.path.parent
        try:
            for folder in [parent, *parent.parents]:
                if folder.exists():
                    break
                self._made.append(folder)
            self.path.mkdir(parents=True)
            (self.path / "probe").write_bytes(b"x")
            (self.path / "probe").unlink()
            free = shutil.disk_usage(self.path).free
        except OSError as error:
            self._remove()
            raise OutputError(
                f"output {parent}: cannot write there: {error.strerror}; give another --output"
            ) from error
        if free < LEAST_FREE_BYTES:
            self._remove()
            raise OutputError(
                f"output {parent}: {free / 1e6:.0f} MB free, a run needs"
                f" {LEAST_FREE_BYTES / 1e6:.0f} MB; free some or give another --output"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.final.exists():
            self._remove()

    def _remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):  # somebody else's result is in it by now
            for folder in self._made:
                folder.rmdir()

    @contextlib.contextmanager
    def disk_errors(self) -> Iterator[None]:
        """Turn what the system refuses while a run goes on into one line.

        Raises:
            DiskError: The disk is full or broken.
            EdgeperfError: It was something else: no process could be started, say.
        """
        try:
            yield
        except OSError as error:
            if error.errno not in _DISK:
                where = f" ({error.filename})" if error.filename else ""
                raise EdgeperfError(f"the run could not go on: {error.strerror}{where}") from error
            raise DiskError(
                f"output {self.final}: the result could not be written: {error.strerror}; nothing"
                " of it was kept"
            ) from error

    def digest(self) -> dict[str, File]:
        """Return sha256 and size of every file so far, by its path in the directory."""
        for name in _SCAFFOLD:
            for path in self.path.rglob(name):
                path.unlink()
        return {
            str(path.relative_to(self.path)): File(
                sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
                size_bytes=path.stat().st_size,
            )
            for path in sorted(self.path.rglob("*"))
            if path.is_file()
        }

    def finish(self, result: Result) -> Path:
        """Write ``result.json``, flush everything, and put the directory in its place.

        Raises:
            OSError: The disk is full or broken.
        """
        (self.path / RESULT).write_bytes(result_to_json(result))
        for path in [*self.path.rglob("*"), self.path]:
            _flush(path)
        self.path.rename(self.final)
        _flush(self.final.parent)
        return self.final


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_room(directory: Path, queries: int) -> None:
    """Refuse a test whose times the disk could not hold, before its clock runs.

    Args:
        directory: Where the test writes.
        queries: How many times it will keep.

    Raises:
        StartError: There is too little room.
    """
    needed, free = queries * _BYTES_PER_QUERY, shutil.disk_usage(directory).free
    if needed > free:
        raise StartError(
            f"output {directory.parent.parent}: {free / 1e6:.0f} MB free, the times of about"
            f" {queries:,} queries need {needed / 1e6:.0f} MB; free some or give another --output"
        )
