"""What the doctor finds at the broker of a fleet: a real one, kind or careless."""

from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fleet_bench import free_port, mosquitto
from paho.mqtt.enums import CallbackAPIVersion

from edgeperf.agent.board.findings import Health
from edgeperf.agent.link import Identity, write_identity
from edgeperf.agent.link.access import probe_fleet
from edgeperf.agent.messages import Broker as Address
from edgeperf.agent.messages import device_topic, public_text
from edgeperf.coordinator.broker import Accounts, EmbeddedBroker, Mosquitto
from edgeperf.coordinator.broker.base import COORDINATOR_USER

FLEET = "lab"
ACCOUNTS = Accounts({"pi5": "word5", "pi4": "word4"}, "own")
Found = dict[str, tuple[Health, str]]


def enrol(folder: Path, port: int, *, word: str = "word5") -> Path:
    """Write the identity of a board; returns its directory."""
    broker = Address(host="127.0.0.1", port=port, tls=False, username="pi5", password=word)
    key = public_text(Ed25519PrivateKey.generate().public_key())
    write_identity(folder, Identity(fleet=FLEET, device="pi5", broker=broker, keys=(key,)))
    return folder


def keep(port: int, device: str, *, user: str | None = COORDINATOR_USER) -> None:
    """Leave a retained state of a board at the broker."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.username_pw_set(user, "own")
    client.connect("127.0.0.1", port)
    client.loop_start()
    client.publish(
        device_topic(FLEET, device, "state"), b"{}", qos=1, retain=True
    ).wait_for_publish(5)
    client.disconnect()
    client.loop_stop()


def found(state: Path) -> Found:
    """Return what is found, by name; of the broker whatever its port."""
    return {
        finding.name.partition(" 127")[0]: (finding.status, finding.value)
        for finding in probe_fleet(state)
    }


@pytest.fixture
def kind_broker(tmp_path: Path) -> Iterator[int]:
    """Run Mosquitto with the access rules of ours; returns its port."""
    folder = tmp_path / "broker"
    folder.mkdir()
    broker = Mosquitto(folder, fleet=FLEET)
    try:
        yield broker.start(ACCOUNTS).own_port
    finally:
        broker.stop()


def test_a_board_that_is_treated_right(kind_broker: int, tmp_path: Path) -> None:
    """Its own messages go and come back; others' it can neither read nor write."""
    for device in ("pi5", "pi4"):
        keep(kind_broker, device)
    assert found(enrol(tmp_path / "state", kind_broker)) == {
        "broker": (Health.OK, "takes this board as pi5, fleet lab"),
        "own messages": (Health.OK, "taken, and come back"),
        "others' messages": (Health.OK, "this board can neither read nor write them"),
    }


def test_a_board_whose_agent_never_ran(kind_broker: int, tmp_path: Path) -> None:
    """There is no state yet that could come back, and none is made up."""
    status, value = found(enrol(tmp_path / "state", kind_broker))["own messages"]
    assert (status, value) == (
        Health.OK,
        "taken; it has no state there yet, or may not read it, so nothing came back",
    )


def test_a_wrong_password_is_told(kind_broker: int, tmp_path: Path) -> None:
    """As the broker's words for people; a run by hand still works, so it is no failure."""
    result = found(enrol(tmp_path / "state", kind_broker, word="wrong"))
    ((status, value),) = result.values()
    assert status is Health.WARN
    assert "authorised" in value or "password is wrong" in value


def test_a_broker_without_access_rules_is_noticed(tmp_path: Path) -> None:
    """The embedded one keeps no board from another."""
    broker = EmbeddedBroker(tmp_path)
    try:
        port = broker.start(ACCOUNTS).own_port
        result = found(enrol(tmp_path / "state", port))
    finally:
        broker.stop()
    assert result["others' messages"] == (Health.WARN, "this board may speak for every other")


@pytest.mark.parametrize(
    ("rules", "name", "says"),
    [
        (("readwrite state",), "own messages", "not taken: Not authorized"),
        (("write tlm", "read state"), "own messages", "its state is not taken"),
        (("readwrite state", "write tlm", "read +"), "others' messages", "may read 1 of them"),
    ],
)
def test_rules_that_are_wrong_are_named(
    tmp_path: Path, rules: tuple[str, ...], name: str, says: str
) -> None:
    """A broker grants every subscription; only a message that comes, or not, tells."""
    lines = [f"user {COORDINATOR_USER}", "topic readwrite #"]
    for rule in rules:
        access, leaf = rule.split()
        place = f"{FLEET}/dev/+/state" if leaf == "+" else f"{FLEET}/dev/%u/{leaf}"
        lines.append(f"pattern {access} edgeperf/v1/{place}")
    (tmp_path / "acl").write_text("\n".join([*lines, ""]))
    # It goes by names alone here: who may do what is the question.
    broker = mosquitto(tmp_path, "allow_anonymous true", f"acl_file {tmp_path / 'acl'}")
    broker.start()
    try:
        for device in ("pi5", "pi4"):
            keep(broker.port, device)
        status, value = found(enrol(tmp_path / "state", broker.port))[name]
    finally:
        broker.kill()
    assert (status, says in value) == (Health.WARN, True), value


def test_nobody_at_home(tmp_path: Path) -> None:
    """No broker, and no identity: each one line."""
    result = found(enrol(tmp_path / "state", free_port()))
    assert result["broker"][0] is Health.WARN
    assert "cannot be reached" in result["broker"][1]
    status, value = found(tmp_path)["fleet"]
    assert (status, "this board is not enrolled" in value) == (Health.MISSING, True)
    (tmp_path / "state/identity.json").write_text("{")
    assert found(tmp_path / "state")["fleet"][1].endswith("Input data was truncated")
