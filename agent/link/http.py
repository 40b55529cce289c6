"""Blobs over HTTP, both ways, named by sha256 and resumed where they stopped.

A blob is sent in pieces, so that a cut line loses one piece at most and a run that is about to
start waits for one piece at most. What is downloaded appears under its name only after
its digest proved right.
"""

import hashlib
import http.client
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from edgeperf.agent.link.errors import LinkError, LinkInputError, RefusedError
from edgeperf.agent.link.identity import Identity
from edgeperf.agent.link.tls import certificate_problem, tls_context

PIECE_BYTES = 1 << 20
_TIMEOUT_S = 30.0
#: Pieces that may have to be sent twice before an upload is given up for now.
_SPARE_PIECES = 8
#: Asked between pieces; raising ends the transfer.
Between = Callable[[], None]
_OK, _CREATED, _ACCEPTED, _PARTIAL = 200, 201, 202, 206
_BAD_REQUEST, _UNAUTHORISED, _FORBIDDEN, _NOT_FOUND, _CONFLICT = 400, 401, 403, 404, 409
_UNPROCESSABLE = 422


class _AlteredError(LinkError):
    """What arrived has another digest than its name says."""


class Reply(NamedTuple):
    """An answer of the coordinator."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class BlobServer:
    """The coordinator's HTTP side.

    Args:
        url: Base URL, ``http://host:8484``.
        identity: Whose token and trust to use; None before enrolment.
        context: For https; None makes one from *identity*.

    Raises:
        LinkInputError: The URL is none.
    """

    def __init__(
        self, url: str, identity: Identity | None = None, *, context: ssl.SSLContext | None = None
    ) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError as error:
            raise LinkInputError(f"{url}: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise LinkInputError(f"{url!r}: expected http://HOST:PORT or https://HOST:PORT")
        self.url = url.rstrip("/")
        self._host, self._port = parts.hostname, port
        self._path = parts.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {identity.token}"} if identity else {}
        self._context = context
        if parts.scheme == "https" and context is None:
            self._context = tls_context(identity) if identity else ssl.create_default_context()

    def post(self, path: str, body: bytes) -> Reply:
        """Send *body* and return the answer, whatever its status.

        Raises:
            LinkError: The server cannot be reached.
            RefusedError: Its certificate is not to be trusted.
        """
        with self._connection() as connection:
            headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
            return self._ask(connection, "POST", path, headers, body)

    def upload(self, path: Path, sha256: str, size_bytes: int, between: Between) -> None:
        """Send a file, from where an earlier attempt stopped.

        Raises:
            LinkError: The server cannot be reached or failed.
            LinkInputError: The file is gone or is no longer what it was.
        """
        target = f"/v1/blobs/{sha256}"
        try:
            with path.open("rb") as stream, self._connection() as connection:
                offset = self._offset(connection, target)
                for _ in range(size_bytes // PIECE_BYTES + _SPARE_PIECES):
                    if offset is None:
                        return
                    between()
                    stream.seek(offset)
                    piece = stream.read(PIECE_BYTES)
                    offset = self._put(connection, target, offset, piece, size_bytes)
                raise LinkError(
                    f"{self.url}: takes the pieces of {sha256[:16]} and gets no further"
                )
        except _AlteredError as error:
            if sha256_of(path) == sha256:  # then it was spoilt on the way: again from the start
                raise LinkError(str(error)) from error
            raise LinkInputError(f"{path}: changed before it was uploaded") from error
        except FileNotFoundError as error:
            raise LinkInputError(f"{path}: gone before it was uploaded") from error

    def download(self, sha256: str, size_bytes: int, target: Path, between: Between) -> None:
        """Fetch a blob into *target*, from where an earlier attempt stopped.

        Raises:
            LinkError: The server cannot be reached or failed, or the disk did.
            LinkInputError: The server does not have it, or what came is not it.
        """
        part = target.with_name(f".{sha256}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with part.open("ab") as stream, self._connection() as connection:
                self._receive(connection, sha256, size_bytes, stream, between)
                stream.flush()
                os.fsync(stream.fileno())
            _check_digest(part, sha256)
            part.replace(target)
        except OSError as error:
            raise LinkError(f"{target}: {error.strerror or error}") from error

    def _offset(self, connection: http.client.HTTPConnection, target: str) -> int | None:
        reply = self._ask(connection, "HEAD", target, {}, b"")
        if reply.status == _OK:
            return None
        if reply.status == _NOT_FOUND:
            return _upload_offset(reply)
        raise self._problem(reply)

    def _put(
        self,
        connection: http.client.HTTPConnection,
        target: str,
        offset: int,
        piece: bytes,
        size_bytes: int,
    ) -> int | None:
        """Send one piece; returns where the next one starts, None when the blob is whole."""
        if not piece and offset < size_bytes:
            raise LinkInputError(f"{target}: the file became shorter than its {size_bytes} bytes")
        last = offset + len(piece) - 1
        place = f"bytes {offset}-{last}/{size_bytes}" if piece else f"bytes */{size_bytes}"
        headers = {"Content-Range": place, "Content-Length": str(len(piece))}
        reply = self._ask(connection, "PUT", target, headers, piece)
        if reply.status in (_OK, _CREATED):
            return None
        if reply.status in (_ACCEPTED, _CONFLICT):
            return _upload_offset(reply)
        raise self._problem(reply)

    def _receive(
        self,
        connection: http.client.HTTPConnection,
        sha256: str,
        size_bytes: int,
        stream: object,
        between: Between,
    ) -> None:
        have = stream.tell()  # type: ignore[attr-defined]
        if have >= size_bytes:
            return
        headers = self._headers | ({"Range": f"bytes={have}-"} if have else {})
        connection.request("GET", f"{self._path}/v1/blobs/{sha256}", headers=headers)
        answer = connection.getresponse()
        if answer.status == _OK and have:  # it does not resume: from the start again
            stream.truncate(0)  # type: ignore[attr-defined]
            have = 0
        elif answer.status not in (_OK, _PARTIAL):
            raise self._problem(Reply(answer.status, answer.headers, answer.read(1000)))
        while chunk := answer.read(PIECE_BYTES // 4):
            between()
            have += len(chunk)
            if have > size_bytes:
                raise LinkInputError(f"blob {sha256[:16]}: larger than its {size_bytes} bytes")
            stream.write(chunk)  # type: ignore[attr-defined]

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
    ) -> Reply:
        connection.request(method, self._path + path, body or None, self._headers | headers)
        answer = connection.getresponse()
        return Reply(answer.status, answer.headers, answer.read(100_000))

    @contextmanager
    def _connection(self) -> Iterator[http.client.HTTPConnection]:
        connection: http.client.HTTPConnection
        if self._context is not None:
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=_TIMEOUT_S, context=self._context
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        try:
            yield connection
        except ssl.SSLError as error:
            raise RefusedError(certificate_problem(error, self.url)) from error
        except (ConnectionError, TimeoutError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise LinkError(f"{self.url}: {why}; is the coordinator running there?") from error
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise LinkError(f"{self.url}: cannot be reached: {error.strerror or error}") from error
        finally:
            connection.close()

    def _problem(self, reply: Reply) -> Exception:
        said = _words(reply.body)
        if reply.status in (_UNAUTHORISED, _FORBIDDEN):
            return RefusedError(f"{self.url}: this board is not allowed to: {said}")
        if reply.status == _UNPROCESSABLE:
            return _AlteredError(f"{self.url}: {said}")
        if reply.status in (_BAD_REQUEST, _NOT_FOUND):
            return LinkInputError(f"{self.url}: {reply.status} {said}")
        return LinkError(f"{self.url}: {reply.status} {said}")


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file.

    Raises:
        OSError: It cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(PIECE_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _words(body: bytes) -> str:
    """Return what the other side says is wrong: ``{"error": TEXT}`` or plain text, one line."""
    try:
        text = str(msgspec.json.decode(body, type=dict[str, Any])["error"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
        text = body.decode("utf-8", "replace")
    return " ".join(text.split())[:300]


def _check_digest(part: Path, sha256: str) -> None:
    if (found := sha256_of(part)) != sha256:
        part.unlink(missing_ok=True)
        raise LinkInputError(f"blob {sha256[:16]}: what came has sha256 {found[:16]}...; dropped")


def _upload_offset(reply: Reply) -> int:
    text = reply.headers.get("Upload-Offset", "0")
    return int(text) if text.isdecimal() else 0
