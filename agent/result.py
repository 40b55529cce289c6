"""What a run found: the whole of ``result.json``, as plain data.

History of the format (``format_version``)::

    1  first version

Readers ignore fields that they do not know, and refuse a newer ``format_version``.
"""

import enum

import msgspec

from edgeperf import InputError

FORMAT_VERSION = 1


class ResultError(InputError):
    """A result cannot be read; the message names the file and the field."""


class Status(str, enum.Enum):
    """Whether to believe a result."""

    VALID = "VALID"
    SUSPECT = "SUSPECT"
    INVALID = "INVALID"


class Severity(str, enum.Enum):
    """What a reason does to the verdict: ``note`` nothing, the others what they say."""

    NOTE = "note"
    SUSPECT = "suspect"
    INVALID = "invalid"


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a reader must know before the numbers.

    Attributes:
        code: Stable name for scripts: ``accuracy-gate``, ``worker-died``, ``clock-step``.
        severity: What it does to the verdict.
        text: One plain sentence with the figures.
    """

    code: str
    severity: Severity
    text: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether to believe this result, and why.

    Attributes:
        status: The worst severity among the reasons; VALID without any.
        comparable: Whether it was run as long as MLPerf's rules ask, so that it may stand
            beside published results.
        reasons: Worst first.
    """

    status: Status
    comparable: bool
    reasons: tuple[Reason, ...]


class Tensor(msgspec.Struct, frozen=True, kw_only=True):
    """One input or output of the model, as the runtime describes it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: float | None = None
    zero_point: int | None = None


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The model file under test; ``sha256`` is its identity, the name is for people."""

    name: str
    file: str
    format: str
    sha256: str
    size_bytes: int
    precision: str | None
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class Thread(msgspec.Struct, frozen=True, kw_only=True):
    """One thread of a worker as /proc showed it while the test ran."""

    tid: int
    name: str
    cores: tuple[int, ...]


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the SUT.

    Attributes:
        index: 0 is the leader.
        role: ``leader`` (LoadGen and inference), ``issuer`` (LoadGen only), ``follower``.
        cores: Cores that it was pinned to.
        threads: Every thread with its real affinity.
        peak_rss_bytes: Peak resident memory of the process, nought where unknown.
    """

    index: int
    role: str
    cores: tuple[int, ...]
    threads: tuple[Thread, ...]
    peak_rss_bytes: int = 0


class Sut(msgspec.Struct, frozen=True, kw_only=True):
    """System under test: runtime, what was asked of it and what really ran."""

    backend: str
    runtime: str
    version: str
    device: str
    precision: str
    delegates: tuple[str, ...]
    threads_per_worker: int
    input_copy: str
    timed: tuple[str, ...]
    options: dict[str, str]
    notes: tuple[str, ...]
    workers: tuple[Worker, ...]


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """The accuracy test.

    Attributes:
        measured: False means that nothing is known about the answers; ``why_not`` says why.
        metric: Name of the gate's metric.
        value: Its value, 0 to 1.
        metrics: Every metric that the task computes.
        samples: Distinct samples answered.
        reference: FP32 value of the metric, None when there is none to compare with.
        reference_source: Where the reference comes from.
        gate: Share of the reference that is asked.
        threshold: ``gate * reference``.
        passed: Whether the threshold was reached; None without a reference.
    """

    measured: bool
    why_not: str | None = None
    metric: str | None = None
    value: float | None = None
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    samples: int = 0
    reference: float | None = None
    reference_source: str | None = None
    gate: float | None = None
    threshold: float | None = None
    passed: bool | None = None


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Latency of one query, nanoseconds, exact (nearest rank) over all of them."""

    min: float
    mean: float
    p50: float
    p90: float
    p95: float
    p97: float
    p99: float
    p99_9: float
    max: float


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """The figure that MLPerf reports for the scenario.

    Attributes:
        name: ``latency_p90_early_stopping``, ``samples_per_second``, ...
        value: In ``unit``.
        unit: ``ns``, ``samples/s``, ``queries/s``.
    """

    name: str
    value: float
    unit: str


class LoadGen(msgspec.Struct, frozen=True, kw_only=True):
    """What LoadGen itself said about the test.

    Attributes:
        version: Its version string.
        valid: Its own verdict.
        reasons: Why it calls the result invalid.
        errors: Error lines of its detail log.
        settings: The settings in effect, as it logged them.
        latency_ns: Its own latency percentiles, same names as :class:`Percentiles`.
    """

    version: str
    valid: bool
    reasons: tuple[str, ...]
    errors: tuple[str, ...]
    settings: dict[str, float | int | str | bool]
    latency_ns: dict[str, float]


class Stopwatch(msgspec.Struct, frozen=True, kw_only=True):
    """The second stopwatch, on CLOCK_MONOTONIC, beside LoadGen's own on the wall clock.

    Attributes:
        latency_ns: What it measured.
        worst_difference_ns: Largest difference to LoadGen at p50, p90 and p99.
        agrees: Within 1 % or 5 µs at each of the three.
    """

    latency_ns: Percentiles
    worst_difference_ns: float
    agrees: bool


class Performance(msgspec.Struct, frozen=True, kw_only=True):
    """The performance test.

    Attributes:
        headline: The figure of the scenario; None when the test did not end.
        queries: Queries completed.
        samples: Samples completed.
        duration_ns: From the first issue to the last completion, CLOCK_MONOTONIC.
        throughput_sps: Samples per second over ``duration_ns``.
        latency_ns: Raw percentiles per query (Offline: None, it has one query).
        target_qps: Server and Offline: the rate that LoadGen was told.
        target_latency_ns: Server: the bound.
        calibrated_latency_ns: Median of the bare loop before the test.
        window_start_mono_ns: First issue, CLOCK_MONOTONIC.
        window_end_mono_ns: Last completion, CLOCK_MONOTONIC.
        loadgen: LoadGen's own verdict and figures.
        stopwatch: Second stopwatch; None for Offline.
    """

    headline: Headline | None
    queries: int
    samples: int
    duration_ns: int
    throughput_sps: float
    latency_ns: Percentiles | None
    target_qps: float | None
    target_latency_ns: int | None
    calibrated_latency_ns: float | None
    window_start_mono_ns: int
    window_end_mono_ns: int
    loadgen: LoadGen | None
    stopwatch: Stopwatch | None


class File(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the result directory."""

    sha256: str
    size_bytes: int


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run, whole.

    Attributes:
        format_version: See the module's history.
        id: Unique name of the run: UTC time and random characters; sorts by time.
        created: UTC, ISO 8601.
        edgeperf: Version of edgeperf that made it.
        verdict: Whether to believe it; before any number.
        spec: What was asked, a :class:`~edgeperf.agent.spec.RunSpec` as data.
        model: The file that ran.
        task: Name of the task, None without one.
        sut: What really ran.
        accuracy: The accuracy test.
        performance: The performance test; None when it was not reached, or when it is
            withheld because the accuracy gate was missed (``ungated`` shows it).
        board: What the board is, as ``edgeperf doctor`` describes it.
        conditions: What the board's condition was in the performance window.
        power: Energy over the performance window, None without a meter.
        phases_ns: How long each phase took.
        files: Every other file of the result directory.
    """

    format_version: int = FORMAT_VERSION
    id: str
    created: str
    edgeperf: str
    verdict: Verdict
    spec: dict[str, object]
    model: Model
    task: str | None
    sut: Sut | None
    accuracy: Accuracy
    performance: Performance | None
    board: dict[str, object]
    conditions: dict[str, object] | None
    power: dict[str, object] | None
    phases_ns: dict[str, int]
    files: dict[str, File]


class _Versioned(msgspec.Struct):
    format_version: int


def result_from_json(raw: bytes, *, where: str) -> Result:
    """Read ``result.json``.

    Raises:
        ResultError: It is not one, or its format is newer than this edgeperf.
    """
    try:
        version = msgspec.json.decode(raw, type=_Versioned).format_version
        if version > FORMAT_VERSION:
            raise ResultError(
                f"{where}: format {version} is newer than this edgeperf reads"
                f" ({FORMAT_VERSION}); upgrade edgeperf"
            )
        return msgspec.json.decode(raw, type=Result)
    except msgspec.DecodeError as error:
        raise ResultError(f"{where}: not a result.json: {error}") from error


def result_to_json(result: Result) -> bytes:
    """Return the text of ``result.json``, indented, ending in a newline."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"
