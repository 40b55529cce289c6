"""Finding samples and what is true of them: a folder per class, a table, or arrays.

What comes out is the same for all: items (paths, or rows of arrays in memory) and their
truth as it stands in the data, names or numbers. What those mean to a model is settled
later, in :mod:`edgeperf.datasets.own.labels`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from edgeperf.datasets.base import Array, DatasetError
from edgeperf.datasets.own.arrays import ARRAYS_MARK, read_samples
from edgeperf.datasets.own.tables import (
    TRANSCRIPTS,
    Row,
    read_csv,
    read_jsonl,
    read_transcripts,
    read_val_map,
)

#: Endings of a sample in a folder.
SAMPLES = (
    ".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".npy", ".wav",
    ".flac",
)  # fmt: skip

#: Name of a list in a folder, or ending of a file -> what reads it.
LISTS: dict[str, Callable[[Path], tuple[Row, ...]]] = {
    "labels.csv": read_csv,
    "labels.jsonl": read_jsonl,
    "val_map.txt": read_val_map,
}
TABLES = {".csv": read_csv, ".jsonl": read_jsonl, ".txt": read_val_map}
EXPECTED = (
    "a folder with one folder per class, a folder or a file with a list (labels.csv,"
    " labels.jsonl, val_map.txt), an .npz or .npy file, or a folder of .npy files"
)


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Samples and their truth.

    Attributes:
        where: For messages: the folder or the file.
        paths: One file per sample; empty where they are arrays.
        arrays: Samples in memory by the name of the model's input, ``""`` where only one
            is meant; one row each.
        labels: One name or number per sample.
        texts: Right texts of each sample; empty where truth is a class.
        maps: A class for each place of each sample; None where truth is something else.
    """

    where: Path
    paths: tuple[Path, ...] = ()
    arrays: dict[str, Array] = msgspec.field(default_factory=dict)
    labels: tuple[str | int, ...] = ()
    texts: tuple[tuple[str, ...], ...] = ()
    maps: Array | None = None

    def __len__(self) -> int:
        """Return how many samples there are."""
        return len(self.labels) or len(self.texts) or (0 if self.maps is None else len(self.maps))

    def name(self, index: int) -> str:
        """Say which sample number *index* is, for messages."""
        return str(self.paths[index]) if self.paths else f"{self.where}: sample {index}"


def open_source(data: Path) -> Source:
    """Find the samples in *data*.

    Raises:
        DatasetError: There are none, or something about them is wrong; the message names
            the file and what was expected.
    """
    if data.is_dir():
        return _from_folder(data)
    if not data.exists():
        raise DatasetError(f"{data}: does not exist; expected {EXPECTED}")
    ending = data.suffix.lower()
    if ending in TABLES:
        return _from_rows(data, TABLES[ending](data))
    if ending in (".npz", ".npy"):
        return _from_arrays(data)
    raise DatasetError(f"{data}: cannot be read as samples; expected {EXPECTED}")


def _from_folder(folder: Path) -> Source:
    for name, read in LISTS.items():
        if (folder / name).is_file():
            return _from_rows(folder / name, read(folder / name))
    if (folder / ARRAYS_MARK).is_file():
        return _from_arrays(folder)
    if next(folder.rglob(f"*{TRANSCRIPTS}"), None) is not None:
        return _from_rows(folder, read_transcripts(folder))
    return _folder_per_class(folder)


def _from_arrays(data: Path) -> Source:
    arrays, truth = read_samples(data)
    if truth.ndim > 1:
        return Source(where=data, arrays=arrays, maps=truth)
    return Source(where=data, arrays=arrays, labels=tuple(truth.tolist()))


def _folder_per_class(folder: Path) -> Source:
    found: list[tuple[Path, str]] = []
    for kind in sorted(entry for entry in folder.iterdir() if _counts(entry) and entry.is_dir()):
        files = sorted(path for path in kind.rglob("*") if _is_sample(path))
        if not files:
            raise DatasetError(f"{kind}: holds no sample; remove it, or put samples of it there")
        found += [(path, kind.name) for path in files]
    if not found:
        loose = sum(map(_is_sample, folder.iterdir()))
        holds = f"{loose} samples but not their classes" if loose else "no sample"
        raise DatasetError(f"{folder}: holds {holds}; expected {EXPECTED}")
    paths, labels = zip(*found, strict=True)
    return Source(where=folder, paths=paths, labels=labels)


def _counts(entry: Path) -> bool:
    return not entry.name.startswith((".", "_"))


def _is_sample(path: Path) -> bool:
    return path.suffix.lower() in SAMPLES and not path.name.startswith(".") and path.is_file()


def _from_rows(where: Path, rows: Sequence[Row]) -> Source:
    if not rows:
        raise DatasetError(f"{where}: lists no sample")
    missing = [row.path for row in rows if not row.path.is_file()]
    if missing:
        raise DatasetError(
            f"{missing[0]}: listed in {where}, but not there ({len(missing)} of {len(rows)} are"
            " missing); paths count from the folder of the list"
        )
    paths = tuple(row.path for row in rows)
    if rows[0].texts:
        return Source(where=where, paths=paths, texts=tuple(row.texts for row in rows))
    return Source(where=where, paths=paths, labels=tuple(row.label for row in rows))
