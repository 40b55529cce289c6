"""How the leader puts the other workers to work, and how they take it.

Two ways, one for each kind of query (DESIGN, "The timed path"):

* **share**: a MultiStream query is dealt out like cards; everybody knows his own part
  from his rank, so nothing but a wake-up crosses between processes.
* **take**: Offline's one big query is cut into chunks whose numbers lie in a pipe; who
  is free reads the next. Likewise the samples of a MultiStream query on a slow model, or
  the query would wait for one worker that lost its core for a moment. A read of four
  bytes is atomic in the kernel, so there is no lock that a dying worker could hold.

A wake-up is one write to a counting event, and each is read exactly once. Before the read
a word in shared memory is watched for a while, which only saves the sleep. The trap: that
word is written after the event, or who sees it falls asleep on an event that is about
to come.
"""

import os
import struct
import time
from array import array
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from edgeperf.agent.run.jobs import WorkerJob
from edgeperf.agent.run.shared import CALL, CHUNK, COUNT, DONE, GENERATION, MODE, SERVED, Shared

STOP, SHARE, TAKE, SERVE = range(4)

#: Longest watch before sleeping: some four times what a sleeping core takes to wake.
LONGEST_WATCH_NS = 200_000
#: Shortest watch: what it has become after waits that were all longer.
SHORTEST_WATCH_NS = 10_000

_TICKET = struct.Struct("<i")
#: One query of Server: LoadGen's response id, the sample, the query's number.
_QUERY = struct.Struct("<qii")
#: Stands for no sample: a query that asks for nothing.
NOTHING = -1
#: Stands for no query: the end of a service.
LAST = _QUERY.pack(0, 0, -1)


class Member:
    """A worker: it can answer samples of the library by their indices.

    Attributes:
        answer: Infer sample *index*; in accuracy mode also keep the prediction.
        answer_many: The same for many, where that is more than one after the other.
    """

    def __init__(
        self,
        job: WorkerJob,
        shared: Shared,
        answer: Callable[[int], None],
        answer_many: Callable[[NDArray[np.int32]], None] | None = None,
    ) -> None:
        self.answer = answer
        self.answer_many = answer_many
        self._shared = shared
        self._rank = job.index
        self._workers = job.workers
        self._tickets, _ = job.wiring.tickets
        _, self._answers = job.wiring.answers

    def do_share(self, count: int) -> None:
        """Answer this worker's part of a shared query of *count* samples."""
        share, answer = self._shared.share, self.answer
        for place in range(self._rank, count, self._workers):
            answer(share[place])

    def take(self) -> int | None:
        """Take a chunk and answer it; return its number, or None when none is left."""
        shared = self._shared
        try:
            (number,) = _TICKET.unpack(os.read(self._tickets, _TICKET.size))
        except BlockingIOError:
            return None
        size, total = shared.words[CHUNK], shared.words[COUNT]
        begin, end = number * size, min(total, (number + 1) * size)
        indices = shared.order[begin:end]
        if self.answer_many is not None:
            self.answer_many(indices)
        else:
            answer = self.answer
            for index in indices.tolist():
                answer(index)
        return int(number)

    def serve(self, give: Callable[[bytes], object]) -> None:
        """Answer single queries as they come through the pipe, until the last.

        Args:
            give: Takes each record back once its sample is answered.
        """
        answer, unpack = self.answer, _QUERY.unpack
        words, place = self._shared.words, SERVED + self._rank
        while (record := os.read(self._tickets, _QUERY.size)) != LAST:
            _, index, _ = unpack(record)
            if index != NOTHING:
                words[place] += 1
                answer(index)
                words[place] += 1
            give(record)

    def give_back(self, record: bytes) -> None:
        """Tell the leader that a query is answered."""
        os.write(self._answers, record)


class Watch:
    """Waits for an event, and watches a word for it as long as that has paid lately.

    A wait that a watch of :data:`LONGEST_WATCH_NS` would have caught doubles the time of
    the next, any other halves it: between queries that come seldom nothing spins for long.

    Args:
        words: The control words.
    """

    def __init__(self, words: memoryview) -> None:
        self._words = words
        self._limit_ns = LONGEST_WATCH_NS

    def wait(self, place: int, value: int, event: int) -> None:
        """Wait for one count of *event*; the word at *place* becomes *value* with it."""
        words, now = self._words, time.monotonic_ns
        began = now()
        until = began + self._limit_ns
        while words[place] != value and now() < until:
            pass
        os.eventfd_read(event)
        if now() - began < LONGEST_WATCH_NS:
            self._limit_ns = min(LONGEST_WATCH_NS, 2 * self._limit_ns)
        else:
            self._limit_ns = max(SHORTEST_WATCH_NS, self._limit_ns // 2)


def follow(job: WorkerJob, shared: Shared, member: Member) -> None:
    """Work for the leader until told to stop: what a follower does all its life."""
    wake, done = job.wiring.wake[job.index - 1], job.wiring.done[job.index - 1]
    words, watch = shared.words, Watch(shared.words)
    mine = DONE + job.index
    generation = words[mine]
    while True:
        generation += 1
        watch.wait(CALL, generation, wake)
        mode = words[MODE]
        if mode == SHARE:
            member.do_share(words[COUNT])
        elif mode == TAKE:
            while (number := member.take()) is not None:
                shared.chunk_done[number] = 1
        elif mode == SERVE:
            member.serve(member.give_back)
        os.eventfd_write(done, 1)
        words[mine] = generation
        if mode == STOP:
            return


class Team:
    """The leader's view of all workers, itself among them.

    Args:
        job: The leader's job.
        shared: The blocks.
        member: The leader as a worker.
    """

    def __init__(self, job: WorkerJob, shared: Shared, member: Member) -> None:
        self._shared = shared
        self._member = member
        self._wake = job.wiring.wake
        self._done = job.wiring.done
        self._watch = Watch(shared.words)
        self._taking, self._tickets = job.wiring.tickets

    def _start(self, mode: int) -> None:
        words = self._shared.words
        words[MODE] = mode
        words[GENERATION] += 1
        for event in self._wake:
            os.eventfd_write(event, 1)
        words[CALL] = words[GENERATION]

    def _join(self) -> None:
        generation, wait = self._shared.words[GENERATION], self._watch.wait
        for place, event in enumerate(self._done, start=1):
            wait(DONE + place, generation, event)

    def share(self, indices: Sequence[int]) -> None:
        """Answer one query together; returns when all its samples are answered."""
        count = len(indices)
        self._shared.share[:count] = array("i", indices)
        self._shared.words[COUNT] = count
        self._start(SHARE)
        self._member.do_share(count)
        self._join()

    def share_freely(self, indices: Sequence[int]) -> None:
        """The same, but each sample goes to whoever is free first."""
        self.take_all(indices, 1, tell_nobody)

    def take_all(
        self,
        indices: Sequence[int] | NDArray[np.int32],
        chunk: int,
        finished: Callable[[int, int], None],
    ) -> None:
        """Answer many samples together, each worker as fast as it can.

        Args:
            indices: Samples of the library.
            chunk: Samples that a worker takes at a time.
            finished: Called in the leader with begin and end of each answered stretch of
                *indices*, as soon as the leader learns of it.
        """
        shared, member = self._shared, self._member
        total = len(indices)
        chunks = -(-total // chunk)
        shared.order[:total] = indices
        shared.chunk_done[:chunks] = bytes(chunks)
        shared.words[COUNT], shared.words[CHUNK] = total, chunk
        os.write(self._tickets, np.arange(chunks, dtype="<i4").tobytes())
        self._start(TAKE)
        reported = 0
        while (number := member.take()) is not None:
            shared.chunk_done[number] = 1
            while reported < chunks and shared.chunk_done[reported]:
                finished(reported * chunk, min(total, (reported + 1) * chunk))
                reported += 1
        self._join()
        if reported < chunks:
            finished(reported * chunk, total)

    def serve(self) -> None:
        """Set all followers to answer single queries from the pipe."""
        os.set_blocking(self._taking, True)
        self._start(SERVE)

    def end_service(self, servers: int = 0) -> None:
        """End :meth:`serve`; followers are idle again afterwards.

        Args:
            servers: How many serve in the leader's process.
        """
        for _ in range(len(self._wake) + servers):
            os.write(self._tickets, LAST)
        self._join()
        os.set_blocking(self._taking, False)

    def issue(self, response_id: int, index: int, number: int) -> None:
        """Hand query *number*, for sample *index*, to whoever is free first."""
        os.write(self._tickets, _QUERY.pack(response_id, index, number))

    def stop(self) -> None:
        """Send the followers home."""
        self._start(STOP)
        self._join()


def tell_nobody(begin: int, end: int) -> None:
    """Take note of no answered stretch."""
    del begin, end


def unpack_answers(raw: bytes) -> Iterable[tuple[int, int, int]]:
    """Return response id, sample and number of each query that was given back."""
    return _QUERY.iter_unpack(raw)
