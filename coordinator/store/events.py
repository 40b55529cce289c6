"""What one event of a board does to the store: once, whatever is sent twice.

``(device, event id)`` is the primary key, so the second copy of an event changes nothing,
whichever coordinator it reaches. Events may come in any order; runs move only
forward (:data:`~edgeperf.coordinator.store.runs.RANK`). Progress is not kept one by one: the
newest ``seq`` wins.
"""

import enum
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, Table, insert, update
from sqlalchemy.dialects import postgresql, sqlite

from edgeperf.agent.messages import (
    Alert,
    CommandDone,
    CommandRejected,
    Event,
    RunAccepted,
    RunCancelled,
    RunCooling,
    RunFailed,
    RunInterrupted,
    RunLog,
    RunPreparing,
    RunProgress,
    RunRejected,
    RunResult,
    RunTimedOut,
)
from edgeperf.coordinator.store import commands, results, runs
from edgeperf.coordinator.store.figures import clean
from edgeperf.coordinator.store.migrations import StoreError
from edgeperf.coordinator.store.schema import event as event_table
from edgeperf.coordinator.store.schema import log
from edgeperf.coordinator.store.schema import run as run_table


class Outcome(str, enum.Enum):
    """What became of an event; all are acknowledged."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    STALE = "stale"
    FOREIGN = "foreign"


def apply_event(connection: Connection, event: Event, *, now_ns: int) -> Outcome:
    """Take in *event* inside the caller's transaction."""
    if isinstance(event.data, RunProgress | RunPreparing | RunCooling):
        return _progress(connection, event, now_ns)
    if not _keep(connection, event, now_ns):
        return Outcome.DUPLICATE
    if isinstance(event.data, CommandDone | CommandRejected):
        return _answer(connection, event)
    if isinstance(event.data, Alert) or event.run is None:
        return Outcome.APPLIED
    return _report(connection, event, now_ns)


def set_aside(
    connection: Connection, board: str, stream: str, seq: int, *, why: str, now_ns: int
) -> None:
    """Keep a trace of an event that could not be read, so that it may be acknowledged."""
    values = {
        "device": board,
        "id": f"unread-{stream[:40]}-{seq}",
        "stream": stream,
        "seq": seq,
        "type": "unread",
        "received_ns": now_ns,
        "body": msgspec.json.encode({"why": clean(why)}).decode(),
    }
    connection.execute(_insert_once(connection, event_table, values))


def _keep(connection: Connection, event: Event, now_ns: int) -> bool:
    """Insert the event; False when it, or another in its place, is there already."""
    body = msgspec.to_builtins(event.data, str_keys=True)
    for bulky in ("result", "lines"):  # these have tables of their own
        body.pop(bulky, None)
    values = {
        "device": event.device,
        "id": event.id,
        "stream": event.stream,
        "seq": event.seq,
        "type": event.type,
        "run": event.run,
        "attempt": event.attempt,
        "received_ns": now_ns,
        "body": msgspec.json.encode(body).decode(),
    }
    insertion = _insert_once(connection, event_table, values)
    done = connection.execute(insertion, execution_options={"preserve_rowcount": True})
    if done.rowcount < 0:  # taking it for a duplicate would lose it
        raise StoreError("cannot tell new events from old ones: needs SQLAlchemy 2.0.28 or newer")
    return done.rowcount == 1


def _insert_once(connection: Connection, table: Table, values: dict[str, Any]) -> Any:
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table).values(**values).on_conflict_do_nothing()
    return postgresql.insert(table).values(**values).on_conflict_do_nothing()


def _progress(connection: Connection, event: Event, now_ns: int) -> Outcome:
    row = _run_of(connection, event, now_ns) if event.run else None
    if row is None:
        return Outcome.FOREIGN
    if (event.attempt or 1) < row.attempt or event.seq <= row.progress_seq:
        return Outcome.DUPLICATE
    _settle(connection, event, row)
    state = {RunPreparing: "preparing", RunCooling: "cooling"}.get(type(event.data), "running")
    if runs.RANK[row.state] > runs.RANK["running"]:
        return Outcome.STALE
    progress = msgspec.json.encode(event.data).decode()
    runs.touch(
        connection,
        row.id,
        state=state,
        progress=progress,
        progress_seq=event.seq,
        started_ns=row.started_ns or now_ns,
    )
    return Outcome.APPLIED


def _run_of(connection: Connection, event: Event, now_ns: int) -> Row[Any] | None:
    """Return the run of *event*, made if we never heard of it; None for another board's."""
    run_id = event.run or ""
    row = runs.get(connection, run_id, lock=True)
    if row is None:
        values = {
            "id": run_id,
            "device": event.device,
            "state": "accepted",
            "version": 1,
            "attempt": event.attempt or 1,
            "origin": "board",
            "spec": "{}",
            "created_ns": now_ns,
            "progress_seq": -1,
        }
        connection.execute(_insert_once(connection, run_table, values))
        row = runs.get(connection, run_id, lock=True)
    if row is None or row.device != event.device:
        return None
    if (event.attempt or 1) > row.attempt:  # our store went back in time; the board did not
        runs.touch(connection, row.id, attempt=event.attempt, state="accepted", progress_seq=-1)
        row = runs.get(connection, run_id)
    return row


def _settle(connection: Connection, event: Event, row: Row[Any]) -> None:
    if row.attempt == (event.attempt or 1):
        commands.settle_starts(connection, row.id)


def _answer(connection: Connection, event: Event) -> Outcome:
    data = event.data
    if isinstance(data, CommandDone):
        commands.settle(connection, data.command, "done" if data.ok else "failed", reply=data.text)
    elif isinstance(data, CommandRejected) and data.command is not None:
        reply = f"{data.code.value}: {clean(data.reason)}"
        commands.settle(connection, data.command, "rejected", reply=reply)
    return Outcome.APPLIED


def _report(connection: Connection, event: Event, now_ns: int) -> Outcome:
    """Take a run forward, or leave it where it is."""
    row = _run_of(connection, event, now_ns)
    if row is None:
        return Outcome.FOREIGN
    if (event.attempt or 1) < row.attempt:
        return Outcome.STALE
    _settle(connection, event, row)
    if isinstance(event.data, RunLog):
        _log(connection, row.id, event.seq, event.data.lines)
        return Outcome.APPLIED
    state, values = _change(event.data)
    if runs.RANK[state] <= runs.RANK[row.state]:
        return Outcome.STALE
    if event.is_terminal:
        values["ended_ns"] = now_ns
    runs.touch(connection, row.id, state=state, **values)
    if isinstance(event.data, RunResult):
        results.keep(connection, row.id, event.data)
    _log(connection, row.id, event.seq, getattr(event.data, "tail", ()))
    return Outcome.APPLIED


#: Event -> the state that it leads to; also its error class, if it is always the same.
_STATES: dict[type, str] = {
    RunAccepted: "accepted",
    RunResult: "succeeded",
    RunFailed: "failed",
    RunRejected: "rejected",
    RunCancelled: "cancelled",
    RunTimedOut: "timed-out",
    RunInterrupted: "interrupted",
}


def _change(data: object) -> tuple[str, dict[str, Any]]:
    """Return the state that an event leads to, and the columns that come with it."""
    state = _STATES[type(data)]
    match data:
        case RunAccepted():
            return state, {}
        case RunResult(exit_code=code):
            return state, {"exit_code": _small(code)}
        case RunFailed(error_class=kind, message=text, exit_code=code):
            why = {"error_class": kind.value, "exit_code": _small(code)}
        case RunRejected(code=reason, reason=text):
            text = f"{reason.value}: {text}"
            why = {"error_class": state}
        case RunCancelled(reason=text) | RunTimedOut(message=text) | RunInterrupted(message=text):
            why = {"error_class": state}
    return state, {**why, "error": clean(text)}


def _small(code: int | None) -> int | None:
    return None if code is None else max(-255, min(255, code))


def _log(connection: Connection, run_id: str, seq: int, lines: tuple[str, ...]) -> None:
    """Add lines; their numbers follow from ``seq``, so they sort however they arrive."""
    rows = [
        {"run": run_id, "number": seq * 1000 + index, "line": clean(line)}
        for index, line in enumerate(lines)
    ]
    if rows:
        connection.execute(insert(log), rows)
        connection.execute(
            update(run_table)
            .where(run_table.c.id == run_id)
            .values(version=run_table.c.version + 1)
        )
