"""Results built by hand, so that a test says exactly what a decision must see."""

import itertools
from pathlib import Path
from typing import Any

from edgeperf.agent.result import (
    Accuracy,
    Data,
    Headline,
    Model,
    Percentiles,
    Performance,
    Reason,
    Result,
    Severity,
    Status,
    Sut,
    Verdict,
    Worker,
    result_to_json,
)

_NUMBERS = itertools.count(1)
WHY = "other work took 9 % of the measured cores"


def made(  # noqa: PLR0913 - each is one thing that a decision looks at
    *,
    backend: str = "tflite",
    board: str = "pi5-01",
    scenario: str = "SingleStream",
    preset: str = "valid",
    status: Status = Status.VALID,
    p99_ms: float = 10.0,
    sps: float = 100.0,
    metrics: dict[str, float] | None = None,
    intervals: dict[str, tuple[float, float]] | None = None,
    joules: tuple[float, float] | None = None,
    boundary: str = "dc-input",
    task: str | None = "digits",
    samples: int = 360,
    digest: str | None = None,
    **spec: Any,
) -> Result:
    """Return a result whose p99 is *p99_ms* and whose other latencies follow from it."""
    p99_ns = p99_ms * 1e6
    latency = Percentiles(
        **dict.fromkeys(("min", "mean", "p50", "p90", "p95", "p97"), p99_ns / 2),
        p99=p99_ns,
        p99_9=p99_ns * 2,
        max=p99_ns * 3,
    )
    offline = scenario == "Offline"
    head = ("samples_per_second", sps, "samples/s") if offline else ("p90", p99_ns / 2, "ns")
    metrics = {"top1": 0.95} if metrics is None else metrics
    severity = Severity.NOTE if status is Status.VALID else Severity(status.value.lower())
    return Result(
        id=f"20261129T1200{next(_NUMBERS):02d}Z-{backend}",
        created="2026-11-29T12:00:00Z",
        edgeperf="0.1.0",
        verdict=Verdict(
            status=status,
            comparable=False,
            reasons=(Reason(code="foreign-load", severity=severity, text=WHY),),
        ),
        spec={"model": "digits", "scenario": scenario, "preset": preset, **spec},
        model=Model(
            name="digits",
            file="digits_f32.tflite",
            format=".tflite",
            sha256="0" * 64,
            size_bytes=155_632,
            precision="float",
            inputs=(),
            outputs=(),
        ),
        task=task,
        data=None if digest is None else Data(sha256=digest, size_bytes=1, samples=samples),
        sut=Sut(
            backend=backend,
            runtime=backend,
            version="1.0",
            device="CPU",
            precision="f32",
            delegates=(),
            threads_per_worker=1,
            input_copy="none",
            timed=("inference",),
            options={},
            notes=(),
            workers=(
                Worker(index=0, role="leader", cores=(1,), threads=(), peak_rss_bytes=50_000_000),
            ),
        ),
        accuracy=Accuracy(
            measured=bool(metrics),
            why_not=None if metrics else "no dataset",
            metric=next(iter(metrics), None),
            metrics=metrics,
            samples=samples if metrics else 0,
            intervals=intervals or {},
        ),
        performance=Performance(
            headline=Headline(name=head[0], value=head[1], unit=head[2]),
            queries=1 if offline else 1000,
            samples=1000,
            duration_ns=10_000_000_000,
            throughput_sps=sps,
            latency_ns=None if offline else latency,
            target_qps=None,
            target_latency_ns=None,
            calibrated_latency_ns=None,
            window_start_mono_ns=0,
            window_end_mono_ns=10_000_000_000,
            loadgen=None,
            stopwatch=None,
        ),
        board={"hostname": board},
        conditions={"temperatures_max_c": {"cpu": 61.5}},
        power=None if joules is None else _power(joules, boundary),
        phases_ns={},
        files={},
    )


def _power(joules: tuple[float, float], boundary: str) -> dict[str, Any]:
    estimate = {"value": joules[0], "uncertainty": joules[1]}
    metrics = {"energy_per_sample_j": estimate, "average_w": estimate}
    return {"boundary": boundary, "coverage": 1.0, "gross": metrics, "net": None, "idle": None}


def kept(folder: Path, *results: Result) -> Path:
    """Write each result into a directory of its own below *folder*."""
    for result in results:
        directory = folder / result.id
        directory.mkdir(parents=True)
        (directory / "result.json").write_bytes(result_to_json(result))
    return folder
