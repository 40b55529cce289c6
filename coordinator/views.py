"""Rows of the store as plain data for people and scripts: what the HTTP interface returns.

The names are the interface of ``edgeperf fleet --json``, so they change only with care.
"""

import json
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import Connection, Row

from edgeperf.coordinator.store import campaigns, devices, runs


def board_view(row: Row[Any], labels: list[str], *, whole: bool = False) -> dict[str, Any]:
    """Return a board; with its description if *whole*."""
    status = json.loads(row.status) if row.status else {}
    view = {
        "name": row.id,
        "state": "revoked" if row.revoked_ns is not None else row.state,
        "since": status.get("since"),
        "seen": when(row.seen_ns),
        "run": status.get("run"),
        "queued": status.get("queued"),
        "unsent": status.get("unsent"),
        "reason": status.get("reason"),
        "agent": status.get("agent"),
        "temperature_c": row.temperature_c,
        "labels": labels,
    }
    if whole:
        view["enrolled"] = when(row.enrolled_ns)
        view["description"] = json.loads(row.description) if row.description else None
    return view


def run_view(row: Row[Any], *, whole: bool = False) -> dict[str, Any]:
    """Return a run; with spec and result if *whole*."""
    view = {
        "run": row.id,
        "board": row.device,
        "state": row.state,
        "over": row.state in runs.OVER,
        "version": row.version,
        "attempt": row.attempt,
        "origin": row.origin,
        "campaign": row.campaign,
        "cell": row.cell,
        "model": row.model,
        "model_sha256": row.model_sha256,
        "backend": row.backend,
        "scenario": row.scenario,
        "preset": row.preset,
        "task": row.task,
        "created": when(row.created_ns),
        "started": when(row.started_ns),
        "ended": when(row.ended_ns),
        "progress": json.loads(row.progress) if row.progress else None,
        "verdict": row.verdict,
        "comparable": None if row.comparable is None else bool(row.comparable),
        "headline": row.headline,
        "headline_value": row.headline_value,
        "headline_unit": row.headline_unit,
        "error_class": row.error_class,
        "error": row.error,
        "exit_code": exit_code(row),
        "result_id": row.result_id,
        "result_sha256": row.result_sha256,
    }
    if whole:
        for name in ("spec", "request", "result"):
            text = getattr(row, name)
            view[name] = json.loads(text) if text else None
    return view


def campaign_view(connection: Connection, row: Row[Any], *, cells: bool = True) -> dict[str, Any]:
    """Return a campaign with how far it is; with every cell unless told otherwise."""
    view: dict[str, Any] = {
        "name": row.name,
        "state": row.state,
        "created": when(row.created_ns),
        "counts": campaigns.counts(connection, row.name),
    }
    if cells:
        view["cells"] = [
            {
                "number": cell.number,
                "board": cell.device,
                "state": cell.state,
                "attempts": cell.attempts,
                "run": cell.run,
                "spec": json.loads(cell.request)["spec"],
                "run_state": cell.run_state,
                "verdict": cell.verdict,
                "error": cell.error,
            }
            for cell in campaigns.with_runs(connection, row.name)
        ]
    return view


def exit_code(row: Row[Any]) -> int | None:
    """Return what ``edgeperf fleet run`` exits with for this run; None while it goes on.

    The board's own where it has one; 130 cancelled; else 3, a part failed.
    """
    if row.state not in runs.OVER:
        return None
    if row.state == "cancelled":
        return 130
    if row.exit_code is not None and 0 <= row.exit_code <= 3:  # noqa: PLR2004 - the CLI's own
        code: int = row.exit_code
        return code
    wrong_spec = row.state == "rejected" and (row.error or "").startswith(("spec:", "model:"))
    return 2 if wrong_spec or row.error_class == "user" else 3


def when(ns: int | None) -> str | None:
    """Return a wall-clock moment as ISO 8601 in UTC."""
    if ns is None:
        return None
    return datetime.fromtimestamp(ns / 1e9, timezone.utc).isoformat(timespec="milliseconds")


def boards_view(connection: Connection) -> list[dict[str, Any]]:
    """Return every board."""
    labels = devices.labels_of(connection)
    return [board_view(row, labels.get(row.id, [])) for row in devices.every(connection)]
