"""Files over HTTP, joining, and the command line, against the real coordinator."""

import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fleet_bench import (
    DEVICE,
    AgentProcess,
    CoordinatorProcess,
    free_port,
    identity_for,
    mosquitto,
    wait_until,
)

from edgeperf.agent.link import LinkError, LinkInputError, RefusedError, read_identity
from edgeperf.agent.link.clock import BoardClock
from edgeperf.agent.link.enrol import base_url, default_device, enrol
from edgeperf.agent.link.http import PIECE_BYTES, BlobServer
from edgeperf.agent.link.policy import BoardFile, Policy, check_hours, local_spec
from edgeperf.agent.messages import (
    MessageError,
    ModelRef,
    is_name,
    new_code,
    new_id,
    public_text,
    run_start,
)
from edgeperf.coordinator.client import Client

KEY = Ed25519PrivateKey.generate()


class Site:
    """A broker, a coordinator and a joined board that is not started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = mosquitto(folder)
        self.broker.start()
        self.coordinator = CoordinatorProcess(folder / "coordinator", self.broker.port)
        self.coordinator.start()
        wait_until(self.coordinator.is_up, "the coordinator is up", 30)
        self.identity = enrol(
            self.coordinator.url, self.code(), state=folder / "agent", device=DEVICE
        )
        self.agent = AgentProcess(
            folder / "agent", self.identity, longest_pause_s=0.5, probe_program=["true"]
        )

    @property
    def client(self) -> Client:
        """The administrator's client."""
        return self.coordinator.client()

    def code(self) -> str:
        """Return a fresh code."""
        return str(self.client.post("/v1/codes", {})["code"])

    def run(self, **body: Any) -> dict[str, Any]:
        """Ask for a run and return it when it is over."""
        body = {"board": DEVICE, "spec": {"model": "digits"}} | body
        run = self.client.post("/v1/runs", body)["run"]
        wait_until(lambda: self.client.get(f"/v1/runs/{run}")["over"], "the run is over", 40)
        found: dict[str, Any] = self.client.get(f"/v1/runs/{run}")
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Return a site whose agent runs."""
    site = Site(tmp_path_factory.mktemp("site"))
    site.agent.start()
    yield site
    site.agent.kill(signal.SIGTERM)
    site.coordinator.kill()
    site.broker.kill()


def _model(site: Site, size: int, suffix: str = ".tflite") -> tuple[Path, dict[str, Any]]:
    path = site.folder / f"m{os.urandom(4).hex()}{suffix}"
    path.write_bytes(os.urandom(size))
    ref = site.client.upload_model(path)
    fields = ("sha256", "size_bytes", "format", "name")
    return path, {name: getattr(ref, name) for name in fields}


def test_a_model_comes_from_the_coordinator(site: Site) -> None:
    """By its digest, once, before the run that needs it."""
    path, ref = _model(site, 3 * PIECE_BYTES + 5)
    spec = {"model": f"sha256:{ref['sha256']}"}
    run = site.run(spec=spec, model=ref)
    assert run["state"] == "succeeded"
    cached = site.agent.state / "cache" / f"{ref['sha256']}.tflite"
    assert cached.read_bytes() == path.read_bytes()


def test_a_model_that_nobody_has_ends_the_run_with_one_line(site: Site) -> None:
    """Not with a run of something else."""
    ref = {"sha256": "b" * 64, "size_bytes": 3, "format": "tflite", "name": "gone"}
    run = site.run(spec={"model": f"sha256:{'b' * 64}"}, model=ref)
    assert run["state"] == "failed"
    assert "no model of this fleet" in run["error"]
    assert run["error_class"] == "device"


def test_result_files_arrive_whole(site: Site) -> None:
    """Every file of the manifest is at the coordinator, under its digest."""
    run = site.run(spec={"model": "digits", "options": {"kb": "60000"}})
    assert run["state"] == "succeeded"
    wait_until(lambda: _uploads(site) == 0, "all files are uploaded")
    blobs = site.folder / "coordinator" / "blobs"
    kept = [path for path in blobs.rglob("*") if path.is_file() and path.stat().st_size > 2_000_000]
    assert any(hashlib.sha256(path.read_bytes()).hexdigest() in str(path) for path in kept)


def _uploads(site: Site) -> int:
    database = sqlite3.connect(site.agent.state / "agent.db", timeout=5)
    try:
        count: int = database.execute("SELECT count(*) FROM uploads").fetchone()[0]
    finally:
        database.close()
    return count


class _CutError(Exception):
    """The line is cut."""


def _cut_after(pieces: int) -> Any:
    left = iter(range(pieces))

    def between() -> None:
        if next(left, None) is None:
            raise _CutError

    return between


def test_an_upload_goes_on_where_it_stopped(site: Site, tmp_path: Path) -> None:
    """The pieces that arrived are not sent again."""
    server = BlobServer(site.identity.http, site.identity)
    path = tmp_path / "blob"
    path.write_bytes(content := os.urandom(4 * PIECE_BYTES + 17))
    sha256 = hashlib.sha256(content).hexdigest()
    with pytest.raises(_CutError):
        server.upload(path, sha256, len(content), _cut_after(2))
    asked = []
    server.upload(path, sha256, len(content), lambda: asked.append(1))
    assert len(asked) == 3
    server.upload(path, sha256, len(content), _cut_after(0))  # it is there: nothing is sent


def test_an_upload_that_only_lacks_its_check_is_finished(site: Site, tmp_path: Path) -> None:
    """The coordinator was killed after the last byte and before it gave the blob its name."""
    server = BlobServer(site.identity.http, site.identity)
    path = tmp_path / "blob"
    path.write_bytes(content := os.urandom(1000))
    sha256 = hashlib.sha256(content).hexdigest()
    kept = site.folder / "coordinator" / "blobs"
    (kept / "incoming" / sha256).write_bytes(content)
    server.upload(path, sha256, len(content), lambda: None)
    assert (kept / sha256[:2] / sha256).read_bytes() == content


def test_an_upload_that_was_spoilt_on_the_way_is_tried_again(site: Site, tmp_path: Path) -> None:
    """A file that changed here is another matter: it is given up."""
    server = BlobServer(site.identity.http, site.identity)
    path = tmp_path / "blob"
    path.write_bytes(content := os.urandom(1000))
    sha256 = hashlib.sha256(content).hexdigest()
    incoming = site.folder / "coordinator" / "blobs" / "incoming" / sha256
    incoming.write_bytes(b"x" * 500)
    with pytest.raises(LinkError):
        server.upload(path, sha256, len(content), lambda: None)
    server.upload(path, sha256, len(content), lambda: None)
    path.write_bytes(b"y" * 1000)
    with pytest.raises(LinkInputError, match="changed"):
        server.upload(path, "d" * 64, 1000, lambda: None)


def test_a_download_goes_on_where_it_stopped(site: Site, tmp_path: Path) -> None:
    """And appears under its name only when it is whole."""
    path, ref = _model(site, 4 * PIECE_BYTES)
    server = BlobServer(site.identity.http, site.identity)
    target = tmp_path / "cache" / "model.tflite"
    with pytest.raises(_CutError):
        server.download(ref["sha256"], ref["size_bytes"], target, _cut_after(8))
    assert not target.exists()
    asked: list[int] = []
    server.download(ref["sha256"], ref["size_bytes"], target, lambda: asked.append(1))
    assert target.read_bytes() == path.read_bytes()
    assert len(asked) <= 9


def test_a_download_that_is_something_else_is_dropped(site: Site, tmp_path: Path) -> None:
    """Larger than announced, or with another digest."""
    _, ref = _model(site, 1000)
    server = BlobServer(site.identity.http, site.identity)
    with pytest.raises(LinkInputError, match="larger"):
        server.download(ref["sha256"], 10, tmp_path / "a", lambda: None)
    part = tmp_path / f".{ref['sha256']}.part"
    part.write_bytes(b"x" * 500)  # somebody's other bytes
    with pytest.raises(LinkInputError, match="dropped"):
        server.download(ref["sha256"], 1000, tmp_path / "a", lambda: None)
    assert not part.exists()
    assert not (tmp_path / "a").exists()


def test_a_wrong_token_is_refused(site: Site, tmp_path: Path) -> None:
    """One clear line."""
    import msgspec  # noqa: PLC0415

    (tmp_path / "f").write_bytes(b"x")
    identity = msgspec.structs.replace(site.identity, token="wrong")  # noqa: S106 - as it says
    with pytest.raises(RefusedError, match="not allowed"):
        BlobServer(identity.http, identity).upload(tmp_path / "f", "c" * 64, 1, lambda: None)


# ---------------------------------------------------------------- joining


def test_a_code_works_once(site: Site, tmp_path: Path) -> None:
    """The second board with it is refused, and nothing is written."""
    code = site.code()
    identity = enrol(site.coordinator.url, code, state=tmp_path / "one", device="board-1")
    assert read_identity(tmp_path / "one") == identity
    assert identity.broker.port == site.broker.port
    with pytest.raises(RefusedError, match="wrong, used or too old"):
        enrol(site.coordinator.url, code, state=tmp_path / "two", device="board-2")
    assert not (tmp_path / "two").exists()


def test_whoever_does_not_know_the_code_is_not_believed(tmp_path: Path) -> None:
    """A server that answers 200 without the code gives the board nothing."""
    program = (
        "import http.server, sys\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        "    def do_POST(self):\n"
        "        body = self.rfile.read(int(self.headers['Content-Length']))\n"
        "        self.send_response(200); self.end_headers(); self.wfile.write(body)\n"
        "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), H).serve_forever()\n"
    )
    port = free_port()
    impostor = subprocess.Popen(
        [sys.executable, "-c", program, str(port)], stderr=subprocess.DEVNULL
    )
    try:
        server = BlobServer(f"http://127.0.0.1:{port}")

        def answers() -> bool:
            try:
                return server.post("/", b"{}").status == 200
            except LinkError:
                return False

        wait_until(answers, "the impostor listens")
        with pytest.raises(LinkError, match="does not prove that it knows the code"):
            enrol(f"127.0.0.1:{port}", new_code(), state=tmp_path / "x", device="b")
        assert not (tmp_path / "x").exists()
    finally:
        impostor.kill()
        impostor.wait()


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("lab", "http://lab:8484"),
        ("lab:99", "http://lab:99"),
        ("https://lab", "https://lab:8484"),
        ("http://[::1]:5/x/", "http://[::1]:5/x"),
    ],
)
def test_a_coordinator_is_named_as_people_do(typed: str, url: str) -> None:
    """A host name is enough."""
    assert base_url(typed) == url


@pytest.mark.parametrize("typed", ["", "ftp://x", "http://", "x:99999"])
def test_what_is_no_coordinator_is_said(typed: str) -> None:
    """One clear line."""
    with pytest.raises(LinkInputError, match=r"expected|[Pp]ort"):
        base_url(typed)


def test_a_board_has_a_name_that_stays() -> None:
    """It fits a topic."""
    assert is_name(default_device())
    assert default_device() == default_device()


# ---------------------------------------------------------------- command line


def _edgeperf(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edgeperf", *arguments]
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env=environment
    )


def test_the_agent_command_says_what_is_missing(tmp_path: Path) -> None:
    """Not enrolled: status 2, one line with what to do."""
    done = _edgeperf("agent", "--state", str(tmp_path))
    assert done.returncode == 2
    assert "edgeperf agent enroll" in done.stderr
    assert done.stderr.count("\n") == 1


def test_join_check_and_enroll_on_the_command_line(site: Site, tmp_path: Path) -> None:
    """By hand and by code, then one connection to see that it works."""
    state = ["agent", "--state", str(tmp_path / "hand")]
    key = public_text(KEY.public_key())
    url = f"mqtt://127.0.0.1:{site.broker.port}"
    done = _edgeperf(*state, "join", "--broker", url, "--name", "pi5", "--key", key)
    assert done.returncode == 0, done.stderr
    done = _edgeperf(*state, "--check")
    assert (done.returncode, "takes this board" in done.stdout) == (0, True)
    done = _edgeperf(
        "agent", "--state", str(tmp_path / "code"), "enroll", site.coordinator.url,
        "--code", site.code(), "--name", "board-9",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "board-9 joined fleet lab" in done.stdout
    done = _edgeperf(*state, "join", "--broker", "http://x", "--name", "pi5", "--key", key)
    assert done.returncode == 2
    done = _edgeperf(*state, "join", "--broker", url, "--name", "pi5", "--key", "no key")
    assert (done.returncode, "public key" in done.stderr) == (2, True)


def test_check_says_that_nobody_is_there(tmp_path: Path) -> None:
    """Status 3: trying again may help."""
    agent = AgentProcess(tmp_path, identity_for(free_port(), KEY))
    done = _edgeperf("agent", "--state", str(agent.state), "--check")
    assert done.returncode == 3
    assert "cannot be reached" in done.stderr


# ---------------------------------------------------------------- time


def test_time_is_learnt_from_the_coordinator_and_never_goes_back() -> None:
    """An old signed message cannot make an expired command fresh."""
    clock = BoardClock()
    now = datetime(2030, 1, 1, tzinfo=timezone.utc)
    clock.learn(now)
    clock.learn(now - timedelta(days=1))
    trusted = clock.trusted_now()
    assert trusted is not None
    assert timedelta(0) <= trusted - now < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("hours", "hour", "allowed"),
    [
        ("22:00-06:00", 23, True),
        ("22:00-06:00", 3, True),
        ("22:00-06:00", 12, False),
        ("08:00-18:00", 12, True),
        ("08:00-18:00", 18, False),
        (None, 4, True),
    ],
)
def test_hours_may_go_over_midnight(hours: str | None, hour: int, *, allowed: bool) -> None:
    """The board's own local time counts."""
    now = datetime(2026, 1, 1, hour)  # noqa: DTZ001 - local by intention
    try:
        check_hours(Policy(hours=hours), now)
    except MessageError:
        assert not allowed
    else:
        assert allowed


@pytest.mark.parametrize(
    ("models", "allowed"), [(None, True), (("a" * 64, "b" * 64), True), (("a" * 64,), False)]
)
def test_the_list_of_models_counts_for_their_parts(
    models: tuple[str, ...] | None, *, allowed: bool
) -> None:
    """A model that the owner allows brings along no file that the owner does not."""
    spec = {"model": f"sha256:{'a' * 64}", "parts": {"decoder": f"sha256:{'b' * 64}"}}
    start = run_start(
        spec, run=new_id(), model=ModelRef(sha256="a" * 64, size_bytes=1, format="onnx")
    )
    board = BoardFile(policy=Policy(models=models))
    if allowed:
        assert local_spec(start, board).parts == spec["parts"]
    else:
        with pytest.raises(MessageError, match="decoder"):
            local_spec(start, board)


def test_a_task_file_is_named_by_the_boards_file_only() -> None:
    """What its owner calls ``cats`` is a file here; every other name is one of our tasks."""
    board = BoardFile(tasks={"cats": "/data/cats.toml"})
    for task, meant in (("cats", "/data/cats.toml"), ("kws", "kws"), (None, None)):
        spec = {"model": "kws"} if task is None else {"model": "kws", "task": task}
        assert local_spec(run_start(spec, run=new_id()), board).task == meant
    with pytest.raises(MessageError, match=r"task: '/data/cats.toml' is not a plain name"):
        run_start({"model": "kws", "task": "/data/cats.toml"}, run=new_id())
