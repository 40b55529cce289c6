"""One worker of a test: pinned, with a session of its own; the first leads.

The leader holds LoadGen as well (DESIGN, "Processes"): waking another core for each
query would cost more than many a model takes.
"""

import ctypes
import gc
import os
import resource
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgeperf.agent.run.answer import (
    Each,
    answering,
    discarding,
    fill,
    keeping,
    load_session,
    open_samples,
    stored_inputs,
)
from edgeperf.agent.run.batch import Batch, ManyAnswers
from edgeperf.agent.run.jobs import Done, Ready, WorkerJob
from edgeperf.agent.run.priority import Priority, lock_memory
from edgeperf.agent.run.shared import Shared
from edgeperf.agent.run.team import Member, Team, follow
from edgeperf.backends.base import RuntimeInfo
from edgeperf.datasets.base import InputLibrary, SampleLibrary
from edgeperf.datasets.score import Score

if TYPE_CHECKING:
    from edgeperf.agent.run.child import Channel

_PR_SET_TIMERSLACK = 29


def work(job: WorkerJob, channel: "Channel") -> None:
    """Load the model, wait for the word, and do this worker's part of the test."""
    os.sched_setaffinity(0, job.cores)
    # The kernel may wake a sleeper 50 µs late to save power; LoadGen's Server would add
    # that to every latency.
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    shared = Shared(job)
    samples = Samples(job, shared)
    member, info = samples.member()
    priority = Priority(job)
    locked = lock_memory(job)
    channel.say(Ready(info=info, scheduling=priority.scheduling, memory_locked=locked))
    channel.wait_for_go()
    quiet()
    if job.index == 0:
        from edgeperf.agent.run.leader import Leader  # noqa: PLC0415 - followers load no LoadGen

        team = Team(job, shared, member)
        leader = Leader(job, shared, team=team, samples=samples, priority=priority)
        leader.lead(member, channel)
    else:
        priority.take()
        follow(job, shared, member)
        priority.give_back()
        channel.say(Done(peak_rss_bytes=peak_rss_bytes()))


class Samples:
    """The samples of a test as one worker needs them: opened only where they are used.

    Attributes:
        labelled: The library with labels; None where nothing asks for them.
    """

    def __init__(self, job: WorkerJob, shared: Shared) -> None:
        self._job = job
        self._shared = shared
        self._refills = job.index == 0 and job.prepared.slots < job.prepared.library_size
        self._library: InputLibrary | None = None
        self.labelled: SampleLibrary | None = None
        if job.load.accuracy or self._refills or job.data.timed_postprocessing:
            prepared = job.prepared
            specs = prepared.inputs, prepared.outputs
            self._library, self.labelled, _ = open_samples(job.data, *specs)
            if self._refills:
                self._library, _ = stored_inputs(job.data, self._library, specs)

    def member(self) -> tuple[Member, RuntimeInfo]:
        """Load the model; say what really runs."""
        job, shared = self._job, self._shared
        size = job.prepared.batch
        session, each = load_session(job.sut, batch=size), self._each()
        if size > 1:
            many = ManyAnswers(Batch(session, shared.inputs, size), shared.slot_array, each)
            return Member(job, shared, _one_of(many), many), session.info()
        session.bind(shared.inputs)
        return Member(job, shared, answering(session, shared, each)), session.info()

    def _each(self) -> Each | None:
        if self.labelled is None:
            return None
        if self._job.load.accuracy:
            return keeping(self._shared, self.labelled)
        return discarding(self.labelled) if self._job.data.timed_postprocessing else None

    def load(self, indices: Sequence[int]) -> None:
        """Bring a set of samples into the slots: LoadGen's callback, untimed."""
        if self._refills and self._library is not None:
            distinct = list(dict.fromkeys(indices))  # MultiStream repeats some at the end
            fill(self._library, self._shared.inputs, distinct)
            for slot, index in enumerate(distinct):
                self._shared.slots[index] = slot

    def score(self) -> Score | None:
        """Score the predictions; None in performance mode.

        Raises:
            DatasetError: An answer is not finite.
        """
        if self.labelled is None or self._shared.answers is None:
            return None
        return self.labelled.score(self._shared.answers.predictions)


def _one_of(many: ManyAnswers) -> Callable[[int], None]:
    """Return how one sample alone is answered by a session that takes several."""
    return lambda index: many(np.array([index], np.int32))


def quiet() -> None:
    """Keep the garbage collector out of the timed path."""
    gc.collect()
    gc.freeze()
    gc.disable()


def peak_rss_bytes() -> int:
    """Return the largest resident memory that this process had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
