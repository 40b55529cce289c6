"""The leader of a test: calibrate, let LoadGen drive the team, say what happened."""

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from edgeperf.agent.board import available_memory_bytes
from edgeperf.agent.run import loadgen
from edgeperf.agent.run.calibrate import calibrate, chunk_size, hints_for, sustainable_qps
from edgeperf.agent.run.calibration import Calibration
from edgeperf.agent.run.child import fail
from edgeperf.agent.run.harness import empty_ns
from edgeperf.agent.run.jobs import Calibrated, Done, LoadPlan, Scoring, WorkerJob
from edgeperf.agent.run.priority import Priority
from edgeperf.agent.run.service import SMALL_SHARE, InlineService, Service
from edgeperf.agent.run.shared import COMPLETING, PROGRESS, Shared
from edgeperf.agent.run.sut import (
    Issue,
    offline_issue,
    serial_issue,
    shared_issue,
    single_issue,
)
from edgeperf.agent.run.team import Member, Team
from edgeperf.agent.run.trial import TRIAL_BELOW_NS, Test, sustained_qps
from edgeperf.agent.run.worker import Samples, peak_rss_bytes
from edgeperf.datasets.base import DatasetError

if TYPE_CHECKING:
    from edgeperf.agent.run.child import Channel

#: Samples that take so long are not dealt out but taken by whoever is free.
FREELY_FROM_NS = 1_000_000


class Leader:
    """The first worker of a team, which holds LoadGen.

    Args:
        job: Its job.
        shared: The blocks.
        team: All workers.
        samples: The samples, as this worker needs them.
        priority: Whether it may have real-time priority.
    """

    def __init__(
        self, job: WorkerJob, shared: Shared, *, team: Team, samples: Samples, priority: Priority
    ) -> None:
        self._job = job
        self._shared = shared
        self._team = team
        self._samples = samples
        self._priority = priority
        self._handover_ns = 0.0

    def lead(self, member: Member, channel: "Channel") -> None:
        """Run the test from calibration to the last log line."""
        job, plan, slots = self._job, self._job.load, self._job.prepared.slots
        self._priority.take()
        found = calibrate(plan, self._team, job.workers, slots, job.prepared.batch)
        self._priority.give_back()
        test = partial(self.test, member=member, found=found, failed=partial(fail, channel))
        if plan.scenario == "Server" and not plan.accuracy and plan.target_qps is None:
            plan = msgspec.structs.replace(plan, target_qps=self._server_qps(plan, found, test))
        hints = hints_for(plan, found, available_bytes=available_memory_bytes())
        settings = loadgen.settings_for(plan, hints)
        self._shared.words[PROGRESS] = 0
        channel.say(_calibrated(plan.scenario, found, hints.target_qps, settings))
        test(plan, settings)
        self._team.stop()
        if plan.accuracy:
            channel.say(Scoring())
        done = _done(plan.scenario, self._shared, plan.samples_per_query, self._samples)
        channel.say(msgspec.structs.replace(done, handover_ns=self._handover_ns))

    def _server_qps(self, plan: LoadPlan, found: Calibration, test: Test) -> float:
        """Return the rate that Server is asked for, unless the user gave one."""
        qps = sustainable_qps(found.latency_ns, self._job.workers, plan.target_latency_ns)
        if found.latency_ns >= TRIAL_BELOW_NS:
            return qps
        return sustained_qps(plan, qps, test, available_memory_bytes())

    def test(
        self,
        plan: LoadPlan,
        settings: loadgen.Settings,
        *,
        member: Member,
        found: Calibration,
        failed: Callable[[BaseException], None],
    ) -> None:
        """Let LoadGen run one test.

        Args:
            plan: The test.
            settings: What LoadGen is told.
            member: This worker.
            found: What calibration found.
            failed: Told of an error in a callback or a thread; must not return.
        """
        job, shared, team = self._job, self._shared, self._team
        service = None
        if plan.scenario == "Server" and job.workers > 1:
            small = found.latency_ns < SMALL_SHARE * plan.target_latency_ns
            kind = InlineService if small else Service
            service = kind(job, shared, team=team, priority=self._priority, failed=failed)
            service.start(member)
            self._handover_ns = service.handover_ns
            issue: Issue = service.issue
        else:
            if plan.scenario == "MultiStream" and job.workers > 1:
                self._handover_ns = empty_ns(partial(_sharing(team, job, found), ()))
            issue = issue_for(plan.scenario, job, shared, team=team, member=member, found=found)
        shared.words[PROGRESS] = shared.words[COMPLETING] = 0
        os.sched_setaffinity(0, job.housekeeping)  # LoadGen's threads are born there
        loadgen.run(
            plan,
            settings,
            samples=(job.prepared.library_size, job.prepared.slots),
            issue=guarded(issue, failed),
            load=_guarded_load(partial(self._load, infers=type(service) is not Service), failed),
        )
        self._priority.give_back()
        if service is not None:
            service.end()

    def _load(self, indices: Sequence[int], *, infers: bool) -> None:
        """Bring samples into memory; then this thread, which issues, goes where it is to run."""
        self._samples.load(indices)
        if infers:
            os.sched_setaffinity(0, self._job.cores)
            self._priority.take()
        else:
            os.sched_setaffinity(0, self._job.issuing)


def issue_for(
    scenario: str,
    job: WorkerJob,
    shared: Shared,
    *,
    team: Team,
    member: Member,
    found: Calibration,
) -> Issue:
    """Return what LoadGen calls in *scenario*, apart from Server with several workers."""
    if scenario == "Offline":
        size, batch = partial(chunk_size, found.throughput_sps, job.workers), job.prepared.batch
        return offline_issue(shared, team, partial(size, batch=batch))
    if scenario == "MultiStream":
        return shared_issue(shared, _sharing(team, job, found))
    if scenario == "Server" or job.load.accuracy:
        return serial_issue(shared, member.answer)
    return single_issue(shared, member.answer)


def _sharing(team: Team, job: WorkerJob, found: Calibration) -> Callable[[Sequence[int]], None]:
    """Return how a MultiStream query is shared; a free choice costs some 4 µs a sample."""
    slow = job.workers * 1e9 / found.throughput_sps >= FREELY_FROM_NS
    return team.share_freely if slow and job.workers > 1 else team.share


def guarded(issue: Issue, failed: Callable[[BaseException], None]) -> Issue:
    """Return *issue* such that an error goes to *failed*, which must not return.

    Nothing may pass into LoadGen, which would hang or crash.
    """

    def call(ids: Sequence[int], indices: Sequence[int]) -> None:
        try:
            issue(ids, indices)
        except BaseException as error:  # noqa: BLE001 - see above
            failed(error)

    return call


def _guarded_load(
    load: Callable[[Sequence[int]], None], failed: Callable[[BaseException], None]
) -> Callable[[Sequence[int]], None]:
    """Return *load* likewise: a photograph may turn out to be damaged only here."""

    def call(indices: Sequence[int]) -> None:
        try:
            load(indices)
        except BaseException as error:  # noqa: BLE001 - as above
            failed(error)

    return call


def _calibrated(
    scenario: str, found: Calibration, target_qps: float, settings: loadgen.Settings
) -> Calibrated:
    per_query = found.latency_ns
    if scenario == "Server":
        per_query = 1e9 / target_qps
    elif scenario == "Offline":
        per_query = 1e9 / found.throughput_sps
    duration_ns = settings.min_duration_ms * 1_000_000
    return Calibrated(
        latency_ns=found.latency_ns,
        throughput_sps=found.throughput_sps,
        target_qps=float(loadgen.written(target_qps)) or None,
        expected_queries=max(settings.min_query_count, int(duration_ns / per_query)),
        min_duration_ns=duration_ns,
    )


def _done(scenario: str, shared: Shared, samples_per_query: int, opened: Samples) -> Done:
    count = shared.words[PROGRESS]
    samples = count * samples_per_query if scenario == "MultiStream" else count
    score, why_not = None, None
    try:
        score = opened.score()
    except DatasetError as error:
        why_not = str(error)
    return Done(
        score=score,
        not_scored=why_not,
        queries=1 if scenario == "Offline" else count,
        samples=samples,
        window_start_mono_ns=shared.start_ns[0],
        window_end_mono_ns=int(shared.end_array[:count].max()) if count else time.monotonic_ns(),
        peak_rss_bytes=peak_rss_bytes(),
        completing_ns=shared.words[COMPLETING],
    )
