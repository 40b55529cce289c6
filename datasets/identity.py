"""What the samples are, by content: so that two runs can be seen to have had the same.

The digest is that of the text which ``sha256sum`` prints for all files. Links are followed,
for photographs often lie elsewhere, and files that a list names outside its folder count
too. Reading tens of thousands of photographs takes a card minutes, so a large folder's
digest is remembered by path, size and time of change of its files; a repeat of a frozen
spec reads them all the same.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from edgeperf.datasets.assets import digest
from edgeperf.datasets.base import DatasetError, Task
from edgeperf.datasets.catalogue import Asset, data_for
from edgeperf.datasets.detection.coco import find_annotations, read_coco
from edgeperf.datasets.own.source import LISTS, TABLES
from edgeperf.datasets.own.task import FileTask

#: SQuAD's, beside its questions.
VOCABULARY = "vocab.txt"
#: Less than this is read faster than it is looked up.
REMEMBERED_BYTES = 256 << 20


class DataIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Samples by content.

    Attributes:
        sha256: See the module.
        size_bytes: All files together.
    """

    sha256: str
    size_bytes: int


def identify(
    task: Task | None, *, data: Path | None, inputs_file: Path | None, memory: Path | None
) -> DataIdentity | None:
    """Return what the samples of a run are.

    Args:
        task: The task; None for inputs without labels.
        data: The user's own samples.
        inputs_file: Inputs for a model without a task.
        memory: Folder that remembers digests of large folders; None reads everything.

    Returns:
        The identity; None for inputs that are made from a seed.

    Raises:
        DatasetError: A file cannot be read.
        InputError: The task has no samples.
    """
    given = data or inputs_file
    if given is not None:
        return _identify(given, task, memory)
    if task is None:
        return None
    place = _place(task)
    if isinstance(place, Path):
        return _identify(place, task, memory)
    # Its digest is checked whenever it is opened.
    return DataIdentity(sha256=place.sha256, size_bytes=place.size_bytes)


def _place(task: Task) -> Path | Asset:
    """Return where a task's own samples are."""
    if isinstance(task, FileTask):
        named = task.file.data
        return task.data() if named.catalogue is None else data_for(named.catalogue).asset
    return data_for(task.name).asset


def _identify(place: Path, task: Task | None, memory: Path | None) -> DataIdentity:
    try:
        files = dict(_files(place, task))
        if list(files.values()) == [place]:
            sha256, size_bytes = digest(place)
            return DataIdentity(sha256=sha256, size_bytes=size_bytes)
        size_bytes = sum(path.stat().st_size for path in files.values())
        remembered = None
        if memory is not None and size_bytes >= REMEMBERED_BYTES:
            remembered = memory / f"digest-{_state(files)}"
        sha256 = _remembered(remembered) or _digest(files)
    except OSError as error:
        raise DatasetError(
            f"{error.filename or place}: cannot be read: {error.strerror or error}"
        ) from error
    if remembered is not None:
        with contextlib.suppress(OSError):  # a full disk costs the next run time, nothing else
            remembered.parent.mkdir(parents=True, exist_ok=True)
            remembered.write_text(sha256)
    return DataIdentity(sha256=sha256, size_bytes=size_bytes)


def _remembered(place: Path | None) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        text = "" if place is None else place.read_text().strip()
        return text if len(text) == hashlib.sha256().digest_size * 2 else None
    return None


def _files(place: Path, task: Task | None) -> Iterator[tuple[str, Path]]:
    """Yield every file that belongs to the samples, by a name that does not tell where."""
    seen = set()
    if place.is_dir():
        for name, path in _folder(place):
            seen.add(path.resolve())
            yield name, path
    else:
        place.stat()
        seen.add(place.resolve())
        yield place.name, place
    for path in (*_listed(place, task), *_vocabularies(place, task)):
        if path.resolve() not in seen:
            seen.add(path.resolve())
            yield f"../{os.path.relpath(path, place if place.is_dir() else place.parent)}", path


def _folder(folder: Path) -> Iterator[tuple[str, Path]]:
    visited = set()
    for root, folders, files in os.walk(folder, followlinks=True):
        here = Path(root)
        if (real := here.resolve()) in visited:  # a link that leads back
            folders.clear()
            continue
        visited.add(real)
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = here / name
            if not name.startswith(".") and path.is_file():
                yield path.relative_to(folder).as_posix(), path


def _listed(place: Path, task: Task | None) -> list[Path]:
    """Return the files that a list names; what is wrong with it is said when it is opened."""
    tables = [(place / name, read) for name, read in LISTS.items()] if place.is_dir() else []
    if not place.is_dir() and (read := TABLES.get(place.suffix.lower())) is not None:
        tables = [(place, read)]
    with contextlib.suppress(DatasetError):
        for path, read_rows in tables:
            if path.is_file():
                return [row.path for row in read_rows(path)]
        if place.suffix.lower() == ".json" or place.is_dir():
            find_annotations(place)
            images = task.file.data.images if isinstance(task, FileTask) else None
            return [picture.path for picture in read_coco(place, images).pictures]
    return []


def _vocabularies(place: Path, task: Task | None) -> Iterator[Path]:
    """Yield the tokens that text is read by; they decide inputs and answers as samples do."""
    if place.suffix.lower() == ".json" and (beside := place.with_name(VOCABULARY)).is_file():
        yield beside
    named = task.file.output.vocabulary if isinstance(task, FileTask) else None
    if named is not None and (path := Path(named)).is_file():
        yield path


def _state(files: dict[str, Path]) -> str:
    sha256 = hashlib.sha256()
    for name, path in sorted(files.items()):
        state = path.stat()
        text = f"{name}\0{path.resolve()}\0{state.st_size}\0{state.st_mtime_ns}\n"
        sha256.update(text.encode(errors="surrogateescape"))
    return sha256.hexdigest()


def _digest(files: dict[str, Path]) -> str:
    sha256 = hashlib.sha256()
    for name, path in sorted(files.items()):
        sha256.update(f"{digest(path)[0]}  {name}\n".encode(errors="surrogateescape"))
    return sha256.hexdigest()
