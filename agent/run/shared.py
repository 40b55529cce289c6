"""The blocks of memory that the processes of one test share, as arrays.

Every process maps the same fields in the same order (see :mod:`edgeperf.agent.run.memory`).
"""

import numpy as np
from numpy.typing import NDArray

from edgeperf.agent.run.jobs import Prepared, WorkerJob
from edgeperf.agent.run.memory import Field, map_fields

#: Places in the array of control words.
PROGRESS, GENERATION, COUNT, MODE, CHUNK, CALL, COMPLETING, DONE = range(8)
#: Thread id of the leader's thread that completes what followers answer; nought without one.
COMPLETER = 8
#: From here one word per worker: Server queries that it began and ended; odd while it infers.
SERVED = 512

#: Most queries (Offline: samples) whose times one test keeps. 600 s at 9 µs.
CAPACITY = 1 << 26
#: Most samples in one MultiStream query.
MAX_SHARE = 4096
#: Chunk numbers that fit a pipe of the default size, 64 KiB.
MAX_CHUNKS = 1 << 14


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
        Field(name="words", shape=(2 * SERVED,), dtype="int64"),
        Field(name="slots", shape=(library_size,), dtype="int32"),
        Field(name="share", shape=(MAX_SHARE,), dtype="int32"),
        Field(name="chunk_done", shape=(MAX_CHUNKS,), dtype="uint8"),
        Field(name="order", shape=(CAPACITY,), dtype="int32"),
    ]


def latency_fields() -> list[Field]:
    """Return the layout of the block of times."""
    return [Field(name=name, shape=(CAPACITY,), dtype="int64") for name in ("start_ns", "end_ns")]
