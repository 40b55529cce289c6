"""What was measured: accuracy, latency, throughput, and LoadGen's own account."""

import msgspec

from edgeperf.datasets.score import ClassScore


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """The accuracy test.

    Attributes:
        measured: False means that nothing is known about the answers; ``why_not`` says why.
        metric: Name of the gate's metric.
        value: Its value: shares from 0 to 1, BLEU from 0 to 100.
        metrics: Every metric that the task computes.
        samples: Distinct samples answered.
        reference: FP32 value of the metric, None when there is none to compare with.
        reference_source: Where the reference comes from.
        gate: Share of the reference that is asked; None where the user's own floor decides.
        threshold: ``gate * reference``, or that floor; for a metric that is better when
            lower, the most it may be.
        passed: Whether the threshold was kept; None without one.
        intervals: 95 % bootstrap interval of each metric that has one.
        classes: Each class, where answers are classes.
        confusion: How often each class (row) was answered with each (column).
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
    intervals: dict[str, tuple[float, float]] = msgspec.field(default_factory=dict)
    classes: tuple[ClassScore, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()


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
        harness_ns: What the harness adds to a query (Offline: to a sample), found in this
            run; None where nothing tells.
        tokens_per_s: Of a model that answers token by token: ``throughput_sps`` times the mean
            number of tokens of an answer in the accuracy test, end marks not counted; None
            elsewhere.
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
    harness_ns: float | None = None
    tokens_per_s: float | None = None
