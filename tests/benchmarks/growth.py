"""Memory and time to start as work grows: queries, samples in the library, workers.

On the null backend, so that nothing but the harness grows. LoadGen's own memory, made
before the first query, is in these figures: 320 to 380 bytes a query.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.runs import Seen, run

from edgeperf.agent.board import usable_cores
from edgeperf.datasets.assets import BUNDLED

_MODEL = str(BUNDLED / "digits_f32.tflite")  # any file will do
_NULL = [_MODEL, "--backend", "null", "--min-duration", "0.01"]
_MULTI = ["--scenario", "MultiStream", "--min-queries", "1000"]
_FEATURES = 64
#: Columns of a row.
LEADER, SUPERVISOR, ALL = "leader at most, MB", "supervisor, MB", "all processes, MB"
START = "start, s"


def growth(*, short: bool) -> list[dict[str, Any]]:
    """Return a row per size of each kind of work."""
    rows = [
        _row("queries", count, run([*_NULL, "--min-queries", str(count)]))
        for count in ((1, 1_000) if short else (1, 1_000, 100_000, 1_000_000))
    ]
    rows += [
        _row("samples", count, _with_samples(count))
        for count in ((1, 100) if short else (1, 1_000, 10_000, 50_000))
    ]
    rows += [
        _row("workers", count, run([*_NULL, *_MULTI, "--workers", str(count)]))
        for count in range(1, len(usable_cores()) + 1)
    ]
    return rows


def _with_samples(count: int) -> Seen:
    with tempfile.TemporaryDirectory(prefix="edgeperf-bench-") as folder:
        file = Path(folder) / "inputs.npz"
        np.savez(file, input=np.zeros((count, _FEATURES), np.float32))
        shape = f"input_shape=1,{_FEATURES}"
        return run([*_NULL, "--option", shape, "--inputs", str(file), "--min-queries", "1000"])


def _row(what: str, count: int, seen: Seen) -> dict[str, Any]:
    workers = seen.result.sut.workers if seen.result.sut else ()
    peak = max((worker.peak_rss_bytes for worker in workers), default=0)
    return {
        "grows": what,
        "to": count,
        LEADER: round(peak / 1e6, 1),
        SUPERVISOR: round(seen.memory["supervisor"].resident / 1e6, 1),
        ALL: round(sum(each.own for each in seen.memory.values()) / 1e6, 1),
        START: round(seen.start_s, 2),
    }
