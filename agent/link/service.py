"""``edgeperf agent``: one thread that decides, and two that only carry (MQTT, blobs).

Everything that happens (a message, an ended transfer, a child's event, a signal) wakes
one loop, which lets each part do what is due and goes back to sleep. The journal is written
before anything has an effect, so the process may be killed at any line.
"""

import fcntl
import os
import signal
import time

from edgeperf import EdgeperfError
from edgeperf.agent.board.supervision import Supervisor
from edgeperf.agent.link.child import wait_for
from edgeperf.agent.link.errors import LinkError, LinkInputError
from edgeperf.agent.link.inbox import Inbox
from edgeperf.agent.link.incoming import Incoming, Message, Stop
from edgeperf.agent.link.log import note, warn
from edgeperf.agent.link.parts import Parts, assemble
from edgeperf.agent.link.processes import adopt_orphans
from edgeperf.agent.link.reception import Reception
from edgeperf.agent.link.settings import Settings
from edgeperf.agent.link.transfers import TransferEnded
from edgeperf.agent.messages import Alert, Code, device_topic

_IDLE_S = 30.0
#: Uploads get so long between two runs, before the next may start.
_UPLOAD_WINDOW_S = 60.0
#: ... unless nothing has moved for so long.
_UPLOAD_STALL_S = 2.0


class Service:
    """One board's agent; :meth:`run` does it all.

    Args:
        settings: What it works with.

    Raises:
        LinkInputError: The settings cannot be used, or another agent runs here.
        LinkError: The disk failed.
    """

    def __init__(self, settings: Settings) -> None:
        try:
            settings.runs.mkdir(mode=0o700, parents=True, exist_ok=True)
            settings.cache.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LinkError(f"{error.filename}: {error.strerror or error}") from error
        self._settings = settings
        self._lock = _lock(settings)
        self._inbox: Inbox[Incoming | TransferEnded] = Inbox(droppable=Message)
        self._supervisor = Supervisor()
        self._parts: Parts = assemble(settings, self._inbox.put)
        self._reception = Reception(settings, self._parts)
        identity = settings.identity
        self._evt_topic = device_topic(identity.fleet, identity.device, "evt")
        self._run_ended_s = float("-inf")
        self._had_run = False
        self._is_stopping = False

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT.

        Raises:
            RefusedError: The broker refuses this board, and never took it.
            LinkError: The disk failed.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._inbox.put(Stop()))
        parts, identity = self._parts, self._settings.identity
        adopt_orphans()
        self._say_set_aside()
        parts.runs.recover()
        parts.inspector.request()
        parts.connection.open()
        if parts.transfers is not None:
            parts.transfers.open()
        note(f"{identity.device} in fleet {identity.fleet}, {parts.connection.where}")
        self._supervisor.ready()
        try:
            while not self._is_stopping:
                self._turn()
        finally:
            self._close()

    def _turn(self) -> None:
        wait_for([self._inbox.fileno(), *self._parts.runs.descriptors()], self._patience_s())
        for item in self._inbox.take():
            if isinstance(item, Stop):
                self._is_stopping = True
            else:
                self._reception.take(item)
        if self._parts.connection.failure is not None:
            raise self._parts.connection.failure
        self._work()
        self._send()
        self._supervisor.alive()

    def _patience_s(self) -> float:
        """Return how long nothing will be due."""
        parts, online = self._parts, self._reception.is_online
        waits = [
            parts.runs.next_s(),
            parts.inspector.next_s(),
            self._supervisor.alive_period_s,
            parts.outbox.next_due_s() if online else None,
            parts.blobs.next_s() if online and not parts.runs.is_measuring else None,
        ]
        return min([_IDLE_S, *(wait for wait in waits if wait is not None)])

    def _work(self) -> None:
        """Let every part do what is due; nothing beside the run while one is timed."""
        parts = self._parts
        if not parts.runs.is_measuring:
            self._reception.answer(parts.inspector.tick())
            parts.blobs.tick()
        parts.runs.tick(may_start=not parts.inspector.is_busy and self._uploads_had_their_time())
        if parts.runs.is_measuring:
            parts.blobs.hold()
        elif self._had_run and parts.runs.current is None:
            self._run_ended_s = time.monotonic()
            self._reception.tidy()
        self._had_run = parts.runs.current is not None

    def _send(self) -> None:
        if not self._reception.is_online:
            return
        for _, body in self._parts.outbox.due():
            self._parts.connection.send(self._evt_topic, body)
        self._reception.say_state()
        if not self._parts.runs.is_measuring:
            self._parts.speaker.tell(self._parts.connection)

    def _uploads_had_their_time(self) -> bool:
        if self._parts.blobs.is_idle or not self._reception.is_online:
            return True
        now_s = time.monotonic()
        stalled_s = now_s - max(self._run_ended_s, self._parts.blobs.moved_s)
        return stalled_s > _UPLOAD_STALL_S or now_s - self._run_ended_s > _UPLOAD_WINDOW_S

    def _say_set_aside(self) -> None:
        aside = self._parts.database.set_aside
        if aside is not None:
            text = f"the journal was damaged and is set aside as {aside.name}"
            warn(text)
            self._parts.outbox.put(Alert(code=Code.FAILED, text=text))

    def _close(self) -> None:
        self._supervisor.stopping()
        parts = self._parts
        try:
            parts.runs.close()
            self._send()
        except EdgeperfError as error:
            warn(str(error))
        parts.inspector.close()
        farewell = parts.speaker.farewell() if self._reception.is_online else None
        parts.connection.close(farewell=farewell)
        if parts.transfers is not None:
            parts.transfers.close()
        parts.database.close()
        self._inbox.close()
        os.close(self._lock)
        note("stopped")


def _lock(settings: Settings) -> int:
    """Take the lock that keeps a second agent away; the kernel gives it back at any end."""
    path = settings.state / "agent.lock"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LinkError(f"{path}: {error.strerror or error}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise LinkInputError(f"{path}: another agent is running here; stop it first") from error
    return handle
