"""uvicorn on a thread, on a socket that is bound before anything else starts."""

import logging
import socket
import threading
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from edgeperf import EdgeperfError

_START_S = 10.0


class HttpError(EdgeperfError):
    """The HTTP interface cannot listen."""


class Server:
    """The HTTP interface, from the constructor's bind to :meth:`stop`.

    Args:
        host: Address to listen on.
        port: 0 takes a free one.
        tls: Certificate and key; None speaks plain HTTP.
    """

    def __init__(self, host: str, port: int, *, tls: tuple[Path, Path] | None) -> None:
        self._tls = tls
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except socket.gaierror as error:
            self._socket.close()
            raise HttpError(
                f"--listen {host}: {error.strerror}; give an address of this machine"
            ) from error
        except OSError as error:
            self._socket.close()
            raise HttpError(
                f"HTTP port {port} on {host}: {error.strerror}; choose another with --http-port"
            ) from error
        self.port: int = self._socket.getsockname()[1]
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def scheme(self) -> str:
        """``http`` or ``https``."""
        return "https" if self._tls else "http"

    def start(self, app: Starlette) -> None:
        """Serve *app* until :meth:`stop`.

        Raises:
            HttpError: It does not come up.
        """
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
            limit_concurrency=2000,
            ssl_certfile=self._tls[0] if self._tls else None,
            ssl_keyfile=self._tls[1] if self._tls else None,
            server_header=False,
        )
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        server = self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=server.run, kwargs={"sockets": [self._socket]}, name="http", daemon=True
        )
        self._thread.start()
        for _ in range(int(_START_S / 0.01)):
            if server.started:
                return
            self._thread.join(0.01)
        raise HttpError("HTTP interface: did not start")

    def stop(self) -> None:
        """Finish what is under way, for two seconds at most, and close."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join()
        self._socket.close()
