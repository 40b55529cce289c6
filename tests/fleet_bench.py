"""What the fleet's tests stand on: real brokers, a real agent process, the coordinator's side."""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import paho.mqtt.client as mqtt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jsonschema import Draft202012Validator
from paho.mqtt.enums import CallbackAPIVersion

from edgeperf import EdgeperfError
from edgeperf.agent.link import Identity, write_identity
from edgeperf.agent.messages import (
    MAX_CHUNK_BYTES,
    Ack,
    BlobStatus,
    BoardState,
    Broker,
    Command,
    CommandData,
    DeviceTopic,
    Event,
    MessageError,
    RunStart,
    device_topic,
    key_id,
    new_id,
    parse_blob_init,
    parse_device_topic,
    parse_event,
    parse_state,
    public_text,
    ranges,
    run_start,
    sign_ack,
    sign_command,
)
from edgeperf.agent.messages.asyncapi import short_name
from edgeperf.coordinator.client import Client

FLEET, DEVICE = "lab", "pi5"
PROGRAM = Path(__file__).with_name("programs") / "measure.py"
PATIENCE_S = 20.0


def wait_until(true: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until *true* returns something true."""
    give_up_s = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > give_up_s:
            pytest.fail(f"waited {patience_s:g} s for: {what}")
        time.sleep(0.01)


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def need(there: object, what: str) -> None:
    """Skip without *what*; in CI that is a failure."""
    if not there:
        if os.environ.get("CI"):
            pytest.fail(f"CI must have {what}")
        pytest.skip(f"{what} is not installed")


class BrokerProcess:
    """A broker that can be killed and started again on the same port."""

    def __init__(self, folder: Path, command: list[str], port: int) -> None:
        self.folder, self.port = folder, port
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; returns when it listens."""
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=log, stderr=log
            )
        wait_until(self._listens, "the broker listens")

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.communicate()
            self._process = None

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self._process is not None:
            self._process.send_signal(number)

    def cut(self) -> None:
        """Stop it for a moment, so that connections stall, then let it go on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            time.sleep(0.2)
            self._process.send_signal(signal.SIGCONT)

    def _listens(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=0.5):
                return True
        except OSError:
            return False


def mosquitto(folder: Path, *lines: str, port: int | None = None) -> BrokerProcess:
    """Return a Mosquitto with a configuration of its own; *lines* replace the open default."""
    program = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    need(program, "mosquitto")
    port = port or free_port()
    config = [
        "per_listener_settings false",
        f"listener {port} 127.0.0.1",
        "persistence true",
        f"persistence_location {folder}/",
        "autosave_interval 1",
        "max_queued_messages 10000",
        *(lines or ("allow_anonymous true",)),
    ]
    if os.geteuid() == 0:
        config.append("user root")
    (folder / "mosquitto.conf").write_text("\n".join(config) + "\n")
    return BrokerProcess(folder, [str(program), "-c", str(folder / "mosquitto.conf")], port)


def embedded(folder: Path) -> BrokerProcess:
    """Return the broker that pip installs."""
    need(find_spec("iotcore"), "iotcore")
    port = free_port()
    connections = (
        "connection_timeout_ms = 60000\nmax_payload_size = 262144\n"
        "max_inflight_count = 500\ndynamic_filters = true\n"
    )
    config = (
        "id = 0\n[router]\nid = 0\nmax_connections = 1000\nmax_outgoing_packet_count = 1000\n"
        "max_segment_size = 104857600\nmax_segment_count = 10\n"
        f'[v4.1]\nname = "v4"\nlisten = "127.0.0.1:{free_port()}"\nnext_connection_delay_ms = 1\n'
        f"[v4.1.connections]\n{connections}"
        f'[v5.1]\nname = "v5"\nlisten = "127.0.0.1:{port}"\nnext_connection_delay_ms = 1\n'
        f"[v5.1.connections]\n{connections}"
    )
    path = folder / "rumqttd.toml"
    path.write_text(config)
    options = msgspec.json.encode({"config_path": str(path)}).decode()
    start = "from iotcore._serve import main; main()"
    return BrokerProcess(folder, [sys.executable, "-c", start, options], port)


BROKERS = {"mosquitto": mosquitto, "embedded": embedded}


class AgentProcess:
    """The agent service in a process of its own, with the test's run program."""

    def __init__(self, state: Path, identity: Identity, **settings: Any) -> None:
        self.state = state
        self.settings = settings
        write_identity(state, identity)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> "AgentProcess":
        """Start it; returns at once."""
        given = {
            "state": str(self.state),
            "cache": str(self.state / "cache"),
            "run_program": [sys.executable, str(PROGRAM)],
            "ack_timeout_s": 1.0,
            **self.settings,
        }
        raw = msgspec.json.encode(given).decode()
        launcher = Path(__file__).with_name("programs") / "agent.py"
        with (self.state / "agent.log").open("ab") as log:
            self._process = subprocess.Popen([sys.executable, str(launcher), raw], stderr=log)
        return self

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End it and return its exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return self.wait()

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        """Wait for its end and return its exit code."""
        assert self._process is not None
        return self._process.wait(patience_s)

    def log(self) -> str:
        """Return what it logged."""
        return (self.state / "agent.log").read_text()

    def executed(self) -> list[str]:
        """Return the names of the runs whose program was started, in order."""
        path = self.state / "runs" / "executed"
        return path.read_text().split() if path.exists() else []


class CoordinatorProcess:
    """The real coordinator, in a process that can be killed."""

    def __init__(self, data: Path, broker_port: int) -> None:
        self._data = data
        self.http_port = free_port()
        self._arguments = [str(data), str(broker_port), str(self.http_port)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; returns at once."""
        program = Path(__file__).with_name("programs") / "coordinator.py"
        with (self._data.parent / "coordinator.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(program), *self._arguments], stderr=log, stdout=log
            )

    def keep_up(self) -> None:
        """Start it again if it ended by itself, as systemd would."""
        if self._process is not None and self._process.poll() is not None:
            self.start()

    def kill(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def url(self) -> str:
        """Base URL of its HTTP interface."""
        return f"http://127.0.0.1:{self.http_port}"

    def client(self) -> Client:
        """Return a client of its HTTP interface."""
        token = (self._data / "admin.token").read_text().strip()
        return Client(self.url, token)

    def is_up(self) -> bool:
        """Tell whether it serves."""
        with contextlib.suppress(EdgeperfError, OSError):
            return bool(self.client().get("/v1/health")["ok"])
        return False


@cache
def validator(name: str) -> Any:
    """Return the checker of one message's published schema."""
    path = Path(__file__).parent.parent / "docs" / "schemas" / f"{name}.json"
    return Draft202012Validator(msgspec.json.decode(path.read_bytes()))


class Coordinator:
    """The coordinator's side of the wire, as small as it can be: it signs, hears and answers."""

    def __init__(self, port: int, key: Ed25519PrivateKey | None = None) -> None:
        self.key = key or Ed25519PrivateKey.generate()
        self.events: list[Event] = []
        self.states: list[BoardState] = []
        self.descriptions: list[bytes] = []
        self.refused: list[MessageError] = []
        self.misfits: list[str] = []
        self.acknowledges = True
        self.heard = 0
        self.counter = 0
        self.blobs: dict[str, bytes] = {}
        self._parts: dict[str, tuple[int, dict[int, bytes]]] = {}
        self._ids: set[str] = set()
        self._lock = threading.Lock()
        self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id=f"coord-{new_id()}", protocol=mqtt.MQTTv5
        )
        self._client.on_connect = self._on_connect
        self._client.on_message = self._on_message
        self._client.reconnect_delay_set(1, 1)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        wait_until(self._client.is_connected, "the coordinator is connected")

    def close(self) -> None:
        """Disconnect."""
        self._client.disconnect()
        self._client.loop_stop()
        self._client.on_connect = self._client.on_message = None

    def command(self, data: CommandData, **changes: Any) -> Command:
        """Return a command for the board, fresh in every way."""
        with self._lock:
            self.counter += 1
            now = datetime.now(timezone.utc)
            command = Command(
                id=new_id(),
                fleet=FLEET,
                device=DEVICE,
                nonce=secrets.token_hex(16),
                issued=now,
                deadline=now + timedelta(minutes=5),
                counter=self.counter,
                data=data,
            )
        return msgspec.structs.replace(command, **changes)

    def send(self, data: CommandData, **changes: Any) -> Command:
        """Sign and send a command, and return it."""
        command = self.command(data, **changes)
        self.publish(sign_command(command, self.key))
        return command

    def start_run(self, options: dict[str, str] | None = None, **fields: Any) -> str:
        """Ask for a run and return its id."""
        run = new_id()
        self.send(start(run, options, **fields))
        return run

    def publish(self, payload: bytes, leaf: str = "cmd", *, retain: bool = False) -> None:
        """Send any bytes to the board."""
        self._client.publish(device_topic(FLEET, DEVICE, leaf), payload, qos=1, retain=retain)

    def publish_at(self, topic: str, payload: bytes) -> None:
        """Send any bytes anywhere."""
        self._client.publish(topic, payload, qos=1)

    def of(self, run: str) -> list[str]:
        """Return the kinds of events of a run, in order, progress left out."""
        kinds = [type(event.data).__name__ for event in self.events if event.run == run]
        return [kind for kind in kinds if kind != "RunProgress"]

    def ended(self, run: str) -> bool:
        """Tell whether a run's terminal event is here."""
        return any(event.is_terminal for event in self.events if event.run == run)

    def last(self, run: str) -> Any:
        """Wait for the end of a run and return its terminal event's data."""
        wait_until(lambda: self.ended(run), f"the end of run {run}")
        return next(e.data for e in self.events if e.run == run and e.is_terminal)

    def answer(self, command: Command) -> Any:
        """Wait for the answer to a command and return its data."""
        raw = sign_command(command, self.key)

        def found() -> Any:
            return [e.data for e in self.events if getattr(e.data, "command", None) == command.id]

        for _ in range(10):  # a real coordinator repeats a command until it is answered
            with contextlib.suppress(pytest.fail.Exception):
                wait_until(found, f"the answer to {command.name}", PATIENCE_S / 10)
                return found()[0]
            self.publish(raw)
        pytest.fail(f"no answer to {command.name}")

    def _on_connect(self, client: mqtt.Client, *_: object) -> None:
        leaves = ("evt", "state", "desc", "blob/#")
        client.subscribe([(device_topic(FLEET, "+", leaf), 1) for leaf in leaves])

    def _on_message(self, _client: object, _user: object, message: mqtt.MQTTMessage) -> None:
        try:
            self._sort(parse_device_topic(message.topic), bytes(message.payload))
        except MessageError as error:  # tests write nonsense to every topic
            self.refused.append(error)

    def _sort(self, topic: DeviceTopic, payload: bytes) -> None:
        if topic.leaf == "blob":
            self._take_blob(topic, payload)
        elif topic.leaf == "state" and payload:
            self.states.append(parse_state(payload))
            self.check(payload, "state")
        elif topic.leaf == "desc":
            self.descriptions.append(payload)
            self.check(payload, "description")
        elif topic.leaf == "evt":
            self.heard += 1
            self._take(payload)

    def check(self, payload: bytes, name: str) -> None:
        """Note what does not fit the published schema; tests write nonsense, boards never."""
        for error in validator(name).iter_errors(msgspec.json.decode(payload)):
            self.misfits.append(f"{name}: {error.message}")

    def _take_blob(self, topic: DeviceTopic, payload: bytes) -> None:
        sha256, part = topic.sha256 or "", topic.part or ""
        if part == "init":
            self._parts.setdefault(sha256, (parse_blob_init(payload).size_bytes, {}))
        size, parts = self._parts[sha256]
        if part not in ("init", "fin"):
            parts[int(part)] = payload
            return
        missing = [
            (at, min(at + MAX_CHUNK_BYTES, size))
            for at in range(0, size, MAX_CHUNK_BYTES)
            if at not in parts
        ]
        if not missing:
            self.blobs[sha256] = b"".join(parts[at] for at in sorted(parts))
        status = BlobStatus(
            subject=f"{FLEET}/{DEVICE}",
            sha256=sha256,
            missing=tuple(missing[:20]),
            complete=not missing,
        )
        self.publish(sign_ack(status, self.key), "ack")

    def _take(self, payload: bytes) -> None:
        event = parse_event(payload, fleet=FLEET, device=DEVICE)
        self.check(payload, short_name(event.type))
        if event.id not in self._ids:
            self._ids.add(event.id)
            self.events.append(event)
        if self.acknowledges:
            now = datetime.now(timezone.utc)
            ack = Ack(
                subject=f"{FLEET}/{DEVICE}", stream=event.stream, seqs=ranges([event.seq]), time=now
            )
            self.publish(sign_ack(ack, self.key), "ack")


def start(run: str, options: dict[str, str] | None = None, **fields: Any) -> RunStart:
    """Return the data of a ``run.start`` for the test's run program."""
    spec: dict[str, Any] = {"model": "digits", "options": options or {}}
    return run_start(spec, run=run, **fields)


def identity_for(port: int, key: Ed25519PrivateKey, **changes: Any) -> Identity:
    """Return an identity at a broker on this machine."""
    identity = Identity(
        fleet=FLEET,
        device=DEVICE,
        broker=Broker(host="127.0.0.1", port=port),
        keys=(public_text(key.public_key()),),
    )
    return msgspec.structs.replace(identity, **changes)


class Bench:
    """A broker, a coordinator and an agent."""

    def __init__(
        self, broker: BrokerProcess, coordinator: Coordinator, agent: AgentProcess
    ) -> None:
        self.broker, self.coordinator, self.agent = broker, coordinator, agent


@contextmanager
def board_and_broker(folder: Path, kind: str = "mosquitto", **settings: Any) -> Iterator[Bench]:
    """Yield all three, started but not waited for."""
    broker = BROKERS[kind](folder)
    broker.start()
    coordinator = Coordinator(broker.port)
    agent = AgentProcess(folder / "agent", identity_for(broker.port, coordinator.key), **settings)
    agent.start()
    try:
        yield Bench(broker, coordinator, agent)
    finally:
        agent.kill()
        coordinator.close()
        broker.kill()
    assert not coordinator.misfits


@contextmanager
def bench(folder: Path, kind: str = "mosquitto", **settings: Any) -> Iterator[Bench]:
    """Yield broker, coordinator and agent, all up, ."""
    with board_and_broker(folder, kind, **settings) as together:
        wait_until(lambda: together.coordinator.states, "the agent is online")
        yield together


def names_of(key: Ed25519PrivateKey) -> dict[str, Any]:
    """Return the public half of *key* as a board knows it."""
    return {key_id(key.public_key()): key.public_key()}
