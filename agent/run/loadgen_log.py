"""Reading what LoadGen wrote: its detail log and its accuracy log, as they stand.

Traps: doubles carry six significant digits; a full disk cuts the logs without a word, so
a log without its last key is refused; MultiStream pads accuracy sets with duplicates.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from edgeperf import EdgeperfError
from edgeperf.agent.result import LoadGen

_MARK = b":::MLLOG "
_PERCENTILE_KEYS = {
    "min": "result_min_latency_ns",
    "mean": "result_mean_latency_ns",
    "p50": "result_50.00_percentile_latency_ns",
    "p90": "result_90.00_percentile_latency_ns",
    "p95": "result_95.00_percentile_latency_ns",
    "p97": "result_97.00_percentile_latency_ns",
    "p99": "result_99.00_percentile_latency_ns",
    "p99_9": "result_99.90_percentile_latency_ns",
    "max": "result_max_latency_ns",
}
_NOT_MET = {
    "result_min_duration_met": "the minimum duration was not reached",
    "result_min_queries_met": "the minimum number of queries was not reached",
    "result_perf_constraints_met": "the latency bound was not kept",
}
#: The last thing that LoadGen writes.
_LAST_KEY = {"performance": "num_errors", "accuracy": "power_end"}

Value = float | int | str | bool


class LogError(EdgeperfError):
    """LoadGen's logs are missing or cut short."""


class _Line(msgspec.Struct):
    key: str
    value: object = None
    metadata: dict[str, object] = msgspec.field(default_factory=dict)


class _Answer(msgspec.Struct):
    qsl_idx: int
    data: str


class DetailLog:
    """``mlperf_log_detail.txt``.

    Args:
        path: The file.
        mode: ``performance`` or ``accuracy``: they end differently.

    Attributes:
        values: Last value of each key.
        errors: Text of each error, in order.
    """

    def __init__(self, path: Path, mode: Literal["performance", "accuracy"]) -> None:
        self.values: dict[str, object] = {}
        ends = 0
        self.errors: list[str] = []
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise LogError(f"{path}: {error.strerror}") from error
        for line in raw.splitlines():
            if not line.startswith(_MARK):
                continue
            try:
                entry = msgspec.json.decode(line[len(_MARK) :], type=_Line)
            except msgspec.DecodeError as error:
                raise LogError(f"{path}: cut short; is the disk full?") from error
            self.values[entry.key] = entry.value
            ends += entry.key == _LAST_KEY[mode]
            if entry.metadata.get("is_error"):
                self.errors.append(f"{entry.key}: {entry.value}")
        if ends < (self._sets() if mode == "accuracy" else 1):
            raise LogError(f"{path}: not complete: {_LAST_KEY[mode]} missing; is the disk full?")

    def _sets(self) -> int:
        """Return how many sets of samples an accuracy test goes through."""
        total = self.number("qsl_reported_total_count") or 1
        at_once = self.number("qsl_reported_performance_count") or total
        return math.ceil(total / at_once)

    def number(self, key: str) -> float | None:
        """Return the number at *key*, None when it is not there or not a number."""
        value = self.values.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        return None

    def loadgen(self) -> LoadGen:
        """Return LoadGen's own account."""
        latency = {
            name: value
            for name, key in _PERCENTILE_KEYS.items()
            if (value := self.number(key)) is not None
        }
        return LoadGen(
            version=str(self.values.get("loadgen_version", "")),
            valid=self.values.get("result_validity") == "VALID",
            reasons=tuple(self._reasons()),
            errors=tuple(self.errors),
            settings={
                key.removeprefix("effective_"): value
                for key, value in self.values.items()
                if key.startswith("effective_") and isinstance(value, (bool, int, float, str))
            },
            latency_ns=latency,
        )

    def _reasons(self) -> Iterator[str]:
        """Say why LoadGen calls the result invalid: it spreads that over several keys."""
        if self.values.get("result_validity") != "INVALID":
            return
        for key, text in _NOT_MET.items():
            if self.values.get(key) is False:
                yield text
        if self.values.get("early_stopping_met") is False:
            yield _plain(str(self.values.get("early_stopping_result", "early stopping not met")))
        if reason := self.values.get("result_invalid_reason"):
            yield _plain(str(reason))


def _plain(text: str) -> str:
    """Return LoadGen's bullet list as one line."""
    return " ".join(text.replace("*", " ").split())


def read_answers(path: Path) -> dict[int, bytes]:
    """Return what ``mlperf_log_accuracy.json`` holds for each distinct sample.

    Raises:
        LogError: It is missing or cut short.
    """
    try:
        answers = msgspec.json.decode(path.read_bytes(), type=list[_Answer])
        return {answer.qsl_idx: bytes.fromhex(answer.data) for answer in answers}
    except (OSError, msgspec.DecodeError, ValueError) as error:
        raise LogError(f"{path}: {error}") from error
