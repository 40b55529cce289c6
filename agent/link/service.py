"""``edgeperf agent``: one thread that decides, and two that only carry (MQTT, blobs).

Everything that happens (a message, an ended transfer, a child's event, a signal) wakes
one loop, which lets each part do what is due and goes back to sleep. The journal is written
before anything has an effect, so the process may be killed at any line.
"""

import fcntl
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

from edgeperf import EdgeperfError, __version__
from edgeperf.agent.link.child import wait_for
from edgeperf.agent.link.chunks import ChunkSender
from edgeperf.agent.link.clock import BoardClock, utc_now
from edgeperf.agent.link.connection import (
    Connected,
    Connection,
    Disconnected,
    Incoming,
    Message,
    NotTaken,
)
from edgeperf.agent.link.database import Database
from edgeperf.agent.link.desk import Desk
from edgeperf.agent.link.errors import LinkError, LinkInputError, RefusedError
from edgeperf.agent.link.http import BlobServer
from edgeperf.agent.link.inbox import Inbox
from edgeperf.agent.link.inspector import Inspector, Request
from edgeperf.agent.link.journal import Journal
from edgeperf.agent.link.ledger import Ledger
from edgeperf.agent.link.log import note, warn
from edgeperf.agent.link.notify import Notify
from edgeperf.agent.link.outbox import Outbox
from edgeperf.agent.link.presence import Speaker
from edgeperf.agent.link.results import prune
from edgeperf.agent.link.runs import Runs
from edgeperf.agent.link.settings import Settings
from edgeperf.agent.link.transfers import Download, TransferEnded, Transfers
from edgeperf.agent.link.uploads import Blobs
from edgeperf.agent.messages import (
    Alert,
    BlobStatus,
    Code,
    MessageError,
    ModelRef,
    Presence,
    coordinator_topic,
    device_topic,
    new_id,
    parse_ack,
    parse_coordinator_state,
    parse_state,
)

_IDLE_S = 30.0
#: Uploads get so long between two runs, before the next may start.
_UPLOAD_WINDOW_S = 60.0


class _Stop(NamedTuple):
    """A signal asked the service to end."""


class Service:
    """One board's agent; :meth:`run` does it all.

    Args:
        settings: What it works with.

    Raises:
        LinkInputError: The settings cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        identity = settings.identity
        settings.runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings.cache.mkdir(parents=True, exist_ok=True)
        self._settings, self._identity = settings, identity
        self._lock = _lock(settings.state / "agent.lock")
        self._inbox: Inbox[Incoming | TransferEnded | _Stop] = Inbox()
        self._notify = Notify()
        self._clock = BoardClock()
        self._keys = identity.verifying_keys()
        self._database = Database(settings.state / "agent.db")
        self._outbox = Outbox(
            self._database,
            fleet=identity.fleet,
            device=identity.device,
            session=(session := new_id()),
            clock=self._clock,
            max_bytes=settings.board.storage.outbox_bytes,
            ack_timeout_s=settings.ack_timeout_s,
        )
        self._journal = Journal(self._database, self._outbox)
        self._ledger = Ledger(self._database)
        self._ledger.raise_counter(identity.counter)
        self._inspector = Inspector(settings, self._database)
        self._speaker = Speaker(settings, session=session, stream=self._outbox.stream)
        topics = {
            leaf: device_topic(identity.fleet, identity.device, leaf)
            for leaf in ("cmd", "ack", "state")
        }
        self._handlers = {
            topics["cmd"]: self._on_command,
            topics["ack"]: self._on_ack,
            topics["state"]: self._on_own_state,
            coordinator_topic(identity.fleet): self._on_coordinator,
        }
        self._evt_topic = device_topic(identity.fleet, identity.device, "evt")
        self._connection = Connection(
            identity,
            will=self._speaker.will(),
            topics=tuple(self._handlers),
            deliver=self._inbox.put,
            keepalive_s=settings.keepalive_s,
        )
        self._transfers = (
            Transfers(BlobServer(identity.http, identity), self._inbox.put)
            if identity.http
            else None
        )
        chunks = ChunkSender(self._connection, fleet=identity.fleet, device=identity.device)
        self._blobs = Blobs(self._journal, settings.cache, self._transfers, chunks)
        self._runs = Runs(settings, self._journal, self._find_model)
        self._desk = Desk(
            settings,
            database=self._database,
            ledger=self._ledger,
            journal=self._journal,
            outbox=self._outbox,
            runs=self._runs,
            blobs=self._blobs,
            clock=self._clock,
            inspect=lambda command, selftest: self._inspector.request(command, selftest=selftest),
        )
        self._is_online = False
        self._was_online = False
        self._coordinator_session: str | None = None
        self._run_ended_s = float("-inf")
        self._had_run = False
        self._stopping = False

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT.

        Raises:
            RefusedError: The broker refuses this board, and never took it.
            LinkError: The disk failed.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._inbox.put(_Stop()))
        self._say_set_aside()
        self._runs.recover()
        self._inspector.request()
        self._connection.open()
        if self._transfers is not None:
            self._transfers.open()
        note(f"{self._identity.device} in fleet {self._identity.fleet}, {self._connection.where}")
        self._notify.ready()
        try:
            while not self._stopping:
                self._turn()
        finally:
            self._close()

    def _turn(self) -> None:
        wait_for([self._inbox.fileno(), *self._runs.descriptors()], self._patience_s())
        for item in self._inbox.take():
            self._handle(item)
        if self._connection.failure is not None:
            raise self._connection.failure
        self._work()
        self._send()
        self._notify.alive()

    def _patience_s(self) -> float:
        """Return how long nothing will be due."""
        parts = [
            self._runs.next_s(),
            self._inspector.next_s(),
            self._notify.every_s,
            self._outbox.next_due_s() if self._is_online else None,
            self._blobs.next_s() if self._is_online and not self._runs.is_measuring else None,
        ]
        return min([_IDLE_S, *(part for part in parts if part is not None)])

    def _handle(self, item: Incoming | TransferEnded | _Stop) -> None:
        if isinstance(item, Message):
            handler = self._handlers.get(item.topic)
            if handler is not None:
                handler(item.payload)
        elif isinstance(item, Connected):
            self._on_connected()
        elif isinstance(item, Disconnected):
            self._on_disconnected(item)
        elif isinstance(item, TransferEnded):
            self._on_transfer(item)
        elif isinstance(item, NotTaken):
            warn(item.reason)
        else:
            self._stopping = True

    def _work(self) -> None:
        """Let every part do what is due; nothing beside the run while one is timed."""
        measuring = self._runs.is_measuring
        if not measuring:
            self._answer(self._inspector.tick())
            self._blobs.tick()
        may_start = not self._inspector.is_busy and self._uploads_had_their_time()
        self._runs.tick(may_start=may_start)
        if self._runs.is_measuring:
            self._blobs.hold()
        elif self._had_run and self._runs.current is None:
            self._run_ended_s = time.monotonic()
            self._tidy()
        self._had_run = self._runs.current is not None

    def _send(self) -> None:
        if not self._is_online:
            return
        for _, body in self._outbox.due():
            self._connection.send(self._evt_topic, body)
        self._say_state()

    def _say_state(self, *, anew: bool = False) -> None:
        current = self._runs.current
        drained = self._desk.drained
        refusal = self._desk.why_not()
        self._speaker.say(
            self._connection,
            counter=self._ledger.counter,
            run=current.run if current else None,
            queued=self._journal.queued(),
            unsent=len(self._outbox),
            draining=drained is not None,
            reason=refusal[1] if refusal else None,
            anew=anew,
        )

    def _on_connected(self) -> None:
        if not self._is_online:
            note(f"connected to {self._connection.where}")
        self._is_online = self._was_online = True
        self._say_state(anew=True)
        self._speaker.describe(self._connection, self._inspector.findings)
        self._blobs.try_now()

    def _on_disconnected(self, item: Disconnected) -> None:
        self._is_online = False
        if item.refused and not self._was_online:
            raise RefusedError(item.reason)
        warn(f"{item.reason}; trying again")

    def _on_command(self, payload: bytes) -> None:
        self._desk.take(payload)

    def _on_ack(self, payload: bytes) -> None:
        try:
            ack = parse_ack(
                payload, self._keys, fleet=self._identity.fleet, device=self._identity.device
            )
        except MessageError as error:
            self._desk.alert(error)
            return
        if isinstance(ack, BlobStatus):
            if (end := self._blobs.take(ack)) is not None:
                self._on_transfer(end)
            return
        self._clock.learn(ack.time)
        self._outbox.acknowledge(ack)

    def _on_own_state(self, payload: bytes) -> None:
        """Contradict a last will: it is this board's, and this board is here."""
        try:
            state = parse_state(payload)
        except MessageError:
            self._say_state(anew=True)
            return
        if state.status is Presence.LOST:
            self._say_state(anew=True)

    def _on_coordinator(self, payload: bytes) -> None:
        try:
            state = parse_coordinator_state(payload)
        except MessageError as error:
            warn(f"ignored a coordinator's state: {error}")
            return
        if state.status is not Presence.OFFLINE and state.session != self._coordinator_session:
            self._coordinator_session = state.session
            self._outbox.send_all_again()
            self._blobs.try_now()

    def _on_transfer(self, end: TransferEnded) -> None:
        self._blobs.ended(end)
        if not isinstance(end.job, Download):
            self._tidy()
            return
        if end.job.purpose:
            ok = end.problem is None
            self._desk.done(end.job.purpose, "model.prefetch", ok=ok, text=end.problem or "")
        self._runs.model_fetched(end.problem)
        if self._is_online:
            self._speaker.describe(self._connection, self._inspector.findings)

    def _find_model(self, model: ModelRef) -> Path | None:
        found = self._blobs.cached(model)
        if found is None:
            try:
                self._blobs.fetch(model, "")
            except LinkInputError as error:
                raise MessageError(Code.MODEL, str(error)) from error
        return found

    def _answer(self, requests: list[Request]) -> None:
        if not requests:
            return
        findings = self._inspector.findings
        description = self._speaker.describe(self._connection, findings)
        for request in requests:
            if request.command and request.selftest:
                problems = [p for p in (findings.problem, self._refusal()) if p]
                text = "; ".join(problems) or "no problem found"
                self._desk.done(
                    request.command, "selftest", ok=not problems, text=text, data=description
                )
            elif request.command:
                self._desk.done(
                    request.command,
                    "describe",
                    ok=findings.problem is None,
                    text=findings.problem or "",
                )

    def _refusal(self) -> str | None:
        refusal = self._desk.why_not()
        return refusal[1] if refusal else None

    def _uploads_had_their_time(self) -> bool:
        if self._blobs.is_idle or not self._is_online:
            return True
        return time.monotonic() - self._run_ended_s > _UPLOAD_WINDOW_S

    def _tidy(self) -> None:
        """Delete the oldest results when they take too much room."""
        busy = {Path(path).parent.name for _, path, _ in self._journal.uploads(100_000)}
        busy |= {Path(path).parent.parent.name for _, path, _ in self._journal.uploads(100_000)}
        current = self._runs.current
        if current is not None:
            busy.add(current.folder)
        keep = self._settings.board.storage.results_bytes
        prune(self._settings.runs, keep_bytes=keep, busy=busy)

    def _say_set_aside(self) -> None:
        if self._database.set_aside is None:
            return
        text = f"the journal was damaged and is set aside as {self._database.set_aside.name}"
        warn(text)
        self._outbox.put(Alert(code=Code.FAILED, text=text))

    def _close(self) -> None:
        self._notify.stopping()
        try:
            self._runs.close()
            self._send()
        except EdgeperfError as error:
            warn(str(error))
        self._inspector.close()
        self._connection.close(farewell=self._speaker.farewell() if self._is_online else None)
        if self._transfers is not None:
            self._transfers.close()
        self._database.close()
        os.close(self._lock)
        note(f"stopped at {utc_now():%Y-%m-%dT%H:%M:%SZ}, edgeperf {__version__}")


def _lock(path: Path) -> int:
    """Take the lock that keeps a second agent away; the kernel gives it back at any end."""
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
