"""What a run shall do, as its author wrote it.

A spec is plain data: it comes from the command line, a file or an MQTT message, is
checked once, on the way in, and never changes afterwards. Every default is here.
"""

import enum
from typing import Annotated, Any, Literal

import msgspec

from edgeperf import InputError
from edgeperf.datasets.choices import with_choices


class SpecError(InputError):
    """A run spec is not usable; the message names the field."""


class Scenario(str, enum.Enum):
    """How queries arrive (MLPerf Inference rules, "Scenarios")."""

    SINGLE_STREAM = "SingleStream"
    MULTI_STREAM = "MultiStream"
    OFFLINE = "Offline"
    SERVER = "Server"


class Preset(str, enum.Enum):
    """How long a run lasts.

    ``valid`` is MLPerf's own 600 s and counts, ``fast`` a minute, ``smoke`` seconds. The
    two shorter ones are never comparable with a published result, and say so.
    """

    VALID = "valid"
    FAST = "fast"
    SMOKE = "smoke"


class Precision(str, enum.Enum):
    """Which of a catalogue model's files is meant."""

    FLOAT = "float"
    INT8 = "int8"


#: A day, and as many queries as can be kept: longer is a slip of the hand.
LONGEST_MS = 24 * 3600 * 1000
MOST_QUERIES = 1 << 26

Word = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=4096)]
Queries = Annotated[int, msgspec.Meta(ge=1, le=MOST_QUERIES)]
Milliseconds = Annotated[int, msgspec.Meta(ge=1, le=LONGEST_MS)]
LatencyMs = Annotated[float, msgspec.Meta(ge=0.01, le=LONGEST_MS)]
Rate = Annotated[float, msgspec.Meta(ge=0.01, le=1e6)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=LONGEST_MS / 1000)]
Governor = Annotated[str, msgspec.Meta(pattern=r"^[a-z_]{1,32}$")]
Hertz = Annotated[int, msgspec.Meta(ge=1_000_000, le=100_000_000_000)]


class RunSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One benchmark run.

    Attributes:
        model: A catalogue name, a model file, or ``sha256:`` and the digest of a file in the
            catalogue, the cache or a mirror.
        scenario: How queries arrive.
        preset: How long the run lasts.
        backend: A name in ``edgeperf.backends.BACKENDS``; None picks what fits the file.
        precision: Which file of a catalogue model; None is its first.
        parts: Further files of the model, by what they are (``decoder``, ``tokenizer``): each
            a file, or ``sha256:`` and a digest.
        task: A name in ``edgeperf.datasets.TASKS``, or a task file (``.toml``); None is the
            catalogue model's own.
        data: The user's own labelled samples: in the task's format, or without a task in
            any of the formats that a task file takes.
        inputs_file: NPZ with one array per model input, for a model without a task.
        shapes: Shape for each input whose shape the model leaves free.
        cores: Cores to use; None is every core this process may use.
        workers: Processes that infer; None follows from scenario and cores.
        threads: Runtime threads per worker.
        options: The backend's own options.
        samples_per_query: MultiStream only; MLPerf's is 8.
        target_qps: Server only: mean arrival rate; None finds it by calibration.
        target_latency_ms: Server only: bound on the 99th percentile; None is the task's.
        min_duration_ms: Overrides the preset's duration.
        min_query_count: Overrides the preset's number of queries.
        batch: Offline only: samples per inference, or ``auto`` for what is best here.
        realtime: Whether workers take real-time priority where it is permitted and safe.
        accuracy: Whether the accuracy test runs; without it the result says so.
        gate: Share of the FP32 reference that must be reached, MLPerf's 0.99 or 0.999; None
            is the task's own gate, 0.99 where it names none.
        ungated: Show performance although the gate was missed, marked.
        seed: Seed of generated inputs.
        stall_s: Seconds without an answer after which a test counts as hung.
        meter: A meter spec, ``KIND:PORT,KEY=VALUE``; None measures no power.
        governor: Frequency governor to hold while it runs; None leaves it alone.
        clock_hz: Frequency to hold every core at, or ``max``; None leaves it alone.
        fan: ``full`` holds the fan there; None leaves it alone.
    """

    model: Word
    scenario: Scenario = Scenario.SINGLE_STREAM
    preset: Preset = Preset.FAST
    backend: Word | None = None
    precision: Precision | None = None
    parts: dict[str, str] = msgspec.field(default_factory=dict)
    task: Word | None = None
    data: Word | None = None
    inputs_file: Word | None = None
    shapes: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    cores: tuple[int, ...] | None = None
    workers: Count | None = None
    threads: Count = 1
    options: dict[str, str] = msgspec.field(default_factory=dict)
    samples_per_query: Count = 8
    target_qps: Rate | None = None
    target_latency_ms: LatencyMs | None = None
    min_duration_ms: Milliseconds | None = None
    min_query_count: Queries | None = None
    batch: Count | Literal["auto"] = 1
    realtime: bool = True
    accuracy: bool = True
    gate: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    ungated: bool = False
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    stall_s: Seconds = 60.0
    meter: Word | None = None
    governor: Governor | None = None
    clock_hz: Literal["max"] | Hertz | None = None
    fan: Literal["full"] | None = None

    def __post_init__(self) -> None:
        """Refuse what means nothing, rather than ignore it."""
        if self.scenario is not Scenario.SERVER:
            for name in ("target_qps", "target_latency_ms"):
                if getattr(self, name) is not None:
                    raise SpecError(f"{name}: means nothing in scenario {self.scenario.value}")
        if self.batch != 1 and self.scenario is not Scenario.OFFLINE:
            raise SpecError(f"batch: means nothing in scenario {self.scenario.value}")
        if self.cores is not None and not self.cores:
            raise SpecError("cores: names no core; leave it out to use all")
        if self.data is not None and self.inputs_file is not None:
            raise SpecError("data and inputs_file: give one of them")


def check_asked(spec: RunSpec) -> None:
    """Refuse what means nothing in a run that is asked for now.

    No part of reading a spec: what an older edgeperf ran with such a field is read, frozen
    and repeated as it was.

    Raises:
        SpecError: A field would change nothing; the message names it.
    """
    default = RunSpec(model=spec.model)
    by_eight = spec.samples_per_query == default.samples_per_query
    if not by_eight and spec.scenario is not Scenario.MULTI_STREAM:
        raise SpecError(f"samples_per_query: means nothing in scenario {spec.scenario.value}")
    if not spec.accuracy:
        for name in ("gate", "ungated"):
            if getattr(spec, name) != getattr(default, name):
                raise SpecError(f"{name}: means nothing without the accuracy test")
    if spec.seed != default.seed and (spec.task or spec.data or spec.inputs_file):
        raise SpecError("seed: means nothing where inputs are not generated")


def spec_from_json(raw: bytes | str, *, where: str = "run spec") -> RunSpec:
    """Check untrusted JSON and turn it into a spec; *where* is for messages.

    Raises:
        SpecError: It is not JSON, or a field is unknown, missing, of the wrong type or
            out of range; the message names the field.
    """
    try:
        return msgspec.json.decode(raw, type=RunSpec)
    except msgspec.DecodeError as error:
        raise SpecError(f"{where}: {with_choices(str(error), RunSpec)}") from error


def spec_from_mapping(raw: dict[str, Any]) -> RunSpec:
    """Like :func:`spec_from_json`, for data that is parsed already."""
    try:
        return msgspec.convert(raw, RunSpec)
    except msgspec.ValidationError as error:
        raise SpecError(f"run spec: {with_choices(str(error), RunSpec)}") from error
