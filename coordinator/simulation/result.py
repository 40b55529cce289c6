"""The result of a simulated run: right in form, and saying itself that nothing was measured."""

import random
from datetime import datetime, timezone
from typing import Any

import msgspec

from edgeperf import __version__
from edgeperf.agent.result import (
    Accuracy,
    Headline,
    Model,
    Percentiles,
    Performance,
    Reason,
    Result,
    Severity,
    Status,
    Tensor,
    Verdict,
)

_REASON = Reason(
    code="simulated",
    severity=Severity.INVALID,
    text="made by edgeperf fleet simulate: no model ran, every figure is invented",
)


def simulated_result(run: str, spec: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Return a ``result.json`` as data, its figures drawn from *chance*."""
    median = chance.uniform(0.5e6, 20e6)
    window_ns = int(chance.uniform(1e9, 60e9))
    queries = int(window_ns / median)
    names = ("min", "mean", "p50", "p90", "p95", "p97", "p99", "p99_9", "max")
    spread = (0.9, 1.02, 1.0, 1.1, 1.15, 1.2, 1.4, 2.0, 4.0)
    latency = {name: median * factor for name, factor in zip(names, spread, strict=True)}
    tensor = Tensor(name="input", shape=(1, 8, 8, 1), dtype="float32")
    result = Result(
        id=run,
        created=datetime.now(timezone.utc).isoformat(),
        edgeperf=__version__,
        verdict=Verdict(status=Status.INVALID, comparable=False, reasons=(_REASON,)),
        spec=spec,
        model=Model(
            name=str(spec.get("model", "simulated")),
            file="simulated.tflite",
            format="tflite",
            sha256="0" * 64,
            size_bytes=1,
            precision="float",
            inputs=(tensor,),
            outputs=(tensor,),
        ),
        task=None,
        sut=None,
        accuracy=Accuracy(measured=False, why_not="simulated"),
        performance=Performance(
            headline=Headline(name="latency_p90", value=latency["p90"], unit="ns"),
            queries=queries,
            samples=queries,
            duration_ns=window_ns,
            throughput_sps=queries / window_ns * 1e9,
            latency_ns=Percentiles(**latency),
            target_qps=None,
            target_latency_ns=None,
            calibrated_latency_ns=None,
            window_start_mono_ns=0,
            window_end_mono_ns=window_ns,
            loadgen=None,
            stopwatch=None,
        ),
        board={"kind": "simulated"},
        conditions={"temperature_max_c": chance.uniform(40, 80), "throttled": False},
        power=None,
        phases_ns={"prepare": 10**8, "performance": window_ns},
        files={},
    )
    document: dict[str, Any] = msgspec.to_builtins(result, str_keys=True)
    return document
