"""Memory that the harness itself takes: a run's processes beside one without edgeperf."""

import subprocess
import sys

from benchmarks.runs import Memory, environment, memory_of, run
from benchmarks.target import spec_of

from edgeperf.agent.result import Result
from edgeperf.agent.run.jobs import SutPlan
from edgeperf.agent.run.plan import make_plan


def memory(target: str) -> dict[str, float]:
    """Return what a run of MultiStream takes, bytes.

    A worker's own part is its resident memory without shared blocks, less that of a
    process which has only Python, numpy, the runtime and the model.

    Args:
        target: ``MODEL[:PRECISION]@BACKEND``.
    """
    model, _, backend = target.rpartition("@")
    model, _, precision = model.partition(":")
    chosen = ["--precision", precision] if precision else []
    seen = run([model, "--backend", backend, "--scenario", "MultiStream", *chosen])
    bare = _bare(seen.result, make_plan(spec_of(target)).sut)
    found = {
        f"{target}: bare process": float(bare.resident),
        "supervisor, resident": float(seen.memory["supervisor"].resident),
        "supervisor, its share": float(seen.memory["supervisor"].own),
    }
    for role, size in seen.memory.items():
        if role != "supervisor":
            found[f"{role} beyond the bare process"] = float(
                size.resident - size.shared_blocks - bare.resident
            )
    return found


def _bare(result: Result, sut: SutPlan) -> Memory:
    inputs = [f"{spec.dtype}:{','.join(map(str, spec.shape))}" for spec in result.model.inputs]
    command = [sys.executable, "-m", "benchmarks.plain", sut.backend, sut.model, *inputs]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    ) as process:
        if process.stdout is not None:
            process.stdout.readline()
        return memory_of(process.pid)
