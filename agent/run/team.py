"""How the leader puts the other workers to work, and how they take it.

Two ways, one for each kind of query (DESIGN, "The timed path"):

* **share**: a MultiStream query is dealt out like cards; everybody knows his own part
  from his rank, so nothing but a wake-up crosses between processes.
* **take**: Offline's one big query is cut into chunks whose numbers lie in a pipe; who
  is free reads the next. A read of four bytes is atomic in the kernel, so there is no
  lock that a dying worker could hold for ever.

A wake-up is one write to a counting event, and each is read exactly once. Spinning
before the read only saves the sleep: it is bounded in time and done only where a worker
has its cores for itself.
"""

import os
import struct
import time
from array import array
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from edgeperf.agent.run.jobs import Prepared, WorkerJob
from edgeperf.agent.run.memory import Field, map_fields

STOP, SHARE, TAKE, SERVE = range(4)

#: Places in the array of control words.
PROGRESS, GENERATION, COUNT, MODE, CHUNK, DONE = range(6)

#: Most queries (Offline: samples) whose times one test keeps. 600 s at 9 µs.
CAPACITY = 1 << 26
#: Most samples in one MultiStream query.
MAX_SHARE = 4096
#: Chunk numbers that fit a pipe of the default size, 64 KiB.
MAX_CHUNKS = 1 << 14
#: How long to look before sleeping: four times what a sleeping core takes to wake.
SPIN_NS = 200_000

_TICKET = struct.Struct("<i")
_QUERY = struct.Struct("<ii")


class Shared:
    """The blocks of a test as one process sees them.

    Attributes:
        inputs: One array per model input, shape ``(slots, *sample_shape)``.
        words: Control words, int64.
        slots: Slot of each sample of the library, int32.
        start_ns: Start of each query.
        end_ns: End of each query (Offline: of each sample).
        answers: What was answered to each sample; accuracy mode only.
    """

    def __init__(self, job: WorkerJob) -> None:
        prepared, wiring = job.prepared, job.wiring
        self.inputs = list(map_fields(wiring.inputs, prepared.fields).values())
        control = map_fields(wiring.control, control_fields(prepared.library_size))
        self.words = control["words"].data
        self.slots = control["slots"].data
        self.slot_array = control["slots"]
        self.share = control["share"].data
        self.order = control["order"]
        self.chunk_done = control["chunk_done"].data
        times = map_fields(wiring.latencies, latency_fields())
        self.start_ns = times["start_ns"].data
        self.end_ns = times["end_ns"].data
        self.end_array = times["end_ns"]
        self.answers: Answers | None = None
        if job.load.accuracy and prepared.prediction_shape is not None:
            self.answers = Answers(wiring.predictions, prepared)


class Answers:
    """What was answered to each sample of the library.

    Attributes:
        predictions: Shape ``(library_size, *prediction_shape)``, float32.
        payloads: What goes into LoadGen's accuracy log, shape ``(library_size, bytes)``.
        sizes: How many of those bytes count.
    """

    def __init__(self, block: int, prepared: Prepared) -> None:
        rows = prepared.library_size
        fields = map_fields(
            block,
            [
                Field(
                    name="predictions",
                    shape=(rows, *(prepared.prediction_shape or ())),
                    dtype="float32",
                ),
                Field(name="payloads", shape=(rows, prepared.payload_bytes), dtype="uint8"),
                Field(name="sizes", shape=(rows,), dtype="int32"),
            ],
        )
        self.predictions: NDArray[np.float32] = fields["predictions"]
        self.payloads: NDArray[np.uint8] = fields["payloads"]
        self.sizes: NDArray[np.int32] = fields["sizes"]

    def payload(self, index: int) -> bytes:
        """Return what LoadGen's log shall hold for sample *index*."""
        return self.payloads[index, : self.sizes[index]].tobytes()


def control_fields(library_size: int) -> list[Field]:
    """Return the layout of the control block."""
    return [
        Field(name="words", shape=(256,), dtype="int64"),
        Field(name="slots", shape=(library_size,), dtype="int32"),
        Field(name="share", shape=(MAX_SHARE,), dtype="int32"),
        Field(name="chunk_done", shape=(MAX_CHUNKS,), dtype="uint8"),
        Field(name="order", shape=(CAPACITY,), dtype="int32"),
    ]


def latency_fields() -> list[Field]:
    """Return the layout of the block of times."""
    return [Field(name=name, shape=(CAPACITY,), dtype="int64") for name in ("start_ns", "end_ns")]


class Member:
    """A worker that infers: it can answer one sample of the library by its index.

    Attributes:
        answer: Infer sample *index*; in accuracy mode also keep the prediction.
    """

    def __init__(self, job: WorkerJob, shared: Shared, answer: Callable[[int], None]) -> None:
        self.answer = answer
        self._shared = shared
        self._rank = job.rank
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
        answer = self.answer
        begin, end = number * size, min(total, (number + 1) * size)
        for index in shared.order[begin:end].tolist():
            answer(index)
        return int(number)

    def serve(self) -> None:
        """Answer single queries as they come through the pipe, until it is closed."""
        answer, answers = self.answer, self._answers
        tickets, size, unpack = self._tickets, _QUERY.size, _QUERY.unpack
        while record := os.read(tickets, size):
            number, index = unpack(record)
            if number < 0:
                return
            answer(index)
            os.write(answers, record)


def follow(job: WorkerJob, shared: Shared, member: Member) -> None:
    """Work for the leader until told to stop: what a follower does all its life."""
    wake, done = job.wiring.wake[job.index - 1], job.wiring.done[job.index - 1]
    words = shared.words
    mine = DONE + job.index
    seen = words[GENERATION]
    while True:
        _look(words, GENERATION, seen)
        os.eventfd_read(wake)
        seen = words[GENERATION]
        mode = words[MODE]
        if mode == STOP:
            return
        if mode == SHARE:
            member.do_share(words[COUNT])
        elif mode == TAKE:
            while (number := member.take()) is not None:
                shared.chunk_done[number] = 1
        else:
            member.serve()
        words[mine] = seen
        os.eventfd_write(done, 1)


def _look(words: memoryview, place: int, old: int) -> None:
    """Return once the word at *place* is no longer *old*, or after :data:`SPIN_NS`."""
    now = time.monotonic_ns
    until = now() + SPIN_NS
    while words[place] == old and now() < until:
        pass


class Team:
    """The leader's view of all workers, itself among them.

    Args:
        job: The leader's job.
        shared: The blocks.
        member: The leader as a worker; None when it only issues (Server).
    """

    def __init__(self, job: WorkerJob, shared: Shared, member: Member | None) -> None:
        self._shared = shared
        self._member = member
        self._wake = job.wiring.wake
        self._done = job.wiring.done
        self._taking, self._tickets = job.wiring.tickets

    def _start(self, mode: int) -> None:
        words = self._shared.words
        words[MODE] = mode
        words[GENERATION] += 1
        for event in self._wake:
            os.eventfd_write(event, 1)

    def _join(self) -> None:
        words = self._shared.words
        now = words[GENERATION]
        for place, event in enumerate(self._done, start=1):
            until = time.monotonic_ns() + SPIN_NS
            while words[DONE + place] != now and time.monotonic_ns() < until:
                pass
            os.eventfd_read(event)

    def share(self, indices: Sequence[int]) -> None:
        """Answer one query together; returns when all its samples are answered."""
        count = len(indices)
        self._shared.share[:count] = array("i", indices)
        self._shared.words[COUNT] = count
        self._start(SHARE)
        if self._member is not None:
            self._member.do_share(count)
        self._join()

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
        while member is not None and (number := member.take()) is not None:
            shared.chunk_done[number] = 1
            while reported < chunks and shared.chunk_done[reported]:
                finished(reported * chunk, min(total, (reported + 1) * chunk))
                reported += 1
        self._join()
        finished(reported * chunk, total)

    def serve(self) -> None:
        """Set all followers to answer single queries from the pipe."""
        os.set_blocking(self._taking, True)
        self._start(SERVE)

    def end_service(self) -> None:
        """End :meth:`serve`; followers are idle again afterwards."""
        for _ in self._wake:
            os.write(self._tickets, _QUERY.pack(-1, 0))
        self._join()
        os.set_blocking(self._taking, False)

    def issue(self, number: int, index: int) -> None:
        """Hand query *number*, for sample *index*, to whoever is free first."""
        os.write(self._tickets, _QUERY.pack(number, index))

    def stop(self) -> None:
        """Send the followers home."""
        self._start(STOP)


def unpack_answers(raw: bytes) -> list[int]:
    """Return the query numbers in what :meth:`Member.serve` wrote."""
    return [number for number, _ in _QUERY.iter_unpack(raw)]
