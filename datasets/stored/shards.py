"""Which samples lie in which shard, and finding those that are there.

Behind its samples a shard has a CRC-32 of each. They are checked as samples are read, one by
one: so a shard that was overwritten or has rotted is told before its samples count, and a
start need not read gigabytes to know that they are whole.
"""

import hashlib
import os
import re
import secrets
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf import EdgeperfError
from edgeperf.datasets.base import Array, DatasetError, InputLibrary
from edgeperf.datasets.tensors import TensorSpec

#: Bytes of a shard, about: large enough to be few, small enough to be lost.
SHARD_BYTES = 32 << 20
#: Changed whenever shards come to be laid out otherwise.
_LAYOUT = b"samples, crc32 of each\0"
_SUM = np.dtype("<u4")
_CONTENT = re.compile(r"[0-9a-f]{64}")


@runtime_checkable
class FromFiles(Protocol):
    """A library whose samples are made of files, each in the same way."""

    def files(self, index: int) -> tuple[Path, ...]:
        """Return the files that sample *index* is made of."""
        ...

    @property
    def recipe(self) -> bytes:
        """Return everything that decides how a file becomes an input."""
        ...


class Shard(msgspec.Struct, frozen=True):
    """Some samples in a row: the first, the one behind the last, and how they were seen."""

    begin: int
    end: int
    seen: str


class Store:
    """A folder of shards for one library and one model.

    Attributes:
        shards: All shards of the library.
        sample_bytes: Bytes of one sample, all inputs.
    """

    def __init__(
        self, folder: Path, library: InputLibrary, inputs: Sequence[TensorSpec], recipe: bytes
    ) -> None:
        """Look at the files of all samples; reads none.

        Raises:
            DatasetError: A file is missing.
        """
        if not isinstance(library, FromFiles):
            raise TypeError("the samples of this library are not made of files")
        self._folder = folder
        self._inputs = tuple(inputs)
        self._recipe = _LAYOUT + recipe
        self._library = library
        self._sizes = [_bytes_of(spec) for spec in inputs]
        self.sample_bytes = sum(self._sizes)
        step = max(1, SHARD_BYTES // self.sample_bytes)
        self.shards = tuple(
            Shard(begin, end, self._seen(library, begin, end))
            for begin in range(0, len(library), step)
            for end in [min(begin + step, len(library))]
        )

    def _seen(self, library: FromFiles, begin: int, end: int) -> str:
        """Name the files of some samples by path, size and the times of their last changes.

        Of these the second, ctime, no program can set: a copy that took another file's place
        with its size and time has its own. Inodes would tell more on no file system that has
        it, and are new at each mount on others.
        """
        sha256 = hashlib.sha256(self._recipe)
        for index in range(begin, end):
            for path in library.files(index):
                try:
                    state = path.stat()
                except OSError as error:
                    raise DatasetError(f"{path}: {error.strerror}") from error
                figures = f"{state.st_size}\0{state.st_mtime_ns}\0{state.st_ctime_ns}"
                text = f"{path.absolute()}\0{figures}\n"
                sha256.update(text.encode(errors="surrogateescape"))
        return sha256.hexdigest()

    def find(self, shard: Shard) -> Path | None:
        """Return the file of *shard*, None if it is not there or not whole."""
        try:
            content = (self._folder / "seen" / shard.seen).read_text("ascii")
        except (OSError, UnicodeDecodeError):
            return None
        if not _CONTENT.fullmatch(content):
            return None
        path = self._folder / content
        return path if self._is_whole(path, shard) else None

    def _is_whole(self, path: Path, shard: Shard) -> bool:
        size = (shard.end - shard.begin) * (self.sample_bytes + _SUM.itemsize)
        return path.is_file() and path.stat().st_size == size

    def missing(self) -> list[Shard]:
        """Return the shards that are not there yet."""
        return [shard for shard in self.shards if self.find(shard) is None]

    def make(self, shard: Shard, library: InputLibrary) -> None:
        """Make *shard*, unless one with the same content is there under another name.

        Raises:
            DatasetError: A file is damaged.
            OSError: The disk is full or broken.
        """
        content = self._content(shard)
        path = self._folder / content
        if not self._is_whole(path, shard) or not self._is_intact(path, shard):
            with _replacing(path) as stream:
                self._fill(stream, shard, library)
        with _replacing(self._folder / "seen" / shard.seen) as stream:
            stream.write(content.encode())

    def _is_intact(self, path: Path, shard: Shard) -> bool:
        """Say whether all samples of a shard that has the right length are as they were made."""
        raw = np.fromfile(path, np.uint8)
        count = shard.end - shard.begin
        rows = raw[: count * self.sample_bytes].reshape(count, -1)
        return bool((_sums(rows) == raw[rows.size :].view(_SUM)).all())

    def _content(self, shard: Shard) -> str:
        """Name a shard by the content of its files."""
        sha256 = hashlib.sha256(self._recipe)
        for index in range(shard.begin, shard.end):
            for path in self._library.files(index):
                try:
                    sha256.update(hashlib.sha256(path.read_bytes()).digest())
                except OSError as error:
                    raise DatasetError(f"{path}: {error.strerror}") from error
        return sha256.hexdigest()

    def _fill(self, stream: BinaryIO, shard: Shard, library: InputLibrary) -> None:
        count = shard.end - shard.begin
        rows = np.zeros((count, self.sample_bytes), np.uint8)
        for index in range(shard.begin, shard.end):
            library.write(index, self.views(rows[index - shard.begin]))
        stream.write(rows.data)
        stream.write(_sums(rows).tobytes())

    def sums(self, shard: Shard, path: Path) -> NDArray[np.uint32]:
        """Read the CRC-32 of each sample of *shard*."""
        count = shard.end - shard.begin
        return np.fromfile(path, _SUM, count, offset=count * self.sample_bytes)

    def views(self, row: NDArray[np.uint8]) -> list[Array]:
        """Return the bytes of one sample as one array per input."""
        arrays: list[NDArray[Any]] = []
        start = 0
        for spec, size in zip(self._inputs, self._sizes, strict=True):
            arrays.append(row[start : start + size].view(spec.dtype).reshape(spec.sample_shape))
            start += size
        return arrays


def _bytes_of(spec: TensorSpec) -> int:
    return spec.sample_size * np.dtype(spec.dtype).itemsize


def _sums(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    return np.fromiter((zlib.crc32(row.data) for row in rows), _SUM, len(rows))


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that becomes *path*, durably, if all goes well; nobody else writes to it."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


class DamagedError(EdgeperfError):
    """A stored sample is not what was stored; its shard was removed, to be made anew."""


class StoredInputs:
    """A library read back from its shards, a sample at a time.

    Not mapped: pages of a mapping that were used stay in the memory of a process that locks
    its own, and the store is larger than a board has.
    """

    def __init__(self, store: Store, paths: Sequence[Path], count: int) -> None:
        """Take the shards; *paths* are theirs, in order."""
        self._store = store
        self._count = count
        self._paths = tuple(paths)
        self._row = np.zeros(store.sample_bytes, np.uint8)
        self._sums = [
            store.sums(shard, path) for shard, path in zip(store.shards, paths, strict=True)
        ]
        self._begins = [shard.begin for shard in store.shards]

    def __len__(self) -> int:
        """Return how many samples there are."""
        return self._count

    def write(self, index: int, out: Sequence[Array]) -> None:
        """Copy sample *index* into *out*.

        Raises:
            DatasetError: Its shard is gone or was cut short.
            DamagedError: It is not what was stored.
        """
        place = int(np.searchsorted(self._begins, index, side="right")) - 1
        within = index - self._begins[place]
        self._read(self._paths[place], within * self._row.size)
        if zlib.crc32(self._row.data) != self._sums[place][within]:
            self._paths[place].unlink(missing_ok=True)
            raise DamagedError(
                f"{self._paths[place]}: sample {index} was damaged since it was stored; the file"
                " was removed: run again, and it is made anew"
            )
        for target, stored in zip(out, self._store.views(self._row), strict=True):
            target[...] = stored

    def _read(self, path: Path, offset: int) -> None:
        try:
            with path.open("rb", buffering=0) as stream:  # hundreds would exceed a limit
                stream.seek(offset)
                size = stream.readinto(self._row.data)
        except OSError as error:
            raise DatasetError(f"preprocessed samples {path}: {error.strerror}") from error
        if size != self._row.size:
            raise DatasetError(f"preprocessed samples {path}: cut short; run again to mend it")
