"""Whether the broker lets this board do what it must, and nothing else: a round trip.

A broker grants subscriptions and takes messages that it then drops, so its word is not
enough: a message must come back. What the board may both write and read is its own retained
state; the same bytes once more change nothing for anybody. The connection has a name of its own,
since the agent may be connected under the board's.
"""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from edgeperf.agent.board.findings import Area, Finding
from edgeperf.agent.link.errors import LinkInputError
from edgeperf.agent.link.identity import Identity, read_identity
from edgeperf.agent.link.reasons import REFUSALS, explain
from edgeperf.agent.link.tls import tls_context
from edgeperf.agent.messages import Telemetry, client_id, device_topic, new_id

_AREA = Area("fleet")
_SERVICE_STATE = Path("/var/lib/edgeperf")
_PATIENCE_S = 10.0
#: How long another board's message would take at most to come, too.
_SETTLE_S = 0.5
#: A board that nobody has.
_NOBODY = "edgeperf-doctor-nobody"
_ACL = "give the broker the access rules of deploy/mosquitto"


def probe_fleet(state: Path) -> Iterator[Finding]:
    """Say whether this board is in a fleet, and whether its broker treats it right.

    Args:
        state: The agent's directory.
    """
    try:
        identity = read_identity(state)
    except LinkInputError as error:
        if state != _SERVICE_STATE and _SERVICE_STATE.is_dir():
            text = "the service's own user knows: sudo -u edgeperf edgeperf doctor"
        else:
            text = "to join one: edgeperf agent enroll COORDINATOR --code CODE"
        yield _AREA.missing("fleet", str(error).partition(";")[0], text)
        return
    name = f"broker {identity.broker.host}:{identity.broker.port}"
    line = _Line(identity)
    problem = line.connect()
    if problem:
        yield _AREA.warn(name, problem, "runs by hand work; the coordinator does not reach it")
        return
    try:
        yield _AREA.ok(name, f"takes this board as {identity.device}, fleet {identity.fleet}")
        yield from _check(line, identity)
    finally:
        line.close()


def _check(line: "_Line", identity: Identity) -> Iterator[Finding]:
    fleet, device = identity.fleet, identity.device
    own = device_topic(fleet, device, "state")
    line.subscribe(own)
    line.subscribe(device_topic(fleet, "+", "state"))
    line.wait(lambda: False, _SETTLE_S)
    telemetry = Telemetry(session=new_id(), time=datetime.now(timezone.utc))
    hello = msgspec.json.encode(telemetry)
    refusal = line.publish(device_topic(fleet, device, "tlm"), hello)
    kept = [payload for topic, payload, _ in line.heard if topic == own]
    if refusal:
        yield _AREA.warn("own messages", f"not taken: {refusal}", _ACL)
    elif not kept:
        text = "taken; it has no state there yet, or may not read it, so nothing came back"
        yield _AREA.ok("own messages", text)
    elif refusal := line.publish(own, kept[0]):
        yield _AREA.warn("own messages", f"its state is not taken: {refusal}", _ACL)
    elif line.wait(lambda: any(topic == own and new for topic, _, new in line.heard), _PATIENCE_S):
        yield _AREA.ok("own messages", "taken, and come back")
    else:
        yield _AREA.warn("own messages", "taken, but do not come back to it", _ACL)
    others = {topic for topic, _, _ in line.heard} - {own}
    if not line.publish(device_topic(fleet, _NOBODY, "tlm"), hello):
        yield _AREA.warn("others' messages", "this board may speak for every other", _ACL)
    elif others:
        yield _AREA.warn("others' messages", f"this board may read {len(others)} of them", _ACL)
    else:
        yield _AREA.ok("others' messages", "this board can neither read nor write them")


class _Line:
    """One connection, used by one thread that waits for each answer."""

    def __init__(self, identity: Identity) -> None:
        broker = identity.broker
        self._identity = identity
        self._news = threading.Condition()
        self._connack: Any = None
        self._answers: dict[int, Any] = {}
        self.heard: list[tuple[str, bytes, bool]] = []  # topic, payload, not retained
        name = f"{client_id(identity.device)}-doctor"
        self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id=name, protocol=mqtt.MQTTv5
        )
        self._client.username_pw_set(broker.username or identity.device, broker.password)
        self._client.connect_timeout = _PATIENCE_S
        self._client.on_connect = lambda _c, _u, _f, reason, _p: self._note(connack=reason)
        self._client.on_publish = lambda _c, _u, mid, reason, _p: self._note(mid, reason)
        self._client.on_subscribe = lambda _c, _u, mid, reasons, _p: self._note(mid, reasons[0])
        self._client.on_message = lambda _c, _u, message: self._note(message=message)

    def connect(self) -> str:
        """Connect; returns why not, empty when it worked."""
        broker = self._identity.broker
        where = f"{broker.host}:{broker.port}"
        try:
            if broker.tls:
                self._client.tls_set_context(tls_context(self._identity))
            self._client.connect(broker.host or "", broker.port, keepalive=30)
        except LinkInputError as error:
            return str(error)
        except (OSError, ValueError) as error:
            return explain(error, where).reason
        self._client.loop_start()
        if not self.wait(lambda: self._connack is not None, _PATIENCE_S):
            self.close()
            return f"{where}: no answer within {_PATIENCE_S:g} s"
        if self._connack.is_failure:
            self.close()
            return f"{where}: {REFUSALS.get(self._connack.value, self._connack)}"
        return ""

    def subscribe(self, topic: str) -> None:
        """Subscribe; a refusal shows in what is not heard."""
        _, mid = self._client.subscribe(topic, qos=1)
        self.wait(lambda: mid in self._answers, _PATIENCE_S)

    def publish(self, topic: str, payload: bytes) -> str:
        """Publish; returns the broker's refusal, empty when it was taken."""
        mid = self._client.publish(topic, payload, qos=1).mid
        if not self.wait(lambda: mid in self._answers, _PATIENCE_S):
            return "no answer"
        answer = self._answers[mid]
        return str(answer) if answer.is_failure else ""

    def wait(self, true: Callable[[], bool], patience_s: float) -> bool:
        """Wait until *true*, and tell whether it became so."""
        until_s = time.monotonic() + patience_s
        with self._news:
            while not true():
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._news.wait(left_s)
        return True

    def close(self) -> None:
        """Disconnect."""
        self._client.disconnect()
        self._client.loop_stop()

    def _note(
        self,
        mid: int | None = None,
        answer: Any = None,
        *,
        connack: Any = None,
        message: mqtt.MQTTMessage | None = None,
    ) -> None:
        with self._news:
            if mid is not None:
                self._answers[mid] = answer
            if connack is not None:
                self._connack = connack
            if message is not None:
                self.heard.append((message.topic, bytes(message.payload), not message.retain))
            self._news.notify_all()
