"""What LoadGen calls: one issue function per scenario (DESIGN, "The timed path").

Between LoadGen's call and its completion there is the inference and two looks at the
clock. Our own bookkeeping comes after the completion, where LoadGen's clock has stopped.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import mlperf_loadgen as lg

from edgeperf.agent.run.calibrate import chunk_size
from edgeperf.agent.run.team import PROGRESS, Shared, Team, unpack_answers

Issue = Callable[[Sequence[int], Sequence[int]], None]
Respond = Callable[[int, int], lg.QuerySampleResponse]

_READ_BYTES = 1 << 16


class Payloads(Protocol):
    """Makes the response for a sample of the library."""

    def __call__(self, response_id: int, index: int) -> lg.QuerySampleResponse:
        """Return the response to *response_id*, with the answer to sample *index*."""
        ...


def responder(shared: Shared) -> Payloads:
    """Return what makes responses: with the payload in accuracy mode, empty otherwise."""
    answers = shared.answers
    if answers is None:
        return lambda response_id, _: lg.QuerySampleResponse(response_id, 0, 0)
    base, step, sizes = answers.payloads.ctypes.data, answers.payloads.strides[0], answers.sizes

    def with_payload(response_id: int, index: int) -> lg.QuerySampleResponse:
        return lg.QuerySampleResponse(response_id, base + step * index, int(sizes[index]))

    return with_payload


def single_issue(shared: Shared, answer: Callable[[int], None]) -> Issue:
    """Answer one-sample queries here and now: SingleStream in performance mode.

    The one response object is used again and again.
    """
    words, start_ns, end_ns = shared.words, shared.start_ns, shared.end_ns
    now, complete = time.monotonic_ns, lg.QuerySamplesComplete
    response = lg.QuerySampleResponse(0, 0, 0)
    batch = [response]

    def issue(ids: Sequence[int], indices: Sequence[int]) -> None:
        began = now()
        answer(indices[0])
        response.id = ids[0]
        ended = now()
        complete(batch)
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
    now, complete, respond = time.monotonic_ns, lg.QuerySamplesComplete, responder(shared)

    def issue(ids: Sequence[int], indices: Sequence[int]) -> None:
        for response_id, index in zip(ids, indices, strict=True):
            began = now()
            answer(index)
            ended = now()
            complete([respond(response_id, index)])
            number = words[PROGRESS]
            start_ns[number] = began
            end_ns[number] = ended
            words[PROGRESS] = number + 1

    return issue


def shared_issue(shared: Shared, team: Team) -> Issue:
    """Deal a query out to all workers and complete it when the last is done: MultiStream."""
    words, start_ns, end_ns = shared.words, shared.start_ns, shared.end_ns
    now, complete, respond = time.monotonic_ns, lg.QuerySamplesComplete, responder(shared)

    def issue(ids: Sequence[int], indices: Sequence[int]) -> None:
        began = now()
        team.share(indices)
        batch = [
            respond(response_id, index) for response_id, index in zip(ids, indices, strict=True)
        ]
        ended = now()
        complete(batch)
        number = words[PROGRESS]
        start_ns[number] = began
        end_ns[number] = ended
        words[PROGRESS] = number + 1

    return issue


def offline_issue(shared: Shared, team: Team, workers: int, throughput_sps: float) -> Issue:
    """Answer one big query with all workers, completing it stretch by stretch: Offline."""
    words, start_ns, end_array = shared.words, shared.start_ns, shared.end_array
    now, complete, respond = time.monotonic_ns, lg.QuerySamplesComplete, responder(shared)

    def issue(ids: Sequence[int], indices: Sequence[int]) -> None:
        base = words[PROGRESS]
        start_ns[base] = now()

        def finished(begin: int, end: int) -> None:
            complete(list(map(respond, ids[begin:end], indices[begin:end])))
            end_array[base + begin : base + end] = now()
            words[PROGRESS] = base + end

        team.take_all(indices, chunk_size(throughput_sps, workers, len(indices)), finished)

    return issue


class Service:
    """Server with several workers: issuing never waits for an answer.

    Queries go into a pipe that idle workers read; a thread here completes what comes
    back. This process does not infer, so the thread disturbs no measured core.

    Attributes:
        issue: What LoadGen calls.
    """

    def __init__(self, shared: Shared, team: Team, answers: int) -> None:
        self._shared = shared
        self._team = team
        self._answers = answers
        self._ids: list[int] = []
        self._indices: list[int] = []
        self._respond = responder(shared)
        self._thread = threading.Thread(target=self._complete, name="completion", daemon=True)

    def start(self) -> None:
        """Set the workers to serve and begin to complete."""
        self._team.serve()
        self._thread.start()

    def end(self) -> None:
        """Send the workers back to idle; LoadGen has every answer by now."""
        self._team.end_service()

    def issue(self, ids: Sequence[int], indices: Sequence[int]) -> None:
        """Hand on one query (or several that LoadGen found overdue)."""
        start_ns, issue = self._shared.start_ns, self._team.issue
        for response_id, index in zip(ids, indices, strict=True):
            number = len(self._ids)
            self._ids.append(response_id)
            self._indices.append(index)
            start_ns[number] = time.monotonic_ns()
            issue(number, index)

    def _complete(self) -> None:
        words, end_ns = self._shared.words, self._shared.end_ns
        ids, indices, respond = self._ids, self._indices, self._respond
        while raw := os.read(self._answers, _READ_BYTES):
            numbers = unpack_answers(raw)
            batch = [respond(ids[number], indices[number]) for number in numbers]
            ended = time.monotonic_ns()
            lg.QuerySamplesComplete(batch)
            for number in numbers:
                end_ns[number] = ended
            words[PROGRESS] += len(numbers)
