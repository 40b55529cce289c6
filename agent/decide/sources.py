"""Finding results: directories, files, patterns, folders to search, and a fleet's export.

What is named and cannot be read is bad input; what a search comes upon is listed as
refused, so that one broken directory does not hide the others and is not hidden itself.
"""

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from edgeperf.agent.decide.errors import DecideError
from edgeperf.agent.result import Result, ResultError, result_from_json
from edgeperf.agent.result.files import RESULT

_GZIP = b"\x1f\x8b"
_PATTERN = frozenset("*?[")


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One result and where it is.

    Attributes:
        result: The result.
        board: The board's name in the fleet, else its host name.
        where: Path, for messages.
        directory: The result directory; None where only ``result.json`` is at hand.
    """

    result: Result
    board: str
    where: str
    directory: Path | None = None


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """What was found and is no result: a run that failed, a file that is damaged."""

    name: str
    why: str


class Found(msgspec.Struct, kw_only=True):
    """All that was found.

    Attributes:
        runs: Each result once.
        unread: What could not be used.
        twice: How many results were named more than once.
    """

    runs: list[Run]
    unread: list[Unread]
    twice: int = 0


def find(arguments: Sequence[str]) -> Found:
    """Return every result that *arguments* name.

    Raises:
        DecideError: One names nothing, or nothing that is a result.
    """
    found: dict[str, Run] = {}
    unread: list[Unread] = []
    twice = 0
    for argument in arguments:
        for path in _paths(argument):
            for one in _read(path, argument):
                if isinstance(one, Unread):
                    unread.append(one)
                    continue
                before = found.get(one.result.id)
                if before is not None:
                    twice += 1
                    _require_same(before, one)
                if before is None or before.directory is None:
                    found[one.result.id] = one
    runs = sorted(found.values(), key=lambda run: run.result.id)
    return Found(runs=runs, unread=unread, twice=twice)


def _paths(argument: str) -> list[Path]:
    path = Path(argument)
    if path.exists():
        return [path]
    matched = []
    if _PATTERN & set(argument):
        matched = [Path(name) for name in sorted(glob.glob(argument, recursive=True))]  # noqa: PTH207 - absolute patterns too
    if not matched:
        hint = "; a constraint needs <, <=, > or >=" if "=" in argument else ""
        raise DecideError(f"result {argument}: no such file or directory{hint}")
    return matched


def _read(path: Path, argument: str) -> Iterator[Run | Unread]:
    if not path.is_dir():
        yield from _of_file(path)
        return
    if (path / RESULT).is_file():
        yield from _of_file(path / RESULT)
        return
    inner = sorted(
        file
        for file in path.rglob(RESULT)
        if not any(part.startswith(".") for part in file.relative_to(path).parts)
    )
    if not inner:
        raise DecideError(f"result {argument}: no {RESULT} in it or below")
    for file in inner:
        try:
            yield from _of_file(file)
        except (DecideError, ResultError) as error:
            yield Unread(name=str(file.parent), why=str(error))


def _of_file(path: Path) -> Iterator[Run | Unread]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DecideError(f"result {path}: {error.strerror}") from error
    if not raw.strip():
        raise DecideError(f"result {path}: is empty")
    if raw.startswith(_GZIP):
        raise DecideError(f"result {path}: is an archive; unpack it, and name the folder")
    for number, (document, text) in enumerate(_documents(raw, path), start=1):
        where = str(path) if number == 1 else f"{path}, document {number}"
        if isinstance(document, dict) and "format_version" in document:
            result = result_from_json(text, where=where)
            whole = path.name == RESULT
            yield Run(
                result=result,
                board=_board(result),
                where=where,
                directory=path.parent if whole else None,
            )
        else:
            yield _of_fleet(document, where)


def _documents(raw: bytes, path: Path) -> Iterator[tuple[Any, bytes]]:
    """Yield each JSON document of a file: one, those of a list, or one a line."""
    try:
        whole = msgspec.json.decode(raw)
    except RecursionError:
        raise DecideError(f"result {path}: no result: nested too deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        for number, line in enumerate(raw.splitlines(), start=1):
            if line.strip():
                yield _line(line, number, path), line
        return
    for document in whole if isinstance(whole, list) else [whole]:
        yield document, msgspec.json.encode(document)


def _line(line: bytes, number: int, path: Path) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecideError(f"{path}: line {number}: neither a result nor JSON: {error}") from error


def _of_fleet(document: Any, where: str) -> Run | Unread:
    """Read one run of ``edgeperf fleet results --format json``."""
    if not isinstance(document, dict) or "run" not in document or "state" not in document:
        raise DecideError(
            f"{where}: no result; expected {RESULT}, or the export of edgeperf fleet results"
            " --format json"
        )
    if "result" not in document:
        raise DecideError(
            f"{where}: has single figures, without the verdict's reasons and intervals; export"
            " with edgeperf fleet results --format json"
        )
    if document["result"] is None:
        why = document.get("error") or "has no result"
        return Unread(name=str(document["run"]), why=f"{document['state']}: {why}")
    result = result_from_json(msgspec.json.encode(document["result"]), where=where)
    return Run(result=result, board=str(document.get("board") or _board(result)), where=where)


def _board(result: Result) -> str:
    return str(result.board.get("hostname") or result.board.get("model") or "unnamed board")


def _require_same(before: Run, again: Run) -> None:
    if before.result != again.result:
        raise DecideError(
            f"two different results have the id {before.result.id}: {before.where} and"
            f" {again.where}; one of them was changed"
        )
