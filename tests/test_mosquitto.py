"""The lab's broker as ``deploy/mosquitto`` sets it up: its files, its script, a real Mosquitto."""

import os
import re
import signal
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from cryptography import x509
from fleet_bench import BrokerProcess, free_port, mosquitto, wait_until
from paho.mqtt.enums import CallbackAPIVersion

from edgeperf.agent.board.findings import Health
from edgeperf.agent.link.access import probe_fleet
from edgeperf.agent.link.enrol import enrol
from edgeperf.coordinator.client import find_coordinator
from edgeperf.coordinator.service import Coordinator
from edgeperf.coordinator.settings import Settings

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
ROOT = "edgeperf/v1/lab/dev"
REFUSED = "Not authorized"


def make_certificates(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the script."""
    command = [str(DEPLOY / "mosquitto/make-certificates"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with authority, broker, coordinator and two boards."""
    folder = tmp_path_factory.mktemp("certificates")
    made = make_certificates(
        str(folder), "--broker", "localhost,127.0.0.1", "--board", "pi5", "--board", "pi4"
    )
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture
def broker(certificates: Path, tmp_path: Path) -> Iterator[BrokerProcess]:
    """Run Mosquitto on the files as they are shipped, but for paths and port."""
    port = free_port()
    (tmp_path / "acl").write_text((DEPLOY / "mosquitto/acl").read_text())
    text = (DEPLOY / "mosquitto/edgeperf.conf").read_text()
    text = text.replace("/etc/mosquitto/edgeperf/acl", str(tmp_path / "acl"))
    text = text.replace("/etc/mosquitto/edgeperf", str(certificates))
    text = text.replace("listener 8883", f"listener {port} 127.0.0.1")
    process = mosquitto(tmp_path, port=port)
    lines = [text, f"persistence_location {tmp_path}/", "user root" if os.geteuid() == 0 else ""]
    (tmp_path / "mosquitto.conf").write_text("\n".join(lines))
    process.start()
    yield process
    process.kill()


class Client:
    """A client with a certificate, or none; it remembers what it heard."""

    def __init__(self, port: int, certificates: Path, name: str | None) -> None:
        self.heard: list[str] = []
        self.connected = threading.Event()
        self._answered = threading.Event()
        self._answers: dict[int, Any] = {}
        client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        context = ssl.create_default_context(cafile=certificates / "ca.pem")
        if name is not None:
            context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
        client.tls_set_context(context)
        client.on_connect = self._on_connect
        client.on_disconnect = lambda *_: self._answered.set()
        client.on_message = lambda _c, _u, message: self.heard.append(message.topic)
        client.on_publish = lambda _c, _u, mid, reason, _p: self._answers.update({mid: reason})
        self._client = client
        self._port = port

    def __enter__(self) -> "Client":
        self._client.connect("localhost", self._port)
        self._client.loop_start()
        assert self._answered.wait(10)
        assert self.connected.is_set()
        return self

    def __exit__(self, *exc: object) -> None:
        """Go away."""
        self._client.disconnect()
        self._client.loop_stop()

    def _on_connect(self, _client: Any, _data: Any, _flags: Any, reason: Any, _more: Any) -> None:
        if not reason.is_failure:
            self.connected.set()
        self._answered.set()

    def say(self, topic: str) -> str:
        """Publish, and return the broker's answer."""
        mid = self._client.publish(topic, b"x", qos=1).mid
        wait_until(lambda: mid in self._answers, "an answer")
        return str(self._answers[mid])

    def hear(self, *topics: str) -> None:
        """Subscribe."""
        done = threading.Event()
        self._client.on_subscribe = lambda *_: done.set()
        self._client.subscribe([(topic, 1) for topic in topics])
        assert done.wait(10)


def test_a_board_speaks_for_itself_only(broker: BrokerProcess, certificates: Path) -> None:
    """Its name is that of its certificate, and its rights go by it."""
    with (
        Client(broker.port, certificates, "boards/pi5") as board,
        Client(broker.port, certificates, "coordinator") as coordinator,
    ):
        coordinator.hear("edgeperf/v1/lab/#")
        board.hear(f"{ROOT}/+/cmd", f"{ROOT}/pi5/ack", "edgeperf/v1/lab/coord/state")
        for leaf in ("state", "desc", "evt", "tlm", f"blob/{'0' * 64}/init"):
            assert board.say(f"{ROOT}/pi5/{leaf}") != REFUSED
        for topic in (f"{ROOT}/pi4/evt", f"{ROOT}/pi5/cmd", "edgeperf/v1/lab/coord/state", "other"):
            assert board.say(topic) == REFUSED
        for topic in (f"{ROOT}/pi4/cmd", f"{ROOT}/pi5/cmd", "edgeperf/v1/lab/coord/state"):
            assert coordinator.say(topic) != REFUSED
        wait_until(lambda: len(board.heard) == 2, "the board's own messages")
        assert board.heard == [f"{ROOT}/pi5/cmd", "edgeperf/v1/lab/coord/state"]
        assert {topic for topic in coordinator.heard if "/pi4/" in topic} == {f"{ROOT}/pi4/cmd"}


def test_nobody_comes_in_without_a_certificate(
    broker: BrokerProcess, certificates: Path, tmp_path: Path
) -> None:
    """None, or one of another authority: the handshake ends."""
    other = tmp_path / "other"
    assert make_certificates(str(other), "--board", "pi5").returncode == 0
    (other / "ca.pem").write_bytes((certificates / "ca.pem").read_bytes())
    for folder, name in ((certificates, None), (other, "boards/pi5")):
        client = Client(broker.port, folder, name)
        with pytest.raises(AssertionError), client:
            pass
        assert not client.connected.is_set()


def test_a_board_can_be_shut_out(broker: BrokerProcess, certificates: Path, tmp_path: Path) -> None:
    """Two lines in the access rules and a reload; the others go on."""
    with (
        Client(broker.port, certificates, "boards/pi5") as shut_out,
        Client(broker.port, certificates, "boards/pi4") as other,
    ):
        with (tmp_path / "acl").open("a") as acl:
            acl.write("\nuser pi5\ntopic deny #\n")
        broker.signal(signal.SIGHUP)
        wait_until(lambda: shut_out.say(f"{ROOT}/pi5/evt") == REFUSED, "the new rules")
        assert other.say(f"{ROOT}/pi4/evt") != REFUSED


def test_a_coordinator_with_these_keys_lets_boards_in(
    broker: BrokerProcess, certificates: Path, tmp_path: Path
) -> None:
    """A board that enrols gets a certificate of the same authority, and all its rights."""
    settings = Settings(
        data=tmp_path / "data",
        fleet="lab",
        broker=f"mqtts://_coordinator@localhost:{broker.port}",
        broker_ca=certificates / "ca.pem",
        broker_cert=certificates / "coordinator.pem",
        broker_key=certificates / "coordinator.key",
        keys=certificates,
        http_port=0,
    )
    with Coordinator(settings) as running:
        client = find_coordinator(url=None, token_file=None, ca_file=None, data=tmp_path / "data")
        code = client.post("/v1/codes", {"board": "pi5-01", "ttl_s": 60})["code"]
        identity = enrol(running.url, code, state=tmp_path / "board", device="pi5-01")
        assert identity.certificate is not None
        found = {one.name.partition(" ")[0]: one for one in probe_fleet(tmp_path / "board")}
    assert {one.status for one in found.values()} == {Health.OK}, found


def test_the_script_leaves_what_is_there(certificates: Path) -> None:
    """A second time it makes the new board only; every key is its owner's alone."""
    before = {path: path.read_bytes() for path in certificates.rglob("*.*")}
    again = make_certificates(str(certificates), "--broker", "localhost", "--board", "new")
    assert again.stdout == f"{certificates}/boards/new.pem: made\n"
    assert {path: path.read_bytes() for path in before} == before
    assert {path.stat().st_mode & 0o077 for path in certificates.rglob("*.key")} == {0}
    cert = x509.load_pem_x509_certificate((certificates / "broker.pem").read_bytes())
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(name.value) for name in names} == {"localhost", "127.0.0.1"}


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        ((), 2, "no folder; see --help"),
        (("a", "b"), 2, "one folder at a time: a or b"),
        (("a", "--board"), 2, "--board needs a value"),
        (("a", "--board", "../x"), 2, "1 to 40 of a-z, 0-9 and -"),
        (("a", "--broker", "x;id"), 2, "host names and addresses"),
        (("a", "--frobnicate"), 2, "unknown option --frobnicate"),
        (("/proc/none",), 3, "/proc/none: cannot be made"),
    ],
)
def test_the_script_refuses_in_one_line(arguments: tuple[str, ...], status: int, says: str) -> None:
    """Before it makes anything."""
    done = make_certificates(*arguments)
    assert done.returncode == status
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


def test_the_rules_for_a_cluster_are_the_same() -> None:
    """What a board may write and read, and the coordinator, is alike for both brokers."""
    acl = (DEPLOY / "mosquitto/acl").read_text()
    rules = {
        (access, topic.replace("%u", "${username}"))
        for access, topic in re.findall(r"^pattern (\w+) (\S+)$", acl, re.MULTILINE)
    }
    emqx = re.sub(r"\s+", " ", (DEPLOY / "emqx/acl.conf").read_text())
    words = {"publish": "write", "subscribe": "read"}
    found = {
        (words[access], topic)
        for access, topics in re.findall(r"{allow, all, (\w+), \[(.*?)\]}", emqx)
        for topic in re.findall(r'"(.*?)"', topics)
    }
    assert found == rules
    assert '{allow, {username, "_coordinator"}, all, ["edgeperf/v1/#"' in emqx
    assert emqx.rstrip().endswith("{deny, all}.")
