"""OpenVINO's own ``benchmark_app``, as its wheel installs it, on the same model and cores."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from benchmarks.host import Found
from benchmarks.protocol import Figures
from benchmarks.target import Target

from edgeperf import EdgeperfError

_UNITS_NS = {"us": 1e3, "ms": 1e6, "s": 1e9}
_FIGURE = re.compile(r"(Median|90 percentile|Count|Throughput):\s+([\d.]+) (\w+)")


class AppError(EdgeperfError):
    """benchmark_app did not print what it should."""


def find_app() -> str | None:
    """Return where benchmark_app is, None where there is none."""
    beside = Path(sys.executable).with_name("benchmark_app")
    return str(beside) if beside.exists() else shutil.which("benchmark_app")


def run_app(
    app: str, target: Target, cores: Collection[int], seconds: float, *, percentile: int
) -> Found:
    """Run benchmark_app: on one core for latency, on several for throughput.

    It prints one percentile, so p50 and p90 take two runs.

    Returns:
        What it found; its CPU time contains its start.
    """
    hint = "latency" if len(cores) == 1 else "throughput"
    command = [app, "-m", target.plan.sut.model, "-d", "CPU", "-hint", hint]
    command += ["-t", str(max(1, round(seconds))), "-infer_precision", "f32"]
    command += ["-latency_percentile", str(percentile), "-shape", _shapes(target)]
    before = os.times()
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=target.folder,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    found = {name: (float(value), unit) for name, value, unit in _FIGURE.findall(done.stdout)}
    if done.returncode or "Throughput" not in found:
        words = " | ".join((done.stdout + done.stderr).splitlines()[-4:])
        raise AppError(f"benchmark_app on {target.name}: {words}")
    latency_ns = {
        name: value * _UNITS_NS[unit] for name, (value, unit) in found.items() if unit in _UNITS_NS
    }
    figures = Figures(
        p50_ns=latency_ns.get("Median", 0.0),
        p90_ns=latency_ns.get("90 percentile", 0.0),
        sps=found["Throughput"][0],
        samples=int(found["Count"][0]),
    )
    after = os.times()
    spent_s = after.children_user + after.children_system
    spent_s -= before.children_user + before.children_system
    return Found(figures, spent_s * 1e9 / max(1, figures.samples))


def _shapes(target: Target) -> str:
    inputs = target.prepared.inputs
    shapes = ["[" + ",".join(map(str, spec.shape)) + "]" for spec in inputs]
    if len(shapes) == 1:
        return shapes[0]
    return ",".join(spec.name + shape for spec, shape in zip(inputs, shapes, strict=True))
