"""A harness built like MLPerf's reference implementations, written for this comparison.

LoadGen, a queue and worker threads in one process: the issue call puts samples into the
queue, a thread takes them, infers, copies the answer into an ``array`` and completes.
Each thread has its own session and core, which is better than most such harnesses do.
"""

import array
import os
import queue
import threading
from collections.abc import Sequence

import mlperf_loadgen as lg
from benchmarks.bare import open_inputs
from benchmarks.drive import measure
from benchmarks.protocol import Command, Figures

from edgeperf.agent.run.jobs import WorkerJob
from edgeperf.backends.base import Session


class Reference:
    """LoadGen in front of as many threads as the job has workers."""

    def __init__(self, job: WorkerJob, cores: Sequence[int]) -> None:
        self._prepared = job.prepared
        self._tasks: queue.Queue[lg.QuerySample] = queue.Queue()
        for core in cores:
            os.sched_setaffinity(0, {core})  # a runtime's threads are born where it is loaded
            session, _ = open_inputs(job)
            threading.Thread(target=self._work, args=(session, core), daemon=True).start()
        os.sched_setaffinity(0, {*cores, *job.housekeeping})

    def pids(self) -> tuple[int, ...]:
        """Return this process alone."""
        return (os.getpid(),)

    def _work(self, session: Session, core: int) -> None:
        os.sched_setaffinity(0, {core})
        slots = self._prepared.slots
        while True:
            sample = self._tasks.get()
            session.infer(sample.index % slots)
            answer = array.array("B", session.results[0].tobytes())
            address, size = answer.buffer_info()
            lg.QuerySamplesComplete([lg.QuerySampleResponse(sample.id, address, size)])

    def _issue(self, samples: Sequence[lg.QuerySample]) -> None:
        for sample in samples:
            self._tasks.put(sample)

    def do(self, command: Command) -> Figures:
        """Measure once."""
        return measure(command, self._prepared, self._issue)
