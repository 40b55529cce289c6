"""Runs, models and results over HTTP. For the administrator.

A client that watches a run asks for "newer than version N" and is answered as soon as there
is something newer: no stream to keep alive, nothing lost when a connection breaks.
"""

import time
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from edgeperf.agent.messages import HoldTo, ModelRef, RunCancel, new_id, run_start, spec_to_wire
from edgeperf.agent.spec import spec_from_mapping
from edgeperf.coordinator import export
from edgeperf.coordinator.blobs import BlobError
from edgeperf.coordinator.http.parts import Parts, admin, parts_of, query_of, read_body, reply
from edgeperf.coordinator.store import campaigns, devices, models, runs
from edgeperf.coordinator.views import run_view

_CANCEL_WITHIN_S = 86400.0
_LONGEST_WAIT_S = 30.0
_GLANCE_S = 1.0

Seconds = Annotated[float, msgspec.Meta(gt=0, le=7 * 86400)]


class _Start(msgspec.Struct, forbid_unknown_fields=True):
    board: str
    spec: dict[str, Any]
    model: ModelRef | None = None
    timeout_s: Seconds | None = None
    cool_to_c: Annotated[float, msgspec.Meta(ge=0, le=150)] | None = None
    cool_timeout_s: Seconds = 600.0
    files: bool = True
    hold_to: HoldTo | None = None
    within_s: Seconds = 3600.0


class _Watch(msgspec.Struct, forbid_unknown_fields=True):
    newer_than: int = -1
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_WAIT_S)] = 0.0
    log_after: int = -1


async def start(request: Request) -> Response:
    """Ask exactly one board for a run."""
    asked = await read_body(request, _Start)
    return reply(await run_in_threadpool(_start, admin(request), asked), 201)


def _start(parts: Parts, asked: _Start) -> dict[str, Any]:
    spec = spec_to_wire(spec_from_mapping(asked.spec))
    data = run_start(
        spec,
        run=new_id(),
        model=asked.model,
        timeout_s=asked.timeout_s,
        cool_to_c=asked.cool_to_c,
        cool_timeout_s=asked.cool_timeout_s,
        files=asked.files,
        hold_to=asked.hold_to,
    )
    with parts.store.writing() as connection:
        board = devices.find_one(connection, asked.board)
        parts.commander.start_run(connection, board, data, within_s=asked.within_s)
        view = run_view(runs.find(connection, data.run))
    parts.wake()
    return view


def show(request: Request) -> Response:
    """Return one run, once it is newer than the asker knows, with new log lines."""
    parts = admin(request)
    asked = query_of(request, _Watch)
    give_up = time.monotonic() + asked.wait_s
    seen = parts.store.changes
    while True:
        with parts.store.reading() as connection:
            row = runs.find(connection, request.path_params["run"])
            lines = runs.log_lines(connection, row.id, after=asked.log_after)
        left_s = give_up - time.monotonic()
        if row.version > asked.newer_than or lines or left_s <= 0:
            break
        # Another coordinator's writes do not wake us, so look again now and then.
        seen = parts.store.wait_for_change(seen, min(left_s, _GLANCE_S))
    log = [{"number": line.number, "line": line.line} for line in lines]
    return reply({**run_view(row, whole=True), "log": log})


async def cancel(request: Request) -> Response:
    """Stop a run, wherever it is."""
    parts = admin(request)
    return reply(await run_in_threadpool(_cancel, parts, request.path_params["run"]), 202)


def _cancel(parts: Parts, text: str) -> dict[str, Any]:
    with parts.store.writing() as connection:
        row = runs.find(connection, text)
        if row.state not in runs.OVER:
            cancel = RunCancel(run=row.id)
            parts.commander.issue(connection, row.device, cancel, within_s=_CANCEL_WITHIN_S)
    parts.wake()
    return run_view(row)


def results(request: Request) -> Response:
    """Return the runs that match, in the format that is asked for."""
    parts = admin(request)
    given = dict(request.query_params)
    kind = given.pop("format", "json")
    wanted = query_of(request, runs.Filter, without=("format",))
    with parts.store.reading() as connection:
        if wanted.campaign is not None:
            campaigns.get(connection, wanted.campaign)
        if wanted.device is not None:
            devices.get(connection, wanted.device)
        rows = runs.select_runs(connection, wanted)
        if kind == "list":
            return reply([run_view(row) for row in rows])
        body = export.render(kind, rows, runs.metrics(connection, [row.id for row in rows]))
    return Response(body, media_type=export.MEDIA_TYPES[kind])


def result_file(request: Request) -> Response:
    """Return one ``result.json`` as the board wrote it."""
    parts = admin(request)
    with parts.store.reading() as connection:
        row = runs.find(connection, request.path_params["run"])
    if row.result is None:
        raise runs.UnknownRunError(f"run {row.id}: has no result (state {row.state})")
    return Response(row.result, media_type="application/json")


def log_file(request: Request) -> Response:
    """Return everything that a run wrote and sent."""
    parts = admin(request)
    with parts.store.reading() as connection:
        run_id = runs.find(connection, request.path_params["run"]).id

    def lines() -> Iterator[str]:
        after = -1
        while True:
            with parts.store.reading() as connection:
                found = runs.log_lines(connection, run_id, after=after)
            if not found:
                return
            after = found[-1].number
            yield "".join(f"{row.line}\n" for row in found)

    return StreamingResponse(lines(), media_type="text/plain; charset=utf-8")


async def add_model(request: Request) -> Response:
    """Let boards fetch a blob that is here already as a model."""
    ref = await read_body(request, ModelRef)
    parts = admin(request)

    def add() -> None:
        size = parts.artefacts.blobs.size(ref.sha256)
        if size != ref.size_bytes:
            raise BlobError(f"model {ref.name!r}: its blob is not here; upload it first")
        with parts.store.writing() as connection:
            models.add(connection, ref, now_ns=parts.clock_ns())

    await run_in_threadpool(add)
    return reply(ref, 201)


def health(request: Request) -> Response:
    """Say what is up; 503 when the broker is not. No token."""
    state = parts_of(request).health()
    return reply(state, 200 if state["ok"] else 503)
