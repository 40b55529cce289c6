"""Artefacts and models by their digest, in files.

A blob is named by its sha256 and nothing else; the digest's own digits make the path, so
no name from outside reaches the file system. A part that has arrived stays in ``incoming``
until the rest comes, then the whole is hashed and renamed into place: what is there is
whole and right.

Two clients may send the same blob at once; one at a time appends. The locks are a fixed
few that blobs share, so that none has to be made or thrown away.
"""

import hashlib
import os
import re
import shutil
import threading
import time
from pathlib import Path
from typing import BinaryIO

from edgeperf import EdgeperfError, InputError
from edgeperf.coordinator.files import sync_directory

#: A result directory's largest file; models of edge boards are far below it.
MAX_BLOB_BYTES = 2 * 1024**3
#: Uploads are refused when the disk has less than this left.
FREE_FLOOR_BYTES = 256 * 1024**2
_READ_BYTES = 1024 * 1024
#: A part that nobody has added to for so long is given up.
_STALE_S = 7 * 86400
_LOCKS = 64
_DIGEST = re.compile(r"[0-9a-f]{64}")


class BlobError(InputError):
    """A blob cannot be taken or given; the message says why."""


class BlobOffsetError(BlobError):
    """The bytes do not continue what is kept.

    Attributes:
        offset: Where the next byte must go.
    """

    def __init__(self, offset: int) -> None:
        super().__init__(f"{offset} bytes are kept; continue there")
        self.offset = offset


class BlobDigestError(BlobError):
    """What arrived is not what its name says; it was thrown away."""


class BlobFullError(EdgeperfError):
    """The disk is nearly full."""


class BlobStore:
    """Blobs below *root*.

    Args:
        root: Its folder, made if absent.
        max_blob_bytes: Larger ones are refused.
        free_floor_bytes: Nothing is taken in when the disk has less left.
    """

    def __init__(
        self,
        root: Path,
        *,
        max_blob_bytes: int = MAX_BLOB_BYTES,
        free_floor_bytes: int = FREE_FLOOR_BYTES,
    ) -> None:
        self._root = root
        self._incoming = root / "incoming"
        self._max = max_blob_bytes
        self._floor = free_floor_bytes
        self._locks = tuple(threading.Lock() for _ in range(_LOCKS))
        self._incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._forget_stale_parts()

    def size(self, sha256: str) -> int | None:
        """Return the size of a whole blob; None when it is not here.

        Raises:
            BlobError: That is no digest.
        """
        try:
            return self._path(sha256).stat().st_size
        except FileNotFoundError:
            return None

    def offset(self, sha256: str) -> int:
        """Return how many bytes of a blob that is under way are kept."""
        self._path(sha256)
        try:
            return (self._incoming / sha256).stat().st_size
        except FileNotFoundError:
            return 0

    def open(self, sha256: str) -> BinaryIO:
        """Open a whole blob for reading.

        Raises:
            BlobError: It is not here.
        """
        try:
            return self._path(sha256).open("rb")
        except FileNotFoundError as error:
            raise BlobError(f"blob {sha256}: not here") from error

    def append(self, sha256: str, data: bytes, *, first: int, total: int) -> bool:
        """Add bytes to a blob; True when it is whole, checked and durable.

        Args:
            sha256: Its digest.
            data: The bytes from offset *first* on.
            first: Where they go.
            total: Size of the whole blob.

        Raises:
            BlobOffsetError: *first* is not the end of what is kept.
            BlobDigestError: It is complete, and something else than its name says.
            BlobError: Not a digest, too large, or more than *total*.
            BlobFullError: The disk is nearly full, or cannot be written.
        """
        self._path(sha256)
        try:
            with self._locks[int(sha256, 16) % _LOCKS]:
                return self._append(sha256, data, first, total)
        except OSError as error:
            raise BlobFullError(f"blob {sha256}: cannot be kept: {error.strerror}") from error

    def _append(self, sha256: str, data: bytes, first: int, total: int) -> bool:
        if self.size(sha256) is not None:
            return True
        if total > self._max or first + len(data) > total:
            raise BlobError(
                f"blob {sha256}: {total} bytes; at most {self._max}, none beyond the size"
            )
        if shutil.disk_usage(self._root).free - len(data) < self._floor:
            raise BlobFullError(f"blob {sha256}: the coordinator's disk is nearly full")
        kept = self.offset(sha256)
        # All of it may be here and not yet checked: we were killed in between.
        is_rest = not data and kept == total
        if kept != first and not is_rest:
            raise BlobOffsetError(kept)
        if not data and not is_rest:  # an empty file would be an inode for nothing
            return False
        part = self._incoming / sha256
        with part.open("ab") as file:
            file.write(data)
            if kept + len(data) < total:
                return False
            file.flush()
            os.fsync(file.fileno())
        self._finish(part, sha256)
        return True

    def add_file(self, source: BinaryIO, *, total: int) -> str:
        """Take in a file of our own machine; returns its digest."""
        digest = hashlib.sha256()
        while chunk := source.read(_READ_BYTES):
            digest.update(chunk)
        sha256 = digest.hexdigest()
        source.seek(self.offset(sha256))
        while self.size(sha256) is None:
            first = source.tell()
            self.append(sha256, source.read(_READ_BYTES), first=first, total=total)
        return sha256

    def _finish(self, part: Path, sha256: str) -> None:
        digest = hashlib.sha256()
        with part.open("rb") as file:
            while chunk := file.read(_READ_BYTES):
                digest.update(chunk)
        if digest.hexdigest() != sha256:
            part.unlink()
            raise BlobDigestError(f"blob {sha256}: what arrived has sha256 {digest.hexdigest()}")
        path = self._path(sha256)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        part.replace(path)
        sync_directory(path.parent)

    def _path(self, sha256: str) -> Path:
        if not _DIGEST.fullmatch(sha256):
            raise BlobError("blob: a name is 64 lower-case hexadecimal digits")
        return self._root / sha256[:2] / sha256

    def _forget_stale_parts(self) -> None:
        for part in self._incoming.iterdir():
            if part.stat().st_mtime < time.time() - _STALE_S:
                part.unlink()
