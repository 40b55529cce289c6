"""Many simulated boards in one process, on one asyncio loop, and how fast they were answered.

paho runs without threads here: the loop watches its sockets and calls it when there is
something to read or write, so that hundreds of connections cost no hundreds of threads.
"""

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import paho.mqtt.client as mqtt

from edgeperf.agent.messages import EnrolReply
from edgeperf.coordinator.link import send_at_once
from edgeperf.coordinator.simulation.board import SimulatedBoard

_TICK_S = 0.05
_MISC_S = 1.0
_RECONNECT_S = (0.5, 5.0)


class Load(NamedTuple):
    """What the simulated boards shall do.

    Attributes:
        every_s: Each makes a result so often by itself; 0 waits for commands only.
        duration_s: For so long.
        run_s: A run lasts so long.
        drain_s: After the last result, wait so long for the last acknowledgements.
        seed: Of phases and figures.
    """

    every_s: float
    duration_s: float
    run_s: float = 1.0
    drain_s: float = 30.0
    seed: int = 0


class Report(NamedTuple):
    """What came of it. Times are from making an event to reading its acknowledgement.

    Attributes:
        results: Results made.
        events: Events acknowledged, results among them.
        unsent: Events never acknowledged.
        result_ms: 50th, 99th percentile and maximum for results.
        event_ms: ... and for all events.
        reconnects: Connections lost and made again.
        loop_lag_ms: The longest that the simulation's own loop was late; included above.
    """

    boards: int
    duration_s: float
    results: int
    results_acked: int
    events: int
    unsent: int
    result_ms: tuple[float, float, float]
    event_ms: tuple[float, float, float]
    reconnects: int
    loop_lag_ms: float


class SimulatedFleet:
    """Boards that live on one loop; use :meth:`run`.

    Args:
        identities: One for each board.
        host: Of the broker, where an identity names none.
        on_second: Called about once a second with results so far and events unsent.
    """

    def __init__(
        self,
        identities: Sequence[EnrolReply],
        host: str,
        load: Load,
        *,
        on_second: Callable[[int, int], None] = lambda results, unsent: None,  # noqa: ARG005
    ) -> None:
        self._load = load
        self._on_second = on_second
        self._chance = random.Random(load.seed)  # noqa: S311 - figures, no secrets
        self._result_s: list[float] = []
        self._event_s: list[float] = []
        self._reconnects = 0
        self._lag_s = 0.0
        self._draining = self._stopping = False
        self._all_acked = asyncio.Event()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.boards = [
            SimulatedBoard(
                identity,
                identity.broker.host or host,
                run_s=load.run_s,
                acked=self._acked,
                chance=self._chance,
            )
            for identity in identities
        ]

    async def run(self) -> Report:
        """Connect all, work for the load's duration, wait for what is unsent, and report."""
        loop = asyncio.get_running_loop()
        for board in self.boards:
            self._attach(board, loop)
            with contextlib.suppress(OSError):
                board.link.open()
            await asyncio.sleep(0.002)
        began = time.monotonic()
        tasks = [asyncio.ensure_future(self._work(board)) for board in self.boards]
        tasks += [asyncio.ensure_future(self._tick()), asyncio.ensure_future(self._misc())]
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._stop.wait(), self._load.duration_s)
        for task in tasks[:-2]:
            task.cancel()
        duration_s = time.monotonic() - began
        self._draining = True
        self._look_for_the_end()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._all_acked.wait(), self._load.drain_s)
        unsent = self._unsent
        self._stopping = True
        for board in self.boards:
            board.leave()
        await asyncio.sleep(0.2)
        for task in [*tasks, *self._tasks]:
            task.cancel()
        return self._report(duration_s, unsent)

    def stop(self) -> None:
        """End the load before its time; on the loop's own thread."""
        self._stop.set()

    @property
    def _unsent(self) -> int:
        return sum(board.link.unsent for board in self.boards)

    async def _work(self, board: SimulatedBoard) -> None:
        every_s = self._load.every_s
        if every_s <= 0:
            return
        # Boards of a real shelf do not report in step.
        await asyncio.sleep(self._chance.uniform(0, max(0.0, every_s - self._load.run_s)))
        while True:
            board.begin_own_run()
            await asyncio.sleep(every_s)

    async def _tick(self) -> None:
        due = time.monotonic()
        while True:
            due += _TICK_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            self._lag_s = max(self._lag_s, now - due)
            due = max(due, now - _TICK_S)
            for board in self.boards:
                board.tick(now)
            if self._draining:
                self._look_for_the_end()

    async def _misc(self) -> None:
        while True:
            await asyncio.sleep(_MISC_S)
            for board in self.boards:
                board.link.client.loop_misc()
            results = sum(board.results for board in self.boards)
            self._on_second(results, self._unsent)

    def _acked(self, seconds: float, is_result: bool) -> None:  # noqa: FBT001 - a callback
        self._event_s.append(seconds)
        if is_result:
            self._result_s.append(seconds)
        self._look_for_the_end()

    def _look_for_the_end(self) -> None:
        if self._draining and not self._unsent and all(board.is_idle for board in self.boards):
            self._all_acked.set()

    def _attach(self, board: SimulatedBoard, loop: asyncio.AbstractEventLoop) -> None:
        """Let the loop drive the client's socket."""
        client = board.link.client

        def opened(_client: mqtt.Client, _data: object, sock: Any) -> None:
            send_at_once(client, None, sock)
            loop.add_reader(sock, client.loop_read)

        def closed(_client: mqtt.Client, _data: object, sock: Any) -> None:
            loop.remove_reader(sock)

        def writable(_client: mqtt.Client, _data: object, sock: Any) -> None:
            loop.add_writer(sock, client.loop_write)

        def written(_client: mqtt.Client, _data: object, sock: Any) -> None:
            loop.remove_writer(sock)

        def lost(*_: object) -> None:
            if not self._stopping:
                task = asyncio.ensure_future(self._reconnect(board))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

        client.on_socket_open = opened
        client.on_socket_close = closed
        client.on_socket_register_write = writable
        client.on_socket_unregister_write = written
        client.on_disconnect = lost

    async def _reconnect(self, board: SimulatedBoard) -> None:
        while not self._stopping:
            await asyncio.sleep(self._chance.uniform(*_RECONNECT_S))
            with contextlib.suppress(OSError):
                board.link.open()
                self._reconnects += 1
                return

    def _report(self, duration_s: float, unsent: int) -> Report:
        return Report(
            boards=len(self.boards),
            duration_s=duration_s,
            results=sum(board.results for board in self.boards),
            results_acked=len(self._result_s),
            events=len(self._event_s),
            unsent=unsent,
            result_ms=_spread_ms(self._result_s),
            event_ms=_spread_ms(self._event_s),
            reconnects=self._reconnects,
            loop_lag_ms=self._lag_s * 1000,
        )


def _spread_ms(seconds: list[float]) -> tuple[float, float, float]:
    """Return 50th and 99th percentile (nearest rank) and maximum, milliseconds."""
    if not seconds:
        return (math.nan, math.nan, math.nan)
    ordered = sorted(seconds)
    ranks = (math.ceil(len(ordered) * share) - 1 for share in (0.5, 0.99, 1.0))
    p50, p99, most = (ordered[rank] * 1000 for rank in ranks)
    return (p50, p99, most)
