"""A board and its broker: wills, restarts, cut lines, and every way to be refused."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import paho.mqtt.client as mqtt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID
from fleet_bench import (
    BROKERS,
    DEVICE,
    FLEET,
    AgentProcess,
    Coordinator,
    bench,
    free_port,
    identity_for,
    mosquitto,
    wait_until,
)
from paho.mqtt.enums import CallbackAPIVersion

from edgeperf import InputError
from edgeperf.agent.link import (
    BoardFile,
    Identity,
    LinkError,
    LinkInputError,
    RefusedError,
    check_broker,
    read_board_file,
    read_identity,
    read_settings,
    write_identity,
)
from edgeperf.agent.link.join import broker_from
from edgeperf.agent.messages import (
    Broker,
    Ping,
    Presence,
    RunResult,
    client_id,
    device_topic,
    encode,
)

KEY = Ed25519PrivateKey.generate()


@pytest.mark.parametrize("kind", BROKERS)
def test_a_lost_board_is_lost_and_comes_back(tmp_path: Path, kind: str) -> None:
    """The will bears the session of the birth; the next life has another."""
    with bench(tmp_path, kind) as up:
        born = up.coordinator.states[-1]
        up.agent.kill()
        wait_until(lambda: up.coordinator.states[-1].status is Presence.LOST, "the will")
        assert up.coordinator.states[-1].session == born.session
        up.agent.start()
        wait_until(lambda: up.coordinator.states[-1].status is Presence.ONLINE, "the birth")
        assert up.coordinator.states[-1].session != born.session
        assert up.coordinator.states[-1].stream == born.stream


def test_a_board_contradicts_its_own_will(tmp_path: Path) -> None:
    """A late will of an old connection does not leave it lost."""
    with bench(tmp_path) as up:
        lost = msgspec.structs.replace(up.coordinator.states[-1], status=Presence.LOST)
        up.coordinator.publish(encode(lost), "state", retain=True)
        wait_until(lambda: Presence.LOST in [s.status for s in up.coordinator.states], "the will")
        wait_until(lambda: up.coordinator.states[-1].status is Presence.ONLINE, "the answer")


@pytest.mark.parametrize("kind", BROKERS)
def test_a_broker_that_dies_costs_only_time(tmp_path: Path, kind: str) -> None:
    """A run that ends while it is gone is reported when it is back."""
    with bench(tmp_path, kind) as up:
        run = up.coordinator.start_run({"ms": "1000"})
        wait_until(lambda: "RunPreparing" in up.coordinator.of(run), "the run has begun")
        up.broker.kill()
        time.sleep(1.5)
        up.broker.start()
        assert isinstance(up.coordinator.last(run), RunResult)


def test_a_stalled_line_is_survived(tmp_path: Path) -> None:
    """The broker stands still for a moment."""
    with bench(tmp_path) as up:
        up.broker.cut()
        assert up.coordinator.answer(up.coordinator.send(Ping())).ok


def test_files_go_over_mqtt_where_there_is_no_http(tmp_path: Path) -> None:
    """In chunks, as the coordinator asks for them, whole at the end."""
    with bench(tmp_path) as up:
        run = up.coordinator.start_run({"kb": "6000"})
        result = up.coordinator.last(run)
        files = {file.name: file for file in result.files}
        assert files["latencies.bin"].size_bytes > 200_000
        wait_until(lambda: files["latencies.bin"].sha256 in up.coordinator.blobs, "the blob")
        wait_until(lambda: files["result.json"].sha256 in up.coordinator.blobs, "the result")
        blob = up.coordinator.blobs[files["latencies.bin"].sha256]
        assert len(blob) == files["latencies.bin"].size_bytes
        digest = hashes.Hash(hashes.SHA256())
        digest.update(blob)
        assert digest.finalize().hex() == files["latencies.bin"].sha256


# ---------------------------------------------------------------- refusals


class Pki:
    """A CA and what it signs, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.ca = folder / "ca.pem"
        self._issue("ca", self._key, "CN-CA", ca=True, days=(-1, 365))

    def issue(self, name: str, common_name: str, days: tuple[int, int] = (-1, 365)) -> Path:
        """Write NAME.pem and NAME.key and return the former."""
        return self._issue(name, ec.generate_private_key(ec.SECP256R1()), common_name, days=days)

    def _issue(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        common_name: str,
        *,
        days: tuple[int, int],
        ca: bool = False,
    ) -> Path:
        now = datetime.now(timezone.utc)
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "CN-CA")])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=days[0]))
            .not_valid_after(now + timedelta(days=days[1]))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(common_name)]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        path = self.folder / f"{name}.pem"
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (self.folder / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return path


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Return a CA."""
    return Pki(tmp_path_factory.mktemp("pki"))


def _tls_broker(folder: Path, pki: Pki, server: str, *more: str) -> Any:
    return mosquitto(
        folder,
        f"cafile {pki.ca}",
        f"certfile {pki.folder / server}.pem",
        f"keyfile {pki.folder / server}.key",
        *(more or ("allow_anonymous true",)),
    )


def _tls_identity(port: int, pki: Pki, **changes: Any) -> Identity:
    broker = Broker(host="localhost", port=port, tls=True)
    return msgspec.structs.replace(
        identity_for(port, KEY), broker=broker, ca=str(pki.ca), **changes
    )


def test_tls_and_a_client_certificate_are_enough(tmp_path: Path, pki: Pki) -> None:
    """The certificate's common name is the user; without it there is no connection."""
    pki.issue("server", "localhost")
    pki.issue("board", DEVICE)
    broker = _tls_broker(
        tmp_path, pki, "server", "require_certificate true", "use_identity_as_username true"
    )
    broker.start()
    try:
        mine = {
            "certificate": str(pki.folder / "board.pem"),
            "private_key": str(pki.folder / "board.key"),
        }
        check_broker(_tls_identity(broker.port, pki, **mine))
        with pytest.raises((RefusedError, LinkError)):
            check_broker(_tls_identity(broker.port, pki), timeout_s=5)
    finally:
        broker.kill()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paho's socket
@pytest.mark.parametrize(
    ("days", "name", "words", "kind"),
    [
        ((-10, -1), "localhost", "expired", RefusedError),
        ((1, 10), "localhost", "not valid yet by this board's clock", LinkError),
        ((-1, 10), "elsewhere", "another name", RefusedError),
    ],
)
def test_a_bad_certificate_is_one_clear_line(
    tmp_path: Path, pki: Pki, days: tuple[int, int], name: str, words: str, kind: type[Exception]
) -> None:
    """Expired, not yet valid, for another name."""
    server = f"bad{days[0]}{name}"
    pki.issue(server, name, days)
    broker = _tls_broker(tmp_path, pki, server)
    broker.start()
    try:
        with pytest.raises(kind, match=words) as caught:
            check_broker(_tls_identity(broker.port, pki))
        assert "\n" not in str(caught.value)
    finally:
        broker.kill()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paho's socket
def test_a_wrong_ca_is_one_clear_line(tmp_path: Path, pki: Pki) -> None:
    """And a CA file that is none is another."""
    pki.issue("server", "localhost")
    other = tmp_path / "other"
    other.mkdir()
    stranger = Pki(other)
    broker = _tls_broker(tmp_path, pki, "server")
    broker.start()
    try:
        with pytest.raises(RefusedError, match="not signed by a CA that this board trusts"):
            check_broker(_tls_identity(broker.port, stranger))
        empty = tmp_path / "empty.pem"
        empty.write_text("nothing")
        identity = msgspec.structs.replace(_tls_identity(broker.port, pki), ca=str(empty))
        with pytest.raises(LinkInputError, match="no file of trusted"):
            check_broker(identity)
    finally:
        broker.kill()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Any]:
    """Return a broker with passwords and the access rules of the documentation."""
    passwords = tmp_path / "passwords"
    passwords.touch(mode=0o600)
    for user in (DEVICE, "pi4", "coordinator"):
        subprocess.run(
            ["mosquitto_passwd", "-b", str(passwords), user, f"secret-{user}"],
            check=True,
            capture_output=True,
        )
    rules = [
        "user coordinator",
        "topic readwrite #",
        *(f"pattern read edgeperf/v1/+/dev/%u/{leaf}" for leaf in ("cmd", "ack", "state")),
        *(
            f"pattern write edgeperf/v1/+/dev/%u/{leaf}"
            for leaf in ("state", "desc", "evt", "tlm", "blob/#")
        ),
        "pattern read edgeperf/v1/+/coord/state",
    ]
    (tmp_path / "acl").write_text("\n".join(rules) + "\n")
    broker = mosquitto(
        tmp_path,
        "allow_anonymous false",
        f"password_file {passwords}",
        f"acl_file {tmp_path / 'acl'}",
    )
    broker.start()
    yield broker
    broker.kill()


def _as(port: int, user: str, password: str) -> Identity:
    broker = Broker(host="127.0.0.1", port=port, username=user, password=password)
    return msgspec.structs.replace(identity_for(port, KEY), device=user, broker=broker)


def test_refused_credentials_end_the_agent_with_one_line(guarded: Any, tmp_path: Path) -> None:
    """Exit status 2; a broker that is only away is waited for instead."""
    check_broker(_as(guarded.port, DEVICE, f"secret-{DEVICE}"))
    with pytest.raises(RefusedError, match=r"not authorised|user name or password"):
        check_broker(_as(guarded.port, DEVICE, "wrong"))
    agent = AgentProcess(tmp_path / "agent", _as(guarded.port, DEVICE, "wrong"))
    assert agent.start().wait() == InputError.exit_code
    assert "Traceback" not in agent.log()


def test_a_spoofed_board_cannot_speak_as_another(guarded: Any) -> None:
    """With MQTT 5 its publish is refused; nobody hears it."""
    heard: list[str] = []
    listener = _client(guarded.port, "coordinator")
    listener.on_message = lambda _c, _u, message: heard.append(message.topic)
    listener.subscribe(device_topic(FLEET, "+", "evt"), 1)
    codes: list[Any] = []
    spoofer = _client(guarded.port, "pi4")
    spoofer.on_publish = lambda _c, _u, _mid, reason, _p: codes.append(reason)
    for board in (DEVICE, "pi4"):
        spoofer.publish(device_topic(FLEET, board, "evt"), b"{}", qos=1)
    wait_until(lambda: len(codes) == 2 and heard, "both are answered")
    assert [code.is_failure for code in codes] == [True, False]
    assert heard == [device_topic(FLEET, "pi4", "evt")]
    for client in (listener, spoofer):
        client.disconnect()
        client.loop_stop()
        client.on_message = client.on_publish = None


def _client(port: int, user: str) -> mqtt.Client:
    client = mqtt.Client(
        CallbackAPIVersion.VERSION2, client_id=client_id(user), protocol=mqtt.MQTTv5
    )
    client.username_pw_set(user, f"secret-{user}")
    client.connect("127.0.0.1", port)
    client.loop_start()
    wait_until(client.is_connected, "connected")
    return client


def test_nobody_there_is_waited_for(tmp_path: Path) -> None:
    """A board that boots before its broker connects when it comes."""
    port = free_port()
    with pytest.raises(LinkError, match="cannot be reached"):
        check_broker(identity_for(port, KEY))
    agent = AgentProcess(tmp_path / "agent", identity_for(port, KEY)).start()
    wait_until(lambda: "trying again" in agent.log(), "it says so")
    broker = mosquitto(tmp_path, port=port)
    broker.start()
    coordinator = Coordinator(port, KEY)
    try:
        wait_until(lambda: coordinator.states, "it is online", 30)
    finally:
        agent.kill()
        coordinator.close()
        broker.kill()


def test_a_port_that_is_no_broker_is_given_up(tmp_path: Path) -> None:
    """A listener that never answers is one clear line."""
    del tmp_path
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        with pytest.raises(LinkError, match="no answer"):
            check_broker(identity_for(deaf.getsockname()[1], KEY), timeout_s=2)


@pytest.mark.parametrize(
    "url", ["", "pi5", "http://x", "mqtt://", "mqtt://h:99999", "mqtt://h/path", "mqtt://u:p@h"]
)
def test_a_wrong_url_is_one_clear_line(url: str) -> None:
    """What was expected stands in it; a password does not belong there."""
    with pytest.raises(LinkInputError, match="--broker"):
        broker_from(url, None, None)


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[policy]\nmax_duration_s = 0", "max_duration_s"),
        ('[policy]\nhours = "25:00-26:00"', "hours"),
        ("[policy]\nshell = true", "shell"),
        ("[policy", "board.toml"),
        ('[policy]\nmodels = ["abc"]', "models"),
    ],
)
def test_a_wrong_board_file_names_the_field(tmp_path: Path, text: str, words: str) -> None:
    """An error in the policy never means "everything is allowed"."""
    path = tmp_path / "board.toml"
    path.write_text(text)
    with pytest.raises(LinkInputError, match=words):
        read_board_file(path)


def test_a_board_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    """A misspelt name never means "everything is allowed" either."""
    write_identity(tmp_path, identity_for(1, KEY))
    assert read_settings(tmp_path, None).board == BoardFile()
    with pytest.raises(LinkInputError, match=r"--board-file .*nope.toml: no such file"):
        read_settings(tmp_path, tmp_path / "nope.toml")


def test_the_identity_is_for_its_owner_only(tmp_path: Path) -> None:
    """The file holds passwords."""
    path = write_identity(tmp_path / "new", identity_for(1, KEY))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert read_identity(tmp_path / "new") == identity_for(1, KEY)
    with pytest.raises(LinkInputError, match="not enrolled"):
        read_identity(tmp_path)


# ---------------------------------------------------------------- weight


def test_the_service_loads_nothing_heavy() -> None:
    """No numpy, no runtime, no LoadGen, in a fresh process."""
    heavy = [
        "numpy",
        "mlperf_loadgen",
        "onnxruntime",
        "openvino",
        "ai_edge_litert",
        "rich",
        "serial",
    ]
    code = f"import sys, edgeperf.agent.link; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_idle_board_is_light(tmp_path: Path) -> None:
    """Under 40 MB of memory and 0.2 % of a core, connected and idle."""
    with bench(tmp_path, probe_program=["true"]) as up:
        time.sleep(1.0)
        before_s, began_s = _cpu_s(up.agent.pid), time.monotonic()
        time.sleep(10.0)
        share = (_cpu_s(up.agent.pid) - before_s) / (time.monotonic() - began_s)
        status = Path(f"/proc/{up.agent.pid}/status").read_text()
        rss_kb = int(status.split("VmRSS:")[1].split()[0])
    assert rss_kb < 40_000
    assert share <= 0.002


def _cpu_s(pid: int) -> float:
    # schedstat counts nanoseconds; the ticks of stat are as coarse as what is measured.
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
