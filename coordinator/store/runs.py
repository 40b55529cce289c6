"""Runs in the store: asked for, under way, over.

States only ever move forward, whatever the order in which events arrive: each has a rank,
and a terminal state is final for its attempt. ``expired`` is our own guess that a board never
got the command, so anything the board says about the run takes its place.
"""

import json
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, Select, and_, insert, or_, select, update

from edgeperf import InputError
from edgeperf.agent.messages import RunStart
from edgeperf.coordinator.store.figures import clean
from edgeperf.coordinator.store.schema import artefact, condition, log, metric, run

#: State -> rank; an event never takes a run back to a lower one.
RANK = {
    "queued": 0,
    "expired": 1,
    "accepted": 2,
    "preparing": 3,
    "cooling": 4,
    "running": 5,
    "succeeded": 9,
    "failed": 9,
    "cancelled": 9,
    "timed-out": 9,
    "rejected": 9,
    "interrupted": 9,
}
TERMINAL = tuple(state for state, rank in RANK.items() if rank == max(RANK.values()))
OVER = (*TERMINAL, "expired")


class UnknownRunError(InputError):
    """No run has this id, or several begin with it."""


def create(  # noqa: PLR0913 - one row, spelt out
    connection: Connection,
    start: RunStart,
    board: str,
    *,
    now_ns: int,
    origin: str = "fleet",
    campaign: str | None = None,
    cell: int | None = None,
) -> None:
    """Add a run that is about to be asked of a board."""
    connection.execute(
        insert(run).values(
            id=start.run,
            device=board,
            state="queued",
            version=1,
            attempt=start.attempt,
            origin=origin,
            campaign=campaign,
            cell=cell,
            request=msgspec.json.encode(start).decode(),
            created_ns=now_ns,
            progress_seq=-1,
            **spec_columns(start.spec),
            model_sha256=start.model.sha256 if start.model else None,
        )
    )


def spec_columns(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a run that are copied from its spec, which may come from a board."""
    defaults = {"scenario": "SingleStream", "preset": "fast"}
    names = ("model", "backend", "scenario", "preset", "task")
    found = {name: spec.get(name) or defaults.get(name) for name in names}
    plain = {name: clean(v) if isinstance(v, str) else None for name, v in found.items()}
    return {"spec": json.dumps(spec, sort_keys=True), **plain}


def get(connection: Connection, run_id: str, *, lock: bool = False) -> Row[Any] | None:
    """Return the row of exactly this run; None without one."""
    query = select(run).where(run.c.id == run_id)
    return connection.execute(query.with_for_update() if lock else query).one_or_none()


def find(connection: Connection, text: str) -> Row[Any]:
    """Return the run whose id is, or uniquely ends in or begins with, *text*.

    Ids are made of the time first, so that the end tells runs of one day apart.

    Raises:
        UnknownRunError: There is none, or more than one.
    """
    wanted = text.replace("%", "").replace("_", "")
    query = select(run).where(or_(run.c.id.like(f"{wanted}%"), run.c.id.like(f"%{wanted}")))
    rows = list(connection.execute(query.limit(2))) if wanted else []
    exact = [row for row in rows if row.id == text]
    if exact:
        return exact[0]
    if len(rows) != 1:
        problem = "several runs match; give more of the id" if rows else "no such run"
        raise UnknownRunError(f"run {text[:60]!r}: {problem}; `edgeperf fleet results` lists them")
    return rows[0]


def touch(connection: Connection, run_id: str, **values: Any) -> None:
    """Change columns of a run and its version."""
    changed = update(run).where(run.c.id == run_id)
    connection.execute(changed.values(version=run.c.version + 1, **values))


def begin_attempt(connection: Connection, start: RunStart) -> None:
    """Ask for the same run again: the next attempt, all signs of the last one gone."""
    touch(
        connection,
        start.run,
        state="queued",
        attempt=start.attempt,
        request=msgspec.json.encode(start).decode(),
        started_ns=None,
        ended_ns=None,
        progress=None,
        progress_seq=-1,
        error_class=None,
        error=None,
        exit_code=None,
    )


def artefacts(connection: Connection, run_id: str) -> list[Row[Any]]:
    """Return the files of a run's result directory."""
    query = select(artefact).where(artefact.c.run == run_id).order_by(artefact.c.name)
    return list(connection.execute(query))


def metrics(connection: Connection, run_ids: list[str]) -> list[Row[Any]]:
    """Return the metrics of runs, by run and name."""
    query = select(metric).where(metric.c.run.in_(run_ids)).order_by(metric.c.run, metric.c.name)
    return list(connection.execute(query))


def conditions(connection: Connection, run_id: str) -> dict[str, str]:
    """Return the board's condition in a run."""
    query = select(condition).where(condition.c.run == run_id).order_by(condition.c.name)
    return {row.name: row.value for row in connection.execute(query)}


def log_lines(connection: Connection, run_id: str, *, after: int = -1) -> list[Row[Any]]:
    """Return what a run wrote, from line number *after* on, at most 2000 lines."""
    query = (
        select(log.c.number, log.c.line)
        .where(log.c.run == run_id, log.c.number > after)
        .order_by(log.c.number)
        .limit(2000)
    )
    return list(connection.execute(query))


class Filter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which runs are wanted; None is any.

    Attributes:
        since_ns: Created at or after this.
        limit: The newest so many.
    """

    device: str | None = None
    campaign: str | None = None
    model: str | None = None
    backend: str | None = None
    scenario: str | None = None
    preset: str | None = None
    task: str | None = None
    state: str | None = None
    verdict: str | None = None
    since_ns: int | None = None
    limit: int = 1000


def select_runs(connection: Connection, wanted: Filter) -> list[Row[Any]]:
    """Return the runs that match, newest first."""
    return list(connection.execute(_query(wanted)))


def _query(wanted: Filter) -> Select[Any]:
    fields = ("device", "campaign", "backend", "scenario", "preset", "task", "state")
    given = {field: getattr(wanted, field) for field in fields}
    clauses: list[ColumnElement[bool]] = [
        run.c[field] == value for field, value in given.items() if value is not None
    ]
    if wanted.verdict is not None:
        clauses.append(run.c.verdict == wanted.verdict.upper())
    if wanted.model is not None:
        clauses.append(or_(run.c.model == wanted.model, run.c.model_sha256 == wanted.model))
    if wanted.since_ns is not None:
        clauses.append(run.c.created_ns >= wanted.since_ns)
    query = select(run).order_by(run.c.created_ns.desc(), run.c.id.desc()).limit(wanted.limit)
    return query.where(and_(*clauses)) if clauses else query
