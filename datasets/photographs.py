"""Folders of photographs with ImageNet classes: their list, and decoding one.

Two kinds of list: ``labels.csv`` (the catalogue's: a set of right classes for each photograph
in ``images/``) and MLPerf's ``val_map.txt`` (one class each). Decoding needs Pillow, an extra.
"""

import csv
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.base import DatasetError

CLASSES = 1000
#: Side of the central square, as a share of the photograph's shorter side.
CROP = 0.875

#: From a file and a size (height, width) to RGB pixels of that size.
Decode = Callable[[Path, tuple[int, int]], NDArray[np.uint8]]


class Photograph(msgspec.Struct, frozen=True):
    """One sample: where it is and which classes, counted from 0, are right."""

    path: Path
    classes: frozenset[int]


def decoder() -> Decode:
    """Return the function that decodes, crops and resizes a photograph.

    Raises:
        DatasetError: Pillow is not installed.
    """
    try:
        image: Any = import_module("PIL.Image")
    except ImportError as error:
        raise DatasetError(
            f"task imagenet needs Pillow to decode photographs: {error}; "
            "pip install 'edgeperf[metrics]'"
        ) from error

    def decode(path: Path, size: tuple[int, int]) -> NDArray[np.uint8]:
        try:
            with image.open(path) as opened:
                photograph = opened.convert("RGB")
        except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
            raise DatasetError(f"{path}: cannot be decoded as an image: {error}") from error
        width, height = photograph.size
        side = round(CROP * min(width, height))
        left, top = (width - side) // 2, (height - side) // 2
        # One step, not crop and then resize: at the edges the two differ by a grey level.
        box = (left, top, left + side, top + side)
        return np.asarray(photograph.resize(size[::-1], image.Resampling.BILINEAR, box=box))

    return decode


def read_folder(folder: Path) -> tuple[Photograph, ...]:
    """Read the list of photographs in *folder*.

    Raises:
        DatasetError: It has no list, the list is damaged, or a photograph is missing.
    """
    if (folder / "labels.csv").is_file():
        photographs = _read_csv(folder / "labels.csv")
    elif (folder / "val_map.txt").is_file():
        photographs = _read_val_map(folder / "val_map.txt")
    else:
        raise DatasetError(
            f"{folder}: expected a folder with labels.csv and images/, or with val_map.txt"
        )
    if not photographs:
        raise DatasetError(f"{folder}: its list names no photograph")
    for photograph in photographs:
        if not photograph.path.is_file():
            raise DatasetError(f"{photograph.path}: listed in {folder}, but not there")
    return photographs


def _read_csv(path: Path) -> tuple[Photograph, ...]:
    """Read ``file`` and ``imagenet_indices_0based`` (classes, blanks between) of each row."""
    file, classes = "file", "imagenet_indices_0based"
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            table = csv.DictReader(stream)
            if not {file, classes} <= set(table.fieldnames or ()):
                raise DatasetError(f"{path}: expected columns {file!r} and {classes!r}")
            return tuple(
                Photograph(
                    path.parent / "images" / (row[file] or ""),
                    _classes(path, table.line_num, row[classes] or ""),
                )
                for row in table
            )
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path}: cannot be read as CSV: {error}") from error


def _read_val_map(path: Path) -> tuple[Photograph, ...]:
    """Read MLPerf's list: ``FILE CLASS`` on each line, the file relative to the folder."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from error
    photographs = []
    for number, line in enumerate(lines, start=1):
        name, _, label = line.strip().rpartition(" ")
        if not name:
            raise DatasetError(f"{path}: line {number}: expected FILE CLASS, found {line!r}")
        photographs.append(Photograph(path.parent / name, _classes(path, number, label)))
    return tuple(photographs)


def _classes(path: Path, line: int, text: str) -> frozenset[int]:
    try:
        classes = frozenset(map(int, text.split()))
    except ValueError:
        classes = frozenset()
    if not classes or not all(0 <= index < CLASSES for index in classes):
        raise DatasetError(
            f"{path}: line {line}: classes are {text!r}, expected numbers from 0 to {CLASSES - 1}"
        )
    return classes
