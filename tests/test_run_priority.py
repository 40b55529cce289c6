"""Real-time priority and locked memory: taken where they can be had, and recorded either way."""

import os
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from edgeperf.agent.result import Worker

if TYPE_CHECKING:
    from conftest import Outcome, Product

pytestmark = pytest.mark.slow

QUICK = ("digits", "--preset", "smoke", "--min-duration", "0.3", "--no-accuracy")
TWO_CORES = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


def workers(outcome: "Outcome") -> tuple[Worker, ...]:
    """Return the workers of a run that was measured."""
    assert outcome.code in (0, 1), outcome.stderr
    sut = outcome.result.sut
    assert sut is not None
    assert sut.workers
    return sut.workers


def may_be_realtime() -> bool:
    """Return whether a child of this process may, which only trying tells."""
    code = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"
    done = subprocess.run([sys.executable, "-c", code], check=False, stderr=subprocess.DEVNULL)
    return done.returncode == 0


@TWO_CORES
def test_priority_is_recorded(product: "Product") -> None:
    """A worker on a core of its own is real-time, or the result says why it is not."""
    (leader,) = workers(product.run(*QUICK))
    assert leader.scheduling == "fifo" or leader.scheduling.startswith("normal (")
    if not may_be_realtime():
        assert leader.scheduling != "fifo"


def test_priority_can_be_declined(product: "Product") -> None:
    """``--no-realtime`` leaves it alone, and the result says that it was asked."""
    (leader,) = workers(product.run(*QUICK, "--no-realtime"))
    assert leader.scheduling == "normal (as asked)"


@TWO_CORES
def test_priority_is_never_taken_on_the_housekeeping_core(product: "Product") -> None:
    """With every core busy one of the workers shares its core, and stays ordinary."""
    found = workers(product.run(*QUICK, "--scenario", "MultiStream"))
    (shared,) = [worker for worker in found if worker.index == len(found) - 1]
    assert shared.scheduling.startswith("normal (")


def test_memory_is_not_locked_within_a_finite_limit(product: "Product") -> None:
    """A limit that LoadGen's queries may exceed later is not worth the risk: no lock, no end."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 20, 1 << 20))

    running = product.start(*QUICK, preexec_fn=limit)
    (leader,) = workers(running.finish())
    if os.geteuid() != 0:  # root has the capability, whatever the limit
        assert not leader.memory_locked
