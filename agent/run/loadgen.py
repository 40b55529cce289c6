"""LoadGen's side of a test: its settings file, its run, and nothing of ours in between.

One test per process: only the first ``FromConfig`` of a process applies MLPerf's own
settings, and Python has no way to abort a test but to kill the process.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import mlperf_loadgen as lg
import msgspec

from edgeperf import EdgeperfError
from edgeperf.agent.run.jobs import LoadPlan

#: Bytes that LoadGen keeps per query it generates ahead (measured: 317 to 332).
BYTES_PER_QUERY = 330
#: LoadGen generates twice the queries that the hint promises.
AHEAD = 2
_NS_PER_MS = 1_000_000

Settings = lg.TestSettings


class Hints(msgspec.Struct, frozen=True, kw_only=True):
    """What calibration tells LoadGen.

    Attributes:
        latency_ns: One query (SingleStream, MultiStream).
        target_qps: Server: queries per second; Offline: samples per second.
    """

    latency_ns: float
    target_qps: float


def user_conf(plan: LoadPlan, hints: Hints) -> str:
    """Return the text of ``user.conf``: only what MLPerf lets a submitter set, or a preset.

    The parser wants spaces around ``=`` and takes no comment behind a value.
    """
    scenario = plan.scenario
    lines = []
    if scenario in ("SingleStream", "MultiStream"):
        lines.append(f"target_latency = {hints.latency_ns / _NS_PER_MS:.9f}")
    else:
        lines.append(f"target_qps = {written(hints.target_qps)}")
    if scenario == "Server":
        lines.append(f"target_latency = {max(1, round(plan.target_latency_ns / _NS_PER_MS))}")
    if scenario == "MultiStream":
        lines.append(f"samples_per_query = {plan.samples_per_query}")
    if plan.min_duration_ms is not None:
        lines.append(f"min_duration = {plan.min_duration_ms}")
    if plan.min_query_count is not None:
        lines.append(f"min_query_count = {plan.min_query_count}")
    return "".join(f"*.{scenario}.{line}\n" for line in lines)


def written(target_qps: float) -> str:
    """Return a rate as ``user.conf`` gives it, which is the rate that LoadGen keeps."""
    return f"{target_qps:.9f}"


def settings_for(plan: LoadPlan, hints: Hints) -> lg.TestSettings:
    """Write ``user.conf`` and return the settings that LoadGen makes of it.

    Raises:
        EdgeperfError: LoadGen cannot read its own settings.
    """
    path = Path(plan.directory) / "user.conf"
    path.write_text(user_conf(plan, hints))
    settings = lg.TestSettings()
    status = settings.FromConfig(str(path), plan.loadgen_model, plan.scenario, 1)
    if status not in (0, None):
        raise EdgeperfError(f"LoadGen refused {path}: error {-status} {os.strerror(-status)}")
    settings.scenario = getattr(lg.TestScenario, plan.scenario)
    mode = lg.TestMode.AccuracyOnly if plan.accuracy else lg.TestMode.PerformanceOnly
    settings.mode = mode
    if plan.scenario == "Server":  # user.conf knows whole milliseconds only
        settings.server_target_latency_ns = plan.target_latency_ns
    return settings


def run(
    plan: LoadPlan,
    settings: lg.TestSettings,
    *,
    samples: tuple[int, int],
    issue: Callable[[Sequence[int], Sequence[int]], None],
    load: Callable[[Sequence[int]], None],
) -> None:
    """Run one test and return when LoadGen has written its logs.

    Args:
        plan: The test.
        settings: From :func:`settings_for`.
        samples: Size of the library, and how many of it are in memory at a time.
        issue: Answers a query: LoadGen's response ids and the samples they are for.
        load: Brings samples into memory, untimed.
    """
    total, in_memory = samples
    sut = lg.ConstructFastSUT(issue, _nothing)
    qsl = lg.ConstructQSL(total, in_memory, load, _unload)
    output = lg.LogOutputSettings()
    output.outdir = plan.directory
    output.copy_summary_to_stdout = False
    log = lg.LogSettings()
    log.log_output = output
    log.enable_trace = False  # 650 bytes a query, written beside the test
    # A stray audit.config in the working directory would turn any run into another one.
    audit = str(Path(plan.directory) / "no-audit.config")
    lg.StartTestWithLogSettings(sut, qsl, settings, log, audit)
    lg.DestroyQSL(qsl)
    lg.DestroyFastSUT(sut)
    (Path(plan.directory) / "mlperf_log_trace.json").unlink(missing_ok=True)


def _nothing() -> None:
    """LoadGen's flush: nothing of ours is buffered."""


def _unload(indices: Sequence[int]) -> None:
    """LoadGen's unload: the next load overwrites the slots."""
    del indices
