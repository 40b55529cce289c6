"""Boards over HTTP: list, show, enroll, label, drain, shut out. For the administrator."""

from typing import Annotated

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from edgeperf.agent.messages import Drain, MessageError
from edgeperf.coordinator.enrolment import EnrolmentRefusedError, TooManyTriesError
from edgeperf.coordinator.http.parts import Parts, admin, body_of, parts_of, read_body, reply
from edgeperf.coordinator.store import devices
from edgeperf.coordinator.views import board_view, boards_view

Label = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._=-]{0,79}$")]
_DRAIN_WITHIN_S = 86400.0


class _Names(msgspec.Struct, forbid_unknown_fields=True):
    names: Annotated[list[str], msgspec.Meta(min_length=1, max_length=5000)]


class _Invite(msgspec.Struct, forbid_unknown_fields=True):
    board: str | None = None
    ttl_s: Annotated[float, msgspec.Meta(gt=0, le=86400)] = 900.0


class _Labels(msgspec.Struct, forbid_unknown_fields=True):
    add: list[Label] = msgspec.field(default_factory=list)
    drop: list[str] = msgspec.field(default_factory=list)


class _Drain(msgspec.Struct, forbid_unknown_fields=True):
    on: bool = True
    reason: str = ""


def list_boards(request: Request) -> Response:
    """Return every board."""
    parts = admin(request)
    with parts.store.reading() as connection:
        return reply(boards_view(connection))


def show_board(request: Request) -> Response:
    """Return one board with its description."""
    parts = admin(request)
    with parts.store.reading() as connection:
        row = devices.get(connection, request.path_params["board"])
        labels = devices.labels_of(connection).get(row.id, [])
    return reply(board_view(row, labels, whole=True))


async def enroll(request: Request) -> Response:
    """Let a board join that shows a code. No token: the code is sealed into the body."""
    parts = parts_of(request)
    body = await body_of(request)
    try:
        sealed = await run_in_threadpool(parts.enrolment.redeem, body)
    except (EnrolmentRefusedError, MessageError) as error:
        return reply({"error": str(error)}, 403)
    except TooManyTriesError as error:
        return reply({"error": str(error)}, 429)
    return Response(sealed, media_type="application/json")


async def invite(request: Request) -> Response:
    """Make a code."""
    asked = await read_body(request, _Invite)
    enrolment = admin(request).enrolment
    code = await run_in_threadpool(enrolment.invite, asked.board, ttl_s=asked.ttl_s)
    return reply({"code": code, "board": asked.board, "ttl_s": asked.ttl_s}, 201)


async def admit(request: Request) -> Response:
    """Take boards in without a code."""
    asked = await read_body(request, _Names)
    return reply(await run_in_threadpool(admin(request).enrolment.admit, asked.names), 201)


async def relabel(request: Request) -> Response:
    """Add and drop labels of one board."""
    asked = await read_body(request, _Labels)

    def change(parts: Parts, board: str) -> dict[str, object]:
        with parts.store.writing() as connection:
            devices.relabel(connection, board, add=asked.add, drop=asked.drop)
            row = devices.get(connection, board)
            return board_view(row, devices.labels_of(connection).get(board, []))

    board = request.path_params["board"]
    return reply(await run_in_threadpool(change, admin(request), board))


async def drain(request: Request) -> Response:
    """Ask a board to take no new runs, or to take them again."""
    asked = await read_body(request, _Drain)

    def ask(parts: Parts, board: str) -> str:
        with parts.store.writing() as connection:
            devices.get(connection, board)
            data = Drain(on=asked.on, reason=asked.reason)
            command = parts.commander.issue(connection, board, data, within_s=_DRAIN_WITHIN_S)
        parts.wake()
        return command

    command = await run_in_threadpool(ask, admin(request), request.path_params["board"])
    return reply({"command": command}, 202)


def revoke(request: Request) -> Response:
    """Shut a board out."""
    admin(request).enrolment.revoke(request.path_params["board"])
    return reply({"revoked": request.path_params["board"]})
