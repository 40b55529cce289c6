"""What the HTTP interface works with."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from edgeperf import InputError
from edgeperf.agent.messages import MAX_MESSAGE_BYTES
from edgeperf.coordinator.artefacts import Artefacts
from edgeperf.coordinator.campaign import Scheduler
from edgeperf.coordinator.commander import Commander
from edgeperf.coordinator.enrolment import Enrolment
from edgeperf.coordinator.http.auth import Doorman
from edgeperf.coordinator.store import Store

T = TypeVar("T")

#: Of one request to the interface of ``edgeperf fleet``; blobs are streamed instead.
MAX_BODY_BYTES = 8 * MAX_MESSAGE_BYTES


class BodyError(InputError):
    """The body of a request cannot be used."""


class Parts(NamedTuple):
    """The coordinator as the handlers see it.

    Attributes:
        wake: Call it after making work for the dispatcher.
        health: What is up, for ``/v1/health``.
        clock_ns: The wall clock.
        packages: Folder of wheels that boards may install from; it need not be there.
    """

    store: Store
    commander: Commander
    scheduler: Scheduler
    enrolment: Enrolment
    artefacts: Artefacts
    doorman: Doorman
    wake: Callable[[], None]
    health: Callable[[], dict[str, Any]]
    clock_ns: Callable[[], int]
    packages: Path


def parts_of(request: Request) -> Parts:
    """Return the parts that the application was made with."""
    parts: Parts = request.app.state.parts
    return parts


async def body_of(request: Request) -> bytes:
    """Read a body that must not be large.

    Raises:
        BodyError: It is.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise BodyError(f"body: more than {MAX_BODY_BYTES} bytes")
    return bytes(body)


async def read_body(request: Request, to: type[T]) -> T:
    """Read a JSON body into a structure.

    Raises:
        BodyError: It is too large, not JSON, or a field is wrong; the message names it.
    """
    try:
        return msgspec.json.decode(await body_of(request), type=to)
    except msgspec.DecodeError as error:
        raise BodyError(f"request: {error}") from error


def query_of(request: Request, to: type[T], *, without: tuple[str, ...] = ()) -> T:
    """Read the query string into a structure.

    Raises:
        BodyError: A field is unknown or wrong; the message names it.
    """
    given = {name: v for name, v in request.query_params.items() if name not in without}
    try:
        return msgspec.convert(given, to, strict=False)
    except msgspec.ValidationError as error:
        raise BodyError(f"query: {error}") from error


def admin(request: Request) -> Parts:
    """Return the parts, for the administrator only.

    Raises:
        NotAllowedError: Someone else asks.
    """
    parts = parts_of(request)
    parts.doorman.admin(request)
    return parts


def reply(document: object, status: int = 200) -> Response:
    """Return *document* as JSON."""
    return Response(msgspec.json.encode(document), status, media_type="application/json")
