"""Real-time priority and locked memory: taken where they can be had, and recorded either way."""

import ctypes
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from team_jobs import load_plan, worker_job

import edgeperf
from edgeperf.agent.events import Phase
from edgeperf.agent.result import Worker
from edgeperf.agent.run.jobs import WorkerJob
from edgeperf.agent.run.wiring import Wiring

if TYPE_CHECKING:
    from conftest import Outcome, Product

pytestmark = pytest.mark.slow

QUICK = ("digits", "--preset", "smoke", "--min-duration", "0.3", "--no-accuracy")
#: What a worker does with its priority while it becomes somebody without any capability, as
#: who has ``LimitRTPRIO`` alone; then the kernel's own word about it.
CHILD = """
import os, sys
from edgeperf.agent.run.jobs import decode_job
from edgeperf.agent.run.priority import Priority

def become_nobody():
    if os.geteuid() == 0:
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)

def policy():
    names = {os.SCHED_FIFO: "fifo", os.SCHED_OTHER: "normal"}
    return names[os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK]

job = decode_job(sys.stdin.buffer.readline())
if sys.argv[1] == "give-back":
    priority = Priority(job, isolated=job.cores)
    priority.take()
    taken = policy()
    become_nobody()
    priority.give_back()
    print(priority.scheduling, taken, policy(), sep=",")
else:
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    become_nobody()
    print(Priority(job, isolated=job.cores).scheduling, "fifo", policy(), sep=",")
"""
#: What a worker gets on a core that is not isolated.
ELSEWHERE = """
import sys
from edgeperf.agent.run.jobs import decode_job
from edgeperf.agent.run.priority import Priority

print(Priority(decode_job(sys.stdin.buffer.readline()), isolated=()).scheduling)
"""
#: How much of its memory is locked, as a worker does it for one test.
LOCKING = """
import sys
from pathlib import Path
from edgeperf.agent.run.jobs import decode_job
from edgeperf.agent.run.priority import lock_memory

locked = lock_memory(decode_job(sys.stdin.buffer.readline()))
lines = Path("/proc/self/status").read_text().splitlines()
print(locked, *(line.split()[1] for line in lines if line.startswith("VmLck:")))
"""
#: Of prctl(2) and capabilities(7).
PR_CAPBSET_DROP, CAP_IPC_LOCK = 24, 14
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


def asked(code: str, job: WorkerJob, *arguments: str) -> str:
    """Return what a process of its own prints about *job*."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        input=msgspec.json.encode(job) + b"\n",
        env={**os.environ, "PYTHONPATH": str(Path(edgeperf.__path__[0]).parent)},
        stdout=subprocess.PIPE,
        check=True,
    )
    return done.stdout.decode().strip()


def job(*, accuracy: bool = False) -> WorkerJob:
    """Return the job of a lone worker on core 0, with nothing else to do there."""
    return worker_job(
        housekeeping=(1,),
        realtime=True,
        load=load_plan(accuracy=accuracy),
        wiring=Wiring(
            inputs=0,
            predictions=0,
            control=0,
            latencies=0,
            wake=(),
            done=(),
            tickets=(0, 0),
            answers=(0, 0),
        ),
    )


@pytest.mark.parametrize("when", ["give-back", "try"])
def test_priority_is_given_back_without_any_capability(when: str) -> None:
    """Who may take it by a limit alone cannot drop all flags again, and is still let go."""
    if not may_be_realtime():
        pytest.skip("real-time priority is not permitted here")
    told = asked(CHILD, job(), when)
    scheduling, taken, left = told.rsplit(",", 2)
    if scheduling.startswith(("normal (kernels before", "normal (the system sets no limit")):
        pytest.skip(f"this system has no use for it: {scheduling}")
    assert (scheduling, taken, left) == ("fifo", "fifo", "normal")


def test_priority_is_not_taken_where_others_belong() -> None:
    """Whoever starves beside a real-time worker is let in for tens of milliseconds at once."""
    assert asked(ELSEWHERE, job()).startswith("normal (its core is not isolated")


@TWO_CORES
def test_priority_is_recorded(product: "Product") -> None:
    """A worker on a core of its own is real-time, or not, as the kernel has it, and why not."""
    running = product.start(*QUICK, "--min-duration", "1.5")
    running.wait_for(Phase.PERFORMANCE, percent_above=0.0)
    policy = os.sched_getscheduler(running.pid_of("performance/worker0"))
    (leader,) = workers(running.finish())
    assert (leader.scheduling == "fifo") == bool(policy & os.SCHED_FIFO)
    if leader.scheduling != "fifo":
        allowed = ("kernels before 6.12", "the system sets no limit", "its core is not isolated")
        reasons = allowed if may_be_realtime() else (*allowed, "not permitted")
        assert leader.scheduling.startswith(tuple(f"normal ({why}" for why in reasons))


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


def without_locking() -> None:
    """Set a finite limit, and drop the capability that goes before it, where root has it."""
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 20, 1 << 20))
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0)


def test_memory_is_not_locked_within_a_finite_limit(product: "Product") -> None:
    """A limit that LoadGen's queries may exceed later is not worth the risk: no lock, no end."""
    running = product.start(*QUICK, preexec_fn=without_locking)
    (leader,) = workers(running.finish())
    assert not leader.memory_locked


def test_memory_is_not_locked_for_accuracy() -> None:
    """Nothing is timed then, and samples of many gigabytes pass through: none may stay."""
    assert asked(LOCKING, job(accuracy=True)) == "False 0"
    locked, kilobytes = asked(LOCKING, job()).split()
    assert (locked == "True") == (int(kilobytes) > 0)
