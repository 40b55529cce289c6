"""The tuner's loop: one socket, one run at a time that holds the board.

A hold lasts as long as its connection, so a run that is killed cannot leave the board in
another state: the kernel closes the socket. Who may connect is decided twice, by the mode
of the socket and by the peer's user, as the kernel tells it.
"""

import grp
import os
import pwd
import selectors
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from edgeperf.agent.board.supervision import Supervisor
from edgeperf.agent.tuner.holder import Holder
from edgeperf.agent.tuner.wire import MAX_MESSAGE_BYTES, Report, Request, Verb

_MOST_CLIENTS = 16
#: ``struct ucred``: pid, uid, gid.
_CREDENTIALS = struct.Struct("iII")
_LISTEN_FD = 3


def listen(path: Path | None) -> socket.socket:
    """Return the socket that systemd opened for us; with *path*, one of our own there."""
    if path is None:
        return socket.socket(fileno=_LISTEN_FD)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    listener.listen(_MOST_CLIENTS)
    return listener


class _Peer(NamedTuple):
    """Who is at the other end, and why it gets nothing; empty when it does."""

    pid: int
    refusal: str


class Tuner:
    """The service.

    Args:
        holder: The board's knobs.
        listener: Where runs come.
        group: Whose members may hold the board, beside root and the service's own user.
        idle_s: It ends after so long without a client; None never.
    """

    def __init__(
        self, holder: Holder, listener: socket.socket, *, group: str, idle_s: float | None = None
    ) -> None:
        self._holder = holder
        self._listener = listener
        self._group = group
        self._idle_s = idle_s
        self._clients: dict[socket.socket, _Peer] = {}
        self._holding: socket.socket | None = None
        self._idle_since_s = time.monotonic()
        self._is_ending = False

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT, or until nobody has come for a while."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        wake, woken = socket.socketpair()
        woken.setblocking(False)  # noqa: FBT003 - its only argument
        signal.set_wakeup_fd(woken.fileno())
        for text in self._holder.recover():
            _log(text)
        Supervisor().ready()
        with selectors.DefaultSelector() as selector:
            self._listener.setblocking(False)  # noqa: FBT003
            for one in (self._listener, wake):
                selector.register(one, selectors.EVENT_READ)
            while not self._is_ending and not self._is_idle():
                for key, _ in selector.select(self._idle_s):
                    if key.fileobj is self._listener:
                        self._welcome(selector)
                    elif isinstance(key.fileobj, socket.socket) and key.fileobj is not wake:
                        self._serve(key.fileobj, selector)
        self._let_go("the service ends")

    def _end(self, number: int, frame: object) -> None:
        del number, frame
        self._is_ending = True

    def _is_idle(self) -> bool:
        if self._idle_s is None or self._clients:
            return False
        return time.monotonic() - self._idle_since_s >= self._idle_s

    def _welcome(self, selector: selectors.BaseSelector) -> None:
        client, _ = self._listener.accept()
        client.setblocking(False)  # noqa: FBT003 - its only argument
        raw = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(raw)
        refusal = "" if self._may(uid) else f"user {uid} is not in group {self._group}"
        if refusal:
            _log(f"process {pid} gets nothing: {refusal}")
        if len(self._clients) >= _MOST_CLIENTS:
            client.close()
            return
        self._clients[client] = _Peer(pid, refusal)
        selector.register(client, selectors.EVENT_READ)

    def _may(self, uid: int) -> bool:
        if uid in (0, os.geteuid()):
            return True
        try:
            user, group = pwd.getpwuid(uid), grp.getgrnam(self._group)
        except KeyError:
            return False
        return group.gr_gid in os.getgrouplist(user.pw_name, user.pw_gid)

    def _serve(self, client: socket.socket, selector: selectors.BaseSelector) -> None:
        try:
            raw = client.recv(MAX_MESSAGE_BYTES)
            request = msgspec.json.decode(raw, type=Request) if raw else None
        except OSError:
            request = None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._answer(client, Report(problem=f"not a request: {error}"))
            request = None
        if request is not None:
            self._answer(client, self._do(client, request))
            return
        if client is self._holding:
            self._let_go("its run went away")
        selector.unregister(client)
        del self._clients[client]
        self._idle_since_s = time.monotonic()
        client.close()

    def _do(self, client: socket.socket, request: Request) -> Report:
        refusal = self._clients[client].refusal
        if refusal:
            return Report(problem=refusal)
        if request.verb is Verb.STATUS:
            return self._holder.look()
        if request.verb is Verb.HOLD:
            return self._hold(client, request)
        if client is not self._holding:
            return Report(problem="you hold nothing")
        return self._let_go("released")

    def _hold(self, client: socket.socket, request: Request) -> Report:
        if self._holding is not None:
            return Report(problem=f"process {self._clients[self._holding].pid} holds the board")
        self._holding = client
        wish = msgspec.json.encode(request.wish).decode()
        _log(f"process {self._clients[client].pid} holds {wish}")
        try:
            return self._holder.hold(request.wish)
        except OSError as error:  # the record could not be written, so nothing was changed
            return Report(problem=f"{error.filename}: {error.strerror}")

    def _let_go(self, why: str) -> Report:
        if self._holding is None:
            return Report()
        self._holding = None
        report = self._holder.release()
        left = "" if report.restored else "; some could not be restored, the next start tries again"
        _log(f"{why}: {len(report.settings)} setting(s) put back{left}")
        return report

    def _answer(self, client: socket.socket, report: Report) -> None:
        try:
            client.send(msgspec.json.encode(report))
        except OSError:  # it is gone, which its socket will tell
            return


def _log(text: str) -> None:
    # The journal; one line each, whatever a client sent.
    sys.stderr.write(" ".join(text.split()) + "\n")
    sys.stderr.flush()
