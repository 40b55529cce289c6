"""One sample at a time out of an NPZ file, so that it need not fit into memory twice.

``numpy.savez`` stores arrays as they are; their rows are read from the file where they
lie. A compressed file has to be unpacked whole.
"""

import math
import os
import struct
import tokenize
import weakref
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

#: Fixed part of a zip member's local header, and where in it the two lengths stand.
#: Source: PKWARE APPNOTE.TXT, 4.3.7.
_LOCAL_HEADER_BYTES = 30
_LENGTHS = struct.Struct("<26xHH")
_BLOCK_BYTES = 1 << 20
#: What numpy lets through of a header that is no Python literal.
_NO_LITERAL = (TypeError, RecursionError, SyntaxError, MemoryError, tokenize.TokenError)


class Rows:
    """An array in a file, row by row.

    Attributes:
        shape: Of the array.
        dtype: Of the array.
    """

    def __init__(
        self, path: Path, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        self._offset = offset
        self._row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.shape[0]

    def whole(self) -> NDArray[Any]:
        """Read all of it.

        Raises:
            ValueError: The file became shorter.
        """
        with open(self._file, "rb", closefd=False) as stream:
            flat = np.fromfile(stream, self.dtype, math.prod(self.shape), offset=self._offset)
        return flat.reshape(self.shape)

    def __getitem__(self, index: int) -> NDArray[Any]:
        """Read one row."""
        place = self._offset + index * self._row_bytes
        raw = os.pread(self._file, self._row_bytes, place)
        return np.frombuffer(raw, self.dtype).reshape(self.shape[1:])


def open_rows(path: Path, archive: zipfile.ZipFile, name: str) -> Rows | None:
    """Open array *name* of the NPZ file *archive*, which is at *path*.

    Every byte is read once, so that damage is found now.

    Returns:
        The array; None where it does not lie in the file row by row.

    Raises:
        ValueError: It is no array, is longer or shorter than it says, or holds Python objects.
        zipfile.BadZipFile: It is damaged.
    """
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type != zipfile.ZIP_STORED:
        return None
    with archive.open(info) as member:
        shape, fortran, dtype = _header(member)
        header_bytes = member.tell()
        if dtype.hasobject:
            raise ValueError("holds Python objects")
        if fortran or not shape:
            return None
        if min(shape) < 0 or math.prod(shape) * dtype.itemsize != info.file_size - header_bytes:
            raise ValueError(f"{name} is not as long as it says")
        while member.read(_BLOCK_BYTES):
            pass
    with path.open("rb") as file:
        file.seek(info.header_offset)
        name_bytes, extra_bytes = _LENGTHS.unpack(file.read(_LOCAL_HEADER_BYTES))
    start = info.header_offset + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes
    return Rows(path, start + header_bytes, shape, dtype)


def _header(member: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    stream: BinaryIO = member
    version = npy.read_magic(stream)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    try:
        shape, fortran, dtype = read(stream)
    except _NO_LITERAL as error:
        raise ValueError(f"its header cannot be read: {error}") from error
    return shape, fortran, dtype
