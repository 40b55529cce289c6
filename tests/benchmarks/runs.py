"""Whole ``edgeperf run`` commands, watched from outside: their processes and memory."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from benchmarks.smaps import rollup

from edgeperf import EdgeperfError
from edgeperf.agent.result import Result, result_from_json

_LOOK_S = 0.05


class RunError(EdgeperfError):
    """A run that the benchmark needs did not work."""


class Memory(msgspec.Struct, frozen=True):
    """Memory of a process at one moment, bytes.

    Attributes:
        resident: What it sees in memory, shared pages in full.
        own: Its proportional share: pages that n processes share count an nth.
        shared_blocks: Of ``resident``: shared memory, which here is samples and times.
    """

    resident: int = 0
    own: int = 0
    shared_blocks: int = 0


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        result: Its result.
        memory: The most that each process had in the performance test: ``supervisor``,
            ``worker0``, ...
        start_s: From the command to LoadGen's first query.
    """

    result: Result
    memory: dict[str, Memory]
    start_s: float


def run(arguments: Sequence[str]) -> Seen:
    """Run ``edgeperf run`` and watch the performance test.

    Raises:
        RunError: It left no performance.
    """
    with tempfile.TemporaryDirectory(prefix="edgeperf-bench-") as folder:
        command = [sys.executable, "-m", "edgeperf", "run", *arguments, "--no-accuracy"]
        command += ["--preset", "smoke", "--output", folder]
        began_ns = time.monotonic_ns()
        most: dict[str, Memory] = {}
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            while process.poll() is None:
                _look(process.pid, most)
                time.sleep(_LOOK_S)
            words = process.stderr.read().splitlines() if process.stderr else []
        results = list(Path(folder).glob("*/result.json"))
        result = result_from_json(results[0].read_bytes(), where="result") if results else None
    if result is None or result.performance is None:
        raise RunError(f"edgeperf run {' '.join(arguments)}: {' | '.join(words[-2:])}")
    start_ns = result.performance.window_start_mono_ns - began_ns
    return Seen(result=result, memory=most, start_s=start_ns / 1e9)


def _look(supervisor: int, most: dict[str, Memory]) -> None:
    for role, pid in _processes(supervisor):
        found = memory_of(pid)
        if found.resident > most.get(role, Memory()).resident:
            most[role] = found


def _processes(supervisor: int) -> Iterator[tuple[str, int]]:
    yield "supervisor", supervisor
    with contextlib.suppress(OSError):
        path = Path(f"/proc/{supervisor}/task/{supervisor}/children")
        for word in path.read_text().split():
            log = Path(f"/proc/{word}/fd/1").readlink()
            if log.parent.name == "performance":
                yield log.stem, int(word)


def memory_of(pid: int) -> Memory:
    """Return the memory of a process; nothing when it is gone."""
    sizes = rollup(pid)
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssShmem:"):
                sizes["RssShmem"] = int(line.split()[1]) * 1024
    return Memory(sizes.get("Rss", 0), sizes.get("Pss", 0), sizes.get("RssShmem", 0))


def environment() -> dict[str, str]:
    """Return the environment for a process that must not make thread pools."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
