"""One round: every contestant once in every scenario, in an order that changes by round."""

from collections.abc import Callable, Iterator
from functools import partial

import msgspec
from benchmarks.app import run_app
from benchmarks.arena import EDGEPERF, PEERS, Arena
from benchmarks.drive import SAMPLES_PER_QUERY
from benchmarks.host import Found
from benchmarks.protocol import Command
from benchmarks.quiet import Onlooker, wait_for_quiet
from benchmarks.rows import Row
from benchmarks.target import Target

SCENARIOS = ("SingleStream", "MultiStream", "Offline", "Server")
BARE, PLAIN, APP = "bare", "plain", "benchmark_app"
#: Server is offered these shares of what bare loops on all cores would carry.
LOADS = (0.6, 0.75, 0.85, 0.92)
#: A contestant so far above the bound is offered no more.
_LOST = 3.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How long things take.

    Attributes:
        seconds: Of each measurement, at the least.
        queries: MultiStream and Server: queries of each measurement, at the least.
        rounds: Repetitions.
        server_rounds: Repetitions of Server.
        patience_s: How long to wait before a measurement for others to be quiet.
        scenarios: Which.
    """

    seconds: float
    queries: int
    rounds: int
    server_rounds: int
    patience_s: float
    scenarios: tuple[str, ...] = SCENARIOS


class Round:
    """One round on one target.

    Args:
        target: What is measured.
        arena: The contestants.
        settings: How long.
        number: Which round, from 0.
        app: Where OpenVINO's benchmark_app is; None leaves it out.
    """

    def __init__(
        self, target: Target, arena: Arena, settings: Settings, number: int, app: str | None
    ) -> None:
        self._target = target
        self._arena = arena
        self._settings = settings
        self._number = number
        self._app = app if target.plan.sut.backend == "openvino" else None

    def rows(self) -> Iterator[Row]:
        """Measure."""
        for scenario in self._settings.scenarios:
            if scenario != "Server":
                yield from self._all(scenario)
            elif self._number < self._settings.server_rounds:
                yield from self._server()

    def _all(self, scenario: str) -> Iterator[Row]:
        actions = list(self._actions(scenario).items())
        turn = self._number % len(actions)
        ordered = [*actions[turn:], *actions[:turn]]
        for contestant, action in ordered[:: 1 if self._number % 2 else -1]:
            yield self._row(scenario, contestant, action)

    def _row(
        self, scenario: str, contestant: str, action: Callable[[], Found], qps: float = 0.0
    ) -> Row:
        wait_for_quiet(self._arena.cores, self._settings.patience_s)
        onlooker = Onlooker(self._arena.cores)
        found = action()
        return Row(
            target=self._target.name,
            scenario=scenario,
            contestant=contestant,
            round=self._number,
            figures=found.figures,
            cpu_ns=found.cpu_ns,
            memory_bytes=found.memory_bytes,
            foreign_share=onlooker.share(found.cpu_ns * found.figures.samples),
            offered_qps=qps,
        )

    def _actions(self, scenario: str) -> dict[str, Callable[[], Found]]:
        arena, seconds, app = self._arena, self._settings.seconds, self._app
        command = self._command(scenario)
        actions: dict[str, Callable[[], Found]] = {EDGEPERF: partial(arena.edgeperf, command)}
        actions |= {peer: partial(arena.peer, peer, command) for peer in PEERS}
        if scenario == "Offline":
            actions[BARE] = partial(arena.bare_on_all, seconds)
        else:
            actions[BARE] = partial(arena.bare, "bare", seconds)
        if scenario == "SingleStream":
            actions[PLAIN] = partial(arena.bare, "plain", seconds)
        if app is not None and scenario == "SingleStream":
            percentile = 90 if self._number % 2 else 50
            actions[APP] = partial(
                run_app, app, self._target, arena.cores[:1], seconds, percentile=percentile
            )
        elif app is not None and scenario == "Offline":
            actions[APP] = partial(run_app, app, self._target, arena.cores, seconds, percentile=50)
        return actions

    def _command(self, scenario: str) -> Command:
        bare_ns, cores = self._arena.bare_ns, len(self._arena.cores)
        seconds, latency_ns, queries = self._settings.seconds, bare_ns, 1
        if scenario == "MultiStream":
            latency_ns = bare_ns * SAMPLES_PER_QUERY / cores
            queries = self._settings.queries
        return Command(
            do=scenario,
            seconds=seconds,
            queries=queries,
            latency_ns=latency_ns,
            qps=1e9 * cores / bare_ns,
        )

    def _server(self) -> Iterator[Row]:
        arena, settings = self._arena, self._settings
        capacity = 1e9 * len(arena.cores) / arena.bare_ns
        lost: set[str] = set()
        for load in LOADS:
            qps = load * capacity
            command = Command(
                do="Server", seconds=max(settings.seconds, settings.queries / qps), qps=qps
            )
            for contestant in (EDGEPERF, *PEERS):
                if contestant in lost:
                    continue
                call = arena.edgeperf if contestant == EDGEPERF else partial(arena.peer, contestant)
                row = self._row("Server", contestant, partial(call, command), qps)
                yield row
                if row.figures.p99_ns > _LOST * bound_ns(self._target, arena):
                    lost.add(contestant)


def bound_ns(target: Target, arena: Arena) -> float:
    """Return Server's bound: the task's, but at least four inferences."""
    return max(float(target.plan.target_latency_ns), 4 * arena.bare_ns)
