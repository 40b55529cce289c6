"""``edgeperf fleet`` at the coordinator's HTTP interface; nothing but the standard library.

The coordinator leaves ``endpoint.json`` and ``admin.token`` in its data directory, so on the
same machine nothing need be said. From elsewhere give the URL and the token.
"""

import hashlib
import http.client
import json
import os
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from edgeperf import EdgeperfError, InputError
from edgeperf.agent.messages import ModelRef
from edgeperf.coordinator.files import DataDirectory

_TIMEOUT_S = 60.0
_PIECE_BYTES = 1024 * 1024


class ClientError(EdgeperfError):
    """The coordinator cannot be reached, or failed."""


class ClientInputError(InputError):
    """The coordinator says that what was asked cannot be; its own line."""


class Client:
    """Requests to one coordinator.

    Args:
        url: Base URL.
        token: The administrator's.
        ca_file: CA of an ``https`` URL; None is the system's.
    """

    def __init__(self, url: str, token: str, *, ca_file: Path | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ClientInputError(f"--coordinator {url!r}: expected http://HOST:PORT or https://…")
        self.url = url.rstrip("/")
        self._host, self._port = parts.hostname, parts.port
        self._token = token
        self._tls = parts.scheme == "https"
        self._ca_file = ca_file

    def get(self, path: str, **query: Any) -> Any:
        """Return the JSON at *path*."""
        return json.loads(self.raw("GET", _with_query(path, query)))

    def post(self, path: str, body: object) -> Any:
        """Send JSON and return the JSON that comes back."""
        return json.loads(self.raw("POST", path, json.dumps(body).encode()))

    def delete(self, path: str) -> Any:
        """Delete what is at *path*."""
        return json.loads(self.raw("DELETE", path))

    def download(self, path: str, **query: Any) -> bytes:
        """Return whatever is at *path*."""
        return self.raw("GET", _with_query(path, query))

    def raw(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Make one request.

        Raises:
            ClientInputError: The coordinator refuses it.
            ClientError: It cannot be reached, or failed.
        """
        status, content, _ = self._ask(method, path, body, {})
        if status >= http.client.BAD_REQUEST:
            raise _refusal(status, content)
        return content

    def upload_model(
        self, path: Path, on_progress: Callable[[int, int], None] | None = None
    ) -> ModelRef:
        """Give a model file to the fleet, sending only what is not there yet.

        Raises:
            ClientInputError: The file cannot be read.
        """
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ClientInputError(f"model {path}: {error.strerror}") from error
        ref = ModelRef(
            sha256=hashlib.sha256(content).hexdigest(),
            size_bytes=len(content),
            format=path.suffix.lstrip(".").lower(),
            name=path.name,
        )
        self._upload(ref.sha256, content, on_progress or _nobody)
        self.post(
            "/v1/models",
            {"sha256": ref.sha256, "size_bytes": ref.size_bytes, "format": ref.format,
             "name": ref.name},
        )  # fmt: skip
        return ref

    def watch(self, run: str, *, log: bool = False, wait_s: float = 20.0) -> Iterator[Any]:
        """Yield a run each time it changes, until it is over."""
        version, line = -1, -1 if log else 2**53
        while True:
            view = self.get(
                f"/v1/runs/{quote(run)}", newer_than=version, wait_s=wait_s, log_after=line
            )
            changed = view["version"] > version or view["log"]
            version = view["version"]
            if view["log"]:
                line = view["log"][-1]["number"]
            if changed:
                yield view
            if view["over"] and not view["log"]:
                return

    def _upload(self, sha256: str, content: bytes, on_progress: Callable[[int, int], None]) -> None:
        path, total = f"/v1/blobs/{sha256}", len(content)
        status, _, headers = self._ask("HEAD", path, None, {})
        if status == http.client.OK:
            return
        offset = int(headers.get("upload-offset", 0))
        while True:
            piece = content[offset : offset + _PIECE_BYTES]
            last = offset + len(piece) - 1
            place = {"Content-Range": f"bytes {offset}-{last}/{total}"} if total else {}
            status, answer, headers = self._ask("PUT", path, piece, place)
            if status == http.client.CREATED:
                on_progress(total, total)
                return
            if status not in {http.client.ACCEPTED, http.client.CONFLICT}:
                raise _refusal(status, answer)
            offset = int(headers.get("upload-offset", 0))
            on_progress(offset, total)

    def _ask(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = self._connect()
        sent = {"Authorization": f"Bearer {self._token}", **headers}
        try:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return response.status, response.read(), found
        except ssl.SSLCertVerificationError as error:
            raise ClientError(
                f"coordinator {self.url}: its certificate is not trusted:"
                f" {error.verify_message}; give its ca.pem with --ca"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ClientError(
                f"coordinator {self.url}: {why}; is it running? (edgeperf coordinator)"
            ) from error
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        if not self._tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        try:
            context = ssl.create_default_context(cafile=self._ca_file)
        except OSError as error:
            raise ClientInputError(f"--ca {self._ca_file}: {error}") from error
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=_TIMEOUT_S, context=context
        )


def find_coordinator(
    *, url: str | None, token_file: Path | None, ca_file: Path | None, data: Path
) -> Client:
    """Return a client for the coordinator that the options, or its data directory, name.

    Raises:
        ClientInputError: Nothing says where it is, or the token cannot be read.
        ClientError: No coordinator runs in that directory.
    """
    directory = DataDirectory(data)
    token = os.environ.get("EDGEPERF_TOKEN") or _read_token(token_file or directory.admin_token)
    if url is not None:
        return Client(url, token, ca_file=ca_file)
    try:
        word = json.loads(directory.endpoint.read_text("utf-8"))
        ca = Path(word["ca"]) if "ca" in word else None
        return Client(word["url"], token, ca_file=ca_file or ca)
    except (OSError, ValueError, KeyError) as error:
        raise ClientError(
            f"no coordinator is running in {data}; start one (edgeperf coordinator), or say where"
            " it is with --coordinator URL"
        ) from error


def _nobody(done: int, total: int) -> None:
    del done, total


def _read_token(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a token"
        raise ClientInputError(
            f"token {path}: {reason}; run this where the coordinator is, or say with"
            " `edgeperf fleet --token-file` where the token is"
        ) from error


def _with_query(path: str, query: dict[str, Any]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _refusal(status: int, content: bytes) -> EdgeperfError:
    try:
        document = json.loads(content)
        text, code = str(document["error"]), int(document.get("exit_code", 0))
    except (ValueError, KeyError, TypeError):
        text, code = f"the coordinator answered with status {status}", 0
    refused = code == InputError.exit_code or status < http.client.INTERNAL_SERVER_ERROR
    return ClientInputError(text) if refused else ClientError(text)
