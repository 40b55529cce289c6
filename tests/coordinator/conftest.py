"""A store of each kind, a live coordinator, and boards that speak to it."""

import asyncio
import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from edgeperf.agent.messages import Clock, EnrolReply, Event, EventData, new_id
from edgeperf.coordinator.broker import free_port
from edgeperf.coordinator.client import Client, find_coordinator
from edgeperf.coordinator.service import Coordinator
from edgeperf.coordinator.settings import Settings
from edgeperf.coordinator.simulation import Load, Report, SimulatedFleet
from edgeperf.coordinator.store import Store, devices, open_store

_BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


def _postgres_binaries() -> Path:
    found = shutil.which("initdb")
    if _BINARIES:
        return _BINARIES[-1]
    if found:
        return Path(found).resolve().parent
    reason = "no PostgreSQL server here: apt install postgresql"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Run a PostgreSQL server of our own; returns the URL of its database ``postgres``."""
    binaries = _postgres_binaries()
    # Not below pytest's own folder: the server refuses to run as root, and no other user
    # may enter there.
    with tempfile.TemporaryDirectory(prefix="edgeperf-postgres-") as name:
        yield from _serve_postgres(binaries, Path(name))


def _serve_postgres(binaries: Path, folder: Path) -> Iterator[str]:
    data, port = folder / "data", free_port()
    user = "postgres" if os.geteuid() == 0 else None
    if user:
        shutil.chown(folder, user)

    def run(*command: str | Path) -> None:
        subprocess.run(command, user=user, check=True, stdout=subprocess.DEVNULL, cwd=folder)

    run(binaries / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync")
    control = (binaries / "pg_ctl", "-D", data, "-w")
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    run(*control, "-o", options, "-l", folder / "log", "start")
    yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    run(*control, "-m", "immediate", "stop")


@pytest.fixture
def fresh_database(postgres: str) -> str:
    """Return the URL of an empty database."""
    import psycopg  # noqa: PLC0415 - only with a server

    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return postgres.rpartition("/")[0] + f"/{name}"


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Open an empty store of each kind."""
    if request.param == "sqlite":
        opened = open_store(tmp_path / "coordinator.db")
    else:
        opened = open_store(request.getfixturevalue("fresh_database"))
    with opened.writing() as connection:
        devices.enroll(connection, "pi5", now_ns=1)
    yield opened
    opened.close()


class EventMaker:
    """Makes the events of one board, one after the other."""

    def __init__(self, board: str = "pi5", fleet: str = "default") -> None:
        self.board, self.fleet = board, fleet
        self.stream, self.session = new_id(), new_id()
        self.seq = 0

    def __call__(self, data: EventData, *, run: str | None = None, attempt: int = 1) -> Event:
        """Return the next event."""
        self.seq += 1
        return Event(
            id=new_id(),
            fleet=self.fleet,
            device=self.board,
            time=datetime.now(timezone.utc),
            stream=self.stream,
            seq=self.seq,
            session=self.session,
            clock=Clock(mono_ns=self.seq, boot="b"),
            data=data,
            run=run,
            attempt=attempt if run else None,
        )


@pytest.fixture
def make_event() -> EventMaker:
    """Return a maker of events of board ``pi5``."""
    return EventMaker()


@pytest.fixture(scope="session")
def event_maker() -> Callable[..., EventMaker]:
    """Return the class itself, for other boards."""
    return EventMaker


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    """Run a coordinator with a child Mosquitto and SQLite."""
    settings = Settings(data=tmp_path / "coordinator", broker_port=0, http_port=0)
    with Coordinator(settings) as running:
        yield running


@pytest.fixture
def client(coordinator: Coordinator, tmp_path: Path) -> Client:
    """Return the administrator's client of :func:`coordinator`."""
    del coordinator
    return find_coordinator(url=None, token_file=None, ca_file=None, data=tmp_path / "coordinator")


class Boards:
    """Simulated boards that live on a thread while the context is open."""

    def __init__(self, client: Client, names: list[str], load: Load, host: str) -> None:
        admitted = client.post("/v1/boards", {"names": names})
        identities = msgspec.convert(admitted, list[EnrolReply])
        self.fleet = SimulatedFleet(identities, host, load)
        self.report: Report | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._live)

    def __enter__(self) -> "Boards":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    def end(self) -> Report:
        """Let them finish, wait for what is unsent, and return what came of it."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self.fleet.stop)
            self._thread.join()
        assert self.report is not None
        return self.report

    def _live(self) -> None:
        self.report = self._loop.run_until_complete(self.fleet.run())
        self._loop.close()


@pytest.fixture
def simulate() -> Iterator[Callable[..., Boards]]:
    """Return a starter of simulated boards; all are ended at the end."""
    with contextlib.ExitStack() as stack:

        def start(
            client: Client,
            *names: str,
            every_s: float = 0,
            run_s: float = 0.2,
            seconds: float = 600,
        ) -> Boards:
            load = Load(every_s=every_s, duration_s=seconds, run_s=run_s, drain_s=100)
            host = urlsplit(client.url).hostname or ""
            return stack.enter_context(Boards(client, list(names), load, host))

        yield start


def wait_until(true: Callable[[], object], patience_s: float = 60.0) -> None:
    """Wait until something is true, or fail."""
    give_up = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > give_up:
            pytest.fail("it never happened")
        time.sleep(0.02)


@pytest.fixture(scope="session")
def until() -> Callable[..., None]:
    """Return a function that waits until something is true, or fails the test."""
    return wait_until
