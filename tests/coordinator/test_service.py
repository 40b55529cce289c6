"""A whole coordinator with real brokers: runs, restarts, and nothing lost or doubled."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgeperf.agent.messages import EnrolReply
from edgeperf.coordinator.broker import Accounts, Mosquitto, free_port
from edgeperf.coordinator.broker.base import COORDINATOR_USER
from edgeperf.coordinator.client import Client, ClientInputError, find_coordinator
from edgeperf.coordinator.files import AlreadyRunningError
from edgeperf.coordinator.service import Coordinator
from edgeperf.coordinator.settings import Settings, SettingsError, read_credentials, read_secret
from edgeperf.coordinator.trust import Keys

SPEC = {"model": "digits", "preset": "smoke"}


def _client(data: Path) -> Client:
    return find_coordinator(url=None, token_file=None, ca_file=None, data=data)


def _over(client: Client, run: str) -> dict[str, Any]:
    view: dict[str, Any] = {}
    for view in client.watch(run):  # noqa: B007 - the last one is what we want
        pass
    return view


@pytest.fixture(params=["mosquitto", "embedded"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    """Run a coordinator with each kind of child broker; returns its client."""
    data = tmp_path / "coordinator"
    with Coordinator(Settings(data=data, broker=request.param, broker_port=0, http_port=0)):
        yield _client(data)


def test_run_on_a_board_from_afar(either: Client, simulate: Any, until: Any) -> None:
    """Asked over HTTP, done over MQTT, its result in the store: on both brokers."""
    simulate(either, "pi5")
    until(lambda: either.get("/v1/boards/pi5")["state"] == "online")
    view = _over(either, either.post("/v1/runs", {"board": "pi5", "spec": SPEC})["run"])
    assert (view["state"], view["verdict"], view["exit_code"]) == ("succeeded", "INVALID", 1)
    assert view["result"]["spec"] == SPEC
    assert view["headline"] == "latency_p90"


def test_board_that_is_off_gets_its_run_when_it_comes(
    client: Client, simulate: Any, until: Any
) -> None:
    """The command waits at the coordinator, not at the broker."""
    client.post("/v1/boards", {"names": ["pi5"]})
    run = client.post("/v1/runs", {"board": "pi5", "spec": SPEC})["run"]
    time.sleep(0.3)
    assert client.get(f"/v1/runs/{run}")["state"] == "queued"
    simulate(client, "pi5")
    assert _over(client, run)["state"] == "succeeded"
    until(lambda: client.get("/v1/boards/pi5")["state"] == "online")


def test_never_another_board(client: Client, simulate: Any) -> None:
    """A name that is nearly right, a shared label, a part of a name: refused, nothing runs."""
    simulate(client, "pi5-01", "pi5-02")
    for board in ("pi5-01", "pi5-02"):
        client.post(f"/v1/boards/{board}/labels", {"add": ["desk"]})
    for target in ("pi5", "pi5-0", "PI5-01", "label:desk", "label:des", "pi5-01 ", ""):
        with pytest.raises(ClientInputError):
            client.post("/v1/runs", {"board": target, "spec": SPEC})
    assert client.get("/v1/runs", format="list") == []


def test_cancel_running_and_waiting(client: Client, simulate: Any, until: Any) -> None:
    """The run in progress and the one behind it both end as cancelled."""
    simulate(client, "pi5", run_s=60)
    first, second = (
        client.post("/v1/runs", {"board": "pi5", "spec": SPEC})["run"] for _ in range(2)
    )
    until(lambda: client.get(f"/v1/runs/{first}")["state"] == "running")
    until(lambda: client.get(f"/v1/runs/{second}")["state"] == "accepted")
    for run in (second, first):
        client.post(f"/v1/runs/{run}/cancel", {})
        assert _over(client, run)["state"] == "cancelled"
        assert client.post(f"/v1/runs/{run}/cancel", {})["over"]


def test_draining_board_refuses(client: Client, simulate: Any, until: Any) -> None:
    """Its refusal is the run's end, with the reason; drained off, it works again."""
    simulate(client, "pi5")
    client.post("/v1/boards/pi5/drain", {"on": True})
    until(lambda: client.get("/v1/boards/pi5")["state"] == "draining")
    view = _over(client, client.post("/v1/runs", {"board": "pi5", "spec": SPEC})["run"])
    assert (view["state"], view["exit_code"]) == ("rejected", 3)
    assert "draining" in view["error"]
    client.post("/v1/boards/pi5/drain", {"on": False})
    until(lambda: client.get("/v1/boards/pi5")["state"] == "online")


def test_revoked_board_is_deaf_and_dumb(client: Client, simulate: Any, until: Any) -> None:
    """What it still says is not taken in, and nothing can be asked of it."""
    boards = simulate(client, "rogue", every_s=0.5, run_s=0.1)
    until(lambda: client.get("/v1/runs", format="list"))
    client.delete("/v1/boards/rogue")
    time.sleep(0.3)
    known = len(client.get("/v1/runs", format="list"))
    time.sleep(1.2)
    assert len(client.get("/v1/runs", format="list")) == known
    assert client.get("/v1/boards/rogue")["state"] == "revoked"
    boards.fleet._all_acked.set()  # what it still holds will never be acknowledged
    boards.end()


def test_campaign_over_boards_with_a_label(client: Client, simulate: Any, until: Any) -> None:
    """Every cell runs on its board, and the campaign ends."""
    simulate(client, "pi5-01", "pi5-02", run_s=0.05)
    for board in ("pi5-01", "pi5-02"):
        client.post(f"/v1/boards/{board}/labels", {"add": ["desk"]})
    source = 'name = "c"\nboards = ["label:desk"]\nmodels = ["digits"]\nrepeats = 3\n'
    client.post("/v1/campaigns", {"source": source})
    until(lambda: client.get("/v1/campaigns/c")["state"] == "done")
    view = client.get("/v1/campaigns/c")
    assert view["counts"] == {"done": 6}
    runs = client.get("/v1/runs", format="list", campaign="c")
    assert sorted(run["board"] for run in runs) == ["pi5-01"] * 3 + ["pi5-02"] * 3
    assert {run["origin"] for run in runs} == {"campaign"}


@contextmanager
def _process(data: Path, broker: str, ports: tuple[int, int]) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``edgeperf coordinator`` as a process of its own."""
    command = [
        sys.executable, "-m", "edgeperf", "coordinator", "--data", str(data), "--broker", broker,
        "--broker-port", str(ports[0]), "--http-port", str(ports[1]),
    ]  # fmt: skip
    (data / "endpoint.json").unlink(missing_ok=True)
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            give_up = time.monotonic() + 60
            while not (data / "endpoint.json").exists():
                assert process.poll() is None
                assert time.monotonic() < give_up
                time.sleep(0.05)
            yield process
        finally:
            process.terminate()


@pytest.mark.parametrize("broker", ["mosquitto", "embedded"])
def test_killed_coordinator_loses_and_doubles_nothing(
    tmp_path: Path, simulate: Any, broker: str
) -> None:
    """Killed three times while boards report: every result is there, once, and acknowledged."""
    data, ports = tmp_path / "coordinator", (free_port(), free_port())
    data.mkdir()
    boards: Any = None
    for _ in range(3):
        with _process(data, broker, ports) as process:
            if boards is None:
                names = [f"pi-{number}" for number in range(8)]
                boards = simulate(_client(data), *names, every_s=0.5, run_s=0.1)
            time.sleep(1.5)
            process.send_signal(signal.SIGKILL)
            process.wait()
    with _process(data, broker, ports):
        report = boards.end()
        runs = _client(data).get("/v1/runs", format="list", limit=10_000)
    assert report.unsent == 0
    assert report.results == report.results_acked == len(runs) > 8
    assert {run["state"] for run in runs} == {"succeeded"}


def test_second_coordinator_in_the_directory_is_refused(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    """One line; the first goes on."""
    with pytest.raises(AlreadyRunningError, match="another coordinator is running"):
        Coordinator(Settings(data=tmp_path / "coordinator", http_port=0)).__enter__()
    coordinator.wait(0.01)


def test_store_of_other_keys_or_fleet_is_refused(tmp_path: Path) -> None:
    """Boards of that store obey another key: better to say so than to be ignored."""
    settings = Settings(data=tmp_path, broker_port=0, http_port=0)
    with Coordinator(settings):
        pass
    with pytest.raises(SettingsError, match="the store is of fleet 'default'"):
        Coordinator(msgspec.structs.replace(settings, fleet="other")).__enter__()
    (tmp_path / "keys" / "signing.pem").unlink()
    with pytest.raises(SettingsError, match="obey another key"):
        Coordinator(settings).__enter__()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"fleet": "My Fleet"}, "--fleet 'My Fleet': a name is"),
        ({"broker": "amqtt"}, "--broker 'amqtt': expected auto, mosquitto, embedded or a URL"),
        ({"broker": "embedded", "listen": "0.0.0.0"}, "cannot keep boards apart"),  # noqa: S104
        ({"mtls": True}, "--mtls: means nothing on loopback"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, given: dict[str, Any], expected: str) -> None:
    """Refused before anything starts."""
    with pytest.raises(SettingsError, match=expected):
        Settings(data=tmp_path, **given)


def test_credential_files(tmp_path: Path) -> None:
    """A wrong line is named; a password that others can read is refused."""
    path = tmp_path / "credentials"
    path.write_text("# boards\npi5 user word\n\n")
    assert read_credentials(path) == {"pi5": ("user", "word")}
    path.write_text("pi5 user word\npi4 user\n")
    with pytest.raises(SettingsError, match=r"credentials:2: expected BOARD USER PASSWORD"):
        read_credentials(path)
    path.chmod(0o644)
    with pytest.raises(SettingsError, match="others can read it"):
        read_secret(path, option="--x")
    path.chmod(0o600)
    assert read_secret(path, option="--x") == "pi5 user word"


def test_beyond_this_machine_everything_is_encrypted(
    tmp_path: Path, simulate: Any, until: Any
) -> None:
    """HTTP and MQTT speak TLS under the fleet's own CA, and a run works through both."""
    # 127.0.0.2 is this machine, but not the loopback address that needs no TLS.
    settings = Settings(data=tmp_path, listen="127.0.0.2", broker_port=0, http_port=0)
    with Coordinator(settings) as running:
        assert running.url.startswith("https://127.0.0.2:")
        client = _client(tmp_path)
        simulate(client, "pi5")
        until(lambda: client.get("/v1/boards/pi5")["state"] == "online")
        run = client.post("/v1/runs", {"board": "pi5", "spec": SPEC})["run"]
        assert _over(client, run)["state"] == "succeeded"


def test_two_coordinators_share_a_fleet(
    tmp_path: Path, fresh_database: str, simulate: Any, until: Callable[..., None]
) -> None:
    """On PostgreSQL and one broker both take in events; one may go, and nothing is lost."""
    names = [f"pi-{number}" for number in range(6)]
    accounts = Accounts({name: f"word-{name}" for name in names}, "own")
    broker = Mosquitto(_folder(tmp_path / "broker"), fleet="default")
    endpoint = broker.start(accounts)
    credentials = tmp_path / "credentials"
    credentials.write_text("".join(f"{name} {name} word-{name}\n" for name in names))
    keys = _folder(tmp_path / "keys")
    Keys(keys)
    settings = [
        Settings(
            data=tmp_path / name,
            broker=f"mqtt://{COORDINATOR_USER}@127.0.0.1:{endpoint.port}",
            broker_password=accounts.own,
            http_port=0,
            store=fresh_database,
            keys=keys,
            blobs=tmp_path / "blobs",
            credentials=credentials,
        )
        for name in ("one", "two")
    ]
    try:
        with Coordinator(settings[0]), Coordinator(settings[1]) as second:
            first_client, second_client = (_client(one.data) for one in settings)
            boards = simulate(first_client, *names, every_s=0.3, run_s=0.1)
            run = second_client.post("/v1/runs", {"board": "pi-0", "spec": SPEC})["run"]
            assert _over(first_client, run)["state"] == "succeeded"
            time.sleep(2)
            second.__exit__()
            time.sleep(1)
            report = boards.end()
            until(lambda: len(_all(first_client)) == report.results)
            assert report.unsent == 0
            assert {one["state"] for one in _all(first_client)} == {"succeeded"}
    finally:
        broker.stop()


def _all(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/v1/runs", format="list", limit=10_000)
    return found


def test_a_thousand_results_spooled_while_the_broker_is_gone(
    tmp_path: Path, simulate: Any, until: Callable[..., None]
) -> None:
    """All come afterwards, each once, and in the order in which the board made them."""
    data, ports = tmp_path / "coordinator", (free_port(), free_port())
    data.mkdir()
    with _process(data, "mosquitto", ports):
        boards = simulate(_client(data), "pi5", run_s=0.0)
        board = boards.fleet.boards[0]
        until(lambda: _client(data).get("/v1/boards/pi5")["state"] == "online")
    for _ in range(1000):
        boards._loop.call_soon_threadsafe(board.begin_own_run)
        boards._loop.call_soon_threadsafe(board.tick, float("inf"))
    until(lambda: board.results == 1000)
    assert board.link.unsent == 4000
    with _process(data, "mosquitto", ports):
        until(lambda: board.link.unsent == 0)
        report = boards.end()
        runs = _all(_client(data))
    assert report.results_acked == len(runs) == 1000
    made = [run["run"][:13] for run in reversed(runs)]  # the time in it, milliseconds
    assert made == sorted(made)


def test_tokens_and_passwords_follow_from_the_keys(tmp_path: Path) -> None:
    """The same keys give the same tokens; enrolling again voids the old ones."""
    first, second = Keys(tmp_path), Keys(tmp_path)
    assert first.token("pi5", 1) == second.token("pi5", 1) != first.token("pi5", 2)
    assert first.owner(first.token("pi5", 1), {"pi5": 1}) == "pi5"
    assert first.owner(first.token("pi5", 1), {"pi5": 2}) is None
    assert first.owner("pi5.forged", {"pi5": 1}) is None
    assert first.password("pi5", 1) not in first.token("pi5", 1)


def test_admitted_boards_know_all_they_need(client: Client) -> None:
    """What a script prints for a board set up by hand."""
    (raw,) = client.post("/v1/boards", {"names": ["pi5"]})
    reply = msgspec.convert(raw, EnrolReply)
    assert (reply.device, reply.fleet, reply.broker.username) == ("pi5", "default", "pi5")
    assert reply.broker.password
    assert json.dumps(raw)


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_systemd_is_told(tmp_path: Path) -> None:
    """Ready once boards may come, alive while it works, stopping at the end; ends with 0."""
    address = tmp_path / "notify"
    command = [
        sys.executable, "-m", "edgeperf", "coordinator", "--data", str(tmp_path / "c"),
        "--broker-port", "0", "--http-port", "0",
    ]  # fmt: skip
    environment = {
        **os.environ,
        "PYTHONSAFEPATH": "1",
        "NOTIFY_SOCKET": str(address),
        "WATCHDOG_USEC": "600000",
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(address))
        systemd.settimeout(60)
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
            try:
                assert systemd.recv(100) == b"READY=1"
                assert (tmp_path / "c" / "endpoint.json").exists()
                assert systemd.recv(100).startswith(b"STATUS=fleet default at http://")
                assert {systemd.recv(100) for _ in range(3)} == {b"WATCHDOG=1"}
            finally:
                process.terminate()
            said = b""
            while said != b"STOPPING=1":
                said = systemd.recv(100)
            assert process.wait(60) == 0
    assert not (tmp_path / "c" / "endpoint.json").exists()


def test_real_board_joins_a_fleet_whose_ca_it_cannot_know(tmp_path: Path) -> None:
    """The code is proof enough for joining; afterwards the fleet's own CA is checked."""
    settings = Settings(data=tmp_path / "c", listen="127.0.0.2", broker_port=0, http_port=0)
    with Coordinator(settings) as running:
        code = _client(tmp_path / "c").post("/v1/codes", {"board": "pi5"})["code"]
        agent = [sys.executable, "-m", "edgeperf", "agent", "--state", str(tmp_path / "a")]
        joining = ["enroll", running.url, "--code", code, "--name", "pi5"]
        environment = {**os.environ, "PYTHONSAFEPATH": "1"}
        for words in (joining, ["--check"]):
            done = subprocess.run(
                [*agent, *words], env=environment, capture_output=True, check=False, timeout=100
            )
            assert done.returncode == 0, done.stderr.decode()
    authority = (tmp_path / "c" / "keys" / "ca.pem").read_text()
    assert (tmp_path / "a" / "ca.pem").read_text() == authority
