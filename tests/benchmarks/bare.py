"""Bare loops: the runtime and a clock, nothing else.

It makes the cheapest call that edgeperf's own session knows, so that it is the hardest
to stand beside. :mod:`benchmarks.plain` makes the calls of each runtime's tutorial.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from benchmarks.protocol import Figures
from numpy.typing import NDArray

from edgeperf.agent.run.answer import load_session
from edgeperf.agent.run.jobs import WorkerJob
from edgeperf.agent.run.memory import map_fields
from edgeperf.backends.base import Session

Blocks = Sequence[NDArray[Any]]


def open_inputs(job: WorkerJob) -> tuple[Session, Blocks]:
    """Return a session bound to the shared samples, and the samples."""
    session = load_session(job.sut)
    blocks = list(map_fields(job.wiring.inputs, job.prepared.fields).values())
    session.bind(blocks)
    return session, blocks


def times_ns(infer: Callable[[int], object], slots: int, seconds: float) -> NDArray[np.int64]:
    """Call *infer* on one slot after the other for so long; return the time of each call."""
    now = time.monotonic_ns
    until, times = now() + int(seconds * 1e9), []
    slot, begin = 0, now()
    while begin < until:
        infer(slot)
        times.append(now() - begin)
        slot = slot + 1 if slot + 1 < slots else 0
        begin = now()
    return np.array(times)


def loop(infer: Callable[[int], object], slots: int, seconds: float) -> Figures:
    """Time a bare loop."""
    began = time.monotonic_ns()
    times = times_ns(infer, slots, seconds)
    elapsed_ns = time.monotonic_ns() - began
    p50, p90, p99 = np.percentile(times, [50, 90, 99])
    return Figures(
        p50_ns=float(p50),
        p90_ns=float(p90),
        p99_ns=float(p99),
        sps=times.size * 1e9 / elapsed_ns,
        samples=times.size,
    )
