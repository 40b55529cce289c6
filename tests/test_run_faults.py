"""The verdict is right when something goes wrong while the clock runs.

Every fault is a real one: a killed or stopped process, a model with broken weights, a
clock that jumps, a full disk. The faults come when the run says where it is, never
after so many seconds.
"""

import contextlib
import mmap
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edgeperf.agent.events import Phase
from edgeperf.agent.result import Result

if TYPE_CHECKING:
    from conftest import Outcome, Product, Running

pytestmark = pytest.mark.slow

#: Two workers on the smallest model; long enough to do something to them.
TEAM = ("digits", "--preset", "smoke", "--scenario", "MultiStream", "--workers", "2")
QUICK = ("digits", "--preset", "smoke", "--min-duration", "1")


def started(product: "Product", *arguments: str) -> "Running":
    """Start a run and return it while its performance test is timed."""
    running = product.start(*arguments, "--min-duration", "4")
    running.wait_for(Phase.PERFORMANCE, percent_above=0.0)
    return running


def only_invalid(outcome: "Outcome") -> str:
    """Return the code of the one reason that makes a run invalid."""
    (code,) = [code for code, severity in outcome.reasons.items() if severity == "invalid"]
    return code


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.parametrize("worker", ["worker0", "worker1"])
def test_killed_worker_makes_the_run_invalid(product: "Product", worker: str) -> None:
    """A worker that is killed is named, and what was measured until then is kept."""
    running = started(product, *TEAM)
    os.kill(running.pid_of(f"performance/{worker}"), signal.SIGKILL)
    outcome = running.finish()
    assert outcome.code == 1
    assert only_invalid(outcome) == "worker-died"
    assert outcome.stdout.startswith("INVALID")
    assert "SIGKILL" in outcome.stdout
    assert outcome.result.performance is None
    with np.load(outcome.directory / "latencies.npz") as kept:
        assert kept["latency_ns"].size > 0
        assert (kept["latency_ns"] > 0).all()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.parametrize("worker", ["worker0", "worker1"])
@pytest.mark.parametrize("scenario", ["MultiStream", "Offline", "Server"])
@pytest.mark.parametrize(("fault", "code"), [("KILL", "worker-died"), ("STOP", "worker-hung")])
def test_lost_worker_ends_every_scenario(
    product: "Product", worker: str, scenario: str, fault: str, code: str
) -> None:
    """Whoever is lost, nobody waits for ever: the run ends after ``--stall`` at the latest."""
    running = started(product, *TEAM, "--scenario", scenario, "--stall", "1")
    os.kill(running.pid_of(f"performance/{worker}"), signal.Signals[f"SIG{fault}"])
    outcome = running.finish()
    assert outcome.code == 1
    assert only_invalid(outcome) == code
    assert outcome.result.performance is None
    assert running.vanishes(within_s=2.0)


@pytest.mark.parametrize(("fault", "code"), [("KILL", "worker-died"), ("STOP", "worker-hung")])
def test_fault_in_the_accuracy_test_makes_the_run_invalid(
    product: "Product", many_digits: Path, fault: str, code: str
) -> None:
    """A worker lost while accuracy is measured leaves no accuracy and no performance."""
    running = product.start(*QUICK, "--data", str(many_digits), "--stall", "1")
    running.wait_for(Phase.ACCURACY, percent_above=0.0)
    os.kill(running.pid_of("accuracy/worker0"), signal.Signals[f"SIG{fault}"])
    outcome = running.finish()
    assert outcome.code == 1
    assert outcome.reasons[code] == "invalid"
    assert not outcome.result.accuracy.measured
    assert outcome.result.performance is None


@pytest.mark.parametrize("role", ["prepare", "performance/worker0"])
def test_worker_lost_before_the_clock_runs_ends_the_run(product: "Product", role: str) -> None:
    """A process that dies while it loads or warms up is a failed part: no result at all."""
    running = product.start("digits", "--preset", "valid", "--no-accuracy")
    running.wait_for(Phase.PREPARE if role == "prepare" else Phase.PERFORMANCE)
    while role not in running.processes().values():
        assert running.process.poll() is None
    os.kill(running.pid_of(role), signal.SIGKILL)
    outcome = running.finish()
    assert outcome.code == 3
    line = outcome.stderr.splitlines()[-1]
    assert line.startswith("edgeperf: ")
    assert "SIGKILL" in line
    assert not outcome.output.exists()


def with_nan_weights(model: bytes) -> bytes:
    """Return the model with a stretch of its last float weights turned to NaN.

    The last, because a ReLU may swallow NaN.
    """
    for shift in range(4):
        words = (len(model) - shift) // 4
        floats = np.frombuffer(model, "<f4", words, shift)
        with np.errstate(invalid="ignore"):
            weights = (np.abs(floats) > 1e-6) & (np.abs(floats) < 10)
        runs = np.flatnonzero(np.convolve(weights, np.ones(256, int), "valid") == 256)
        if runs.size:
            begin = shift + 4 * int(runs[-1])
            return model[:begin] + struct.pack("<256f", *[np.nan] * 256) + model[begin + 1024 :]
    raise AssertionError("no float weights found")


@pytest.mark.parametrize(
    ("file", "backend"),
    [
        ("digits_f32.tflite", "tflite"),
        ("digits_f32.onnx", "onnxruntime"),
        ("digits_f32.onnx", "openvino"),
    ],
)
@pytest.mark.parametrize("task", ["digits", None])
def test_answers_that_are_not_finite_make_the_run_invalid(
    product: "Product",
    digits_file: Callable[[str], Path],
    file: str,
    backend: str,
    task: str | None,
) -> None:
    """A model that answers NaN gets no figures, with labels or without."""
    model = product.folder / f"broken{Path(file).suffix}"
    model.write_bytes(with_nan_weights(digits_file(file).read_bytes()))
    asked = () if task is None else ("--task", task)
    outcome = product.run(str(model), "--backend", backend, *QUICK[1:], *asked)
    assert outcome.code == 1
    assert outcome.reasons["answers-not-finite"] == "invalid"
    assert outcome.result.performance is None
    assert not outcome.result.accuracy.measured


@pytest.fixture
def wrong_labels(tmp_path: Path, digits_file: Callable[[str], Path]) -> Path:
    """Return the samples of ``digits``, labelled by chance."""
    path = tmp_path / "shuffled.npz"
    with np.load(digits_file("digits_test.npz")) as right:
        labels = np.random.default_rng(1).permutation(right["labels"])
        np.savez(path, images=right["images"], labels=labels)
    return path


def test_missed_accuracy_gate_hides_the_performance(product: "Product", wrong_labels: Path) -> None:
    """Below its gate a model gets no figure of speed, neither printed nor stored."""
    outcome = product.run(*QUICK, "--data", str(wrong_labels))
    assert outcome.code == 1
    assert only_invalid(outcome) == "accuracy-gate"
    assert outcome.result.performance is None
    assert outcome.result.accuracy.passed is False
    assert outcome.result.accuracy.value == pytest.approx(0.1, abs=0.1)
    assert "latency p90" not in outcome.stdout
    assert not (outcome.directory / "latencies.npz").exists()


def test_ungated_shows_the_performance_and_marks_it(product: "Product", wrong_labels: Path) -> None:
    """``--ungated`` measures all the same: invalid still, and marked where the figure stands."""
    outcome = product.run(*QUICK, "--data", str(wrong_labels), "--ungated")
    assert outcome.code == 1
    assert {"accuracy-gate": "invalid", "ungated": "invalid"}.items() <= outcome.reasons.items()
    result = outcome.result
    assert result.verdict.status.value == "INVALID"
    assert result.performance is not None
    assert result.performance.headline is not None
    (line,) = [line for line in outcome.stdout.splitlines() if line.startswith("latency p90")]
    assert "UNGATED" in line


SHIM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Two numbers: when to step on CLOCK_MONOTONIC (0: never), and how far, in ns. */
static volatile int64_t *step;

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("STEP_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *page = mmap(0, 16, PROT_READ, MAP_SHARED, file, 0);
        if (page != MAP_FAILED) step = page;
        close(file);
    }
}

static int64_t stepped_by(void) {
    struct timespec now;
    if (!step || !step[0]) return 0;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec >= step[0] ? step[1] : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME) {
        int64_t ns = now->tv_sec * 1000000000LL + now->tv_nsec + stepped_by();
        now->tv_sec = ns / 1000000000LL;
        now->tv_nsec = ns % 1000000000LL;
    }
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
"""


@pytest.fixture(scope="session")
def clock_shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a library that moves the wall clock of whoever preloads it."""
    folder = tmp_path_factory.mktemp("shim")
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(SHIM)
    try:
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    except FileNotFoundError:
        pytest.skip("no C compiler")
    return library


@pytest.mark.parametrize(
    ("scenario", "step_s"), [("SingleStream", 5), ("SingleStream", -5), ("Server", -5)]
)
def test_stepped_clock_makes_the_run_invalid(
    product: "Product", clock_shim: Path, tmp_path: Path, step_s: int, scenario: str
) -> None:
    """A wall clock that is set while it times the run is noticed, forward and back.

    LoadGen itself calls such a run valid, with impossible latencies.
    """
    step_file = tmp_path / "step"
    step_file.write_bytes(bytes(16))
    product.environment |= {"LD_PRELOAD": str(clock_shim), "STEP_FILE": str(step_file)}
    running = started(product, *QUICK[:-2], "--scenario", scenario, "--stall", "5")
    with step_file.open("r+b") as file, mmap.mmap(file.fileno(), 16) as page:
        page[8:] = struct.pack("q", step_s * 1_000_000_000)
        page[:8] = struct.pack("q", time.monotonic_ns())
    outcome = running.finish()
    assert outcome.code == 1
    assert outcome.reasons["clock-step"] == "invalid"
    assert outcome.stdout.startswith("INVALID")


@contextlib.contextmanager
def hog(core: int) -> Iterator[None]:
    """Keep *core* busy with foreign work."""
    code = f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            yield
        finally:
            process.kill()


def measured_core(result: Result) -> int:
    """Return the core of the first worker."""
    assert result.sut is not None
    return result.sut.workers[0].cores[0]


def test_foreign_work_on_the_measured_core_makes_the_run_suspect(product: "Product") -> None:
    """Another program on the same core is seen, and how much of the core it took.

    At real-time priority it would hardly get any.
    """
    core = max(os.sched_getaffinity(0))
    with hog(core):
        outcome = product.run(*QUICK, "--cores", str(core), "--no-realtime")
    assert outcome.code == 1
    assert measured_core(outcome.result) == core
    assert outcome.reasons["foreign-load"] == "suspect"
    assert outcome.stdout.startswith("SUSPECT")
    conditions = outcome.result.conditions
    assert conditions is not None
    share = conditions["foreign_share"]
    assert isinstance(share, float)
    assert share > 0.25


def test_valid_preset_cut_short_is_suspect(product: "Product") -> None:
    """``--preset valid`` with another duration is no longer what the rules ask."""
    outcome = product.run("digits", "--preset", "valid", "--min-duration", "2")
    assert outcome.code == 1
    assert outcome.reasons["too-short"] == "suspect"
    assert not outcome.result.verdict.comparable


def test_test_too_short_for_early_stopping_is_invalid(product: "Product") -> None:
    """LoadGen's own verdict and its reason are the run's."""
    outcome = product.run(*QUICK[:-2], "--min-duration", "0.001", "--min-queries", "20")
    assert outcome.code == 1
    assert outcome.reasons["loadgen-invalid"] == "invalid"
    performance = outcome.result.performance
    assert performance is not None
    assert performance.loadgen is not None
    assert not performance.loadgen.valid
    assert performance.loadgen.reasons


def test_server_beyond_its_capacity_is_invalid(product: "Product") -> None:
    """A rate that the SUT cannot serve fails on LoadGen's bound of the latency."""
    load = ("--scenario", "Server", "--target-qps", "200000", "--no-accuracy")
    outcome = product.run("digits", "--preset", "smoke", "--min-duration", "0.2", *load)
    assert outcome.code == 1
    assert only_invalid(outcome) == "loadgen-invalid"


@pytest.fixture
def small_disk(product: "Product") -> Iterator[Callable[[int], Path]]:
    """Return what mounts a disk of so many bytes where results go."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")

    def mount(size_bytes: int) -> Path:
        product.output.mkdir()
        options = ["-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(product.output)]
        try:
            subprocess.run(["mount", *options], check=True, capture_output=True)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no disk can be mounted here: {error}")
        return product.output

    yield mount
    subprocess.run(["umount", product.output], check=False, capture_output=True)


def test_disk_without_room_is_refused_before_the_run(
    product: "Product", small_disk: Callable[[int], Path]
) -> None:
    """A run that cannot be stored does not begin."""
    disk = small_disk(4_000_000)
    outcome = product.run(*QUICK)
    assert outcome.code == 2
    (line,) = outcome.stderr.splitlines()[-1:]
    assert line.startswith("edgeperf: output ")
    assert "MB free" in line
    assert not list(disk.iterdir())


@pytest.mark.parametrize("scenario", ["SingleStream", "Offline"])
def test_disk_that_fills_up_during_the_run_ends_it(
    product: "Product", small_disk: Callable[[int], Path], scenario: str
) -> None:
    """A result that cannot be stored whole is not stored at all; one line says why."""
    disk = small_disk(32_000_000)
    running = started(product, *QUICK[:-2], "--scenario", scenario)
    hoard = disk / "hoard"
    with contextlib.suppress(OSError), hoard.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 16)):
            pass
    outcome = running.finish()
    assert outcome.code == 3
    line = outcome.stderr.splitlines()[-1]
    assert line.startswith("edgeperf: output ")
    assert "No space left on device" in line
    assert "Traceback" not in outcome.stderr
    assert list(disk.iterdir()) == [hoard]
