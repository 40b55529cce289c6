"""One LoadGen test: start its processes, watch them, collect what they leave.

The supervisor's side. It imports no runtime and holds no LoadGen; while the clock runs
it wakes a few times a second, on the housekeeping core, to look at one counter.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf.agent.board import Sampler, WindowConditions, threads_of
from edgeperf.agent.board.sampler import Sample
from edgeperf.agent.result import Reason, Severity, Thread, Worker
from edgeperf.agent.run.directory import check_room
from edgeperf.agent.run.jobs import (
    Calibrated,
    Done,
    Failure,
    LoadPlan,
    Message,
    Prepared,
    Ready,
    Scoring,
    WorkerJob,
)
from edgeperf.agent.run.memory import map_fields
from edgeperf.agent.run.plan import Plan
from edgeperf.agent.run.preparation import LOAD_S
from edgeperf.agent.run.process import Child, ChildDiedError, Children, Deadline, child_environment
from edgeperf.agent.run.shared import (
    COMPLETER,
    PROGRESS,
    SERVED,
    Answers,
    control_fields,
    latency_fields,
)
from edgeperf.agent.run.watchdog import SCORE_S, HungError, StartError, Watchdog, raise_failure
from edgeperf.agent.run.wiring import Wiring, wired
from edgeperf.backends.base import RuntimeInfo

_POLL_S = 0.1
_SAMPLE_S = 1.0

#: Told percent, seconds left, and the hottest temperature in °C; None where unknown.
Progressed = Callable[[float, float | None, float | None], None]
#: Told what each worker got, the leader first, before the clock runs; may refuse the test.
Started = Callable[[Sequence[Ready]], None]


class Measurement:
    """What one test left behind.

    Attributes:
        directory: Where LoadGen's logs are.
        calibrated: What calibration found.
        done: What the leader said at the end; None when the test did not end.
        problem: Why it did not.
        info: What really ran.
        workers: The processes, with every thread's real affinity.
        issuers: Ids of the leader's threads that issue queries and complete them.
        conditions: The board during the test; None when it ended too early to tell.
        series: Temperatures and frequencies over the test.
        start_ns: Start of each query, CLOCK_MONOTONIC; as far as the test came.
        end_ns: End of each query (Offline: of each sample).
        answers: Accuracy mode: what was answered.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.calibrated: Calibrated | None = None
        self.done: Done | None = None
        self.problem: Reason | None = None
        self.info: RuntimeInfo | None = None
        self.workers: tuple[Worker, ...] = ()
        self.issuers: frozenset[int] = frozenset()
        self.conditions: WindowConditions | None = None
        self.series: tuple[Sample, ...] = ()
        self.start_ns: NDArray[np.int64] = np.empty(0, np.int64)
        self.end_ns: NDArray[np.int64] = np.empty(0, np.int64)
        self.answers: Answers | None = None


def measure(
    plan: Plan,
    prepared: Prepared,
    load: LoadPlan,
    *,
    inputs: int,
    progressed: Progressed,
    started: Started | None = None,
) -> Measurement:
    """Run one test.

    Args:
        plan: The run.
        prepared: What the prepare job found.
        load: What LoadGen is told.
        inputs: Descriptor of the input block.
        progressed: Told how far the test is, about once a second.
        started: Told of the workers before they are let go.

    Returns:
        What it left, also when it did not end in order.

    Raises:
        EdgeperfError: It could not start.
    """
    Path(load.directory).mkdir(parents=True)
    with wired(inputs, len(plan.layout.workers) - 1) as wiring, Children() as children:
        test = _Test(plan, prepared, load, wiring)
        test.start(children, started)
        test.watch(children, progressed)
        return test.collect()


class _Test:
    def __init__(self, plan: Plan, prepared: Prepared, load: LoadPlan, wiring: Wiring) -> None:
        self._plan = plan
        self._prepared = prepared
        self._load = load
        self._wiring = wiring
        self._left = Measurement(Path(load.directory))
        control = map_fields(wiring.control, control_fields(prepared.library_size))
        control["slots"][:] = np.arange(prepared.library_size) % prepared.slots
        self._words = control["words"]
        self._roles: dict[Child, WorkerJob] = {}
        self._ready: dict[Child, Ready] = {}
        self._peak_rss: dict[Child, int] = {}
        self._ended: set[Child] = set()
        self._watchdog = Watchdog(plan.spec.stall_s)
        self._sampler: Sampler | None = None

    def start(self, children: Children, started: Started | None) -> None:
        """Start all workers and let them go when all are ready."""
        layout = self._plan.layout
        environment = child_environment(self._plan.sut.threads)
        for index, mine in enumerate(layout.workers):
            job = WorkerJob(
                index=index,
                workers=len(layout.workers),
                cores=mine,
                issuing=layout.issuing,
                housekeeping=layout.housekeeping,
                realtime=self._plan.spec.realtime,
                sut=self._plan.sut,
                data=self._plan.data,
                load=self._load,
                prepared=self._prepared,
                wiring=self._wiring,
            )
            role = "leader" if index == 0 else f"follower {index}"
            log = self._left.directory / f"worker{index}.log"
            child = Child(
                role, job, descriptors=self._wiring.descriptors(), log=log, env=environment
            )
            self._roles[children.add(child)] = job
        self._wait_ready(children)
        if started is not None:
            started([self._ready[child] for child in self._roles])
        for child in self._roles:
            child.tell("go")

    def _wait_ready(self, children: Children) -> None:
        waiting = set(self._roles)
        deadline = Deadline(LOAD_S)
        while waiting:
            if deadline.passed:
                who = ", ".join(sorted(child.role for child in waiting))
                raise StartError(f"{who}: not ready after {LOAD_S:.0f} s")
            for child, message in children.messages(_POLL_S):
                raise_failure(message)
                if isinstance(message, Ready):
                    waiting.discard(child)
                    self._ready[child] = message
                    self._left.info = message.info

    def watch(self, children: Children, progressed: Progressed) -> None:
        """Wait until the test has ended, one way or the other."""
        try:
            self._watch(children, progressed)
        except ChildDiedError as error:
            if self._left.calibrated is None:
                raise
            self._spoil("worker-died", f"a worker died while the clock ran: {error}")
        except HungError as error:
            self._spoil("worker-hung", str(error))
        finally:
            self._see_threads()
            if self._sampler is not None:
                self._left.conditions = self._sampler.finish()
                self._left.series = self._sampler.series

    def _spoil(self, code: str, text: str) -> None:
        self._left.problem = Reason(code=code, severity=Severity.INVALID, text=text)

    def _watch(self, children: Children, progressed: Progressed) -> None:
        self._watchdog = Watchdog(self._plan.spec.stall_s)  # loading took its own time
        next_sample = 0.0
        while len(self._ended) < len(self._roles):
            for child, message in children.messages(_POLL_S):
                self._hear(child, message, children)
                if self._left.problem is not None:
                    return
            served = self._words[SERVED : SERVED + len(self._roles)].tolist()
            self._watchdog.look(int(self._words[PROGRESS]), self._left.calibrated, served)
            if self._sampler is not None and time.monotonic() >= next_sample:
                next_sample = time.monotonic() + _SAMPLE_S
                self._sampler.sample()
                self._see_threads()
                hottest = max(self._sampler.last.temperatures_c.values(), default=None)
                progressed(*self._progress(), hottest)

    def _hear(self, child: Child, message: Message, children: Children) -> None:
        if isinstance(message, Failure):
            if self._left.calibrated is None:
                raise_failure(message)
            self._spoil("worker-failed", f"{child.role} failed while the clock ran: {message.text}")
        elif isinstance(message, Calibrated):
            check_room(self._left.directory, message.expected_queries)
            self._left.calibrated = message
            used = {core for job in self._roles.values() for core in job.cores}
            self._sampler = Sampler(cores=used, pids=[os.getpid(), *children.pids])
            self._began = time.monotonic()
        elif isinstance(message, Scoring):
            self._watchdog = Watchdog(SCORE_S)
        elif isinstance(message, Done):
            if child.pid == children.pids[0]:
                self._left.done = message
                self._see_threads()
            self._peak_rss[child] = message.peak_rss_bytes
            self._ended.add(child)
            children.forget(child)

    def _progress(self) -> tuple[float, float | None]:
        calibrated = self._left.calibrated
        count = int(self._words[PROGRESS])
        if calibrated is None:
            return 0.0, None
        elapsed = time.monotonic() - self._began
        if self._load.accuracy:
            per = self._load.samples_per_query if self._load.scenario == "MultiStream" else 1
            share = count * per / self._prepared.library_size
        elif self._load.scenario == "Offline":
            share = count / calibrated.expected_queries
        else:
            by_time = elapsed / max(calibrated.min_duration_ns / 1e9, 1e-9)
            share = min(by_time, count / calibrated.expected_queries)
        share = min(1.0, share)
        return 100 * share, elapsed * (1 - share) / share if share > 0 else None

    def _see_threads(self) -> None:
        """Record every thread's real affinity, once, while queries are answered.

        Not before: the leader is on the housekeeping core until LoadGen's threads are born.
        """
        if self._left.workers or not self._words[PROGRESS]:
            return
        seen = tuple(
            Worker(
                index=job.index,
                role="follower" if job.index else "leader",
                cores=job.cores,
                threads=tuple(
                    Thread(tid=thread.tid, name=thread.name, cores=thread.allowed)
                    for thread in threads_of(child.pid)
                ),
                scheduling=self._ready[child].scheduling,
                memory_locked=self._ready[child].memory_locked,
            )
            for child, job in self._roles.items()
        )
        if all(worker.threads for worker in seen):
            self._left.workers = seen
            leader = next(child.pid for child, job in self._roles.items() if job.index == 0)
            self._left.issuers = frozenset({leader, int(self._words[COMPLETER])})

    def collect(self) -> Measurement:
        """Copy what the workers left in the shared blocks."""
        left = self._left
        count = int(self._words[PROGRESS])
        times = map_fields(self._wiring.latencies, latency_fields())
        offline = self._load.scenario == "Offline"
        left.start_ns = times["start_ns"][: min(1, count) if offline else count].copy()
        left.end_ns = times["end_ns"][:count].copy()
        if self._load.accuracy and self._prepared.prediction_shape is not None:
            left.answers = Answers(self._wiring.predictions, self._prepared)
        peaks = {self._roles[child].index: peak for child, peak in self._peak_rss.items()}
        left.workers = tuple(_with_peak(worker, peaks) for worker in left.workers)
        return left


def _with_peak(worker: Worker, peaks: dict[int, int]) -> Worker:
    return msgspec.structs.replace(worker, peak_rss_bytes=peaks.get(worker.index, 0))
