"""Versions beside each other: old agents with a new coordinator, and the other way round.

The other version is the last tag before this commit, or what ``EDGEPERF_PREVIOUS`` names; as
long as there is no tag, the commit below, from which on the wire and the files are kept. Its
code is taken out of git and run as processes of its own, in this environment. Versions one
minor number apart must work together, and what the older one wrote must be read.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgeperf.coordinator.client import Client, find_coordinator

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S = 60.0
#: Its subject, which outlives a rebase.
BEFORE_TAGS = "Give one reason where LoadGen has no figure and says why"
#: A real run, as short as one can be.
SPEC = {"model": "digits", "preset": "smoke", "min_duration_ms": 200, "accuracy": False}

pytestmark = pytest.mark.slow


def git(*arguments: str) -> bytes:
    """Return what git says; skips the test when it says no, for a reason that may be."""
    if shutil.which("git") is None:
        pytest.skip("no earlier version: git is not installed")
    command = ["git", "-c", "safe.directory=*"]
    done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        why = f"no earlier version: {done.stderr.decode().strip()}"
        shallow = [*command, "rev-parse", "--is-shallow-repository"]
        asked = subprocess.run(shallow, cwd=ROOT, capture_output=True, check=False)
        if asked.stdout.strip() == b"true":
            why += ": this clone is shallow; git fetch --unshallow"
        pytest.skip(why)
    return done.stdout


class Version:
    """One version of the code, whose commands are processes.

    Attributes:
        name: For people.
    """

    def __init__(self, name: str, tree: Path) -> None:
        self.name = name
        self._tree = tree

    def command(self, *arguments: str) -> list[str]:
        """Return how its command line is called."""
        return [sys.executable, "-m", "edgeperf", *arguments]

    def environment(self, folder: Path) -> dict[str, str]:
        """Return what its processes inherit."""
        places = {"HOME": str(folder), "EDGEPERF_CACHE": str(folder / "cache")}
        package = str(self._tree / "deploy/package")
        return {**os.environ, **places, "PYTHONPATH": package, "PYTHONSAFEPATH": "1"}

    def call(self, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        return subprocess.run(
            self.command(*arguments),
            env=self.environment(folder),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )

    @contextmanager
    def serving(self, folder: Path, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a service while the context is open; it must end well when asked to."""
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(
                self.command(*arguments),
                env=self.environment(folder),
                cwd=folder,
                stdout=log,
                stderr=log,
            )
        try:
            yield process
        finally:
            process.terminate()
            assert process.wait(PATIENCE_S) == 0, (folder / "log").read_text()


def last_tag() -> str:
    """Return the newest tag before this commit; empty where there is none."""
    tags = git("tag", "--list", "v[0-9]*", "--merged", "HEAD^", "--sort=-creatordate")
    return tags.decode().partition("\n")[0]


def before_tags() -> str:
    """Return the commit that counts as the earlier version while there is no tag."""
    found = git("log", "-1", "--format=%H", "--fixed-strings", f"--grep={BEFORE_TAGS}")
    if not found.strip():
        pytest.skip("no earlier version: the history does not reach back to it")
    return found.decode().strip()


@pytest.fixture(scope="session")
def new() -> Version:
    """Return the code as it stands here."""
    return Version("new", ROOT)


def with_a_new_field(tree: Path) -> Version:
    """Return the next version as it may be: this one, with one more field in its spec."""
    for folder in ("agent", "backends", "coordinator", "datasets", "deploy", "power"):
        left_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, tree / folder, symlinks=True, ignore=left_out)
    path, last = tree / "agent/spec.py", '    fan: Literal["full"] | None = None\n'
    text = path.read_text()
    assert text.count(last) == 1
    path.write_text(text.replace(last, f"{last}    wind: str | None = None\n"))
    return Version("newer", tree)


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """Return the code of the version before."""
    name = os.environ.get("EDGEPERF_PREVIOUS")
    if name is None:
        name = last_tag() or before_tags()
    tree = tmp_path_factory.mktemp("old")
    # An archive, not a work tree: nothing is left in the repository, whatever happens.
    with tarfile.open(fileobj=io.BytesIO(git("archive", name))) as archive:
        archive.extractall(tree)  # noqa: S202 - our own history
    return Version(name, tree)


class Desk:
    """A coordinator of some version, and boards that join it.

    Attributes:
        client: Its HTTP interface.
    """

    def __init__(self, stack: ExitStack, version: Version, folder: Path) -> None:
        self._stack = stack
        self._data = folder / "coordinator"
        self._data.mkdir(parents=True, exist_ok=True)
        options = ("--broker", "mosquitto", "--broker-port", "0", "--http-port", "0")
        endpoint = self._data / "data/endpoint.json"
        endpoint.unlink(missing_ok=True)
        command = ("coordinator", "--data", str(self._data / "data"), *options)
        self._process = stack.enter_context(version.serving(self._data, *command))
        self._wait(endpoint.exists, "the coordinator listens")
        self.client: Client = find_coordinator(
            url=None, token_file=None, ca_file=None, data=self._data / "data"
        )

    def join(self, version: Version, folder: Path, name: str = "board") -> None:
        """Enrol a board, whose agent is of *version*."""
        folder.mkdir(parents=True, exist_ok=True)
        code = self.client.post("/v1/codes", {"board": name, "ttl_s": 600})["code"]
        state = str(folder / "state")
        arguments = ("agent", "--state", state, "enroll", self.client.url, "--code", code)
        done = version.call(folder, *arguments, "--name", name)
        assert done.returncode == 0, done.stderr

    @contextmanager
    def board(self, version: Version, folder: Path, name: str = "board") -> Iterator[None]:
        """Let the agent of a board that is enrolled run."""
        with version.serving(folder, "agent", "--state", str(folder / "state")):
            self._wait(lambda: self._state(name) == "online", "the board is online")
            yield

    def run(self, name: str = "board", **spec: Any) -> dict[str, Any]:
        """Have a board run something; returns the run when it is over."""
        run = self.client.post("/v1/runs", {"board": name, "spec": SPEC | spec})["run"]
        self._wait(lambda: self.client.get(f"/v1/runs/{run}")["over"], "the run is over")
        view: dict[str, Any] = self.client.get(f"/v1/runs/{run}")
        return view

    def _state(self, name: str) -> str:
        (board,) = [one for one in self.client.get("/v1/boards") if one["name"] == name]
        return str(board["state"])

    def _wait(self, true: Any, what: str) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not true():
            assert self._process.poll() is None, (self._data / "log").read_text()
            assert time.monotonic() < until_s, f"waited for: {what}\n{self._logs()}"
            time.sleep(0.05)

    def _logs(self) -> str:
        logs = self._data.parent.rglob("log")
        return "\n".join(f"{path}:\n{path.read_text()}" for path in logs)


@pytest.mark.parametrize("older", ["agent", "coordinator"])
def test_one_minor_version_apart_works_together(
    old: Version, new: Version, tmp_path: Path, older: str
) -> None:
    """A board enrols, runs, and its result arrives, whichever side is behind."""
    desk_version, board_version = (new, old) if older == "agent" else (old, new)
    with ExitStack() as stack:
        desk = Desk(stack, desk_version, tmp_path)
        desk.join(board_version, tmp_path / "board")
        with desk.board(board_version, tmp_path / "board"):
            run = desk.run()
    assert run["state"] == "succeeded", run
    assert run["result"]["performance"]["samples"] > 0


def test_what_an_older_agent_does_not_know_is_refused_not_ignored(
    old: Version, new: Version, tmp_path: Path
) -> None:
    """A new field of a spec that means something must not be left out in silence."""
    if b"    batch:" in git("show", f"{old.name}:agent/spec.py"):
        pytest.skip(f"{old.name} knows every field")
    with ExitStack() as stack:
        desk = Desk(stack, new, tmp_path)
        desk.join(old, tmp_path / "board")
        with desk.board(old, tmp_path / "board"):
            run = desk.run(scenario="Offline", batch=2)
    assert run["state"] == "rejected", run


def test_what_this_agent_will_not_know_is_refused_not_ignored(new: Version, tmp_path: Path) -> None:
    """The same of a field to come: this agent is the older one then, and needs no history."""
    with ExitStack() as stack:
        desk = Desk(stack, with_a_new_field(tmp_path / "newer"), tmp_path)
        desk.join(new, tmp_path / "board")
        with desk.board(new, tmp_path / "board"):
            assert desk.run()["state"] == "succeeded"
            run = desk.run(wind="strong")
    assert run["state"] == "rejected", run
    assert "wind" in str(run), run


def test_an_upgrade_in_place_keeps_everything(old: Version, new: Version, tmp_path: Path) -> None:
    """Journal, identity, store and results of the older version are the newer one's."""
    with ExitStack() as stack:
        desk = Desk(stack, old, tmp_path)
        desk.join(old, tmp_path / "board")
        with desk.board(old, tmp_path / "board"):
            before = desk.run()
    with ExitStack() as stack:
        desk = Desk(stack, new, tmp_path)
        kept = desk.client.get(f"/v1/runs/{before['run']}")
        assert kept["result"] == before["result"]
        identity = tmp_path / "board/state/identity.json"
        broker = json.loads(identity.read_text())
        # The ports were free ones, and are others now.
        reply = desk.client.post("/v1/boards", {"names": ["board"]})[0]
        broker["broker"] |= {
            "port": reply["broker"]["port"],
            "password": reply["broker"]["password"],
        }
        broker |= {"http": desk.client.url, "token": reply["token"]}
        identity.write_text(json.dumps(broker))
        with desk.board(new, tmp_path / "board"):
            after = desk.run()
    assert after["state"] == "succeeded"
    assert after["run"] != before["run"]


def test_going_back_is_refused_or_works(old: Version, new: Version, tmp_path: Path) -> None:
    """An older agent opens a newer journal only where its form is the same."""
    with ExitStack() as stack:
        desk = Desk(stack, new, tmp_path)
        desk.join(new, tmp_path / "board")
        with desk.board(new, tmp_path / "board"):
            pass
        same = journal_version(old) == journal_version(new)
        if same:
            with desk.board(old, tmp_path / "board"):
                assert desk.run()["state"] == "succeeded"
            return
    done = old.call(tmp_path / "board", "agent", "--state", str(tmp_path / "board/state"))
    assert done.returncode == 2
    assert "newer edgeperf" in done.stderr


def journal_version(version: Version) -> str:
    """Return the version of the journal's form that a version of the code writes."""
    program = "from edgeperf.agent.link.database import VERSION; print(VERSION)"
    environment = version.environment(ROOT)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout
