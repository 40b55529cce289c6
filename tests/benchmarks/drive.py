"""LoadGen, driven the same way for every contestant; figures are from its own log."""

from collections.abc import Callable, Sequence
from pathlib import Path

import mlperf_loadgen as lg
from benchmarks.protocol import Command, Figures

from edgeperf.agent.run.jobs import Prepared
from edgeperf.agent.run.loadgen_log import DetailLog

#: Seeds of MLPerf Inference v6.1, so that all contestants get the same queries.
_SEEDS = {
    "qsl_rng_seed": 2085463073848966840,
    "sample_index_rng_seed": 2747215439041700203,
    "schedule_rng_seed": 16159082839903944936,
}
SAMPLES_PER_QUERY = 8


def settings_for(command: Command) -> lg.TestSettings:
    """Return the settings of one measurement."""
    settings = lg.TestSettings()
    settings.scenario = getattr(lg.TestScenario, command.do)
    settings.mode = lg.TestMode.PerformanceOnly
    settings.min_duration_ms = int(command.seconds * 1000)
    settings.min_query_count = command.queries
    for name, seed in _SEEDS.items():
        setattr(settings, name, seed)
    # LoadGen makes twice the queries that the hint promises; a slow harness needs fewer.
    settings.single_stream_expected_latency_ns = round(0.9 * command.latency_ns)
    settings.multi_stream_expected_latency_ns = round(0.9 * command.latency_ns)
    settings.multi_stream_samples_per_query = SAMPLES_PER_QUERY
    settings.offline_expected_qps = command.qps
    if command.qps:
        settings.server_target_qps = command.qps
    return settings


def measure(
    command: Command, prepared: Prepared, issue: Callable[[Sequence[lg.QuerySample]], None]
) -> Figures:
    """Let LoadGen measure a harness that answers whenever it likes.

    Args:
        command: The measurement.
        prepared: How many samples there are.
        issue: Called by LoadGen with the samples of a query.
    """
    sut = lg.ConstructSUT(issue, _nothing)
    qsl = lg.ConstructQSL(prepared.library_size, prepared.slots, _ignore, _ignore)
    log = _log_settings(command.folder)
    lg.StartTestWithLogSettings(sut, qsl, settings_for(command), log, "no-audit.config")
    lg.DestroyQSL(qsl)
    lg.DestroySUT(sut)
    return figures(command)


def _nothing() -> None:
    pass


def _ignore(indices: Sequence[int]) -> None:
    del indices


def _log_settings(folder: str) -> lg.LogSettings:
    """Return where LoadGen writes, without its trace."""
    output = lg.LogOutputSettings()
    output.outdir = folder
    output.copy_summary_to_stdout = False
    log = lg.LogSettings()
    log.log_output = output
    log.enable_trace = False
    return log


def figures(command: Command) -> Figures:
    """Return what LoadGen's log says of the measurement that just ended."""
    log = DetailLog(Path(command.folder) / "mlperf_log_detail.txt", "performance")

    def number(key: str) -> float:
        return log.number(key) or 0.0

    samples, middle = int(number("result_query_count")), ""
    if command.do == "SingleStream":
        sps = number("result_qps_with_loadgen_overhead")
    elif command.do == "MultiStream":
        middle = "_per_query"  # the plain keys are per sample there
        mean_ns = number("result_mean_query_latency_ns")
        samples *= SAMPLES_PER_QUERY
        sps = SAMPLES_PER_QUERY * 1e9 / mean_ns if mean_ns else 0.0
    elif command.do == "Offline":
        samples = int(number("generated_samples_per_query"))
        sps = number("result_samples_per_second")
    else:
        sps = number("result_completed_samples_per_sec")
    return Figures(
        p50_ns=number(f"result_50.00_percentile{middle}_latency_ns"),
        p90_ns=number(f"result_90.00_percentile{middle}_latency_ns"),
        p99_ns=number(f"result_99.00_percentile{middle}_latency_ns"),
        sps=sps,
        samples=samples,
        error=next(iter(log.errors), ""),
    )
