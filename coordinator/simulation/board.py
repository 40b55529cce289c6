"""A board without hardware: the wire protocol of a real one, and invented results.

It keeps every event until the coordinator acknowledges it, obeys signed commands only, and
runs a command once however often it arrives. What it does not keep is a disk: a simulated
board that ends has lost what it had not sent.
"""

import contextlib
import random
import ssl
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from edgeperf import __version__
from edgeperf.agent.events import Phase
from edgeperf.agent.messages import (
    Ack,
    BoardState,
    Clock,
    Code,
    Command,
    CommandDone,
    Description,
    EnrolReply,
    Event,
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
    client_id,
    coordinator_topic,
    device_topic,
    encode,
    encode_event,
    key_id,
    new_id,
    parse_ack,
    parse_command,
    parse_coordinator_state,
    public_key,
)
from edgeperf.coordinator.simulation.result import simulated_result

_KEEPALIVE_S = 60
_RESEND_S = 15.0
_SPEC = {"model": "simulated", "preset": "smoke"}


class Unsent:
    """An event that waits for its acknowledgement."""

    __slots__ = ("is_result", "made_at", "raw", "sent_at")

    def __init__(self, raw: bytes, *, is_result: bool) -> None:
        self.raw = raw
        self.made_at = time.monotonic()
        self.sent_at = 0.0
        self.is_result = is_result


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
        self.name = identity.device
        self._identity = identity
        self._host = host
        self._run_s = run_s
        self._acked = acked
        self._chance = chance
        keys = [public_key(text) for text in identity.keys]
        self._keys = {key_id(key): key for key in keys}
        self._session, self._stream = new_id(), new_id()
        self._since = datetime.now(timezone.utc)
        self._seq = 0
        self._counter = 0
        self._outbox: dict[int, Unsent] = {}
        self._commands: set[str] = set()
        self._run: tuple[str, int, dict[str, Any], float] | None = None
        self._waiting: list[RunStart] = []
        self._draining = False
        self._coordinator: str | None = None
        self.results = 0
        self.client = self._make_client()

    @property
    def unsent(self) -> int:
        """Events not yet acknowledged."""
        return len(self._outbox)

    def connect(self) -> None:
        """Open the connection; the fleet's loop does the rest."""
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = 86400
        self.client.connect(
            self._host,
            self._identity.broker.port,
            _KEEPALIVE_S,
            clean_start=False,
            properties=properties,
        )

    def begin_own_run(self) -> None:
        """Start a run that nobody asked for, unless one goes on."""
        if self._run is None:
            self._begin(new_id(), 1, dict(_SPEC))

    def tick(self, now: float) -> None:
        """Let time pass: end the run that is over, send again what nobody acknowledged."""
        if self._run is not None and now >= self._run[3]:
            self._end_run()
        for unsent in self._outbox.values():
            if unsent.sent_at and now - unsent.sent_at > _RESEND_S:
                self._send(unsent)

    def leave(self) -> None:
        """Say goodbye and disconnect."""
        self._publish_state(Presence.OFFLINE)
        self.client.disconnect()

    def _begin(self, run: str, attempt: int, spec: dict[str, Any]) -> None:
        self._run = (run, attempt, spec, time.monotonic() + self._run_s)
        self._report(RunAccepted())
        self._report(RunProgress(phase=Phase.PERFORMANCE, percent=0.0, temperature_c=50.0))
        self._publish_state(Presence.BUSY)

    def _end_run(self) -> None:
        if self._run is None:
            return
        run, _, spec, _ = self._run
        self._report(RunProgress(phase=Phase.REPORT, percent=100.0, temperature_c=55.0))
        document = simulated_result(run, spec, self._chance)
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
        self._run = None
        if self._waiting:
            start = self._waiting.pop(0)
            self._begin(start.run, start.attempt, start.spec)
        else:
            self._publish_state(Presence.DRAINING if self._draining else Presence.ONLINE)

    def _report(
        self, data: EventData, *, run: str | None = None, attempt: int | None = None
    ) -> None:
        """Put an event into the outbox and send it."""
        if run is None and self._run is not None and not isinstance(data, CommandDone):
            run, attempt = self._run[0], self._run[1]
        self._seq += 1
        event = Event(
            id=new_id(),
            fleet=self._identity.fleet,
            device=self.name,
            time=datetime.now(timezone.utc),
            stream=self._stream,
            seq=self._seq,
            session=self._session,
            clock=Clock(mono_ns=time.monotonic_ns(), boot="simulated"),
            data=data,
            run=run,
            attempt=attempt,
        )
        unsent = Unsent(encode_event(event), is_result=isinstance(data, RunResult))
        self._outbox[self._seq] = unsent
        self._send(unsent)

    def _send(self, unsent: Unsent) -> None:
        if self.client.is_connected():
            unsent.sent_at = time.monotonic()
            self.client.publish(self._topic("evt"), unsent.raw, qos=1)

    def _publish_state(self, status: Presence) -> None:
        if self.client.is_connected():
            self.client.publish(self._topic("state"), self._state(status), qos=1, retain=True)

    def _state(self, status: Presence) -> bytes:
        return encode(
            BoardState(
                status=status,
                session=self._session,
                since=self._since,
                agent=f"{__version__} simulated",
                stream=self._stream,
                counter=self._counter,
                run=self._run[0] if self._run else None,
                queued=len(self._waiting),
                unsent=len(self._outbox),
            )
        )

    def _topic(self, leaf: str) -> str:
        return device_topic(self._identity.fleet, self.name, leaf)

    def _make_client(self) -> mqtt.Client:
        client = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id=client_id(self.name), protocol=mqtt.MQTTv5
        )
        broker = self._identity.broker
        if broker.username is not None:
            client.username_pw_set(broker.username, broker.password)
        if broker.tls:
            client.tls_set_context(ssl.create_default_context(cadata=self._identity.ca_pem))
        client.will_set(self._topic("state"), self._state(Presence.LOST), qos=1, retain=True)
        client.on_connect = self._connected
        client.on_message = self._message
        return client

    def _connected(
        self, client: mqtt.Client, _data: object, _flags: object, reason: Any, _props: object
    ) -> None:
        if reason.is_failure:
            return
        topics = [self._topic("cmd"), self._topic("ack"), coordinator_topic(self._identity.fleet)]
        client.subscribe([(topic, SubscribeOptions(qos=1)) for topic in topics])
        self._publish_state(Presence.BUSY if self._run else Presence.ONLINE)
        client.publish(self._topic("desc"), self._description(), qos=1, retain=True)
        self._send_all()

    def _send_all(self) -> None:
        for unsent in self._outbox.values():
            self._send(unsent)

    def _description(self) -> bytes:
        return encode(
            Description(
                device=self.name,
                fleet=self._identity.fleet,
                session=self._session,
                time=datetime.now(timezone.utc),
                agent=f"{__version__} simulated",
                board={"kind": "simulated"},
                labels={"kind": "simulated"},
            )
        )

    def _message(self, _client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
        raw = bytes(message.payload)
        with contextlib.suppress(MessageError):
            if message.topic == coordinator_topic(self._identity.fleet):
                self._heard_coordinator(raw)
                return
            place = {"fleet": self._identity.fleet, "device": self.name}
            if message.topic.endswith("/ack"):
                ack = parse_ack(raw, self._keys, **place)
                if isinstance(ack, Ack) and ack.stream == self._stream:
                    self._forget(ack)
            else:
                self._obey(parse_command(raw, self._keys, **place))

    def _heard_coordinator(self, raw: bytes) -> None:
        state = parse_coordinator_state(raw)
        known, self._coordinator = self._coordinator, state.session
        if state.status is Presence.ONLINE and known not in {None, state.session}:
            self._send_all()

    def _forget(self, ack: Ack) -> None:
        now = time.monotonic()
        for first, last in ack.seqs:
            for seq in range(first, min(last, self._seq) + 1):
                unsent = self._outbox.pop(seq, None)
                if unsent is not None:
                    self._acked(now - unsent.made_at, unsent.is_result)

    def _obey(self, command: Command) -> None:
        if command.id in self._commands:
            return
        self._commands.add(command.id)
        self._counter = max(self._counter, command.counter)
        data = command.data
        if isinstance(data, RunStart):
            self._take(data)
        elif isinstance(data, RunCancel):
            self._cancel(command, data)
        else:
            if hasattr(data, "on"):
                self._draining = data.on
                self._publish_state(Presence.DRAINING if data.on else Presence.ONLINE)
            self._report(CommandDone(command=command.id, name=command.name, ok=True))

    def _take(self, start: RunStart) -> None:
        if self._draining:
            refusal = RunRejected(code=Code.DRAINING, reason="the board is draining")
            self._report(refusal, run=start.run, attempt=start.attempt)
        elif self._run is None:
            self._begin(start.run, start.attempt, start.spec)
        else:
            self._waiting.append(start)
            position = RunAccepted(position=len(self._waiting))
            self._report(position, run=start.run, attempt=start.attempt)

    def _cancel(self, command: Command, cancel: RunCancel) -> None:
        self._waiting = [start for start in self._waiting if start.run != cancel.run]
        if self._run is not None and self._run[0] == cancel.run:
            self._report(RunCancelled(reason=cancel.reason))
            self._next()
        self._report(CommandDone(command=command.id, name=command.name, ok=True))
