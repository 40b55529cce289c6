"""What comes in is taken here, topic by topic, and passed to the part it concerns."""

from pathlib import Path

from edgeperf.agent.link.errors import RefusedError
from edgeperf.agent.link.incoming import Connected, Disconnected, Incoming, Message, NotTaken
from edgeperf.agent.link.inspector import Request
from edgeperf.agent.link.log import note, warn
from edgeperf.agent.link.pace import Pace
from edgeperf.agent.link.parts import Parts
from edgeperf.agent.link.results import prune
from edgeperf.agent.link.settings import Settings
from edgeperf.agent.link.transfers import Download, TransferEnded
from edgeperf.agent.messages import (
    BlobStatus,
    MessageError,
    Presence,
    coordinator_topic,
    device_topic,
    parse_ack,
    parse_coordinator_state,
    parse_state,
)


class Reception:
    """Knows what each incoming thing means.

    Args:
        settings: The service's.
        parts: Whom to tell.

    Attributes:
        is_online: Whether there is a connection.
    """

    def __init__(self, settings: Settings, parts: Parts) -> None:
        self._settings, self._identity, self._parts = settings, settings.identity, parts
        self._keys = self._identity.verifying_keys()
        fleet, device = self._identity.fleet, self._identity.device
        self._handlers = {
            device_topic(fleet, device, "cmd"): parts.desk.take,
            device_topic(fleet, device, "ack"): self._on_ack,
            device_topic(fleet, device, "state"): self._on_own_state,
            coordinator_topic(fleet): self._on_coordinator,
        }
        self.is_online = False
        self._was_online = False
        self._coordinator_session: str | None = None
        #: Somebody else spoke on this board's state topic; once a second is answer enough.
        self._contradicts = False
        self._pace = Pace(1.0)

    def take(self, item: Incoming | TransferEnded) -> None:
        """Handle one thing.

        Raises:
            RefusedError: The broker refuses this board, and never took it.
        """
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

    def say_state(self, *, anew: bool = False) -> None:
        """Publish this board's state if it changed, or in any case if *anew*."""
        if self._contradicts and self._pace.allows("state"):
            self._contradicts, anew = False, True
        current = self._parts.runs.current
        drained = self._parts.desk.drained
        refusal = self._parts.desk.why_not()
        self._parts.speaker.say(
            self._parts.connection,
            counter=self._parts.ledger.counter,
            run=current.run if current else None,
            queued=self._parts.journal.queued(),
            unsent=len(self._parts.outbox),
            draining=drained is not None,
            reason=refusal[1] if refusal else None,
            anew=anew,
        )

    def _on_connected(self) -> None:
        if not self.is_online:
            note(f"connected to {self._parts.connection.where}")
        self.is_online = self._was_online = True
        self.say_state(anew=True)
        self._parts.speaker.describe(self._parts.connection, self._parts.inspector.findings)
        self._parts.blobs.try_now()

    def _on_disconnected(self, item: Disconnected) -> None:
        self.is_online = False
        if item.refused and not self._was_online:
            raise RefusedError(item.reason)
        warn(f"{item.reason}; trying again")

    def _on_ack(self, payload: bytes) -> None:
        try:
            ack = parse_ack(
                payload, self._keys, fleet=self._identity.fleet, device=self._identity.device
            )
        except MessageError as error:
            self._parts.desk.alert(error)
            return
        if isinstance(ack, BlobStatus):
            if (end := self._parts.blobs.take(ack)) is not None:
                self._on_transfer(end)
            return
        self._parts.clock.learn(ack.time)
        self._parts.outbox.acknowledge(ack)

    def _on_own_state(self, payload: bytes) -> None:
        """Contradict a last will, and whatever else is not this agent's own word."""
        try:
            state = parse_state(payload)
        except MessageError:
            self._contradicts = True
            return
        if state.status is Presence.LOST or state.session != self._parts.speaker.session:
            self._contradicts = True

    def _on_coordinator(self, payload: bytes) -> None:
        try:
            state = parse_coordinator_state(payload)
        except MessageError as error:
            warn(f"ignored a coordinator's state: {error}")
            return
        if state.status is not Presence.OFFLINE and state.session != self._coordinator_session:
            self._coordinator_session = state.session
            self._parts.outbox.send_all_again()
            self._parts.blobs.try_now()

    def _on_transfer(self, end: TransferEnded) -> None:
        self._parts.blobs.ended(end)
        if not isinstance(end.job, Download):
            self.tidy()
            return
        if end.job.purpose:
            ok = end.problem is None
            self._parts.desk.done(end.job.purpose, "model.prefetch", ok=ok, text=end.problem or "")
        self._parts.runs.model_fetched(self._parts.models.fetched(end.job.sha256, end.problem))
        if self.is_online:
            self._parts.speaker.describe(self._parts.connection, self._parts.inspector.findings)

    def answer(self, requests: list[Request]) -> None:
        """Tell those who asked what the look at the board found."""
        if not requests:
            return
        findings = self._parts.inspector.findings
        description = self._parts.speaker.describe(self._parts.connection, findings)
        for request in requests:
            if request.command and request.selftest:
                problems = [p for p in (findings.problem, self._refusal()) if p]
                text = "; ".join(problems) or "no problem found"
                self._parts.desk.done(
                    request.command, "selftest", ok=not problems, text=text, data=description
                )
            elif request.command:
                self._parts.desk.done(
                    request.command,
                    "describe",
                    ok=findings.problem is None,
                    text=findings.problem or "",
                )

    def _refusal(self) -> str | None:
        refusal = self._parts.desk.why_not()
        return refusal[1] if refusal else None

    def tidy(self) -> None:
        """Delete the oldest results when they take too much room."""
        busy = {Path(path).parent.name for _, path, _ in self._parts.journal.uploads(100_000)}
        busy |= {
            Path(path).parent.parent.name for _, path, _ in self._parts.journal.uploads(100_000)
        }
        current = self._parts.runs.current
        if current is not None:
            busy.add(current.folder)
        keep = self._settings.board.storage.results_bytes
        prune(self._settings.runs, keep_bytes=keep, busy=busy)
