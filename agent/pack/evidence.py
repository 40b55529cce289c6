"""What belongs to a result: the files that it lists, unaltered, and the spec that repeats it.

Only files that ``result.json`` lists are taken, and only with the content that it says: so
samples, which may not be shared, never get in, whatever else lies in the folder.
"""

import hashlib
import re
from pathlib import Path, PurePosixPath

import msgspec

from edgeperf import InputError
from edgeperf.agent.freeze.document import FrozenSpec, frozen_to_json
from edgeperf.agent.freeze.freezing import freeze
from edgeperf.agent.result import File, Result, ResultError, read_result
from edgeperf.agent.result.files import LATENCIES, LATENCY_NS, RESULT
from edgeperf.agent.result.kept import contradiction
from edgeperf.datasets.assets import digest
from edgeperf.datasets.npz import read_stored

SPEC = "spec.json"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
#: So many files are named in a message; the rest is counted.
_NAMED = 3


class PackError(InputError):
    """A result or a pack is not whole; the message names the file."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One result and everything that belongs to it.

    Attributes:
        result: The result.
        folder: Where its files are.
        raw: The bytes of its ``result.json``.
        spec: What repeats it; None for a result that cannot be frozen.
        why_not: Why it cannot.
    """

    result: Result
    folder: Path
    raw: bytes
    spec: FrozenSpec | None
    why_not: str = ""

    def texts(self) -> dict[str, bytes]:
        """Return what is not copied from a file: name in the result's folder, and bytes."""
        spec = {} if self.spec is None else {SPEC: frozen_to_json(self.spec)}
        return {RESULT: self.raw, **spec}


def collect(path: Path) -> Evidence:
    """Read a result and check all its files.

    Args:
        path: A result directory or its ``result.json``.

    Raises:
        ResultError: It is no result.
        PackError: A file is missing or altered, or the result states other latencies than
            it kept.
    """
    result, file = read_result(path)
    check_names(result, str(file))
    problems = [
        f"{name} is {problem}"
        for name, listed in sorted(result.files.items())
        if (problem := _problem(file.parent / name, listed))
    ]
    if problems:
        more = len(problems) - _NAMED
        text = "; ".join(problems[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
        raise PackError(
            f"result {file.parent}: {text}; pack the directory as the run left it, or run again"
        )
    _check_latencies(result, file)
    spec, why_not = spec_of(result, str(file))
    return Evidence(
        result=result, folder=file.parent, raw=file.read_bytes(), spec=spec, why_not=why_not
    )


def spec_of(result: Result, where: str) -> tuple[FrozenSpec | None, str]:
    """Return the spec that repeats *result*, or None and why there is none."""
    try:
        return freeze(result, where=where), ""
    except ResultError as error:
        return None, str(error)


def check_names(result: Result, where: str) -> None:
    """Refuse a result whose id or files would lead out of their folder.

    Raises:
        PackError: One does, or is taken.
    """
    if not _ID.fullmatch(result.id):
        raise PackError(f"{where}: id {result.id!r} is no name of a folder")
    for name in result.files:
        parts = PurePosixPath(name).parts
        plain = parts and not PurePosixPath(name).is_absolute() and ".." not in parts
        if not plain or not name.isprintable() or "\\" in name or name in (RESULT, SPEC):
            raise PackError(f"{where}: lists {name!r}, which is no name of a file of a result")


def _problem(path: Path, listed: File) -> str | None:
    try:
        sha256, size_bytes = digest(path) if path.is_file() else ("", -1)
    except OSError as error:
        return f"not readable: {error.strerror}"
    if size_bytes < 0:
        return "missing"
    if (sha256, size_bytes) == (listed.sha256, listed.size_bytes):
        return None
    return f"altered (expected sha256 {listed.sha256[:16]}, found {sha256[:16]})"


def _check_latencies(result: Result, file: Path) -> None:
    """Refuse percentiles that are not those of the kept latencies, which are as they were."""
    stated = None if result.performance is None else result.performance.latency_ns
    if stated is None or LATENCIES not in result.files:
        return
    latency_ns = read_stored(file.parent / LATENCIES, LATENCY_NS, "latencies as a run keeps them")
    if latency_ns.dtype.kind not in "iu":
        raise PackError(f"{file.parent / LATENCIES}: {LATENCY_NS} holds no whole numbers")
    if problem := contradiction(stated, latency_ns):
        raise PackError(f"{file}: {problem}; pack the directory as the run left it, or run again")


def sha256_of(raw: bytes) -> str:
    """Return the sha256 of *raw*, hex."""
    return hashlib.sha256(raw).hexdigest()
