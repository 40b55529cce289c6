"""The MQTT connection: one thread owns the client, everybody else leaves it notes.

The thread connects, reads, writes and reconnects with a growing, jittered pause; what comes
in goes to *deliver*, a function that only queues. Nothing here waits for anything while a
callback runs, or the broker would take the board for dead. Exceptions in the thread end up
in :attr:`Connection.failure`, never silently.

The client id is the board's own and the session is kept (``clean_start=False``): what was
sent to the board while it was away comes when it is back, if the broker remembers.
"""

import collections
import contextlib
import random
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from edgeperf.agent.link.identity import Identity
from edgeperf.agent.link.incoming import (
    Connected,
    Disconnected,
    Incoming,
    Message,
    NotTaken,
    Patience,
    Will,
)
from edgeperf.agent.link.reasons import REFUSALS, explain
from edgeperf.agent.link.tls import tls_context
from edgeperf.agent.messages import client_id

_CONNECT_TIMEOUT_S = 10.0
_SESSION_EXPIRY_S = 86_400
#: Larger than any message of ours with its topic and properties.
_MAX_PACKET_BYTES = 128 * 1024
_FIRST_PAUSE_S, _PATIENCE = 0.5, Patience()
#: A connection shorter than this was no success: the pause keeps growing.
_SHORT_SESSION_S = 10.0
#: Before leaving: the line is quiet when nothing came for so long; it is waited for so long.
_QUIET_S, _LINGER_S = 0.2, 1.0
_TAKEN_OVER = 0x8E


class _Outgoing(NamedTuple):
    topic: str
    payload: bytes
    qos: int
    retain: bool


class Connection:
    """A connection that is kept up until it is closed.

    Args:
        identity: Whom to connect as, and where.
        will: The last will, if there shall be one.
        topics: Filters to subscribe to, each with QoS 1; they must not overlap.
        deliver: Called with everything that comes in, from the connection's own thread.
        client: MQTT client id; None is the board's own.
        patience: How long to wait for what.

    Attributes:
        failure: What ended the thread, None while it lives; a bug.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        will: Will | None,
        topics: tuple[str, ...],
        deliver: Callable[[Incoming], None],
        client: str | None = None,
        patience: Patience = _PATIENCE,
    ) -> None:
        self._identity = identity
        self._topics = topics
        self._deliver = deliver
        self._patience = patience
        self._outgoing: collections.deque[_Outgoing] = collections.deque()
        self._closing = threading.Event()
        self._wake_read, self._wake_write = socket.socketpair()
        for end in (self._wake_read, self._wake_write):
            end.setblocking(False)  # noqa: FBT003 - its only argument
        self._is_connected = False
        self._refused_by: ReasonCode | None = None
        self._client_id = client or client_id(identity.device)
        self._client = self._new_client(will)
        self._thread = threading.Thread(target=self._run, name="mqtt", daemon=True)
        self.failure: BaseException | None = None

    @property
    def where(self) -> str:
        """The broker, as an address for people."""
        broker = self._identity.broker
        return f"{'mqtts' if broker.tls else 'mqtt'}://{broker.host}:{broker.port}"

    def open(self) -> None:
        """Start connecting; returns at once."""
        self._thread.start()

    def send(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> None:
        """Hand a message to the broker if there is a connection; forget it otherwise.

        Whatever must arrive is sent again by the outbox.
        """
        self._outgoing.append(_Outgoing(topic, payload, qos, retain))
        self._wake()

    def close(self, *, farewell: Will | None = None, timeout_s: float = 3.0) -> None:
        """Say *farewell*, disconnect and end the thread."""
        if farewell is not None:
            self.send(farewell.topic, farewell.payload, retain=True)
        self._closing.set()
        self._wake()
        self._thread.join(timeout_s)
        for end in (self._wake_read, self._wake_write):
            end.close()

    def _new_client(self, will: Will | None) -> mqtt.Client:
        broker = self._identity.broker
        client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._client_id,
            protocol=mqtt.MQTTv5,
        )
        client.username_pw_set(broker.username or self._identity.device, broker.password)
        if broker.tls:
            client.tls_set_context(tls_context(self._identity))
        if will is not None:
            client.will_set(will.topic, will.payload, qos=1, retain=True)
        client.max_inflight_messages_set(20)
        client.connect_timeout = _CONNECT_TIMEOUT_S
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        # With a callback here paho leaves the writing to us.
        client.on_socket_register_write = lambda *_: None
        return client

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        try:
            while not self._closing.is_set():
                began_s = time.monotonic()
                self._live_once()
                if time.monotonic() - began_s > _SHORT_SESSION_S:
                    pause_s = _FIRST_PAUSE_S
                self._sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
                pause_s = min(pause_s * 2, self._patience.longest_pause_s)
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self.failure = error
            self._deliver(Disconnected(f"{self.where}: {error}"))
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Free the client of us, so that it closes its sockets when it goes."""
        client = self._client
        client.on_connect = client.on_disconnect = client.on_message = client.on_publish = None

    def _live_once(self) -> None:
        """Connect once and serve the connection until it ends."""
        self._refused_by = None
        try:
            self._connect()
            self._serve()
        except (OSError, ValueError) as error:
            self._deliver(explain(error, self.where))
        finally:
            self._is_connected = False
            self._outgoing.clear()
            if (sock := self._client.socket()) is not None:
                sock.close()  # what paho still believes in, the next connect forgets

    def _connect(self) -> None:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = _SESSION_EXPIRY_S
        properties.MaximumPacketSize = _MAX_PACKET_BYTES
        properties.ReceiveMaximum = 20
        self._client.connect(
            self._identity.broker.host or "",
            self._identity.broker.port,
            keepalive=self._patience.keepalive_s,
            clean_start=False,
            properties=properties,
        )

    def _serve(self) -> None:
        give_up_s = time.monotonic() + _CONNECT_TIMEOUT_S
        while (sock := self._client.socket()) is not None:
            if self._closing.is_set() and not self._outgoing:
                self._leave(sock)
                return
            if not self._is_connected and time.monotonic() > give_up_s:
                raise TimeoutError(f"no answer within {_CONNECT_TIMEOUT_S:g} s")
            self._pass_on()
            self._step(sock, self._patience.keepalive_s / 4)

    def _leave(self, sock: Any) -> None:
        """Disconnect when the line is quiet.

        A socket that is closed with something unread is reset, and the broker then never
        sees the last messages: it would publish the will.
        """
        give_up_s = time.monotonic() + _LINGER_S
        while self._step(sock, _QUIET_S) and time.monotonic() < give_up_s:
            continue
        self._client.disconnect()
        self._client.loop_write()

    def _step(self, sock: Any, timeout_s: float) -> bool:
        """Read and write what can be; tells whether there was anything."""
        wants_write = [sock] if self._client.want_write() else []
        readable, writable, _ = select.select([sock, self._wake_read], wants_write, [], timeout_s)
        if self._wake_read in readable:
            self._drain_wakes()
        if sock in readable:
            self._client.loop_read()
            while isinstance(sock, ssl.SSLSocket) and self._has_pending(sock):
                self._client.loop_read()
        if writable:
            self._client.loop_write()
        self._client.loop_misc()
        return bool(readable or writable) and self._client.socket() is sock

    def _has_pending(self, sock: ssl.SSLSocket) -> bool:
        return self._client.socket() is sock and sock.pending() > 0

    def _pass_on(self) -> None:
        while self._is_connected and self._outgoing:
            note = self._outgoing.popleft()
            self._client.publish(note.topic, note.payload, qos=note.qos, retain=note.retain)

    def _on_connect(
        self, client: mqtt.Client, _user: Any, flags: Any, reason: ReasonCode, _properties: Any
    ) -> None:
        if reason.is_failure:
            self._refused_by = reason
            return
        self._is_connected = True
        if self._topics:
            client.subscribe([(topic, SubscribeOptions(qos=1)) for topic in self._topics])
        self._deliver(Connected(bool(flags.session_present)))

    def _on_disconnect(
        self, _client: mqtt.Client, _user: Any, _flags: Any, reason: ReasonCode, _properties: Any
    ) -> None:
        self._is_connected = False
        refused = self._refused_by
        if refused is not None:
            why = REFUSALS.get(refused.value, str(refused))
            self._deliver(Disconnected(f"{self.where}: {why}", refused=refused.value in REFUSALS))
        elif reason.value == _TAKEN_OVER:
            self._deliver(
                Disconnected(
                    f"{self.where}: another client connected as {self._client_id!r}; find it"
                )
            )
        elif not self._closing.is_set():
            self._deliver(Disconnected(f"{self.where}: connection lost ({reason})"))

    def _on_publish(
        self, _client: mqtt.Client, _user: Any, _mid: int, reason: ReasonCode, _properties: Any
    ) -> None:
        if reason.is_failure:
            self._deliver(NotTaken(f"{self.where}: the broker does not take a message: {reason}"))

    def _on_message(self, _client: mqtt.Client, _user: Any, message: mqtt.MQTTMessage) -> None:
        self._deliver(Message(message.topic, bytes(message.payload)))

    def _wake(self) -> None:
        # Full: it will wake for the earlier ones. Closed: nobody is there.
        with contextlib.suppress(OSError):
            self._wake_write.send(b"\0")

    def _drain_wakes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_read.recv(4096)

    def _sleep(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while not self._closing.is_set() and (left_s := until_s - time.monotonic()) > 0:
            select.select([self._wake_read], [], [], left_s)
            self._drain_wakes()
            self._outgoing.clear()
