"""Samples as arrays: NPZ, NPY with its labels beside it, or a folder of NPY files.

An NPZ holds ``labels`` and either one other array, or one named like each of the model's
inputs. ``x.npy`` has its labels in ``x_labels.npy`` or ``labels.npy``. A folder with
``labels.npy`` is like an NPZ, but its arrays are read from the disk as they are needed.
Labels with places of their own are the truth of a segmentation.
"""

from pathlib import Path

import numpy as np

from edgeperf.datasets.base import Array, DatasetError
from edgeperf.datasets.npz import LABELS, read_arrays

_MAGIC = b"\x93NUMPY"
#: The file that makes a folder one of arrays.
ARRAYS_MARK = f"{LABELS}.npy"
EXPECTED = "'labels' (n,) and the samples (n, ...), one array or one named like each input"


def read_samples(path: Path) -> tuple[dict[str, Array], Array]:
    """Read samples and labels.

    Returns:
        Samples by name, ``""`` where there is one array only, and the labels, shape
        ``(n,)`` or ``(n, ...)``.

    Raises:
        DatasetError: The file is not that, or samples and labels do not match.
    """
    if path.suffix.lower() == ".npy":
        arrays = {"": read_npy(path), LABELS: read_npy(_beside(path))}
    elif path.is_dir():
        arrays = {file.stem: read_npy(file, mapped=True) for file in sorted(path.glob("*.npy"))}
    else:
        arrays = read_arrays(path, EXPECTED)
    if LABELS not in arrays or len(arrays) == 1:
        found = ", ".join(map(repr, arrays)) or "nothing"
        raise DatasetError(f"{path}: holds {found}; expected {EXPECTED}")
    labels = arrays.pop(LABELS)
    if len(arrays) == 1:
        arrays = {"": next(iter(arrays.values()))}
    _check(path, arrays, labels)
    return arrays, labels


def read_npy(path: Path, *, mapped: bool = False) -> Array:
    """Read one array, or map it.

    Raises:
        DatasetError: It is missing, damaged, or holds Python objects.
    """
    try:
        with path.open("rb") as stream:
            is_npy = stream.read(len(_MAGIC)) == _MAGIC
        if not is_npy:
            raise DatasetError(
                f"{path}: is no .npy file; expected an array, or in the task file [input]"
                ' kind = "image" or "audio"'
            )
        array: Array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        why = "holds Python objects; expected numbers" if "allow_pickle" in str(error) else error
        raise DatasetError(f"{path}: cannot be read as .npy: {why}") from error
    return array


def _beside(path: Path) -> Path:
    for name in (f"{path.stem}_{LABELS}.npy", ARRAYS_MARK):
        if (path.parent / name).is_file():
            return path.parent / name
    raise DatasetError(
        f"{path}: no labels beside it; expected {path.stem}_{LABELS}.npy or {ARRAYS_MARK} there"
    )


def _check(path: Path, arrays: dict[str, Array], labels: Array) -> None:
    places = labels.ndim > 1 and labels.dtype.kind in "iu"
    if not places and (labels.ndim != 1 or labels.dtype.kind not in "iuU"):
        raise DatasetError(
            f"{path}: labels are {list(labels.shape)} {labels.dtype}; expected one whole number or"
            " name for each sample"
        )
    if not len(labels):
        raise DatasetError(f"{path}: holds no sample")
    for name, array in arrays.items():
        if array.ndim < 1 or len(array) != len(labels):
            count = len(array) if array.ndim else 0
            where = f" in {name!r}" if name else ""
            raise DatasetError(
                f"{path}: {count} samples{where} but {len(labels)} labels; expected one for each"
            )
