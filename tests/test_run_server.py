"""Server with several workers: both ways in which the leader answers complete every query."""

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

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
