"""The coordinator's one MQTT connection.

It keeps no session at the broker: what comes while it is away is sent again by the boards,
which keep an event until it is acknowledged. Callbacks only put messages into a bounded
queue; when that is full the message is dropped, and comes again too.

Several coordinators share the events of a fleet through ``$share``; states are not
shared, because retained messages never reach a shared subscription.
"""

import contextlib
import logging
import random
import socket
import ssl
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from queue import Empty, Full, Queue
from typing import Any, NamedTuple, Protocol

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from edgeperf import __version__
from edgeperf.agent.messages import (
    CoordinatorState,
    MessageError,
    Presence,
    coordinator_topic,
    device_topic,
    encode,
    new_id,
    parse_coordinator_state,
)
from edgeperf.coordinator.broker import BrokerError, Endpoint

_log = logging.getLogger(__name__)

_KEEPALIVE_S = 30
_MAX_PACKET_BYTES = 256 * 1024
_SHARE = "edgeperf-coord"


class Inbound(NamedTuple):
    """A message as it came."""

    topic: str
    payload: bytes


class Wire(Protocol):
    """What intake and commander ask of the connection."""

    def take(self, most: int, timeout_s: float) -> list[Inbound]:
        """Return messages that arrived."""
        ...

    def send(self, board: str, leaf: str, payload: bytes, *, expiry_s: int | None = None) -> bool:
        """Publish to a board; False when that is not possible now."""
        ...


class Link:
    """The connection, once :meth:`start` was called.

    Args:
        endpoint: Where the broker is.
        fleet: Whose topics.
        shared: Other coordinators take in events of this fleet too.
        queue_size: Messages that may wait for the intake.
        on_up: Called, on the network's thread, each time the connection is there.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        fleet: str,
        shared: bool = False,
        queue_size: int = 20_000,
        on_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._endpoint = endpoint
        self._fleet = fleet
        self._shared = shared
        self._on_up = on_up
        self._session = new_id()
        self._since = datetime.now(timezone.utc)
        self._queue: Queue[Inbound] = Queue(queue_size)
        self._up = threading.Event()
        self._answered = threading.Event()
        self._refusal = ""
        self._stopping = False
        self.dropped = 0
        self._client = self._make_client()

    @property
    def is_up(self) -> bool:
        """Whether the broker is connected."""
        return self._up.is_set()

    def start(self, *, timeout_s: float = 10.0) -> None:
        """Connect, and keep connected from now on.

        Raises:
            BrokerError: The broker refuses us, or did not answer in time.
        """
        self._client.connect_async(
            self._endpoint.host,
            self._endpoint.own_port,
            keepalive=_KEEPALIVE_S,
            clean_start=True,
            properties=_connect_properties(),
        )
        self._client.loop_start()
        self._answered.wait(timeout_s)
        if not self.is_up:
            self.stop()
            where = f"broker {self._endpoint.host}:{self._endpoint.own_port}"
            why = self._refusal or f"did not answer within {timeout_s:.0f} s"
            raise BrokerError(f"{where}: {why}")

    def stop(self) -> None:
        """Say that we are away, and disconnect."""
        self._stopping = True
        if self.is_up:
            with contextlib.suppress(ValueError, RuntimeError):
                self._say(Presence.OFFLINE).wait_for_publish(1.0)
        self._client.disconnect()
        self._client.loop_stop()

    def take(self, most: int, timeout_s: float) -> list[Inbound]:
        """Return up to *most* messages: at once if there are any, else the next within the time."""
        found: list[Inbound] = []
        with contextlib.suppress(Empty):
            found.append(self._queue.get(timeout=timeout_s))
            while len(found) < most:
                found.append(self._queue.get_nowait())
        return found

    def send(self, board: str, leaf: str, payload: bytes, *, expiry_s: int | None = None) -> bool:
        """Publish to a board at QoS 1; False while there is no connection."""
        if not self.is_up:
            return False
        properties = None
        if expiry_s is not None:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.MessageExpiryInterval = max(1, expiry_s)
        topic = device_topic(self._fleet, board, leaf)
        sent = self._client.publish(topic, payload, qos=1, properties=properties)
        return sent.rc == mqtt.MQTT_ERR_SUCCESS

    def forget(self, board: str) -> None:
        """Take a board's retained messages away."""
        for leaf in ("state", "desc"):
            self._client.publish(device_topic(self._fleet, board, leaf), b"", qos=1, retain=True)

    def _make_client(self) -> mqtt.Client:
        client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"edgeperf-coord-{self._session[-12:]}",
            protocol=mqtt.MQTTv5,
        )
        endpoint = self._endpoint
        if endpoint.username is not None:
            client.username_pw_set(endpoint.username, endpoint.password)
        if endpoint.own_tls:
            context = ssl.create_default_context(cafile=endpoint.ca_file)
            if endpoint.cert_file is not None:
                context.load_cert_chain(endpoint.cert_file, endpoint.key_file)
            client.tls_set_context(context)
        client.will_set(
            coordinator_topic(self._fleet), self._state(Presence.OFFLINE), qos=1, retain=True
        )
        client.max_inflight_messages_set(200)
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        client.on_message = self._message
        client.on_subscribe = _subscribed
        client.on_socket_open = send_at_once
        # paho has no jitter of its own: coordinators of one fleet must not return in step.
        client.reconnect_delay_set(1, random.randint(10, 20))  # noqa: S311 - no secret
        return client

    def _connected(
        self, client: mqtt.Client, _data: object, _flags: object, reason: Any, _props: object
    ) -> None:
        if reason.is_failure:
            self._refusal = f"refused us: {reason}; check user and password"
            self._answered.set()
            return
        share = f"$share/{_SHARE}/" if self._shared else ""
        everyone = device_topic(self._fleet, "+", "")
        filters = [
            (f"{everyone}state", 1),
            (f"{everyone}desc", 1),
            (f"{share}{everyone}evt", 1),
            (f"{everyone}tlm", 0),
            (f"{everyone}blob/#", 1),
            (coordinator_topic(self._fleet), 1),
        ]
        client.subscribe([(name, SubscribeOptions(qos=qos)) for name, qos in filters])
        self._say(Presence.ONLINE)
        self._up.set()
        self._answered.set()
        self._on_up()

    def _disconnected(self, *_: object) -> None:
        self._up.clear()

    def _message(self, _client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
        if message.topic == coordinator_topic(self._fleet):
            self._heard_coordinator(bytes(message.payload))
            return
        try:
            self._queue.put_nowait(Inbound(message.topic, bytes(message.payload)))
        except Full:
            self.dropped += 1

    def _heard_coordinator(self, payload: bytes) -> None:
        """Speak up when the fleet is told that its coordinator is gone: we are here."""
        with contextlib.suppress(MessageError):
            if not self._stopping and parse_coordinator_state(payload).status is Presence.OFFLINE:
                self._say(Presence.ONLINE)

    def _say(self, status: Presence) -> mqtt.MQTTMessageInfo:
        topic = coordinator_topic(self._fleet)
        return self._client.publish(topic, self._state(status), qos=1, retain=True)

    def _state(self, status: Presence) -> bytes:
        return encode(
            CoordinatorState(
                status=status, session=self._session, since=self._since, version=__version__
            )
        )


def _subscribed(
    _client: mqtt.Client, _data: object, _mid: int, reasons: Any, _props: object
) -> None:
    refused = [str(reason) for reason in reasons if reason.is_failure]
    if refused:
        _log.error("broker: refuses a subscription (%s): no board will be heard", refused[0])


def send_at_once(_client: mqtt.Client, _data: object, sock: Any) -> None:
    """Keep the kernel from holding small packets back for 40 ms (Nagle's algorithm)."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _connect_properties() -> Properties:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = 0
    properties.MaximumPacketSize = _MAX_PACKET_BYTES
    properties.ReceiveMaximum = 2000
    return properties
