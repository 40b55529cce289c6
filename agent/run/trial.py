"""Whether Server can really be had at a rate: short tests by LoadGen, before the test.

The rate that calibration works out knows the model's time alone. With a model of some
microseconds it is LoadGen and the hand-over that limit the rate, by how much differs from
board to board, and 600 s of a test at a rate that cannot be kept would be lost.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import mlperf_loadgen as lg
import msgspec

from edgeperf.agent.run.jobs import LoadPlan
from edgeperf.agent.run.loadgen import Settings
from edgeperf.agent.run.loadgen_log import DetailLog
from edgeperf.agent.run.size import server_fits_ms

#: A model that takes longer is measured, not its harness: a rate worked out holds.
TRIAL_BELOW_NS = 1_000_000
#: Of the latency bound: what a trial may use up. A test is longer and sees more.
_MARGIN = 0.5
#: Of the rate that was reached when the bound was not kept: the next one to be tried.
_NEXT_SHARE = 0.7
#: Rates that are tried at most.
_ROUNDS = 6
#: A rate that was reached all the same is tried again: a load may have passed.
_REACHED = 0.95
_MOST_MS = 1_000

Test = Callable[[LoadPlan, Settings], None]


def sustained_qps(plan: LoadPlan, qps: float, test: Test, available_bytes: int) -> float:
    """Return *qps*, or as much less as the bound takes.

    Args:
        plan: The test to come.
        qps: Queries per second to begin with.
        test: Runs one test.
        available_bytes: Memory that is free: LoadGen makes all queries of a trial beforehand.
    """
    for _ in range(_ROUNDS):
        kept, reached = _try(plan, qps, test, available_bytes)
        if not kept and reached > _REACHED * qps:
            kept, reached = _try(plan, qps, test, available_bytes)
        if kept:
            break
        qps = _NEXT_SHARE * min(qps, reached)
    return qps


def _try(plan: LoadPlan, qps: float, test: Test, available_bytes: int) -> tuple[bool, float]:
    """Return whether the bound was kept by a good margin, and the rate that was reached."""
    folder = Path(plan.directory) / "trial"
    folder.mkdir()
    settings = Settings()  # not from user.conf: LoadGen reads that once in a process
    settings.scenario = lg.TestScenario.Server
    settings.mode = lg.TestMode.PerformanceOnly
    settings.server_target_qps = qps
    settings.server_target_latency_ns = plan.target_latency_ns
    settings.server_target_latency_percentile = 0.99
    most_ms = min(_MOST_MS, round(plan.calibrate_s * 1e3), server_fits_ms(qps, available_bytes))
    settings.min_duration_ms = max(1, most_ms)
    settings.min_query_count = 1
    try:
        test(msgspec.structs.replace(plan, directory=str(folder)), settings)
        log = DetailLog(folder / "mlperf_log_detail.txt", "performance")
    finally:
        shutil.rmtree(folder)
    p99_ns = log.loadgen().latency_ns.get("p99", float("inf"))
    reached = log.number("result_completed_samples_per_sec") or qps
    return p99_ns <= _MARGIN * plan.target_latency_ns, reached
