"""Blobs over HTTP, as :mod:`edgeperf.agent.messages` describes them.

A board may send what its results list and read models; the administrator may do both with any.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from edgeperf.coordinator.blobs import BlobError, BlobOffsetError
from edgeperf.coordinator.http.parts import parts_of
from edgeperf.coordinator.store import models, results

_PIECE_BYTES = 1024 * 1024
_CONTENT_RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})")
#: What clients say of an empty body.
_EMPTY_RANGE = re.compile(r"bytes \*/(\d{1,15})")
_RANGE = re.compile(r"bytes=(\d{1,15})-")


def head(request: Request) -> Response:
    """Say whether a blob is here, or how much of it."""
    _who(request)
    blobs = parts_of(request).artefacts.blobs
    sha256 = request.path_params["sha256"]
    size = blobs.size(sha256)
    if size is not None:
        return Response(status_code=200, headers={"Content-Length": str(size)})
    return _offset(404, blobs.offset(sha256))


def get(request: Request) -> Response:
    """Send a blob, or the rest of one."""
    board = _who(request)
    parts = parts_of(request)
    sha256 = request.path_params["sha256"]
    if board is not None:
        with parts.store.reading() as connection:
            own = results.is_wanted(connection, sha256, board) is not None
            if not own and models.get(connection, sha256) is None:
                raise BlobError(f"blob {sha256}: no model of this fleet")
    size = parts.artefacts.blobs.size(sha256) or 0
    file = parts.artefacts.blobs.open(sha256)
    asked = _RANGE.fullmatch(request.headers.get("range", ""))
    first = int(asked[1]) if asked else 0
    headers = {"Content-Length": str(max(0, size - first)), "Accept-Ranges": "bytes"}
    if asked:
        if first >= size:
            file.close()
            return Response(status_code=416, headers={"Content-Range": f"bytes */{size}"})
        headers["Content-Range"] = f"bytes {first}-{size - 1}/{size}"
    file.seek(first)
    return StreamingResponse(
        _pieces(file), 206 if asked else 200, headers, media_type="application/octet-stream"
    )


async def put(request: Request) -> Response:
    """Take a blob in, or a part of one that continues what is kept."""
    board = await run_in_threadpool(_who, request)
    artefacts = parts_of(request).artefacts
    sha256 = request.path_params["sha256"]
    first, total = _place(request)
    whole, piece = False, bytearray()

    async def keep() -> None:
        nonlocal first, whole
        whole = await run_in_threadpool(
            artefacts.append, sha256, bytes(piece), first=first, total=total, board=board
        )
        first += len(piece)
        piece.clear()

    try:
        async for chunk in request.stream():
            piece += chunk
            if len(piece) >= _PIECE_BYTES:
                await keep()
        if piece or not whole:
            await keep()
    except BlobOffsetError as error:
        return _offset(409, error.offset)
    return Response(status_code=201) if whole else _offset(202, first)


def _who(request: Request) -> str | None:
    """Return the board that asks; None for the administrator.

    Raises:
        NotAllowedError: Neither.
    """
    doorman = parts_of(request).doorman
    return None if doorman.is_admin(request) else doorman.board(request)


def _place(request: Request) -> tuple[int, int]:
    """Return the first byte's offset and the whole size, from the headers."""
    given = request.headers.get("content-range")
    if given is None:
        length = request.headers.get("content-length", "")
        if not length.isdigit():
            raise BlobError("upload: give Content-Length, or Content-Range for a part")
        return 0, int(length)
    if empty := _EMPTY_RANGE.fullmatch(given):
        return 0, int(empty[1])
    found = _CONTENT_RANGE.fullmatch(given)
    if found is None:
        raise BlobError(f"Content-Range {given[:60]!r}: expected bytes FIRST-LAST/SIZE")
    return int(found[1]), int(found[3])


def _offset(status: int, offset: int) -> Response:
    return Response(status_code=status, headers={"Upload-Offset": str(offset)})


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE_BYTES):
            yield piece
