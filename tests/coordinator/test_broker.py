"""Brokers: real ones, started and joined; who may say what, and what goes wrong in words."""

import os
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from paho.mqtt.enums import CallbackAPIVersion

from edgeperf.coordinator.broker import (
    Accounts,
    Broker,
    BrokerConfigError,
    BrokerError,
    EmbeddedBroker,
    Endpoint,
    ExternalBroker,
    Mosquitto,
    free_port,
    parse_broker_url,
)
from edgeperf.coordinator.broker.base import COORDINATOR_USER
from edgeperf.coordinator.link import Link
from edgeperf.coordinator.trust import Authority

ACCOUNTS = Accounts({"pi5": "word5", "pi4": "word4"}, "own")
ROOT = "edgeperf/v1/shelf"
PATIENCE_S = 30.0


class Talker:
    """A client that remembers what it heard."""

    def __init__(self, endpoint: Endpoint, user: str | None, password: str | None) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self.connected: list[str] = []
        self._acked: dict[int, Any] = {}
        self.client = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id=f"t-{user}-{id(self)}", protocol=mqtt.MQTTv5
        )
        if user is not None:
            self.client.username_pw_set(user, password)
        self.client.on_connect = lambda _c, _d, _f, reason, _p: self.connected.append(str(reason))
        self.client.on_message = lambda _c, _d, m: self.heard.append((m.topic, bytes(m.payload)))
        self.client.on_publish = lambda _c, _d, mid, reason, _p: self._acked.update({mid: reason})
        self.client.connect(endpoint.host, endpoint.own_port)
        self.client.loop_start()

    def publish(self, topic: str, payload: bytes = b"x") -> str:
        """Publish at QoS 1; returns the broker's answer."""
        sent = self.client.publish(topic, payload, qos=1)
        until(lambda: sent.mid in self._acked)
        return str(self._acked[sent.mid])


def until(true: Callable[[], bool]) -> None:
    """Wait until something is true, or fail."""
    give_up = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < give_up, "it never happened"
        time.sleep(0.01)


@contextmanager
def talking(endpoint: Endpoint, user: str | None, password: str | None) -> Iterator[Talker]:
    """Connect a client, whether or not the broker lets it in."""
    talker = Talker(endpoint, user, password)
    try:
        yield talker
    finally:
        talker.client.disconnect()
        talker.client.loop_stop()


@contextmanager
def started(broker: Broker, accounts: Accounts = ACCOUNTS) -> Iterator[Endpoint]:
    """Run a broker."""
    try:
        yield broker.start(accounts)
    finally:
        broker.stop()


@pytest.fixture(params=["mosquitto", "embedded"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Broker:
    """Return each kind of child broker, not started."""
    if request.param == "mosquitto":
        return Mosquitto(tmp_path, fleet="shelf")
    return EmbeddedBroker(tmp_path)


def test_only_known_users_come_in(broker: Broker) -> None:
    """No name, a wrong password, an unknown board: none gets a session."""
    with started(broker) as endpoint:
        with talking(endpoint, COORDINATOR_USER, "own") as good:
            until(lambda: good.connected == ["Success"])
        for user, password in ((None, None), ("pi5", "wrong"), ("pi6", "word5")):
            with talking(endpoint, user, password) as bad:
                time.sleep(0.3)
                assert "Success" not in bad.connected


def test_board_that_joins_later_comes_in(broker: Broker) -> None:
    """New accounts work soon after; those that are gone do not."""
    with started(broker) as endpoint:
        broker.set_accounts(Accounts({"pi6": "word6"}, "own"))

        def is_in() -> bool:
            with talking(endpoint, "pi6", "word6") as talker:
                time.sleep(0.2)
                return talker.connected == ["Success"]

        until(is_in)
        with talking(endpoint, "pi5", "word5") as gone:
            time.sleep(0.3)
            assert "Success" not in gone.connected


def test_mosquitto_keeps_boards_apart(tmp_path: Path) -> None:
    """A board writes its own topics only, hears its own commands only, and no other fleet's."""
    with (
        started(Mosquitto(tmp_path, fleet="shelf")) as endpoint,
        talking(endpoint, COORDINATOR_USER, "own") as ours,
        talking(endpoint, "pi5", "word5") as pi5,
        talking(endpoint, "pi4", "word4") as pi4,
    ):
        for talker in (ours, pi5, pi4):
            until(lambda talker=talker: talker.connected == ["Success"])  # type: ignore[misc]
            talker.client.subscribe("#", qos=1)
        time.sleep(0.2)
        allowed = [f"{ROOT}/dev/pi5/{leaf}" for leaf in ("state", "desc", "evt", "tlm")]
        allowed.append(f"{ROOT}/dev/pi5/blob/{'a' * 64}/0")
        forbidden = [f"{ROOT}/dev/pi4/{leaf}" for leaf in ("state", "desc", "evt", "tlm", "ack")]
        forbidden += [f"{ROOT}/dev/pi5/cmd", f"{ROOT}/dev/pi5/ack", f"{ROOT}/coord/state"]
        forbidden += ["edgeperf/v1/other/dev/pi5/evt", "anything", "$SYS/x"]
        for topic in allowed:
            assert pi5.publish(topic, topic.encode()) in {"Success", "No matching subscribers"}
        assert {pi5.publish(topic, b"forged") for topic in forbidden} == {"Not authorized"}
        ours.publish(f"{ROOT}/dev/pi4/cmd", b"for pi4")
        ours.publish(f"{ROOT}/dev/pi5/ack", b"for pi5")
        ours.publish(f"{ROOT}/coord/state", b"for all")
        until(lambda: (f"{ROOT}/coord/state", b"for all") in pi5.heard)
        until(lambda: (f"{ROOT}/coord/state", b"for all") in pi4.heard)
        assert {topic for topic, payload in ours.heard if payload == topic.encode()} == set(allowed)
        assert b"forged" not in {p for _, p in (*ours.heard, *pi4.heard, *pi5.heard)}
        assert b"for pi4" not in {p for _, p in pi5.heard}
        assert b"for pi5" not in {p for _, p in pi4.heard}


def test_broker_that_dies_is_started_again(broker: Broker, tmp_path: Path) -> None:
    """The coordinator notices, and clients find it at the same port."""
    with started(broker) as endpoint:
        os.kill(int((tmp_path / "broker.pid").read_text()), signal.SIGKILL)
        time.sleep(0.1)
        broker.tend()
        until(lambda: _answers(endpoint))


def test_orphan_of_a_killed_coordinator_is_ended(tmp_path: Path) -> None:
    """The port is free for the next, and only our own child is ended."""
    port = free_port()
    first = Mosquitto(tmp_path, fleet="shelf", port=port)
    first.start(ACCOUNTS)
    orphan = int((tmp_path / "broker.pid").read_text())
    with started(Mosquitto(tmp_path, fleet="shelf", port=port)):
        assert int((tmp_path / "broker.pid").read_text()) != orphan
    with subprocess.Popen(["sleep", "60"]) as bystander:
        (tmp_path / "broker.pid").write_text(str(bystander.pid))
        with started(Mosquitto(tmp_path, fleet="shelf", port=port)):
            assert bystander.poll() is None
        bystander.kill()
    first.stop()


def test_spoiled_queue_is_moved_aside(tmp_path: Path) -> None:
    """A power cut that left NULs in the queue does not keep the broker from starting."""
    (tmp_path / "mosquitto.db").write_bytes(b"\x00" * 5000)
    with started(Mosquitto(tmp_path, fleet="shelf")) as endpoint:
        assert _answers(endpoint)
    assert (tmp_path / "mosquitto.spoiled").exists()


def test_taken_port_is_one_line(broker: Broker, tmp_path: Path) -> None:
    """It names the port and the option."""
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        port = squatter.getsockname()[1]
        kind = type(broker)
        taken: Broker = (
            Mosquitto(tmp_path, fleet="shelf", port=port)
            if kind is Mosquitto
            else EmbeddedBroker(tmp_path, port=port)
        )
        with pytest.raises(BrokerError, match=rf"port {port} .*--broker-port"):
            taken.start(ACCOUNTS)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://host", "expected mqtt://"),
        ("mqtt://", "expected mqtt://"),
        ("mqtt://host:99999", "expected mqtt://"),
        ("mqtt://me:secret@host", "--broker-password-file"),
    ],
)
def test_unusable_broker_url(url: str, expected: str) -> None:
    """Each says what was expected, and never repeats a password."""
    with pytest.raises(BrokerConfigError, match=expected) as caught:
        parse_broker_url(url)
    assert "secret" not in str(caught.value)


def test_nobody_answers() -> None:
    """A broker that is not there is a failed part, not a hang."""
    broker = ExternalBroker(parse_broker_url(f"mqtt://127.0.0.1:{free_port()}"), password=None)
    with pytest.raises(BrokerError, match="nobody answers"):
        broker.start(ACCOUNTS)


def test_refused_credentials_are_said(tmp_path: Path) -> None:
    """The link's own start says that the broker refused, not that it was slow."""
    with started(Mosquitto(tmp_path, fleet="shelf")) as endpoint:
        link = Link(endpoint._replace(username="pi6"), fleet="shelf")
        with pytest.raises(BrokerError, match="refused us: Not authorized"):
            link.start(timeout_s=3)


@contextmanager
def _tls_server(cert: Path, key: Path) -> Iterator[int]:
    """Accept TLS connections and say nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    plain, _ = server.accept()
                    with context.wrap_socket(plain, server_side=True):
                        pass
                except ssl.SSLError:
                    continue
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def _certificate(folder: Path, *, first: timedelta, last: timedelta) -> tuple[Path, Path]:
    """Write a self-signed certificate for 127.0.0.1 that is good between two moments."""
    import ipaddress  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(timezone.utc)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + first)
        .not_valid_after(now + last)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_file, key_file


@pytest.mark.parametrize(
    ("first", "last", "trust", "expected"),
    [
        (-2, 2, False, "self-signed certificate"),
        (-2, -1, True, "certificate has expired"),
        (1, 2, True, "certificate is not yet valid"),
    ],
)
def test_certificate_that_cannot_be_trusted(
    tmp_path: Path, first: int, last: int, expected: str, *, trust: bool
) -> None:
    """A wrong CA, an expired certificate, a clock before its start: each in its own words."""
    cert, key = _certificate(tmp_path, first=timedelta(days=first), last=timedelta(days=last))
    other = Authority(_folder(tmp_path / "other")).ca_file
    with _tls_server(cert, key) as port:
        broker = ExternalBroker(
            parse_broker_url(f"mqtts://127.0.0.1:{port}"),
            password=None,
            ca_file=cert if trust else other,
        )
        with pytest.raises(BrokerError, match=expected) as caught:
            broker.start(ACCOUNTS)
        assert "--broker-ca" in str(caught.value)


def test_tls_listener_takes_the_fleets_own_ca(tmp_path: Path) -> None:
    """Beyond loopback boards speak TLS to a certificate that their CA signed."""
    authority = Authority(_folder(tmp_path / "keys"))
    authority.serve_as(["127.0.0.1", "localhost"])
    # 127.0.0.2 is this machine, but not the loopback address that needs no TLS.
    broker = Mosquitto(
        _folder(tmp_path / "broker"), fleet="shelf", listen="127.0.0.2", authority=authority
    )
    with started(broker) as endpoint:
        assert endpoint.tls
        context = ssl.create_default_context(cadata=authority.ca_pem)
        with (
            socket.create_connection(("127.0.0.2", endpoint.port)) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as encrypted,
        ):
            assert encrypted.version() in {"TLSv1.2", "TLSv1.3"}


def test_mutual_tls_asks_for_a_certificate_and_a_password(tmp_path: Path) -> None:
    """Without a certificate of the fleet's CA nobody even gets to say a name."""
    authority = Authority(_folder(tmp_path / "keys"))
    authority.serve_as(["localhost"])
    broker = Mosquitto(
        _folder(tmp_path / "broker"),
        fleet="shelf",
        listen="127.0.0.2",
        authority=authority,
        mtls=True,
    )
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pi5")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    pem = request.public_bytes(serialization.Encoding.PEM).decode()
    cert_file, key_file = tmp_path / "pi5.pem", tmp_path / "pi5.key"
    cert_file.write_text(authority.certify(pem, "pi5"))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    with started(broker) as endpoint:
        for with_certificate in (True, False):
            context = ssl.create_default_context(cadata=authority.ca_pem)
            if with_certificate:
                context.load_cert_chain(cert_file, key_file)
            assert _connack(context, endpoint.port) is with_certificate


def _connack(context: ssl.SSLContext, port: int) -> bool:
    """Send a CONNECT with a good name and password; tell whether it is accepted."""
    connect = b"\x10\x20\x00\x04MQTT\x05\xc2\x00\x3c\x00\x00\x06edge-x\x00\x03pi5\x00\x05word5"
    connect = connect[:1] + bytes([len(connect) - 2]) + connect[2:]
    try:
        with (
            socket.create_connection(("127.0.0.2", port), timeout=5) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as encrypted,
        ):
            encrypted.sendall(connect)
            answer = encrypted.recv(100)
    except (ssl.SSLError, ConnectionError):
        return False
    return answer[:1] == b"\x20" and answer[3] == 0


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _answers(endpoint: Endpoint) -> bool:
    with talking(endpoint, COORDINATOR_USER, "own") as talker:
        time.sleep(0.2)
        return talker.connected == ["Success"]
