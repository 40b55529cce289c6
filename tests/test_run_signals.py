"""However a run ends, nothing of it is left: no process, no shared memory, no half result."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edgeperf.agent.events import Failed, Phase

if TYPE_CHECKING:
    from conftest import Product, Running

    Reach = Callable[[Phase], Running]

pytestmark = pytest.mark.slow

#: Within this everything must be gone.
GONE_S = 2.0
#: Arguments that make each phase last, so that a signal finds it.
LASTING = {
    Phase.PREPARE: ("digits", "--backend", "openvino", "--preset", "smoke"),
    Phase.ACCURACY: ("digits", "--preset", "smoke", "--scenario", "Offline"),
    Phase.PERFORMANCE: (
        *("digits", "--preset", "smoke", "--min-duration", "60", "--no-accuracy"),
        *("--scenario", "MultiStream"),
    ),
}
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}


def shared_memory() -> set[str]:
    """Return the names of all shared memory there is."""
    return {path.name for path in Path("/dev/shm").iterdir()}


def forgotten_since(before: set[str]) -> set[str]:
    """Return the shared memory that is new and that no process uses."""
    new = shared_memory() - before
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            new -= {line.partition("/dev/shm/")[2] for line in maps.read_text().splitlines()}
    return new & shared_memory()


@pytest.fixture
def reach(product: "Product", many_digits: Path) -> Callable[[Phase], "Running"]:
    """Return what starts a run and returns it in the middle of a phase."""

    def start(phase: Phase) -> "Running":
        many = () if phase is Phase.PERFORMANCE else ("--data", str(many_digits))
        running = product.start(*LASTING[phase], *many)
        running.wait_for(phase, percent_above=-1.0 if phase is Phase.PREPARE else 0.0)
        if phase is Phase.PREPARE:
            time.sleep(0.3)  # the prepare process is busy loading; it says nothing meanwhile
        while len(running.processes()) < 2:  # between one test's workers and the next's
            assert running.process.poll() is None
        return running

    return start


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("phase", LASTING)
def test_signal_leaves_nothing(reach: "Reach", phase: Phase, number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM end a run within two seconds, with one line, in every phase."""
    before = shared_memory()
    running = reach(phase)
    running.process.send_signal(number)
    assert running.vanishes(GONE_S)
    outcome = running.finish()
    assert outcome.code == SIGNALS[number]
    assert outcome.stderr.splitlines()[-1] == "edgeperf: interrupted; nothing was kept"
    assert "Traceback" not in outcome.stderr
    assert not forgotten_since(before)
    assert not outcome.output.exists()
    assert outcome.stdout == ""


@pytest.mark.parametrize("tenths", range(0, 30, 3))
def test_signal_at_any_moment_leaves_all_or_nothing(product: "Product", tenths: int) -> None:
    """Whenever the signal comes, there is a whole result in the end or none at all."""
    running = product.start("digits", "--preset", "smoke", "--min-duration", "1")
    running.wait_for(Phase.PREPARE)
    time.sleep(tenths / 10)
    running.process.send_signal(signal.SIGTERM)
    assert running.vanishes(GONE_S)
    outcome = running.finish()
    assert "Traceback" not in outcome.stderr
    if outcome.output.exists():
        assert outcome.result.performance is not None
        assert "nothing was kept" not in outcome.stderr
    else:
        assert outcome.code == 143


def test_closed_terminal_ends_the_run(reach: "Reach") -> None:
    """SIGHUP, as when an SSH connection is lost, is an interruption like the others."""
    running = reach(Phase.PERFORMANCE)
    running.process.send_signal(signal.SIGHUP)
    assert running.vanishes(GONE_S)
    outcome = running.finish()
    assert outcome.code == 129
    assert not outcome.output.exists()


def test_signal_is_told_to_whoever_reads_the_events(reach: "Reach") -> None:
    """The last event says that the run failed, and how it will exit."""
    running = reach(Phase.PERFORMANCE)
    running.process.send_signal(signal.SIGTERM)
    last = running.finish().events[-1]
    assert isinstance(last, Failed)
    assert last.exit_code == 143


@pytest.mark.parametrize("phase", [Phase.ACCURACY, Phase.PERFORMANCE])
def test_impatient_user_leaves_nothing_either(reach: "Reach", phase: Phase) -> None:
    """Several Ctrl-C in a row do not keep the first from cleaning up."""
    running = reach(phase)
    for _ in range(5):
        running.process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    assert running.vanishes(GONE_S)
    outcome = running.finish()
    assert outcome.code == 130
    assert "Traceback" not in outcome.stderr
    assert not outcome.output.exists()


def test_ctrl_c_at_a_terminal_reaches_the_whole_group(product: "Product") -> None:
    """A terminal signals the whole foreground group; the workers are not in it."""
    running = product.start(*LASTING[Phase.PERFORMANCE], start_new_session=True)
    running.wait_for(Phase.PERFORMANCE, percent_above=0.0)
    os.killpg(running.process.pid, signal.SIGINT)
    assert running.vanishes(GONE_S)
    outcome = running.finish()
    assert outcome.code == 130
    assert outcome.stderr.splitlines()[-1] == "edgeperf: interrupted; nothing was kept"
    assert not outcome.output.exists()


@pytest.mark.parametrize("phase", LASTING)
def test_killed_supervisor_leaves_no_process(reach: "Reach", phase: Phase) -> None:
    """Nobody can clean up after SIGKILL, but the kernel ends the workers."""
    before = shared_memory()
    running = reach(phase)
    running.process.kill()
    assert running.vanishes(GONE_S)
    assert not forgotten_since(before)


def test_what_was_in_the_output_folder_stays(product: "Product", reach: "Reach") -> None:
    """A run that ends early takes away only what is its own."""
    product.output.mkdir()
    (product.output / "notes.txt").write_text("mine")
    running = reach(Phase.PERFORMANCE)
    running.process.send_signal(signal.SIGINT)
    outcome = running.finish()
    assert outcome.code == 130
    assert [path.name for path in product.output.iterdir()] == ["notes.txt"]


def test_two_runs_at_once_do_not_disturb_each_other(product: "Product", reach: "Reach") -> None:
    """Interrupting one run leaves the other to end in order, in the same output folder."""
    kept = product.start("digits", "--preset", "smoke", "--min-duration", "3")
    lost = reach(Phase.PERFORMANCE)
    lost.process.send_signal(signal.SIGINT)
    assert lost.finish().code == 130
    outcome = kept.finish()
    assert outcome.code in (0, 1)
    assert outcome.result.performance is not None
    assert outcome.result.performance.headline is not None


@pytest.mark.parametrize("scenario", ["SingleStream", "MultiStream", "Offline", "Server"])
def test_ordinary_run_leaves_nothing_but_its_result(product: "Product", scenario: str) -> None:
    """After a run that ends in order there is its directory and nothing else."""
    before = shared_memory()
    running = product.start("digits", "--preset", "smoke", "--scenario", scenario)
    outcome = running.finish()
    assert outcome.code in (0, 1)
    assert not running.processes()
    assert not forgotten_since(before)
    assert [path.name for path in product.folder.iterdir()] == [outcome.output.name]
    assert not [path for path in outcome.directory.rglob("*") if path.name.startswith(".")]
