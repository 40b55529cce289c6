"""Puts a simulated meter behind a TCP socket on this machine."""

import contextlib
import select
import socket
import time
from pathlib import Path

from edgeperf.power.simulate.bench import Bench, Device, FaultKind
from edgeperf.power.simulate.server import PtyServer


class TcpServer(PtyServer):
    """A simulated meter that one client at a time connects to.

    An unplugged meter closes its connection and listens no more, and comes back on the same
    port number.

    Args:
        device: The meter.
        bench: Its load and faults.
        link: Not used: the port is a number that is free.

    Attributes:
        port: ``127.0.0.1:NUMBER``.
    """

    def __init__(self, device: Device, bench: Bench, link: Path) -> None:
        super().__init__(device, bench, link)
        self._number = 0
        self._listener: socket.socket | None = None
        self._client: socket.socket | None = None

    def _plug(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self._number))
        self._number = self._listener.getsockname()[1]
        self.port = f"127.0.0.1:{self._number}"
        self._master = self._listener.fileno()
        self._pending.clear()

    def _unplug(self) -> None:
        for one in (self._client, self._listener):
            if one is not None:
                one.close()
        self._client = self._listener = None
        self._master = -1

    def _turn(self, now_s: float, nap_s: float) -> None:
        if self._client is None:
            self._accept(nap_s)
            return
        stalled = self._bench.fault(FaultKind.STALL, now_s) is not None
        if select.select([self._client], [], [], nap_s)[0]:
            data = self._hear()
            if not stalled and (reply := self._device.answer(data, time.monotonic())):
                self._queue(reply)
        for message in self._device.stream(time.monotonic()):
            if not stalled:
                self._queue(message)
        self._send()

    def _accept(self, nap_s: float) -> None:
        if self._listener is not None and select.select([self._listener], [], [], nap_s)[0]:
            self._client, _ = self._listener.accept()

    def _hear(self) -> bytes:
        """Return what the client sent; one that has gone makes room for the next."""
        data = b""
        if self._client is not None:
            with contextlib.suppress(OSError):
                data = self._client.recv(4096)
            if not data:
                self._client.close()
                self._client = None
                self._pending.clear()
        return data

    def _send(self) -> None:
        if self._client is not None and self._pending:
            with contextlib.suppress(OSError):
                self._client.sendall(bytes(self._pending))
            self._pending.clear()
