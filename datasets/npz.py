"""Labelled samples in one NPZ file: reading it without believing it.

The user's own files come this way too, so each thing that can be wrong with one has its
own line: not an NPZ, pickled objects, a missing array, another shape or type, labels
that do not match the samples.
"""

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.base import Array, DatasetError
from edgeperf.datasets.npz_rows import Rows, open_rows

LABELS = "labels"


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """What the file of a task holds.

    Attributes:
        key: Name of the array of samples; that of the labels is ``labels``.
        shape: Of one sample.
        dtype: Of the samples, numpy's name.
        classes: Names of the classes, in label order.
    """

    key: str
    shape: tuple[int, ...]
    dtype: str
    classes: tuple[str, ...]

    def __str__(self) -> str:
        """Say what is expected, for messages."""
        axes = ", ".join(map(str, ("n", *self.shape)))
        return f"arrays {self.key!r} ({axes}) {self.dtype} and {LABELS!r} (n,) integer"


def read_arrays(path: Path, expected: str, keys: Sequence[str] | None = None) -> dict[str, Array]:
    """Read arrays from an NPZ file.

    Args:
        path: The file.
        expected: What it should hold, for messages.
        keys: The arrays wanted; None is all of them.

    Raises:
        DatasetError: It is missing, is not an NPZ file, holds Python objects, is damaged,
            or lacks an array.
    """
    with _opened(path, expected), np.load(path, allow_pickle=False) as arrays:
        wanted = keys or arrays.files
        missing = [key for key in wanted if key not in arrays.files]
        if not missing:
            return {key: arrays[key] for key in wanted}
        found = ", ".join(map(repr, arrays.files)) or "none"
    raise DatasetError(f"{path}: no array {missing[0]!r}; expected {expected}, found {found}")


def read_rows(path: Path, expected: str) -> dict[str, Rows | Array]:
    """Open every array of an NPZ file, to be read row by row where that is possible.

    Raises:
        DatasetError: As :func:`read_arrays` does.
    """
    rows: dict[str, Rows | Array] = {}
    with _opened(path, expected), zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        for name in names:
            found = open_rows(path, archive, name)
            rows[name] = read_arrays(path, expected, [name])[name] if found is None else found
    return rows


def read_stored(path: Path, key: str, expected: str) -> Array:
    """Read an array that lies in an NPZ file as it is, as ``numpy.savez`` leaves it.

    So no more is held in memory than lies on the disk, whatever the file says.

    Raises:
        DatasetError: As :func:`read_arrays` does; or it is compressed, or one number.
    """
    with _opened(path, expected), zipfile.ZipFile(path) as archive:
        if f"{key}.npy" in archive.namelist():
            rows = open_rows(path, archive, key)
            if rows is None:
                raise ValueError(f"{key} is compressed or has no rows")
            return rows.whole()
    raise DatasetError(f"{path}: no array {key!r}; expected {expected}")


@contextmanager
def _opened(path: Path, expected: str) -> Iterator[None]:
    """Turn whatever can be wrong with an NPZ file into one line."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise DatasetError(f"{path}: {what}; expected an .npz file with {expected}")
    try:
        with path.open("rb") as file:  # by its path, a file that may not be read is "no zip"
            is_zip = zipfile.is_zipfile(file)
        if not is_zip:
            raise DatasetError(f"{path}: not an .npz file; expected {expected}")
        yield
    except (OSError, ValueError, EOFError, KeyError, RuntimeError, MemoryError) as error:
        raise DatasetError(f"{path}: cannot be read as .npz: {error}") from error
    except (zipfile.BadZipFile, zlib.error) as error:
        raise DatasetError(f"{path}: not an .npz file, or damaged: {error}") from error


def read_labelled(path: Path, layout: Layout) -> tuple[Array, NDArray[np.int64]]:
    """Read samples and their labels.

    Returns:
        Samples, shape ``(n, *layout.shape)``, and labels, shape ``(n,)``.

    Raises:
        DatasetError: The file does not hold what *layout* says.
    """
    arrays = read_arrays(path, str(layout), (layout.key, LABELS))
    samples, labels = arrays[layout.key], arrays[LABELS]
    if samples.shape[1:] != layout.shape or samples.dtype != layout.dtype or not samples.ndim:
        raise DatasetError(
            f"{path}: array {layout.key!r} is {list(samples.shape)} {samples.dtype}; "
            f"expected {layout}"
        )
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DatasetError(
            f"{path}: array {LABELS!r} is {list(labels.shape)} {labels.dtype}; expected {layout}"
        )
    if len(samples) != len(labels):
        raise DatasetError(f"{path}: {len(samples)} samples but {len(labels)} labels")
    if not len(samples):
        raise DatasetError(f"{path}: holds no sample; expected {layout}")
    wrong = np.flatnonzero((labels < 0) | (labels >= len(layout.classes)))
    if wrong.size:
        raise DatasetError(
            f"{path}: label {labels[wrong[0]]} of sample {wrong[0]} is out of range; "
            f"expected 0 to {len(layout.classes) - 1} ({wrong.size} such labels)"
        )
    return samples, labels.astype(np.int64)
