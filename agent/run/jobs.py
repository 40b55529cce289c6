"""What the supervisor tells its children, and what they say back: plain data, one JSON a line."""

from typing import Any

import msgspec

from edgeperf import EdgeperfError
from edgeperf.agent.run.memory import Field
from edgeperf.agent.run.seen import Seen
from edgeperf.agent.run.wiring import Wiring
from edgeperf.backends.base import RuntimeInfo
from edgeperf.datasets.own.taskfile import TaskFile
from edgeperf.datasets.score import Decoding, Score
from edgeperf.datasets.tensors import TensorSpec


class SutPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is loaded in every process that runs it.

    Attributes:
        model: Path of the file.
        backend: Name of the backend.
        threads: Runtime threads per worker.
        shapes: Shapes for inputs that the model leaves free.
        options: The backend's own options.
        batch: Samples per inference (Offline); 0 finds the best.
        parts: Paths of further files of the model, by what they are.
        decoding: How a decoder is driven, if there is one.
    """

    model: str
    backend: str
    threads: int
    shapes: dict[str, tuple[int, ...]]
    options: dict[str, str]
    batch: int = 1
    parts: dict[str, str] = msgspec.field(default_factory=dict)
    decoding: Decoding | None = None


class DataPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Where samples come from.

    Attributes:
        task: Name of the task, or its file; None for inputs without labels.
        data: The user's own samples in the task's format.
        inputs_file: NPZ with one array per input, for a model without a task.
        seed: Seed of generated inputs.
        timed_postprocessing: Whether making the answer out of the outputs is timed.
        store: Folder of preprocessed samples; None keeps none.
    """

    task: str | None
    data: str | None
    inputs_file: str | None
    seed: int
    timed_postprocessing: bool = False
    store: str | None = None


class PrepareJob(msgspec.Struct, frozen=True, kw_only=True, tag="prepare"):
    """Describe the model and fill the input block.

    Attributes:
        cores: Cores to work on.
        inputs_block: Descriptor of the block for inputs.
        all_cores: Cores to preprocess with; none makes nothing that is not there.
    """

    sut: SutPlan
    data: DataPlan
    cores: tuple[int, ...]
    inputs_block: int
    all_cores: tuple[int, ...] = ()


class Prepared(msgspec.Struct, frozen=True, kw_only=True, tag="prepared"):
    """What a prepare job found out.

    Attributes:
        inputs: The model's inputs.
        outputs: Its outputs.
        info: What really runs.
        library_size: Samples in the library.
        slots: Samples that the input block holds at a time.
        prediction_shape: Shape of one prediction, None without a task.
        payload_bytes: The most that LoadGen's accuracy log gets of one answer.
        fields: Layout of the input block.
        first_answer_finite: Whether the first answer has only finite numbers.
        notes: What a reader must know about the samples.
        batch: Samples per inference.
        batch_note: How that was found; None where it was asked for.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    info: RuntimeInfo
    library_size: int
    slots: int
    prediction_shape: tuple[int, ...] | None
    payload_bytes: int
    fields: tuple[Field, ...]
    first_answer_finite: bool
    notes: tuple[str, ...] = ()
    batch: int = 1
    batch_note: str | None = None


class Preparing(msgspec.Struct, frozen=True, kw_only=True, tag="preparing"):
    """How far a prepare job is with making the samples ready."""

    done: int
    total: int


class Scoring(msgspec.Struct, frozen=True, tag="scoring"):
    """The last answer is there; what they are worth may take minutes to find out."""


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What LoadGen is told, apart from what calibration finds.

    Attributes:
        scenario: MLPerf's name.
        accuracy: Accuracy mode instead of performance mode.
        loadgen_model: Key in mlperf.conf.
        min_duration_ms, min_query_count: None leaves MLPerf's own.
        samples_per_query: MultiStream only.
        target_qps, target_latency_ns: Server: the rate, None finds it; the bound.
        calibrate_s: How long the bare loop runs before the test.
        directory: Where LoadGen writes its logs.
    """

    scenario: str
    accuracy: bool
    loadgen_model: str
    min_duration_ms: int | None
    min_query_count: int | None
    samples_per_query: int
    target_qps: float | None
    target_latency_ns: int
    calibrate_s: float
    directory: str


class WorkerJob(msgspec.Struct, frozen=True, kw_only=True, tag="worker"):
    """Be one worker of a test.

    Attributes:
        index: 0 is the leader.
        workers: How many there are.
        cores: Cores to infer on.
        issuing: Leader: cores for the thread that LoadGen issues from.
        housekeeping: Cores for everything that is not the SUT.
        realtime: Whether real-time priority may be taken where it is permitted.
        load: What LoadGen is told.
        prepared: What the model looks like.
        wiring: What is shared.
    """

    index: int
    workers: int
    cores: tuple[int, ...]
    issuing: tuple[int, ...]
    housekeeping: tuple[int, ...]
    realtime: bool
    sut: SutPlan
    data: DataPlan
    load: LoadPlan
    prepared: Prepared
    wiring: Wiring


class ExamineJob(msgspec.Struct, frozen=True, kw_only=True, tag="examine"):
    """Describe the model, and answer a few samples by each of several task files.

    Attributes:
        tasks: By which to read samples; none takes the task of the data.
        samples, most_s: How many of each, and for how long, at most.
        details, pictures: Whether samples are described, and where they are drawn.
    """

    sut: SutPlan
    data: DataPlan
    cores: tuple[int, ...]
    tasks: tuple[TaskFile, ...] = ()
    samples: int = 5
    most_s: float = 60.0
    details: bool = False
    pictures: str | None = None


Job = PrepareJob | WorkerJob | ExamineJob


class Examined(msgspec.Struct, frozen=True, kw_only=True, tag="examined"):
    """What an examine job found out: one ``seen`` for each task file, as far as time allowed."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    seen: tuple[Seen, ...]


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """A worker has loaded its model; it starts when told ``go``.

    Attributes:
        info: What really runs.
        scheduling: ``fifo``, or ``normal`` and why.
        memory_locked: Whether its memory stays where it is.
    """

    info: RuntimeInfo
    scheduling: str
    memory_locked: bool


class Calibrated(msgspec.Struct, frozen=True, kw_only=True, tag="calibrated"):
    """The leader knows how fast the SUT is and starts LoadGen.

    Attributes:
        latency_ns: Median of one query (one sample for Server and Offline).
        throughput_sps: Samples per second of all workers together.
        target_qps: What LoadGen is told (Server, Offline).
        expected_queries: Queries that the test needs at the least.
        min_duration_ns: How long it lasts at the least.
    """

    latency_ns: float
    throughput_sps: float
    target_qps: float | None
    expected_queries: int
    min_duration_ns: int


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """A worker has ended its part in order.

    Attributes:
        queries: Leader: queries completed.
        samples: Leader: samples completed.
        window_start_mono_ns: Leader: first issue.
        window_end_mono_ns: Leader: last completion.
        peak_rss_bytes: Peak resident memory.
        handover_ns: Leader: what a query takes that asks other workers for nothing.
        completing_ns: Leader, Offline: time spent on completions.
        score: Leader, accuracy mode: what the answers are worth.
        not_scored: Why they could not be scored.
    """

    queries: int = 0
    samples: int = 0
    window_start_mono_ns: int = 0
    window_end_mono_ns: int = 0
    peak_rss_bytes: int = 0
    handover_ns: float = 0.0
    completing_ns: int = 0
    score: Score | None = None
    not_scored: str | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """A child gives up.

    Attributes:
        text: One line.
        exit_code: 2 for what the user gave, 3 for what failed.
    """

    text: str
    exit_code: int


Message = Prepared | Preparing | Examined | Ready | Calibrated | Scoring | Done | Failure

_decode_message = msgspec.json.Decoder(Message)
_decode_job = msgspec.json.Decoder(Job)


def decode_message(line: bytes) -> Message:
    """Return the message in *line*.

    Raises:
        EdgeperfError: It is none: the child is not of this version.
    """
    try:
        return _decode_message.decode(line)
    except msgspec.DecodeError as error:
        raise EdgeperfError(f"a child process said {line[:80]!r}: {error}") from error


def decode_job(line: bytes) -> Any:
    """Return the job in *line*, which our own supervisor wrote."""
    return _decode_job.decode(line)
