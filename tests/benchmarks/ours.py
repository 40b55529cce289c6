"""edgeperf's own timed path, driven from here instead of by a run.

Leader and followers are built from the same parts as in a run (team, issue functions,
LoadGen on the housekeeping core until the clock starts); only what surrounds a test, such
as calibration and the supervisor, is left out, so that tests can take turns with bare
loops in the same processes.
"""

import os
import traceback
from collections.abc import Callable

import msgspec
import numpy as np
from benchmarks.bare import loop
from benchmarks.drive import figures, settings_for
from benchmarks.plain import plain_call
from benchmarks.protocol import Command, Figures

from edgeperf.agent.run.calibration import Calibration
from edgeperf.agent.run.jobs import WorkerJob
from edgeperf.agent.run.leader import Leader
from edgeperf.agent.run.priority import Priority
from edgeperf.agent.run.shared import Shared
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
        priority = Priority(job)  # which the job forbids: all contestants are ordinary
        team = Team(job, self._shared, self._member)
        self._team = team
        self._leader = Leader(
            job, self._shared, team=team, samples=self._samples, priority=priority
        )
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

    def _follow(self) -> Figures:
        follow(self._job, self._shared, self._member)
        return Figures()

    def _lead(self, command: Command) -> Figures:
        plan = msgspec.structs.replace(
            self._job.load, scenario=command.do, directory=command.folder
        )
        found = Calibration(latency_ns=command.latency_ns, throughput_sps=command.qps)
        self._leader.test(
            plan, settings_for(command), member=self._member, found=found, failed=_give_up
        )
        self._team.stop()
        os.sched_setaffinity(0, self._job.cores)  # Server's LoadGen may have been elsewhere
        return figures(command)


def _give_up(error: BaseException) -> None:
    traceback.print_exception(error)
    os._exit(1)
