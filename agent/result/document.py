"""What a run found: the whole of ``result.json``, as plain data.

History of the format (``format_version``)::

    1  first version

Readers ignore fields that they do not know, and refuse a newer ``format_version``.
"""

from typing import Any

import msgspec

from edgeperf import InputError
from edgeperf.agent.result.figures import Accuracy, Performance
from edgeperf.agent.result.repeat import Data, Repeat
from edgeperf.agent.result.sut import Model, Sut
from edgeperf.agent.result.verdict import Status, Verdict, status_of

FORMAT_VERSION = 1


class ResultError(InputError):
    """A result cannot be read; the message names the file and the field."""


class File(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the result directory."""

    sha256: str
    size_bytes: int


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run, whole.

    Attributes:
        format_version: See the module's history.
        id: Unique name of the run: UTC time and random characters; sorts by time.
        created: UTC, ISO 8601.
        edgeperf: Version of edgeperf that made it.
        verdict: Whether to believe it; before any number.
        spec: What was asked, a :class:`~edgeperf.agent.spec.RunSpec` as data.
        model: The file that ran.
        task: Name of the task, None without one.
        data: The samples by content; None in results of an older edgeperf.
        sut: What really ran.
        accuracy: The accuracy test.
        performance: The performance test; None when it was not reached, or when it is
            withheld because the accuracy gate was missed (``ungated`` shows it).
        board: What the board is, as ``edgeperf doctor`` describes it.
        conditions: What the board's condition was in the performance window.
        power: Energy over the performance window, None without a meter.
        tuning: What was held while it ran (governor, clock, fan) and how it stood at the
            end; None when nothing was asked to be held.
        phases_ns: How long each phase took.
        files: Every other file of the result directory.
        packages: Versions of the Python packages that a number may depend on.
        repeat: The frozen spec that it was held to, None without one.
    """

    format_version: int = FORMAT_VERSION
    id: str
    created: str
    edgeperf: str
    verdict: Verdict
    spec: dict[str, Any]
    model: Model
    task: str | None
    sut: Sut | None
    accuracy: Accuracy
    performance: Performance | None
    board: dict[str, Any]
    conditions: dict[str, Any] | None
    power: dict[str, Any] | None
    tuning: dict[str, Any] | None = None
    phases_ns: dict[str, int]
    files: dict[str, File]
    data: Data | None = None
    packages: dict[str, str] = msgspec.field(default_factory=dict)
    repeat: Repeat | None = None


class _Versioned(msgspec.Struct):
    format_version: int


def result_from_json(raw: bytes, *, where: str) -> Result:
    """Read ``result.json``.

    Raises:
        ResultError: It is not one, its format is newer than this edgeperf, or its verdict is
            not the one that follows from its own reasons.
    """
    try:
        version = msgspec.json.decode(raw, type=_Versioned).format_version
        if version > FORMAT_VERSION:
            raise ResultError(
                f"{where}: format {version} is newer than this edgeperf reads"
                f" ({FORMAT_VERSION}); upgrade edgeperf"
            )
        result = msgspec.json.decode(raw, type=Result)
    except msgspec.DecodeError as error:
        raise ResultError(f"{where}: not a result.json: {error}") from error
    _check_verdict(result.verdict, where)
    return result


def _check_verdict(verdict: Verdict, where: str) -> None:
    """Refuse a verdict that its reasons contradict: nobody must read VALID above a doubt."""
    follows, status = status_of(verdict.reasons), verdict.status
    if status is not follows:
        raise ResultError(
            f"{where}: was altered: it says {status.value}, and its own reasons make it"
            f" {follows.value}; take the file as the run left it"
        )
    if verdict.comparable and status is not Status.VALID:
        raise ResultError(
            f"{where}: was altered: it says comparable, and only a VALID result can be;"
            " take the file as the run left it"
        )


def result_to_json(result: Result) -> bytes:
    """Return the text of ``result.json``, indented, ending in a newline."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"


def result_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``result.json``."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"edgeperf result.json, format {FORMAT_VERSION}",
        **msgspec.json.schema(Result),
    }
