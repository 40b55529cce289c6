"""A board without hardware: the wire protocol of a real one, and invented results.

It keeps every event until the coordinator acknowledges it, obeys signed commands only, and
runs a command once however often it arrives. What it does not keep is a disk: a simulated
board that ends has lost what it had not sent.
"""

import contextlib
import random
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, NamedTuple

import paho.mqtt.client as mqtt

from edgeperf import __version__
from edgeperf.agent.events import Phase
from edgeperf.agent.messages import (
    BoardState,
    Code,
    Command,
    CommandDone,
    Description,
    Drain,
    EnrolReply,
    EventData,
    MessageError,
    Presence,
    RunAccepted,
    RunCancel,
    RunCancelled,
    RunProgress,
    RunRejected,
    RunResult,
    RunStart,
    coordinator_topic,
    encode,
    new_id,
    parse_command,
)
from edgeperf.coordinator.simulation.connection import Connection
from edgeperf.coordinator.simulation.result import simulated_result

_AGENT = f"{__version__} simulated"
_SPEC = {"model": "simulated", "preset": "smoke"}


class _Running(NamedTuple):
    """The run in progress; ``ends_at`` is on the monotonic clock."""

    run: str
    attempt: int
    spec: dict[str, Any]
    ends_at: float


class SimulatedBoard:
    """One board. Nothing here blocks: the fleet's loop moves all of them.

    Args:
        identity: As the coordinator's enrolment gave it.
        host: Of the broker.
        run_s: How long its runs take.
        acked: Called with the seconds from making an event to its acknowledgement, and
            whether it was a result.
        chance: For invented figures.
    """

    def __init__(
        self,
        identity: EnrolReply,
        host: str,
        *,
        run_s: float,
        acked: Callable[[float, bool], None],
        chance: random.Random,
    ) -> None:
        self._run_s = run_s
        self._chance = chance
        self._since = datetime.now(timezone.utc)
        self._counter = 0
        self._commands: set[str] = set()
        self._running: _Running | None = None
        self._waiting: list[RunStart] = []
        self._draining = False
        self.results = 0
        self.link = Connection(
            identity,
            host,
            acked=acked,
            last_will=lambda link: self._state(link, Presence.LOST, unsent=0),
        )
        self.link.client.on_connect = self._connected
        self.link.client.on_message = self._message

    @property
    def is_idle(self) -> bool:
        """Whether no run goes on."""
        return self._running is None

    def begin_own_run(self) -> None:
        """Start a run that nobody asked for, unless one goes on."""
        if self._running is None:
            self._begin(new_id(), 1, dict(_SPEC))

    def tick(self, now: float) -> None:
        """Let time pass: end the run that is over, send again what nobody acknowledged."""
        if self._running is not None and now >= self._running.ends_at:
            self._end_run(self._running)
        self.link.send_late(now)

    def leave(self) -> None:
        """Say goodbye and disconnect."""
        self._publish_state(Presence.OFFLINE)
        self.link.client.disconnect()

    def _begin(self, run: str, attempt: int, spec: dict[str, Any]) -> None:
        self._running = _Running(run, attempt, spec, time.monotonic() + self._run_s)
        self._report(RunAccepted())
        self._report(RunProgress(phase=Phase.PERFORMANCE, percent=0.0, temperature_c=50.0))
        self._publish_state(Presence.BUSY)

    def _end_run(self, running: _Running) -> None:
        self._report(RunProgress(phase=Phase.REPORT, percent=100.0, temperature_c=55.0))
        document = simulated_result(running.run, running.spec, self._chance)
        self._report(
            RunResult(
                status=document["verdict"]["status"],
                exit_code=1,
                result=document,
                files=(),
                duration_s=self._run_s,
            )
        )
        self.results += 1
        self._next()

    def _next(self) -> None:
        self._running = None
        if self._waiting:
            start = self._waiting.pop(0)
            self._begin(start.run, start.attempt, start.spec)
        else:
            self._publish_state(self._idle)

    @property
    def _idle(self) -> Presence:
        return Presence.DRAINING if self._draining else Presence.ONLINE

    def _report(self, data: EventData) -> None:
        """Report something about the run in progress."""
        if self._running is not None:
            self.link.report(data, run=self._running.run, attempt=self._running.attempt)

    def _publish_state(self, status: Presence) -> None:
        self.link.retain("state", self._state(self.link, status, unsent=self.link.unsent))

    def _state(self, link: Connection, status: Presence, *, unsent: int) -> bytes:
        return encode(
            BoardState(
                status=status,
                session=link.session,
                since=self._since,
                agent=_AGENT,
                stream=link.stream,
                counter=self._counter,
                run=self._running.run if self._running else None,
                queued=len(self._waiting),
                unsent=unsent,
            )
        )

    def _connected(
        self, _client: mqtt.Client, _data: object, _flags: object, reason: Any, _props: object
    ) -> None:
        if reason.is_failure:
            return
        self.link.subscribe()
        self._publish_state(Presence.BUSY if self._running else self._idle)
        identity = self.link.identity
        description = Description(
            device=identity.device,
            fleet=identity.fleet,
            session=self.link.session,
            time=datetime.now(timezone.utc),
            agent=_AGENT,
            board={"kind": "simulated"},
            labels={"kind": "simulated"},
        )
        self.link.retain("desc", encode(description))
        self.link.send_all()

    def _message(self, _client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
        raw = bytes(message.payload)
        with contextlib.suppress(MessageError):
            if message.topic == coordinator_topic(self.link.identity.fleet):
                self.link.heard_coordinator(raw)
            elif message.topic.endswith("/ack"):
                self.link.heard_ack(raw)
            else:
                self._obey(parse_command(raw, self.link.keys, **self.link.place))

    def _obey(self, command: Command) -> None:
        if command.id in self._commands:
            return
        self._commands.add(command.id)
        self._counter = max(self._counter, command.counter)
        data = command.data
        if isinstance(data, RunStart):
            self._take(data)
            return
        if isinstance(data, RunCancel):
            self._cancel(data)
        elif isinstance(data, Drain):
            self._draining = data.on
            self._publish_state(Presence.BUSY if self._running else self._idle)
        done = CommandDone(command=command.id, name=command.name, ok=True)
        self.link.report(done, run=None, attempt=None)

    def _take(self, start: RunStart) -> None:
        refusal = RunRejected(code=Code.DRAINING, reason="the board is draining")
        if self._draining:
            self.link.report(refusal, run=start.run, attempt=start.attempt)
        elif self._running is None:
            self._begin(start.run, start.attempt, start.spec)
        else:
            self._waiting.append(start)
            accepted = RunAccepted(position=len(self._waiting))
            self.link.report(accepted, run=start.run, attempt=start.attempt)

    def _cancel(self, cancel: RunCancel) -> None:
        gone = [start for start in self._waiting if start.run == cancel.run]
        self._waiting = [start for start in self._waiting if start.run != cancel.run]
        for start in gone:
            cancelled = RunCancelled(reason=cancel.reason)
            self.link.report(cancelled, run=start.run, attempt=start.attempt)
        if self._running is not None and self._running.run == cancel.run:
            self._report(RunCancelled(reason=cancel.reason))
            self._next()
