"""Finding the result that a path names, or saying what is there instead."""

from pathlib import Path

from edgeperf.agent.result.document import Result, ResultError, result_from_json
from edgeperf.agent.result.files import RESULT

_GZIP = b"\x1f\x8b"


def read_result(path: Path) -> tuple[Result, Path]:
    """Read a result directory or its ``result.json``.

    Returns:
        The result, and its ``result.json``.

    Raises:
        ResultError: It is neither.
    """
    file = path / RESULT if path.is_dir() else path
    if path.is_dir() and not file.exists():
        raise ResultError(f"result {path}: no {RESULT} in it; give the directory that a run left")
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise ResultError(
            f"result {path}: {error.strerror}; give a result directory or its {RESULT}"
        ) from error
    if raw.startswith(_GZIP):
        raise ResultError(
            f"result {path}: is a pack; unpack it and give a folder in it (edgeperf pack --verify"
            " checks it as it is)"
        )
    return result_from_json(raw, where=str(file)), file
