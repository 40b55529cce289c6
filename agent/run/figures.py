"""From the raw times of a test to the figures that a result states."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf.agent.result import Accuracy, Headline, LoadGen, Performance, Stopwatch
from edgeperf.agent.result.kept import percentiles
from edgeperf.agent.run.harness import added_ns, added_offline_ns
from edgeperf.agent.run.jobs import Calibrated, Done
from edgeperf.agent.run.loadgen_log import DetailLog
from edgeperf.agent.run.plan import Plan
from edgeperf.agent.run.schedule import scheduled_start_ns, server_schedule_ns

#: What LoadGen's clock and ours may differ by: 1 % or 5 µs.
AGREE_SHARE = 0.01
AGREE_NS = 5_000.0
#: Server: the promptest query says where the schedule begins, and LoadGen's thread, asleep
#: before each query on a board with time to spare, is never quite prompt.
AGREE_SERVER_NS = 50_000.0
_COMPARED = ("p50", "p90", "p99")


def with_tokens(found: Performance | None, accuracy: Accuracy) -> Performance | None:
    """Return *found* with tokens per second, where answers are made token by token."""
    tokens = accuracy.metrics.get("tokens_per_sample")
    if found is None or tokens is None:
        return found
    return msgspec.structs.replace(found, tokens_per_s=found.throughput_sps * tokens)


def stopwatch(
    latency_ns: NDArray[np.int64], loadgen: LoadGen, *, scenario: str
) -> Stopwatch | None:
    """Lay our own latencies beside LoadGen's."""
    most_ns = AGREE_SERVER_NS if scenario == "Server" else AGREE_NS
    own = percentiles(latency_ns)
    if own is None or not set(_COMPARED) <= loadgen.latency_ns.keys():
        return None
    pairs = [(float(getattr(own, name)), loadgen.latency_ns[name]) for name in _COMPARED]
    return Stopwatch(
        latency_ns=own,
        worst_difference_ns=max(abs(ours - theirs) for ours, theirs in pairs),
        agrees=all(
            abs(ours - theirs) <= max(most_ns, AGREE_SHARE * theirs) for ours, theirs in pairs
        ),
    )


def headline(scenario: str, log: DetailLog) -> Headline | None:
    """Return the figure that MLPerf reports; None when LoadGen could not give it.

    Source: inference_rules.adoc, "Scenarios": the early-stopping estimate of the 90th
    percentile (SingleStream), of the 99th (MultiStream), samples per second (Offline),
    and the rate asked for (Server).
    """
    keys = {
        "SingleStream": ("early_stopping_latency_ss", "latency_p90_early_stopping", "ns"),
        "MultiStream": ("early_stopping_latency_ms", "query_latency_p99_early_stopping", "ns"),
        "Offline": ("result_samples_per_second", "samples_per_second", "samples/s"),
        "Server": ("result_scheduled_samples_per_sec", "scheduled_queries_per_second", "queries/s"),
    }
    key, name, unit = keys[scenario]
    value = log.number(key)
    return Headline(name=name, value=value, unit=unit) if value else None


def due_ns(
    scenario: str, issued_ns: NDArray[np.int64], calibrated: Calibrated, log: DetailLog
) -> NDArray[np.int64]:
    """Return when each query was due: in Server when scheduled, elsewhere when issued."""
    if scenario != "Server":
        return issued_ns
    seed = log.values.get("effective_schedule_rng_seed")
    if not isinstance(seed, int) or calibrated.target_qps is None or not issued_ns.size:
        return issued_ns
    schedule_ns = server_schedule_ns(issued_ns.size, seed=seed, target_qps=calibrated.target_qps)
    return scheduled_start_ns(issued_ns, schedule_ns)


def performance(
    plan: Plan,
    calibrated: Calibrated,
    done: Done,
    *,
    start_ns: NDArray[np.int64],
    end_ns: NDArray[np.int64],
    log: DetailLog,
) -> Performance:
    """Return the figures of a performance test that ended in order.

    Args:
        plan: The run.
        calibrated: What calibration found.
        done: What the leader said.
        start_ns: When each query was due.
        end_ns: When it was answered (Offline: each sample).
        log: LoadGen's detail log.
    """
    scenario = plan.spec.scenario.value
    loadgen = log.loadgen()
    latency_ns = end_ns - start_ns if scenario != "Offline" else None
    duration_ns = done.window_end_mono_ns - done.window_start_mono_ns
    server = scenario == "Server"
    watch = None if latency_ns is None else stopwatch(latency_ns, loadgen, scenario=scenario)
    if scenario == "Offline":
        harness_ns = added_offline_ns(log.number("result_samples_per_second"), done)
    else:
        harness_ns = added_ns(loadgen, watch, done)
    return Performance(
        headline=headline(scenario, log),
        queries=done.queries,
        samples=done.samples,
        duration_ns=duration_ns,
        throughput_sps=done.samples * 1e9 / duration_ns if duration_ns else 0.0,
        latency_ns=None if latency_ns is None else percentiles(latency_ns),
        target_qps=calibrated.target_qps,
        target_latency_ns=plan.target_latency_ns if server else None,
        calibrated_latency_ns=calibrated.latency_ns,
        window_start_mono_ns=done.window_start_mono_ns,
        window_end_mono_ns=done.window_end_mono_ns,
        loadgen=loadgen,
        stopwatch=watch,
        harness_ns=harness_ns,
    )
