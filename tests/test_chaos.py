"""Everything is killed, again and again, and nothing is lost and nothing is done twice.

A real broker, a real coordinator and a real agent, each killed with SIGKILL at random moments
while runs go through them, and the lines between them are cut. Afterwards every run is over
in the store, its end arrived once, its program was started once at most, and nothing waits
anywhere. The blows are drawn with a seed, so a bad sequence can be played again.

``EDGEPERF_CHAOS_RUNS`` (200), ``EDGEPERF_CHAOS_KILLS`` (20 of each) and
``EDGEPERF_CHAOS_SEED`` change what is played.
"""

import collections
import contextlib
import os
import random
import select
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fleet_bench import (
    BROKERS,
    DEVICE,
    AgentProcess,
    BrokerProcess,
    CoordinatorProcess,
    wait_until,
)

from edgeperf import EdgeperfError
from edgeperf.agent.link.enrol import enrol

RUNS = int(os.environ.get("EDGEPERF_CHAOS_RUNS", "200"))
KILLS = int(os.environ.get("EDGEPERF_CHAOS_KILLS", "20"))
SEED = int(os.environ.get("EDGEPERF_CHAOS_SEED", "20261129"))
#: Runs that may wait at the board.
AHEAD = 12
#: Without any progress for so long, something is lost.
STUCK_S = 60.0
TERMINAL = ("rejected", "result", "failed", "cancelled", "timed-out", "interrupted")


class Proxy:
    """A line to a port that can be cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._closing = False
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def cut(self) -> None:
        """Cut every connection."""
        for end in list(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()
        for thread in self._threads:
            thread.join()

    def _begin(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closing:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target), timeout=2)
            except OSError:
                near.close()
                continue
            self._begin(self._pump, near, far)

    def _pump(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        self._open |= {near, far}
        with near, far, contextlib.suppress(OSError):
            while True:
                for end in select.select([near, far], [], [])[0]:
                    data = end.recv(65536)
                    if not data:
                        return
                    other[end].sendall(data)
        self._open -= {near, far}


class World:
    """All of them, and the blows they take."""

    def __init__(self, folder: Path, broker: BrokerProcess) -> None:
        self.folder, self.broker = folder, broker
        broker.start()
        self.lines = [Proxy(broker.port), Proxy(broker.port)]
        self.coordinator = CoordinatorProcess(folder / "coordinator", self.lines[0].port)
        self.coordinator.start()
        wait_until(self.coordinator.is_up, "the coordinator is up", 30)
        code = self.coordinator.client().post("/v1/codes", {"board": DEVICE})["code"]
        url = f"http://127.0.0.1:{self.coordinator.http_port}"
        state = folder / "agent"
        identity = enrol(url, code, state=state, device=DEVICE)
        broker_line = {"host": "127.0.0.1", "port": self.lines[1].port}
        line = msgspec.structs.replace(identity.broker, **broker_line)
        self.agent = AgentProcess(
            state,
            msgspec.structs.replace(identity, broker=line),
            longest_pause_s=0.5,
            probe_program=["true"],
        )
        self.agent.start()
        self.asked = 0
        self.blows: collections.Counter[str] = collections.Counter()

    def strike(self, what: str) -> None:
        """Kill one of them and start it again, or cut a line."""
        self.blows[what] += 1
        if what == "agent":
            self.agent.kill()
            self.agent.start()
        elif what == "broker":
            self.broker.kill()
            self.broker.start()
        elif what == "coordinator":
            self.coordinator.kill()
            self.coordinator.start()
        else:
            for line in self.lines:
                line.cut()

    def feed(self, random_: random.Random) -> None:
        """Ask for more runs if the board is running out of them and anybody listens."""
        self.coordinator.keep_up()
        with contextlib.suppress(EdgeperfError, OSError, ValueError):
            client = self.coordinator.client()
            runs = client.get("/v1/runs", format="list", limit=10_000)
            self.asked = len(runs)
            waiting = sum(not run["over"] for run in runs)
            for _ in range(min(AHEAD - waiting, RUNS - self.asked)):
                longest_ms = 1500 if random_.random() < 0.2 else 100
                work = {"ms": str(random_.randrange(longest_ms))}
                spec = {"model": "digits", "options": work}
                client.post("/v1/runs", {"board": DEVICE, "spec": spec})
                self.asked += 1

    def is_quiet(self) -> bool:
        """Tell whether every run is over, everywhere."""
        self.coordinator.keep_up()
        with contextlib.suppress(EdgeperfError, OSError, ValueError):
            runs = self.coordinator.client().get("/v1/runs", format="list", limit=10_000)
            return all(run["over"] for run in runs) and not any(self.waiting().values())
        return False

    def waiting(self) -> dict[str, int]:
        """Return what waits at the board."""
        path = self.folder / "agent" / "agent.db"
        queries = {
            "outbox": "SELECT count(*) FROM outbox",
            "runs": "SELECT count(*) FROM runs WHERE state != 'ended'",
            "uploads": "SELECT count(*) FROM uploads",
        }
        with contextlib.closing(sqlite3.connect(path, timeout=5)) as database:
            return {name: database.execute(text).fetchone()[0] for name, text in queries.items()}

    def close(self) -> None:
        """End them all."""
        self.agent.kill(signal.SIGTERM)
        self.coordinator.kill()
        self.broker.kill()
        for line in self.lines:
            line.close()


@pytest.fixture(params=BROKERS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Return everything up and joined."""
    together = World(tmp_path, BROKERS[request.param](tmp_path))
    yield together
    together.close()


@pytest.mark.timeout(600)
def test_nothing_is_lost_and_nothing_is_done_twice(world: World) -> None:
    """Whatever is killed, and whenever."""
    random_ = random.Random(SEED)  # noqa: S311 - repeatable, not secret
    blows = [what for what in ("agent", "broker", "coordinator", "cut") for _ in range(KILLS)]
    random_.shuffle(blows)
    for what in blows:
        world.feed(random_)
        time.sleep(random_.uniform(0.05, 0.7))
        world.strike(what)

    def all_asked() -> bool:
        world.feed(random_)
        return world.asked >= RUNS

    _settle(all_asked, world)
    _settle(world.is_quiet, world)
    _check(world)


def _settle(done: Callable[[], object], world: World) -> None:
    """Wait until *done*, as long as there is progress: the machine may be busy."""
    seen, moved_s = -1, time.monotonic()
    while not done():
        now = len(world.agent.executed()) - sum(world.waiting().values())
        if now != seen:
            seen, moved_s = now, time.monotonic()
        assert time.monotonic() - moved_s < STUCK_S, f"stuck: {world.waiting()}"
        time.sleep(0.2)


def _check(world: World) -> None:
    store = sqlite3.connect(world.folder / "coordinator" / "coordinator.db")
    with contextlib.closing(store):
        runs = dict(store.execute("SELECT id, state FROM run"))
        ends = collections.Counter(
            (run, attempt)
            for run, attempt, kind in store.execute("SELECT run, attempt, type FROM event")
            if kind.split(".")[-2] in TERMINAL
        )
        open_commands = store.execute(
            "SELECT count(*) FROM command WHERE state = 'open'"
        ).fetchone()[0]
    executed = collections.Counter(world.agent.executed())
    assert len(runs) >= RUNS
    assert all(count == 1 for count in executed.values()), "a run was executed twice"
    assert all(count == 1 for count in ends.values()), "an end arrived twice"
    assert {run for run, _ in ends} >= set(runs), "an end is missing"
    assert set(runs.values()) <= {"succeeded", "interrupted"}
    whole = {path.parts[-4][:-2] for path in world.agent.state.glob("runs/*/result/2*/result.json")}
    assert {run for run in whole if runs[run] != "succeeded"} == set(), "a result was lost"
    assert list(runs.values()).count("succeeded") >= RUNS // 2
    assert world.waiting() == {"outbox": 0, "runs": 0, "uploads": 0}
    assert open_commands == 0
    assert min(world.blows.values()) >= KILLS
    assert "Traceback" not in world.agent.log()
