"""Lists of samples: CSV, JSON lines, and MLPerf's ``val_map.txt``."""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from edgeperf.datasets.base import DatasetError

#: What a column may be called; the first that is there is taken.
PATHS = ("path", "file", "filename", "image", "audio")
LABELS = ("label", "class", "target")
#: Ending of LibriSpeech's lists.
TRANSCRIPTS = ".trans.txt"
TEXTS = ("text", "texts", "transcript", "sentence")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a list.

    Attributes:
        path: Of the sample.
        label: Its class, a name or a number.
        texts: Its right texts; empty where truth is a class.
    """

    path: Path
    label: str | int = ""
    texts: tuple[str, ...] = ()


def read_csv(path: Path) -> tuple[Row, ...]:
    """Read a table with a header: a column of paths, and one of labels or of texts.

    Raises:
        DatasetError: It is no such table; the message names the line.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            header = stream.readline()
            between = max(",;\t", key=header.count)
            names = [name.strip().lower() for name in next(csv.reader([header], delimiter=between))]
            table = csv.DictReader(stream, names, delimiter=between)
            columns = tuple(filter(None, names))
            _require(path, columns)
            return tuple(_row(path, table.line_num + 1, row) for row in table)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path}: cannot be read as CSV: {error}") from error


def read_jsonl(path: Path) -> tuple[Row, ...]:
    """Read one JSON object a line, with the same names as a CSV's columns.

    Raises:
        DatasetError: It is no such list; the message names the line.
    """
    return tuple(_objects(path))


def _objects(path: Path) -> Iterator[Row]:
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise DatasetError(f"{path}: line {number}: expected a JSON object: {error}") from error
        _require(path, tuple(row))
        yield _row(path, number, row)


def read_val_map(path: Path) -> tuple[Row, ...]:
    """Read MLPerf's list: ``FILE CLASS`` on each line, the file relative to the list.

    Raises:
        DatasetError: It is no such list; the message names the line.
    """
    rows = []
    for number, line in enumerate(_lines(path), start=1):
        name, _, label = line.strip().rpartition(" ")
        if not name:
            raise DatasetError(f"{path}: line {number}: expected FILE CLASS, found {line!r}")
        rows.append(Row(path=path.parent / name.strip(), label=_number_or_name(label)))
    return tuple(rows)


def read_transcripts(folder: Path) -> tuple[Row, ...]:
    """Read LibriSpeech's layout: ``*.trans.txt`` with ``ID TEXT`` a line, ``ID.flac`` beside.

    Raises:
        DatasetError: A line is not that.
    """
    rows = []
    for path in sorted(folder.rglob(f"*{TRANSCRIPTS}")):
        for number, line in enumerate(_lines(path), start=1):
            name, _, text = line.strip().partition(" ")
            if not name or not text:
                raise DatasetError(f"{path}: line {number}: expected ID TEXT, found {line!r}")
            rows.append(Row(path=path.parent / f"{name}.flac", texts=(text,)))
    return tuple(rows)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path}: cannot be read as text: {error}") from error


def _require(path: Path, columns: tuple[str, ...]) -> None:
    for wanted in (PATHS, LABELS + TEXTS):
        if not set(wanted) & set(columns):
            found = ", ".join(map(repr, columns)) or "none"
            raise DatasetError(
                f"{path}: expected a column {' or '.join(map(repr, wanted))}; found {found}"
            )


def _row(path: Path, line: int, row: Mapping[str, Any]) -> Row:
    name = _first(row, PATHS)
    label, texts = _first(row, LABELS), _first(row, TEXTS)
    if not isinstance(name, str) or not name:
        raise DatasetError(f"{path}: line {line}: names no file")
    place = path.parent / name
    if label is None and texts is not None:
        many = tuple(texts) if isinstance(texts, list) else (texts,)
        if not many or not all(isinstance(text, str) for text in many):
            raise DatasetError(f"{path}: line {line}: text is {texts!r}; expected one or more")
        return Row(path=place, texts=many)
    if isinstance(label, bool) or not isinstance(label, (str, int)) or label == "":
        raise DatasetError(
            f"{path}: line {line}: label is {label!r}; expected a name or a whole number"
        )
    return Row(path=place, label=_number_or_name(label))


def _first(row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _number_or_name(label: str | int) -> str | int:
    if isinstance(label, str) and label.strip().lstrip("-").isdecimal():
        return int(label)
    return label.strip() if isinstance(label, str) else label
