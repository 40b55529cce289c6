"""A simulated board's connection and outbox: what it says, kept until it is acknowledged."""

import ssl
import time
from collections.abc import Callable
from datetime import datetime, timezone

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from edgeperf.agent.messages import (
    Ack,
    Clock,
    EnrolReply,
    Event,
    EventData,
    Presence,
    RunResult,
    client_id,
    coordinator_topic,
    device_topic,
    encode_event,
    key_id,
    new_id,
    parse_ack,
    parse_coordinator_state,
    public_key,
)

_KEEPALIVE_S = 60
_RESEND_S = 15.0


class Unsent:
    """An event that waits for its acknowledgement."""

    __slots__ = ("is_result", "made_at", "raw", "sent_at")

    def __init__(self, raw: bytes, *, is_result: bool) -> None:
        self.raw = raw
        self.made_at = time.monotonic()
        self.sent_at = 0.0
        self.is_result = is_result


class Connection:
    """One board's client. Nothing here blocks: the fleet's loop moves it.

    Args:
        identity: As the coordinator's enrolment gave it.
        host: Of the broker.
        acked: Called with the seconds from making an event to its acknowledgement, and
            whether it was a result.
        last_will: The state that the broker shall publish when we are gone.
    """

    def __init__(
        self,
        identity: EnrolReply,
        host: str,
        *,
        acked: Callable[[float, bool], None],
        last_will: Callable[["Connection"], bytes],
    ) -> None:
        self.identity = identity
        self.session, self.stream = new_id(), new_id()
        self.keys = {key_id(key): key for key in map(public_key, identity.keys)}
        self.place = {"fleet": identity.fleet, "device": identity.device}
        self._host = host
        self._acked = acked
        self._seq = 0
        self._outbox: dict[int, Unsent] = {}
        self._coordinator: str | None = None
        self.client = self._make_client(last_will(self))

    @property
    def unsent(self) -> int:
        """Events not yet acknowledged."""
        return len(self._outbox)

    def open(self) -> None:
        """Connect; the fleet's loop does the rest."""
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = 86400
        self.client.connect(
            self._host,
            self.identity.broker.port,
            _KEEPALIVE_S,
            clean_start=False,
            properties=properties,
        )

    def subscribe(self) -> None:
        """Ask for what is meant for this board."""
        fleet = coordinator_topic(self.identity.fleet)
        topics = [self.topic("cmd"), self.topic("ack"), fleet]
        self.client.subscribe([(topic, SubscribeOptions(qos=1)) for topic in topics])

    def topic(self, leaf: str) -> str:
        """Return one of the board's topics."""
        return device_topic(self.identity.fleet, self.identity.device, leaf)

    def retain(self, leaf: str, raw: bytes) -> None:
        """Publish what the broker shall keep."""
        if self.client.is_connected():
            self.client.publish(self.topic(leaf), raw, qos=1, retain=True)

    def report(self, data: EventData, *, run: str | None, attempt: int | None) -> None:
        """Put an event into the outbox and send it."""
        self._seq += 1
        event = Event(
            id=new_id(),
            fleet=self.identity.fleet,
            device=self.identity.device,
            time=datetime.now(timezone.utc),
            stream=self.stream,
            seq=self._seq,
            session=self.session,
            clock=Clock(mono_ns=time.monotonic_ns(), boot="simulated"),
            data=data,
            run=run,
            attempt=attempt,
        )
        unsent = Unsent(encode_event(event), is_result=isinstance(data, RunResult))
        self._outbox[self._seq] = unsent
        self._send(unsent)

    def send_late(self, now: float) -> None:
        """Send again what nobody acknowledged in time."""
        for unsent in self._outbox.values():
            if unsent.sent_at and now - unsent.sent_at > _RESEND_S:
                self._send(unsent)

    def send_all(self) -> None:
        """Send everything that is not acknowledged, in order."""
        for unsent in self._outbox.values():
            self._send(unsent)

    def heard_ack(self, raw: bytes) -> None:
        """Forget what the coordinator has for good."""
        ack = parse_ack(raw, self.keys, **self.place)
        if not isinstance(ack, Ack) or ack.stream != self.stream:
            return
        now = time.monotonic()
        for first, last in ack.seqs:
            for seq in range(first, min(last, self._seq) + 1):
                unsent = self._outbox.pop(seq, None)
                if unsent is not None:
                    self._acked(now - unsent.made_at, unsent.is_result)

    def heard_coordinator(self, raw: bytes) -> None:
        """Send everything again to a coordinator that has just come: it missed it."""
        state = parse_coordinator_state(raw)
        known, self._coordinator = self._coordinator, state.session
        if state.status is Presence.ONLINE and known not in {None, state.session}:
            self.send_all()

    def _send(self, unsent: Unsent) -> None:
        if self.client.is_connected():
            unsent.sent_at = time.monotonic()
            self.client.publish(self.topic("evt"), unsent.raw, qos=1)

    def _make_client(self, last_will: bytes) -> mqtt.Client:
        client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id(self.identity.device),
            protocol=mqtt.MQTTv5,
        )
        broker = self.identity.broker
        if broker.username is not None:
            client.username_pw_set(broker.username, broker.password)
        if broker.tls:
            client.tls_set_context(ssl.create_default_context(cadata=self.identity.ca_pem))
        client.will_set(self.topic("state"), last_will, qos=1, retain=True)
        return client
