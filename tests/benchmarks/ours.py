"""edgeperf's own timed path, driven from here instead of by a run.

Leader and followers are built from the same parts as in a run (team, issue functions,
LoadGen on the housekeeping core until the clock starts); only what surrounds a test, such
as calibration and the supervisor, is left out, so that tests can take turns with bare
loops in the same processes.
"""

import os
import traceback
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from benchmarks.bare import loop
from benchmarks.drive import figures, settings_for
from benchmarks.plain import plain_call
from benchmarks.protocol import Command, Figures

from edgeperf.agent.run import loadgen
from edgeperf.agent.run.calibration import Calibration
from edgeperf.agent.run.jobs import WorkerJob
from edgeperf.agent.run.leader import guarded, issue_for
from edgeperf.agent.run.shared import PROGRESS, Shared
from edgeperf.agent.run.sut import Issue, Service
from edgeperf.agent.run.team import Team, follow
from edgeperf.agent.run.worker import Samples, quiet


class Ours:
    """One process of the team; the first leads."""

    def __init__(self, job: WorkerJob) -> None:
        os.sched_setaffinity(0, job.cores)
        self._job = job
        self._shared = Shared(job)
        self._shared.slot_array[:] = np.arange(job.prepared.library_size) % job.prepared.slots
        self._samples = Samples(job, self._shared)
        self._member, _ = self._samples.member()
        self._scenario = ""
        self._plain: Callable[[int], object] | None = None
        quiet()

    def pids(self) -> tuple[int, ...]:
        """Return this process alone."""
        return (os.getpid(),)

    def do(self, command: Command) -> Figures:
        """Measure once."""
        if command.do == "follow":
            return self._follow()
        slots = self._job.prepared.slots
        if command.do == "bare":
            return loop(self._member.answer, slots, command.seconds)
        if command.do == "plain":
            self._plain = self._plain or plain_call(self._job.sut, self._shared.inputs)
            return loop(self._plain, slots, command.seconds)
        return self._lead(command)

    def _load(self, indices: Sequence[int]) -> None:
        self._samples.load(indices)
        if self._scenario != "Server":  # the job's is Server's; elsewhere LoadGen's thread infers
            os.sched_setaffinity(0, self._job.cores)

    def _follow(self) -> Figures:
        follow(self._job, self._shared, self._member)
        return Figures()

    def _lead(self, command: Command) -> Figures:
        job, shared, member = self._job, self._shared, self._member
        self._scenario = command.do
        team = Team(job, shared, member)
        service = None
        if command.do == "Server" and job.workers > 1:
            service = Service(job, shared, team=team, member=member, failed=_give_up)
            issue: Issue = service.issue
            service.start()
        else:
            found = Calibration(latency_ns=command.latency_ns, throughput_sps=command.qps)
            issue = issue_for(command.do, job, shared, team=team, member=member, found=found)
        shared.words[PROGRESS] = 0
        os.sched_setaffinity(0, job.housekeeping)
        loadgen.run(
            msgspec.structs.replace(job.load, directory=command.folder),
            settings_for(command),
            samples=(job.prepared.library_size, job.prepared.slots),
            issue=guarded(issue, _give_up),
            load=self._load,
        )
        if service is not None:
            service.end()
        team.stop()
        return figures(command)


def _give_up(error: BaseException) -> None:
    traceback.print_exception(error)
    os._exit(1)
