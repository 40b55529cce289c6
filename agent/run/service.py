"""Server with several workers: who answers a query, and how it is completed.

Queries go into a pipe from which every idle worker takes the next; what followers answer
comes back through a second pipe and is completed by a thread of the leader. What the
leader itself answers it completes at once, in one of two ways:

* **in a thread of its own**, so that issuing never waits: the queue is that of all workers.
* **inside the issue call**, when no follower is idle. While it infers LoadGen cannot issue,
  which costs a follower that becomes idle a part of an inference, but a query changes
  hands once less. For models that take a small part of the latency bound, where the rate
  is limited by work and not by waiting, that carries more.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence

import mlperf_loadgen as lg

from edgeperf.agent.run.harness import empty_ns
from edgeperf.agent.run.jobs import WorkerJob
from edgeperf.agent.run.priority import Priority
from edgeperf.agent.run.shared import COMPLETER, PROGRESS, Shared
from edgeperf.agent.run.sut import Responses
from edgeperf.agent.run.team import LAST, NOTHING, Member, Team, unpack_answers

#: A model that takes less than this share of the latency bound is answered inside the call.
SMALL_SHARE = 1 / 20
#: So soon after an answer LoadGen only calls again if the query was overdue.
_LATE_NS = 20_000
_READ_BYTES = 1 << 16


class Service:
    """Hands queries to the workers and completes what they answer.

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
        self._respond = Responses(shared).to_one

    def start(self, member: Member) -> None:
        """Set all workers to serve; the leader serves as *member*."""
        self._team.serve()
        self.handover_ns = empty_ns(self._ask_for_nothing)
        self._begin(self._complete)
        self._lead(member)

    def _lead(self, member: Member) -> None:
        self._begin(lambda: self._infer(member))

    def _begin(self, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - LoadGen would wait for ever
                self._failed(error)

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _ask_for_nothing(self) -> None:
        """Hand on a query without a sample and wait for it; only followers serve yet."""
        self._team.issue(0, NOTHING, 0)
        os.read(self._job.wiring.answers[0], len(LAST))

    def end(self) -> None:
        """Send the workers back to idle; LoadGen has every answer by now."""
        self._team.end_service(servers=len(self._threads) - 1)
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

    def _done(self, response_id: int, index: int, number: int) -> int:
        """Complete what the leader answered; return when."""
        ended = time.monotonic_ns()
        lg.QuerySamplesComplete(self._respond(response_id, index))
        self._shared.end_ns[number] = ended
        self._done_here += 1
        self._shared.words[PROGRESS] = self._done_here + self._done_there
        return ended

    def _infer(self, member: Member) -> None:
        os.sched_setaffinity(0, self._job.cores)
        self._priority.take()

        def give(record: bytes) -> None:
            ((response_id, index, number),) = unpack_answers(record)
            self._done(response_id, index, number)

        member.serve(give)

    def _complete(self) -> None:
        os.sched_setaffinity(0, self._job.issuing)
        words, end_ns = self._shared.words, self._shared.end_ns
        words[COMPLETER] = threading.get_native_id()
        responses, answers = Responses(self._shared).to, self._job.wiring.answers[0]
        while (raw := os.read(answers, _READ_BYTES)) != LAST:
            ids, indices, numbers = zip(*unpack_answers(raw), strict=True)
            ended = time.monotonic_ns()
            lg.QuerySamplesComplete(responses(ids, indices))
            for number in numbers:
                end_ns[number] = ended
            self._done_there += len(numbers)
            words[PROGRESS] = self._done_here + self._done_there


class InlineService(Service):
    """The same, but the leader answers inside the issue call, when no follower is idle."""

    def _lead(self, member: Member) -> None:
        self._answer = member.answer
        self._ended_ns = 0
        self._handed = 0

    def issue(self, ids: Sequence[int], indices: Sequence[int]) -> None:
        """Hand on a query, or answer it."""
        start_ns, hand_on = self._shared.start_ns, self._team.issue
        followers = self._job.workers - 1
        for response_id, index in zip(ids, indices, strict=True):
            number = self._issued
            self._issued = number + 1
            start_ns[number] = began = time.monotonic_ns()
            # With more waiting each follower gets one ahead, or it would be idle while
            # the leader infers.
            ahead = 2 if began - self._ended_ns < _LATE_NS else 1
            if self._handed - self._done_there < ahead * followers:
                self._handed += 1
                hand_on(response_id, index, number)
            else:
                self._answer(index)
                self._ended_ns = self._done(response_id, index, number)
