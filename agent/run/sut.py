"""What LoadGen calls: one issue function per scenario (DESIGN, "The timed path").

Between LoadGen's call and its completion there is the inference and two looks at the
clock. Our own bookkeeping comes after the completion, where LoadGen's clock has stopped.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import mlperf_loadgen as lg

from edgeperf.agent.run.harness import empty_ns
from edgeperf.agent.run.jobs import WorkerJob
from edgeperf.agent.run.priority import Priority
from edgeperf.agent.run.shared import COMPLETING, PROGRESS, Answers, Shared
from edgeperf.agent.run.team import LAST, NOTHING, Member, Team, unpack_answers

Issue = Callable[[Sequence[int], Sequence[int]], None]

_READ_BYTES = 1 << 16


class Responses:
    """Response objects for LoadGen, filled again and again.

    LoadGen copies what they point to before the completion call returns, and making one
    costs three times as much as filling it.

    Args:
        shared: In accuracy mode responses carry the payload of their sample, else nothing.
    """

    def __init__(self, shared: Shared) -> None:
        self._answers = shared.answers
        self._one = [lg.QuerySampleResponse(0, 0, 0)]
        self._pool = list(self._one)

    def to_one(self, number: int, index: int) -> list[lg.QuerySampleResponse]:
        """Return response *number* with the answer to sample *index*; until the next call."""
        (response,) = one = self._one
        response.id = number
        if self._answers is not None:
            _point(response, self._answers, index)
        return one

    def to(self, ids: Sequence[int], indices: Sequence[int]) -> list[lg.QuerySampleResponse]:
        """Return the responses *ids* with the answers to samples *indices*; until the next call."""
        while len(self._pool) < len(ids):
            self._pool.append(lg.QuerySampleResponse(0, 0, 0))
        batch = self._pool[: len(ids)]
        for response, number in zip(batch, ids, strict=True):
            response.id = number
        if self._answers is not None:
            for response, index in zip(batch, indices, strict=True):
                _point(response, self._answers, index)
        return batch


def _point(response: lg.QuerySampleResponse, answers: Answers, index: int) -> None:
    response.data = answers.payloads.ctypes.data + answers.payloads.strides[0] * index
    response.size = int(answers.sizes[index])


def single_issue(shared: Shared, answer: Callable[[int], None]) -> Issue:
    """Answer one-sample queries here and now: SingleStream."""
    words, start_ns, end_ns = shared.words, shared.start_ns, shared.end_ns
    now, complete, response = time.monotonic_ns, lg.QuerySamplesComplete, Responses(shared).to_one

    def issue(ids: Sequence[int], indices: Sequence[int]) -> None:
        began = now()
        index = indices[0]
        answer(index)
        ended = now()
        complete(response(ids[0], index))
        number = words[PROGRESS]
        start_ns[number] = began
        end_ns[number] = ended
        words[PROGRESS] = number + 1

    return issue


def serial_issue(shared: Shared, answer: Callable[[int], None]) -> Issue:
    """Answer the samples of a query one by one, here: Server with one worker, accuracy.

    LoadGen counts a query's latency from when it was scheduled, so what waits while this
    one is served is charged with the wait: a queue of one server.
    """
    words, start_ns, end_ns = shared.words, shared.start_ns, shared.end_ns
    now, complete, response = time.monotonic_ns, lg.QuerySamplesComplete, Responses(shared).to_one

    def issue(ids: Sequence[int], indices: Sequence[int]) -> None:
        for response_id, index in zip(ids, indices, strict=True):
            began = now()
            answer(index)
            ended = now()
            complete(response(response_id, index))
            number = words[PROGRESS]
            start_ns[number] = began
            end_ns[number] = ended
            words[PROGRESS] = number + 1

    return issue


def shared_issue(shared: Shared, team: Team) -> Issue:
    """Deal a query out to all workers and complete it when the last is done: MultiStream."""
    words, start_ns, end_ns = shared.words, shared.start_ns, shared.end_ns
    now, complete, responses = time.monotonic_ns, lg.QuerySamplesComplete, Responses(shared).to

    def issue(ids: Sequence[int], indices: Sequence[int]) -> None:
        began = now()
        team.share(indices)
        ended = now()
        complete(responses(ids, indices))
        number = words[PROGRESS]
        start_ns[number] = began
        end_ns[number] = ended
        words[PROGRESS] = number + 1

    return issue


def offline_issue(shared: Shared, team: Team, chunk_for: Callable[[int], int]) -> Issue:
    """Answer one big query with all workers, completing it stretch by stretch: Offline.

    Args:
        shared: The blocks.
        team: All workers.
        chunk_for: Samples that a worker takes at a time, by those of the query.
    """
    words, start_ns, end_array = shared.words, shared.start_ns, shared.end_array
    now, complete, responses = time.monotonic_ns, lg.QuerySamplesComplete, Responses(shared).to

    def issue(ids: Sequence[int], indices: Sequence[int]) -> None:
        base = words[PROGRESS]
        start_ns[base] = now()

        def finished(begin: int, end: int) -> None:
            began = now()
            complete(responses(ids[begin:end], indices[begin:end]))
            ended = now()
            end_array[base + begin : base + end] = ended
            words[PROGRESS] = base + end
            words[COMPLETING] += ended - began

        team.take_all(indices, chunk_for(len(indices)), finished)

    return issue


class Service:
    """Server with several workers: issuing never waits for an answer.

    Queries go into a pipe from which every idle worker takes the next. The leader infers
    in a thread of its own, which completes at once; what followers answer comes back
    through a second pipe and is completed by another. Neither thread does any work while
    the first of them infers, since every runtime lets go of the interpreter lock.

    Args:
        job: The leader's job.
        shared: The blocks.
        team: All workers.
        priority: For the thread that infers.
        failed: Told of an error in a thread; must not return.

    Attributes:
        handover_ns: What a query takes that asks a follower for nothing.
    """

    def __init__(
        self,
        job: WorkerJob,
        shared: Shared,
        *,
        team: Team,
        priority: Priority,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._job = job
        self._shared = shared
        self._team = team
        self._priority = priority
        self._failed = failed
        self.handover_ns = 0.0
        self._issued = 0
        self._done_here = 0
        self._done_there = 0
        self._threads: list[threading.Thread] = []

    def start(self, member: Member) -> None:
        """Set all workers to serve; the leader serves as *member*."""
        self._team.serve()
        self.handover_ns = empty_ns(self._ask_for_nothing)
        for work in (partial(self._infer, member), self._complete):
            thread = threading.Thread(target=self._guard, args=(work,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _ask_for_nothing(self) -> None:
        """Hand on a query without a sample and wait for it; only followers serve yet."""
        self._team.issue(0, NOTHING, 0)
        os.read(self._job.wiring.answers[0], len(LAST))

    def end(self) -> None:
        """Send the workers back to idle; LoadGen has every answer by now."""
        self._team.end_service()
        os.write(self._job.wiring.answers[1], LAST)
        for thread in self._threads:
            thread.join()
        self._shared.words[PROGRESS] = self._issued

    def issue(self, ids: Sequence[int], indices: Sequence[int]) -> None:
        """Hand on one query (or several that LoadGen found overdue)."""
        start_ns, hand_on = self._shared.start_ns, self._team.issue
        for response_id, index in zip(ids, indices, strict=True):
            number = self._issued
            self._issued = number + 1
            start_ns[number] = time.monotonic_ns()
            hand_on(response_id, index, number)

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - LoadGen would wait for ever
            self._failed(error)

    def _infer(self, member: Member) -> None:
        os.sched_setaffinity(0, self._job.cores)
        self._priority.take()
        words, end_ns = self._shared.words, self._shared.end_ns
        now, complete, response = (
            time.monotonic_ns,
            lg.QuerySamplesComplete,
            Responses(self._shared).to_one,
        )

        def give(record: bytes) -> None:
            ((response_id, index, number),) = unpack_answers(record)
            ended = now()
            complete(response(response_id, index))
            end_ns[number] = ended
            self._done_here += 1
            words[PROGRESS] = self._done_here + self._done_there

        member.serve(give)

    def _complete(self) -> None:
        os.sched_setaffinity(0, self._job.issuing)
        words, end_ns = self._shared.words, self._shared.end_ns
        responses, answers = Responses(self._shared).to, self._job.wiring.answers[0]
        while (raw := os.read(answers, _READ_BYTES)) != LAST:
            ids, indices, numbers = zip(*unpack_answers(raw), strict=True)
            ended = time.monotonic_ns()
            lg.QuerySamplesComplete(responses(ids, indices))
            for number in numbers:
                end_ns[number] = ended
            self._done_there += len(numbers)
            words[PROGRESS] = self._done_here + self._done_there
