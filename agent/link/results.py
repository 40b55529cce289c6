"""What a run left in its directory: a result, or the reason why there is none."""

import json
import shutil
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from edgeperf import EdgeperfError
from edgeperf.agent.events import Failed
from edgeperf.agent.link.child import RESULT_FOLDER, tail_of
from edgeperf.agent.link.http import sha256_of
from edgeperf.agent.messages import BlobRef, ErrorClass, RunFailed, RunResult
from edgeperf.agent.result import result_from_json
from edgeperf.agent.result.files import RESULT

#: A larger result.json comes as a blob only; the event must stay below 96 KiB.
_INLINE_BYTES = 60_000
_MOST_FILES = 150
_USER_ERROR = 2
_MESSAGE_CHARACTERS = 1900


def read_result(folder: Path, exit_code: int, duration_s: float) -> RunResult | None:
    """Return the result that a run left in *folder*; None when there is no whole one.

    Args:
        folder: The run's directory.
        exit_code: Of the run.
        duration_s: How long it ran.
    """
    try:
        raw = (_result_folder(folder) / RESULT).read_bytes()
        result = result_from_json(raw, where=RESULT)
        files = tuple(_manifest(folder))
    except (OSError, EdgeperfError):
        return None
    inline: dict[str, Any] | None = json.loads(raw) if len(raw) <= _INLINE_BYTES else None
    return RunResult(
        status=result.verdict.status.value,
        exit_code=exit_code,
        result=inline,
        files=files,
        duration_s=round(duration_s, 3),
    )


def failure(folder: Path, exit_code: int, said: Failed | None) -> RunFailed:
    """Return why a run ended without a result.

    Args:
        folder: The run's directory.
        exit_code: Of the child, negative for a signal.
        said: Its own last word, None when it died without one.
    """
    tail = tail_of(folder / "run.log")
    if said is not None:
        message = said.message[:_MESSAGE_CHARACTERS]
        user = exit_code == _USER_ERROR
        kind = ErrorClass.USER if user else ErrorClass.HARNESS
    elif exit_code < 0:
        message = f"the run was ended by {_signal_name(-exit_code)}"
        kind = ErrorClass.HARNESS
        if -exit_code == signal.SIGKILL:
            message += ", most likely because memory ran out"
            kind = ErrorClass.DEVICE
    elif exit_code == _USER_ERROR:
        message, kind = tail[-1] if tail else "bad input", ErrorClass.USER
    else:
        message = f"the run ended with exit code {exit_code} and left no result"
        kind = ErrorClass.HARNESS
    return RunFailed(error_class=kind, message=message, exit_code=exit_code, tail=tail)


def uploads_of(folder: Path, result: RunResult, *, everything: bool) -> list[tuple[str, str, int]]:
    """Return sha256, path and size in bytes of the files to upload."""
    files = result.files if everything else result.files[:1]
    return [(file.sha256, str(_path(folder, file.name)), file.size_bytes) for file in files]


def prune(runs: Path, *, keep_bytes: int, busy: set[str]) -> None:
    """Delete the oldest run directories until *keep_bytes* are left.

    Args:
        runs: Directory with one directory per run; names sort by age.
        keep_bytes: What may stay.
        busy: Names that must stay: running, or not yet uploaded.
    """
    folders = sorted((path for path in runs.iterdir() if path.is_dir()), reverse=True)
    left = keep_bytes
    for folder in folders:
        left -= sum(path.lstat().st_size for path in folder.rglob("*"))
        if left < 0 and folder.name not in busy:
            shutil.rmtree(folder, ignore_errors=True)


def _result_folder(folder: Path) -> Path:
    """Return the directory of the one result below *folder*; a partial one has a dot.

    Raises:
        FileNotFoundError: There is none.
    """
    for path in (folder / RESULT_FOLDER).iterdir():
        if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            return path
    raise FileNotFoundError(f"{folder}: no result")


def _manifest(folder: Path) -> Iterator[BlobRef]:
    paths = [*_regular_files(_result_folder(folder)), folder / "run.log"]
    names = {path: _name(folder, path) for path in paths}
    paths.sort(key=lambda path: (names[path] != RESULT, names[path]))
    for path in paths[:_MOST_FILES]:
        document = {
            "name": names[path],
            "sha256": sha256_of(path),
            "size_bytes": path.stat().st_size,
        }
        try:
            yield msgspec.convert(document, BlobRef)
        except msgspec.ValidationError:  # a name that no reader would take
            continue


def _regular_files(folder: Path) -> list[Path]:
    """Return the files below *folder*; a link is none, wherever a hostile run made it point."""
    return [path for path in folder.rglob("*") if stat.S_ISREG(path.lstat().st_mode)]


def _name(folder: Path, path: Path) -> str:
    result = _result_folder(folder)
    return path.relative_to(result if result in path.parents else folder).as_posix()


def _path(folder: Path, name: str) -> Path:
    inside = _result_folder(folder) / name
    return inside if inside.is_file() else folder / name


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
