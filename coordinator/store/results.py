"""A result in the store: the document whole, its figures and files as rows."""

import hashlib
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, insert, select

from edgeperf.agent.messages import BlobRef, RunResult
from edgeperf.agent.result.files import RESULT
from edgeperf.coordinator.store import runs
from edgeperf.coordinator.store.figures import clean, conditions_of, metrics_of, read_result
from edgeperf.coordinator.store.schema import artefact, condition, metric, run


def keep(connection: Connection, run_id: str, event: RunResult) -> None:
    """Store what a run found. ``result.json`` may come later, as a blob."""
    _keep_files(connection, run_id, event.files)
    runs.touch(connection, run_id, verdict=clean(event.status).upper())
    if event.result is not None:
        keep_document(connection, run_id, event.result)


def keep_document(connection: Connection, run_id: str, document: dict[str, Any]) -> None:
    """Store a ``result.json`` and the rows that it gives.

    A document newer than this edgeperf is kept as it is, without rows.
    """
    raw = msgspec.json.encode(document)
    values: dict[str, Any] = {
        "result": raw.decode(),
        "result_sha256": hashlib.sha256(raw).hexdigest(),
    }
    result = read_result(document)
    if result is None:
        runs.touch(connection, run_id, **values)
        return
    values |= runs.spec_columns(result.spec) | {
        "result_id": clean(result.id),
        "verdict": result.verdict.status.value,
        "comparable": int(result.verdict.comparable),
        "model": clean(result.model.name),
        "model_sha256": clean(result.model.sha256),
        "task": None if result.task is None else clean(result.task),
    }
    if result.sut is not None:
        values["backend"] = clean(result.sut.backend)
    figures = metrics_of(result)
    if result.performance is not None and result.performance.headline is not None:
        headline = result.performance.headline
        values |= {"headline": clean(headline.name), "headline_unit": clean(headline.unit)}
        values["headline_value"] = next(
            (figure.value for figure in figures if figure.name == headline.name), None
        )
    runs.touch(connection, run_id, **values)
    _replace(connection, metric, run_id, [figure._asdict() for figure in figures])
    states = conditions_of(result).items()
    _replace(connection, condition, run_id, [{"name": n, "value": v} for n, v in states])


def awaiting(connection: Connection, sha256: str) -> list[str]:
    """Return the runs whose ``result.json`` is the blob *sha256* and has not been read."""
    query = (
        select(artefact.c.run)
        .join(run, run.c.id == artefact.c.run)
        .where(
            artefact.c.sha256 == sha256,
            artefact.c.name == RESULT,
            run.c.result.is_(None),
        )
    )
    return list(connection.execute(query).scalars())


def is_wanted(connection: Connection, sha256: str, board: str) -> int | None:
    """Return the size of a blob that a run of *board* lists; None when none does."""
    query = (
        select(artefact.c.size_bytes)
        .join(run, run.c.id == artefact.c.run)
        .where(artefact.c.sha256 == sha256, run.c.device == board)
    )
    size: int | None = connection.execute(query).scalars().first()
    return size


def listed(connection: Connection, board: str) -> list[str]:
    """Return the sha256 of every file that runs of *board* list, once."""
    query = (
        select(artefact.c.sha256)
        .join(run, run.c.id == artefact.c.run)
        .where(run.c.device == board)
        .distinct()
    )
    return list(connection.execute(query).scalars())


def _keep_files(connection: Connection, run_id: str, files: tuple[BlobRef, ...]) -> None:
    named = {file.name: file for file in files}
    rows = [
        {"name": name, "sha256": file.sha256, "size_bytes": file.size_bytes}
        for name, file in named.items()
    ]
    _replace(connection, artefact, run_id, rows)


def _replace(connection: Connection, table: Any, run_id: str, rows: list[dict[str, Any]]) -> None:
    connection.execute(delete(table).where(table.c.run == run_id))
    if rows:
        connection.execute(insert(table), [{"run": run_id, **row} for row in rows])
