"""What LoadGen calls: one issue function per scenario (DESIGN, "The timed path").

Between LoadGen's call and its completion there is the inference and two looks at the
clock. Our own bookkeeping comes after the completion, where LoadGen's clock has stopped.
"""

import time
from collections.abc import Callable, Sequence

import mlperf_loadgen as lg

from edgeperf.agent.run.shared import COMPLETING, PROGRESS, Answers, Shared
from edgeperf.agent.run.team import Team

Issue = Callable[[Sequence[int], Sequence[int]], None]


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


def shared_issue(shared: Shared, share: Callable[[Sequence[int]], None]) -> Issue:
    """Answer a query with all workers and complete it when the last is done: MultiStream."""
    words, start_ns, end_ns = shared.words, shared.start_ns, shared.end_ns
    now, complete, responses = time.monotonic_ns, lg.QuerySamplesComplete, Responses(shared).to

    def issue(ids: Sequence[int], indices: Sequence[int]) -> None:
        began = now()
        share(indices)
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
