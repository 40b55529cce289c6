"""Two harnesses that one writes first: worker processes behind a queue, and behind pipes.

LoadGen stays in the parent, and a thread there completes what comes back.

* ``queue``: one queue for all workers, one for all answers. Inputs are already in the
  workers and only numbers travel, which is better than most such harnesses do.
* ``pipe``: a pipe per worker; who has answered gets the next sample. The samples are with
  LoadGen, as in most such harnesses, so inputs travel.
"""

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, cast

import mlperf_loadgen as lg
import numpy as np
from benchmarks.bare import open_inputs
from benchmarks.drive import measure
from benchmarks.protocol import Command, Figures
from numpy.typing import NDArray

from edgeperf.agent.run.answer import load_session
from edgeperf.agent.run.jobs import WorkerJob
from edgeperf.agent.run.memory import map_fields
from edgeperf.agent.run.process import die_with

_START = multiprocessing.get_context("fork")  # no runtime is loaded yet

#: LoadGen's response id, and where the sample is or the sample itself.
Sample = tuple[int, Any]
Infer = Callable[[Any], object]


class Naive:
    """LoadGen in front of one worker process per core.

    Args:
        job: Model and samples.
        cores: A core for each worker.
        kind: ``queue`` or ``pipe``.
    """

    def __init__(self, job: WorkerJob, cores: Sequence[int], kind: str) -> None:
        self._prepared = job.prepared
        workers = Queued(job, cores) if kind == "queue" else Piped(job, cores)
        self._send, self._pids = workers.send, workers.pids
        os.sched_setaffinity(0, {*cores, *job.housekeeping})

    def pids(self) -> tuple[int, ...]:
        """Return this process and its workers."""
        return (os.getpid(), *self._pids)

    def _issue(self, samples: Sequence[lg.QuerySample]) -> None:
        for sample in samples:
            self._send((sample.id, sample.index))

    def do(self, command: Command) -> Figures:
        """Measure once."""
        return measure(command, self._prepared, self._issue)


class Queued:
    """Workers behind one queue.

    Attributes:
        send: Hands on a sample.
        pids: The workers.
    """

    def __init__(self, job: WorkerJob, cores: Sequence[int]) -> None:
        tasks: Any = _START.Queue()
        self._answers: Any = _START.Queue()
        self.send: Callable[[tuple[int, int]], None] = tasks.put
        self.pids = [_start(job, core, tasks.get, self._answers.put, _by_number) for core in cores]
        for _ in cores:
            self._answers.get()
        threading.Thread(target=self._collect, daemon=True).start()

    def _collect(self) -> None:
        while True:
            _complete(self._answers.get())


class Piped:
    """Workers behind a pipe each, one sample at a time.

    Attributes:
        pids: The workers.
    """

    def __init__(self, job: WorkerJob, cores: Sequence[int]) -> None:
        self._blocks = list(map_fields(job.wiring.inputs, job.prepared.fields).values())
        self.pids = []
        self._idle: list[Connection] = []
        self._waiting: deque[tuple[int, int]] = deque()
        self._lock = threading.Lock()
        for core in cores:
            ours, theirs = _START.Pipe()
            self.pids.append(_start(job, core, theirs.recv, theirs.send, _by_value))
            self._idle.append(ours)
        for end in self._idle:
            end.recv()
        threading.Thread(target=self._collect, args=(list(self._idle),), daemon=True).start()

    def send(self, sample: tuple[int, int]) -> None:
        """Hand on a sample, now or when a worker is idle."""
        with self._lock:
            if self._idle:
                self._idle.pop().send(self._with_inputs(sample))
            else:
                self._waiting.append(sample)

    def _with_inputs(self, sample: tuple[int, int]) -> Sample:
        number, index = sample
        return number, [block[index % len(block)] for block in self._blocks]

    def _collect(self, ends: list[Connection]) -> None:
        while True:
            for ready in wait(ends):
                end = cast("Connection", ready)
                number = end.recv()
                with self._lock:
                    if self._waiting:
                        end.send(self._with_inputs(self._waiting.popleft()))
                    else:
                        self._idle.append(end)
                _complete(number)


def _start(
    job: WorkerJob,
    core: int,
    take: Callable[[], Sample],
    give: Callable[[int], None],
    opened: Callable[[WorkerJob], Infer],
) -> int:
    arguments = (job, core, take, give, opened)
    worker = _START.Process(target=_work, args=arguments, daemon=True)
    worker.start()
    return worker.pid or 0


def _work(
    job: WorkerJob,
    core: int,
    take: Callable[[], Sample],
    give: Callable[[int], None],
    opened: Callable[[WorkerJob], Infer],
) -> None:
    die_with(os.getppid())
    os.sched_setaffinity(0, {core})
    infer = opened(job)
    give(0)
    while True:
        number, sample = take()
        infer(sample)
        give(number)


def _by_number(job: WorkerJob) -> Infer:
    """Return what infers a sample of the shared block by its number."""
    session, _ = open_inputs(job)
    slots = job.prepared.slots
    return lambda index: session.infer(index % slots)


def _by_value(job: WorkerJob) -> Infer:
    """Return what infers a sample that it is given."""
    session = load_session(job.sut)
    blocks = [np.zeros((1, *field.shape[1:]), field.dtype) for field in job.prepared.fields]
    session.bind(blocks)

    def infer(sample: list[NDArray[Any]]) -> None:
        for block, array in zip(blocks, sample, strict=True):
            block[0] = array
        session.infer(0)

    return infer


def _complete(number: int) -> None:
    lg.QuerySamplesComplete([lg.QuerySampleResponse(number, 0, 0)])
