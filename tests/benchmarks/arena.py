"""All contestants of one target, loaded at the same time; they measure one at a time."""

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

import msgspec
from benchmarks.host import Found, Resident, cpu_ns
from benchmarks.protocol import Command, Figures
from benchmarks.smaps import own_bytes
from benchmarks.target import Target, spec_of

from edgeperf.agent.run.jobs import WorkerJob
from edgeperf.agent.run.layout import lay_out
from edgeperf.agent.run.wiring import wired
from edgeperf.agent.spec import Scenario

PEERS = ("reference", "queue", "pipe")
EDGEPERF = "edgeperf"


class Arena:
    """The contestants of one target, as a context manager.

    Args:
        target: What is measured.

    Attributes:
        bare_ns: Median of a short bare loop, for LoadGen's hints.
        cores: Cores of the workers; the first is SingleStream's.
    """

    def __init__(self, target: Target) -> None:
        self.bare_ns = 0.0
        self._target = target
        layout, server = (
            lay_out(spec_of(target.name, scenario))
            for scenario in (Scenario.OFFLINE, Scenario.SERVER)
        )
        self._layout = msgspec.structs.replace(layout, issuing=server.issuing)
        self.cores = tuple(core for own in layout.workers for core in own)
        self._stack = ExitStack()
        self._team: list[Resident] = []
        self._peers: dict[str, Resident] = {}

    def __enter__(self) -> "Arena":
        """Start all contestants and wait until their models are loaded."""
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _open(self) -> None:
        layout = self._layout
        wiring = self._stack.enter_context(wired(self._target.inputs, len(layout.workers) - 1))
        jobs = [self._target.job(wiring, layout, place) for place in range(len(layout.workers))]
        self._team = [self._start(f"edgeperf{job.index}", "ours", job, ()) for job in jobs]
        for peer in PEERS:
            self._peers[f"{peer} single"] = self._start(f"{peer}-1", peer, jobs[0], self.cores[:1])
            self._peers[f"{peer} all"] = self._start(f"{peer}-all", peer, jobs[0], self.cores)
        for resident in (*self._team, *self._peers.values()):
            resident.wait_ready()
        self.bare_ns = self.bare("bare", 0.3).figures.p50_ns

    def _start(self, name: str, kind: str, job: WorkerJob, cores: Sequence[int]) -> Resident:
        resident = Resident(kind, job, cores, self._target.folder / f"{name}.log")
        self._stack.callback(resident.close)
        return resident

    def bare(self, kind: str, seconds: float) -> Found:
        """Time a loop on the first core: ``bare`` or ``plain``."""
        found = self._ask(self._team[:1], Command(do=kind, seconds=seconds))
        return msgspec.structs.replace(found, memory_bytes=0)  # it is a guest of edgeperf's

    def bare_on_all(self, seconds: float) -> Found:
        """Time bare loops on all cores at once; samples per second are their sum."""
        team = self._team
        before = _cpu_of(team)
        for resident in team:
            resident.tell(Command(do="bare", seconds=seconds))
        found = [resident.hear() for resident in team]
        samples = sum(each.samples for each in found)
        total = Figures(
            p50_ns=max(each.p50_ns for each in found),
            p90_ns=max(each.p90_ns for each in found),
            p99_ns=max(each.p99_ns for each in found),
            sps=sum(each.sps for each in found),
            samples=samples,
        )
        return Found(total, (_cpu_of(team) - before) / samples)

    def edgeperf(self, command: Command) -> Found:
        """Have edgeperf measure a scenario."""
        for follower in self._team[1:]:
            follower.tell(Command(do="follow"))
        found = self._ask(self._team, command)
        for follower in self._team[1:]:
            follower.hear()
        return found

    def peer(self, peer: str, command: Command) -> Found:
        """Have a peer measure a scenario."""
        kind = "single" if command.do == "SingleStream" else "all"
        return self._ask([self._peers[f"{peer} {kind}"]], command)

    def _ask(self, team: Sequence[Resident], command: Command) -> Found:
        folder = self._target.folder / "loadgen"
        folder.mkdir(exist_ok=True)
        before = _cpu_of(team)
        found = team[0].ask(msgspec.structs.replace(command, folder=str(folder)))
        spent_ns = (_cpu_of(team) - before) / max(1, found.samples)
        return Found(found, spent_ns, own_bytes(pid for each in team for pid in each.pids))


def _cpu_of(team: Sequence[Resident]) -> int:
    return cpu_ns(pid for resident in team for pid in resident.pids)
