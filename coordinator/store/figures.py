"""The rows that a ``result.json`` gives: its metrics with units, and the board's condition.

Only figures are picked out; the document itself is kept whole beside them. It came from a
board, so nothing here trusts it: a number that is none is left out.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from edgeperf.agent.result import FORMAT_VERSION, Performance, Result

_MOST_ROWS = 400
_LONGEST_TEXT = 500

#: What a measured figure's uncertainty is called, in the figure's unit.
_UNCERTAINTY = ".uncertainty"
#: Ending of a name -> unit, as the house rule for names has it.
_UNITS = {
    "_ns": "ns",
    "_ms": "ms",
    "_s": "s",
    "_j": "J",
    "_w": "W",
    "_v": "V",
    "_a": "A",
    "_hz": "Hz",
    "_c": "degC",
    "_bytes": "B",
    "_sps": "samples/s",
    "_qps": "queries/s",
    "_per_joule": "1/J",
    "_per_kwh": "1/kWh",
}


class Metric(NamedTuple):
    """One figure of a run."""

    name: str
    unit: str
    value: float


def read_result(document: dict[str, Any]) -> Result | None:
    """Return the result in *document*; None when it is newer than we read, or none at all."""
    version = document.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        return None
    try:
        return msgspec.convert(document, Result)
    except (msgspec.ValidationError, ValueError, OverflowError):
        return None


def metrics_of(result: Result) -> list[Metric]:
    """Return every figure of *result* that is worth a query."""
    found: dict[str, Metric] = {}
    for metric in _all(result):
        if _is_number(metric.value) and len(found) < _MOST_ROWS:
            name = clean(metric.name)
            found.setdefault(name, Metric(name, clean(metric.unit), float(metric.value)))
    return list(found.values())


def conditions_of(result: Result) -> dict[str, str]:
    """Return the board's condition in the window, and what the board was, flattened."""
    rows = list(_flat("", result.conditions or {})) + list(_flat("board.", result.board))
    return {clean(name): clean(str(value)) for name, value in rows[:_MOST_ROWS]}


def clean(text: str) -> str:
    """Return *text* as every database takes it: short, no NUL, no half characters."""
    whole = text[:_LONGEST_TEXT].replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return whole.encode("utf-8", "replace").decode("utf-8")


def _all(result: Result) -> Iterator[Metric]:
    if result.performance is not None:
        yield from _performance(result.performance)
    if result.accuracy.measured:
        for name, value in result.accuracy.metrics.items():
            yield Metric(f"accuracy.{name}", "1", value)
        if result.accuracy.value is not None:
            yield Metric("accuracy", "1", result.accuracy.value)
    for name, value in _flat("power.", result.power or {}):
        yield Metric(name, _unit_of(name), value)
    for name, value in result.phases_ns.items():
        yield Metric(f"phase.{name}_ns", "ns", value)


def _performance(performance: Performance) -> Iterator[Metric]:
    if performance.headline is not None:
        headline = performance.headline
        yield Metric(headline.name, headline.unit, headline.value)
    yield Metric("throughput_sps", "samples/s", performance.throughput_sps)
    if performance.tokens_per_s is not None:
        yield Metric("tokens_per_s", "tokens/s", performance.tokens_per_s)
    yield Metric("duration_ns", "ns", performance.duration_ns)
    yield Metric("queries", "1", performance.queries)
    yield Metric("samples", "1", performance.samples)
    if performance.latency_ns is not None:
        for name, value in msgspec.to_builtins(performance.latency_ns).items():
            yield Metric(f"latency_{name}_ns", "ns", value)


def _flat(prefix: str, node: dict[str, Any], depth: int = 6) -> Iterator[tuple[str, Any]]:
    for name, value in node.items():
        if isinstance(value, dict) and value.keys() == {"value", "uncertainty"}:
            yield f"{prefix}{name}", value["value"]
            yield f"{prefix}{name}{_UNCERTAINTY}", value["uncertainty"]
        elif isinstance(value, dict):
            if depth:
                yield from _flat(f"{prefix}{name}.", value, depth - 1)
        elif not isinstance(value, list):
            yield f"{prefix}{name}", value


def _unit_of(name: str) -> str:
    name = name.removesuffix(_UNCERTAINTY)
    return next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), "1")


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
