"""What calibration concludes from what it measured: hints, chunks, and Server's rate."""

import time
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from team_jobs import load_plan

from edgeperf import InputError
from edgeperf.agent.run.calibrate import (
    CHUNK_NS,
    MOST_HINT_SHARE,
    chunk_size,
    hints_for,
    query_times_ns,
    sustainable_qps,
)
from edgeperf.agent.run.calibration import Calibration
from edgeperf.agent.run.jobs import LoadPlan
from edgeperf.agent.run.shared import CAPACITY, MAX_CHUNKS

GB = 1_000_000_000
MS = 1_000_000


def p99_ns(qps: float, service_ns: float, workers: int) -> float:
    """Return the 99th percentile of a queue: Poisson arrivals, one fixed service time.

    Served in order of arrival by several workers, a query starts when the one *workers*
    places before it has ended.
    """
    arrivals = np.cumsum(np.random.default_rng(99).exponential(1e9 / qps, 60_000))
    ends = np.zeros(len(arrivals) + workers)
    for number, arrival in enumerate(arrivals):
        ends[number + workers] = max(arrival, ends[number]) + service_ns
    return float(np.percentile(ends[workers:] - arrivals, 99))


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.3, 0.5, 0.6, 0.7, 0.75, 0.79])
def test_rate_keeps_the_bound(share: float, workers: int) -> None:
    """In another simulation, ten times as long, the 99th percentile keeps the bound.

    *share* is what one sample alone takes of it.
    """
    service_ns = share * 10 * MS
    qps = sustainable_qps(service_ns, workers, 10 * MS)
    assert p99_ns(qps, service_ns, workers) <= 10 * MS


@given(service_ns=st.floats(1e3, 1e8), workers=st.integers(1, 8))
def test_rate_is_never_near_saturation(service_ns: float, workers: int) -> None:
    """However loose the bound, the SUT keeps some room for what simulation cannot know."""
    qps = sustainable_qps(service_ns, workers, round(1e6 * service_ns))
    assert 0 < qps <= 0.75 * workers * 1e9 / service_ns


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_rate_grows_with_the_bound_and_with_the_workers(workers: int) -> None:
    """More time or more workers never mean fewer queries."""
    rates = [sustainable_qps(1 * MS, workers, bound * MS) for bound in (2, 3, 5, 10, 100)]
    assert rates == sorted(rates)
    assert sustainable_qps(1 * MS, workers + 1, 5 * MS) >= rates[2]


def test_rate_is_reproducible() -> None:
    """The same figures give the same rate: nothing is drawn anew."""
    assert sustainable_qps(1 * MS, 2, 5 * MS) == sustainable_qps(1 * MS, 2, 5 * MS)


def test_sut_that_is_slower_than_the_bound_is_refused() -> None:
    """One sample alone over the bound: the line says both times and what to do."""
    with pytest.raises(InputError, match=r"12\.00 ms .* 10 ms .*--target-latency"):
        sustainable_qps(12 * MS, 4, 10 * MS)


@given(
    throughput_sps=st.floats(0.1, 1e6),
    workers=st.integers(1, 64),
    total=st.integers(0, CAPACITY),
)
def test_chunks_fit_the_pipe_and_are_no_longer_than_needed(
    throughput_sps: float, workers: int, total: int
) -> None:
    """Every chunk has a number, holds a sample, and takes a worker a few milliseconds."""
    size = chunk_size(throughput_sps, workers, total)
    assert size >= 1
    assert -(-total // size) <= MAX_CHUNKS
    forced = max(1, -(-total // MAX_CHUNKS))
    assert size == forced or size * workers * 1e9 / throughput_sps <= CHUNK_NS


def test_median_is_measured_at_least_five_times() -> None:
    """A query of 5 ms is timed at 5 ms and a little, also when there is no time for it."""
    asked: list[int] = []

    def query(number: int) -> None:
        asked.append(number)
        time.sleep(0.005)

    median_ns, fast_ns = query_times_ns(query, 0.0)
    assert median_ns >= fast_ns >= 5 * MS
    assert asked == [0, 1, 2, 3, 4]


def plan(scenario: str, **changes: object) -> LoadPlan:
    """Return a test of ten minutes, changed as told."""
    given: dict[str, Any] = {"target_latency_ns": 10 * MS, "calibrate_s": 1.0}
    return load_plan(scenario=scenario, loadgen_model="edgeperf", **(given | changes))


@pytest.mark.parametrize("scenario", ["SingleStream", "MultiStream"])
def test_hint_is_a_little_below_the_latency(scenario: str) -> None:
    """LoadGen makes queries for the hint; a run a little faster must not run dry."""
    found = Calibration(latency_ns=2.0 * MS, throughput_sps=500.0)
    hints = hints_for(plan(scenario), found, available_bytes=100 * GB)
    assert 1.5 * MS < hints.latency_ns < 2.0 * MS


@given(latency_ns=st.floats(5e3, 1e9), free_gb=st.floats(0.1, 64))
def test_hint_fits_the_memory_or_is_refused(latency_ns: float, free_gb: float) -> None:
    """What LoadGen makes ahead fits, and the hint is not so long that a run would run dry.

    Where both cannot be, one line says how long a run fits.
    """
    found = Calibration(latency_ns=latency_ns, throughput_sps=1e9 / latency_ns)
    try:
        hints = hints_for(plan("SingleStream"), found, available_bytes=int(free_gb * GB))
    except InputError as error:
        said = str(error)
    else:
        said = ""
        assert 2 * 600e9 / hints.latency_ns * 330 <= free_gb * GB
        assert hints.latency_ns <= MOST_HINT_SHARE * latency_ns
    assert not said or "--min-duration" in said


@given(
    scenario=st.sampled_from(["SingleStream", "MultiStream", "Offline", "Server"]),
    latency_ns=st.floats(5e3, 1e6),
    free_gb=st.floats(0.1, 16),
    least=st.sampled_from([None, 24_576, 20_000_000]),
)
def test_what_a_refusal_says_that_fits_does_fit(
    scenario: str, latency_ns: float, free_gb: float, least: int | None
) -> None:
    """The options in the line are taken the next time, also when the SUT is a bit faster."""
    free, asked = int(free_gb * GB), plan(scenario, min_query_count=least)
    found = Calibration(latency_ns=latency_ns, throughput_sps=1e9 / latency_ns)
    try:
        hints_for(asked, found, available_bytes=free)
    except InputError as error:
        words = str(error).split()
    else:
        return
    changes: dict[str, object] = {}
    if "--min-duration" in words:
        changes["min_duration_ms"] = int(float(words[words.index("--min-duration") + 1]) * 1e3)
    if "--min-queries" in words:
        changes["min_query_count"] = int(words[words.index("--min-queries") + 1])
    assert changes
    faster = Calibration(latency_ns=latency_ns / 1.02, throughput_sps=1.02e9 / latency_ns)
    hints_for(msgspec.structs.replace(asked, **changes), faster, available_bytes=free)


def test_offline_is_told_more_than_was_found() -> None:
    """LoadGen's one query must last the minimum duration, also on a faster day."""
    found = Calibration(latency_ns=1.0 * MS, throughput_sps=2000.0)
    hints = hints_for(plan("Offline"), found, available_bytes=100 * GB)
    assert 2000 < hints.target_qps < 3000


def test_server_is_told_the_users_rate() -> None:
    """A rate that the user gave is not doubted, even one that will fail."""
    found = Calibration(latency_ns=20.0 * MS, throughput_sps=50.0)
    load = plan("Server", target_qps=80.0)
    assert hints_for(load, found, available_bytes=100 * GB).target_qps == 80.0


def test_accuracy_test_never_asks_for_more_than_the_sut_can() -> None:
    """Untimed, it runs at what was found, whatever rate or bound the user gave."""
    found = Calibration(latency_ns=20.0 * MS, throughput_sps=50.0)
    for target_qps in (None, 1e6):
        load = plan("Server", accuracy=True, target_qps=target_qps)
        assert 0 < hints_for(load, found, available_bytes=GB).target_qps <= 50
