"""Server with several workers: both ways in which the leader answers complete every query."""

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edgeperf.agent.events import Phase
from edgeperf.agent.result import Thread, Worker
from edgeperf.agent.run.facts import escaped_threads
from edgeperf.agent.run.layout import Layout
from edgeperf.agent.run.measure import Measurement

if TYPE_CHECKING:
    from conftest import Product

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores"),
]
SERVER = ("digits", "--preset", "smoke", "--scenario", "Server", "--workers", "2")


@pytest.mark.parametrize(
    "bound_ms", [pytest.param("50", id="inside-the-call"), pytest.param("0.1", id="in-a-thread")]
)
def test_every_query_is_answered_once(product: "Product", bound_ms: str) -> None:
    """LoadGen finds no error, both stopwatches count the same, and accuracy is unharmed.

    Which way is taken follows from the bound: the model takes some 20 µs.
    """
    rate = ("--target-qps", "2000", "--min-duration", "0.5")
    outcome = product.run(*SERVER, "--target-latency", bound_ms, *rate)
    assert outcome.code in (0, 1), outcome.stderr
    assert "affinity" not in outcome.reasons
    result = outcome.result
    assert result.accuracy.metrics["top1"] == pytest.approx(0.9778, abs=0.0001)
    performance = result.performance
    assert performance is not None
    assert performance.loadgen is not None
    assert performance.loadgen.errors == ()
    assert performance.queries > 500
    assert performance.harness_ns is not None
    assert performance.harness_ns > 0
    with np.load(outcome.directory / "latencies.npz") as kept:
        assert kept["latency_ns"].size == performance.queries
        assert (kept["latency_ns"] > 0).all()


def test_rate_that_is_found_can_be_kept(product: "Product") -> None:
    """A model of some microseconds is limited by LoadGen and the hand-over, not by its time.

    The trials that find that out leave nothing behind.
    """
    outcome = product.run(*SERVER)
    assert outcome.code in (0, 1), outcome.stderr
    performance = outcome.result.performance
    assert performance is not None
    assert performance.headline is not None
    asked, reached = performance.headline.value, performance.throughput_sps
    assert reached > 0.8 * asked or "run-queue-wait" in outcome.reasons
    assert not any("trial" in name for name in outcome.result.files)
    assert not list(outcome.directory.rglob("trial"))


def test_one_worker_that_hangs_is_noticed_while_the_other_goes_on(
    product_with_models: "Product",
) -> None:
    """Nobody waits for the end of the test to learn that a query was never answered.

    The rate is beyond what the two can do, so that the follower infers nearly all the time;
    stopped between two queries it owes no answer, so it is let go and stopped again.
    """
    arguments = ("vww", "--preset", "smoke", "--scenario", "Server", "--workers", "2")
    rate = ("--target-qps", "10000", "--target-latency", "1", "--min-duration", "20")
    running = product_with_models.start(*arguments, *rate, "--stall", "1")
    running.wait_for(Phase.PERFORMANCE, percent_above=0.0)
    follower = running.pid_of("performance/worker1")
    os.kill(follower, signal.SIGSTOP)
    while not running.vanishes(within_s=5.0):
        with contextlib.suppress(ProcessLookupError):
            os.kill(follower, signal.SIGCONT)
            os.kill(follower, signal.SIGSTOP)
    outcome = running.finish()
    assert outcome.reasons["worker-hung"] == "invalid"
    assert "worker 1 has not answered its query" in outcome.stdout
    assert outcome.result.performance is None


def escaped(*threads: Thread, role: str = "leader") -> list[str] | None:
    """Return what escaped of a process on core 0, where queries are issued from every core."""
    test = Measurement(Path("unused"))
    index = 0 if role == "leader" else 1
    test.workers = (Worker(index=index, role=role, cores=(0,), threads=threads),)
    test.issuers = frozenset({100, 103})
    return escaped_threads(Layout(workers=((0,), (1,)), issuing=(0, 1), housekeeping=(1,)), test)


def test_threads_of_the_leader_that_roam_are_seen() -> None:
    """Queries may be issued from every core; a runtime's pool may not be on all for that."""
    own = [Thread(tid=tid, name="python", cores=(0, 1)) for tid in (100, 103)]
    loadgen = Thread(tid=101, name="python", cores=(1,))
    pool = Thread(tid=102, name="pool", cores=(0, 1))
    assert escaped(*own, loadgen) == []
    assert escaped(*own, loadgen, pool) == ["pool (102) of leader 0 on 0,1"]
    assert escaped(loadgen, role="follower") == ["python (101) of follower 1 on 1"]
