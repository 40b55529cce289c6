"""Results in the formats that other tools read: CSV, JSON, JSONL, Parquet.

All but JSON are tidy: one row per run and metric, with its unit, so that a new metric is a
new row and never a new column. JSON holds each run with its whole ``result.json``.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy import Row

from edgeperf import InputError
from edgeperf.coordinator.views import run_view

#: What a spreadsheet would take for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_COLUMNS = (
    "run",
    "board",
    "campaign",
    "model",
    "model_sha256",
    "backend",
    "task",
    "scenario",
    "preset",
    "created",
    "ended",
    "state",
    "verdict",
    "comparable",
    "error",
    "metric",
    "unit",
    "value",
)


class ExportError(InputError):
    """The format is unknown, or needs a package that is not installed."""


def render(kind: str, rows: Sequence[Row[Any]], metrics: Sequence[Row[Any]]) -> bytes:
    """Return runs in one of :data:`MEDIA_TYPES`.

    Args:
        kind: Name of the format.
        rows: The runs.
        metrics: Their metrics.

    Raises:
        ExportError: There is no such format, or its package is missing.
    """
    if kind not in _WRITERS:
        raise ExportError(f"format {kind[:20]!r}: expected one of {', '.join(_WRITERS)}")
    return _WRITERS[kind](rows, metrics)


def _tidy(rows: Sequence[Row[Any]], metrics: Sequence[Row[Any]]) -> Iterator[dict[str, Any]]:
    """Yield a row per metric; a run without any still has one, so that no failure is missed."""
    found: dict[str, list[Row[Any]]] = {}
    for metric in metrics:
        found.setdefault(metric.run, []).append(metric)
    for row in rows:
        view = run_view(row)
        common = {name: view[name] for name in _COLUMNS[:-3]}
        for metric in found.get(row.id, ()):
            yield {**common, "metric": metric.name, "unit": metric.unit, "value": metric.value}
        if row.id not in found:
            yield {**common, "metric": None, "unit": None, "value": None}


def _csv(rows: Sequence[Row[Any]], metrics: Sequence[Row[Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in _tidy(rows, metrics):
        writer.writerow({name: _harmless(value) for name, value in row.items()})
    return text.getvalue().encode()


def _harmless(value: object) -> object:
    """Keep a spreadsheet from computing what a board wrote."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def _json(rows: Sequence[Row[Any]], metrics: Sequence[Row[Any]]) -> bytes:
    del metrics
    views = [run_view(row, whole=True) for row in rows]
    return json.dumps(views, indent=2).encode() + b"\n"


def _jsonl(rows: Sequence[Row[Any]], metrics: Sequence[Row[Any]]) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in _tidy(rows, metrics)).encode()


def _parquet(rows: Sequence[Row[Any]], metrics: Sequence[Row[Any]]) -> bytes:
    try:
        import pyarrow as pa  # noqa: PLC0415 - 170 MB, an extra
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError as error:
        raise ExportError(
            "format parquet: needs pyarrow at the coordinator; pip install 'edgeperf[parquet]'"
        ) from error
    kinds = {"comparable": pa.bool_(), "value": pa.float64()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in _COLUMNS])
    table = pa.Table.from_pylist(list(_tidy(rows, metrics)), schema=schema)
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


_Writer = Callable[[Sequence[Row[Any]], Sequence[Row[Any]]], bytes]
#: Format -> how it is written. A new one is a function and a line in both tables.
_WRITERS: dict[str, _Writer] = {"csv": _csv, "json": _json, "jsonl": _jsonl, "parquet": _parquet}
MEDIA_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "parquet": "application/vnd.apache.parquet",
}
