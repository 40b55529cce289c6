"""Fixtures that several test files share."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import hypothesis
import msgspec
import numpy as np
import pytest

import edgeperf
from edgeperf.agent.events import Event, Phase, Progress
from edgeperf.agent.result import Result, result_from_json
from edgeperf.datasets.assets import BUNDLED

# A shared machine may be slow at any moment: how long an example takes says nothing.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")

#: Marks every process of one run: all inherit the environment of the first.
MARK = "EDGEPERF_TEST_RUN"
#: A run in these tests takes seconds; one that takes so long hangs.
LONGEST_S = 180.0


@pytest.fixture(scope="session")
def sklearn_metrics() -> Any:
    """Return scikit-learn's metrics."""
    return pytest.importorskip("sklearn.metrics")


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """Return the folder of real models and data: a mirror of the whole catalogue.

    ``EDGEPERF_TEST_MODELS`` names it; else it is ``../shared/models`` beside the checkout.
    """
    named = os.environ.get("EDGEPERF_TEST_MODELS")
    beside = Path(__file__).resolve().parents[2] / "shared" / "models"
    folder = Path(named) if named else beside
    if not folder.is_dir():
        reason = f"no folder of models: set EDGEPERF_TEST_MODELS, or put it at {folder}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a command left behind.

    Attributes:
        code: Its exit status.
        stdout: What it printed.
        stderr: What it said.
        events: What it wrote to ``--events``.
        output: Folder for result directories.
    """

    code: int
    stdout: str
    stderr: str
    output: Path
    events: tuple[Event, ...] = ()

    @property
    def directory(self) -> Path:
        """The one result directory there is."""
        (found,) = self.output.iterdir()
        return found

    @property
    def result(self) -> Result:
        """The result in it."""
        path = self.directory / "result.json"
        return result_from_json(path.read_bytes(), where=str(path))

    @property
    def reasons(self) -> dict[str, str]:
        """The verdict's reasons, code and severity."""
        return {reason.code: reason.severity.value for reason in self.result.verdict.reasons}


class Running:
    """An ``edgeperf run`` in the background, and the processes that it starts.

    Attributes:
        process: The command itself: the supervisor.
        events: What it has said so far.
    """

    def __init__(
        self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], **options: Any
    ) -> None:
        self.events: list[Event] = []
        self._mark = f"{MARK}={uuid.uuid4().hex}"
        self._output = cwd / "edgeperf-results"
        self._heard = threading.Condition()
        reading, writing = os.pipe()
        name, _, value = self._mark.partition("=")
        with os.fdopen(writing, "wb"):
            self.process = subprocess.Popen(
                [*command, "--events", str(writing)],
                cwd=cwd,
                env={**env, name: value},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                pass_fds=[writing, *options.pop("pass_fds", ())],
                **options,
            )
        self._listener = threading.Thread(target=self._listen, args=(reading,))
        self._listener.start()

    def _listen(self, reading: int) -> None:
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                with self._heard:
                    self.events.append(msgspec.json.decode(line, type=Event))
                    self._heard.notify_all()
        with self._heard:
            self._heard.notify_all()

    def wait_for(self, phase: Phase, *, percent_above: float = -1.0) -> None:
        """Wait until the run is in *phase*, and so far in it."""

        def reached() -> bool:
            return not self._listener.is_alive() or any(
                isinstance(event, Progress)
                and event.phase is phase
                and event.percent > percent_above
                for event in self.events
            )

        with self._heard:
            assert self._heard.wait_for(reached, LONGEST_S), self.events
        assert self._listener.is_alive(), f"ended before {phase.value}: {self.events}"

    @property
    def phase(self) -> Phase | None:
        """Where the run is by its own account; None before it says anything."""
        last = next((e for e in reversed(self.events) if isinstance(e, Progress)), None)
        return None if last is None else last.phase

    def processes(self) -> dict[int, str]:
        """Return every live process of the run: pid, and its log as ``TEST/ROLE``.

        The supervisor's is empty.
        """
        return {pid: _log_of(pid) for pid in _processes_with(self._mark)}

    def pid_of(self, role: str) -> int:
        """Return the pid of the process whose log is *role*."""
        (pid,) = [pid for pid, name in self.processes().items() if name == role]
        return pid

    def vanishes(self, within_s: float) -> bool:
        """Return whether no process of the run is left *within_s* from now."""
        until = time.monotonic() + within_s
        while self.processes():
            if time.monotonic() > until:
                return False
            if self.process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(0.02)
            else:
                time.sleep(0.02)
        return True

    def finish(self) -> Outcome:
        """Wait for the command to end."""
        try:
            stdout, stderr = self.process.communicate(timeout=LONGEST_S)
        finally:
            self.kill()
        return Outcome(
            code=self.process.returncode,
            stdout=stdout,
            stderr=stderr,
            output=self._output,
            events=tuple(self.events),
        )

    def kill(self) -> None:
        """End whatever is left of the run."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self._listener.join()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def _processes_with(mark: str) -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):  # gone meanwhile, or another user's
                if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)


def _log_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        log = Path(f"/proc/{pid}/fd/1").readlink()
        if log.suffix == ".log":
            return f"{log.parent.name}/{log.stem}" if log.stem != "prepare" else log.stem
    return ""


class Product:
    """The command line as a user has it: in a folder of his own, with nothing of ours around.

    Attributes:
        folder: Where commands run.
        output: Where results go.
        environment: What commands inherit.
        prefix: A command that runs the command: ``prlimit``, ``nice``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "edgeperf-results"
        self.prefix: list[str] = []
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "EDGEPERF_CACHE": str(folder / "home" / "cache"),
            "LANG": "C.UTF-8",
            "COLUMNS": "200",
        }
        if not _is_installed():
            self.environment["PYTHONPATH"] = str(Path(edgeperf.__path__[0]).parent)
        self._runs: list[Running] = []

    @property
    def command(self) -> list[str]:
        """How edgeperf is called. Python 3.10 has no -P, and no need in an empty folder."""
        safe = ["-P"] if sys.version_info >= (3, 11) else []
        return [*self.prefix, sys.executable, *safe, "-m", "edgeperf"]

    def call(self, *arguments: str, **options: Any) -> Outcome:
        """Call any command and wait for it."""
        done = subprocess.run(
            [*self.command, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
            **options,
        )
        return Outcome(
            code=done.returncode, stdout=done.stdout, stderr=done.stderr, output=self.output
        )

    def start(self, *arguments: str, **options: Any) -> Running:
        """Start ``edgeperf run`` in the background."""
        command = [*self.command, "run", *arguments]
        running = Running(command, cwd=self.folder, env=self.environment, **options)
        self._runs.append(running)
        return running

    def run(self, *arguments: str, **options: Any) -> Outcome:
        """Call ``edgeperf run`` and wait for it."""
        return self.start(*arguments, **options).finish()

    def close(self) -> None:
        """End what a failed test left running."""
        for running in self._runs:
            running.kill()


def _is_installed() -> bool:
    try:
        metadata.distribution("edgeperf")
    except metadata.PackageNotFoundError:
        return False
    return True


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    """Return the command line in an empty folder, without models but the bundled one."""
    folder = tmp_path / "user"
    folder.mkdir()
    found = Product(folder)
    yield found
    found.close()


@pytest.fixture
def product_with_models(product: Product, models_dir: Path) -> Product:
    """Return the same, and every model of the catalogue can be had."""
    product.environment["EDGEPERF_MIRROR"] = str(models_dir)
    return product


@pytest.fixture(scope="session")
def digits_file() -> Callable[[str], Path]:
    """Return how to find a file of the bundled model: ``digits_f32.onnx``, ..."""
    return BUNDLED.joinpath


@pytest.fixture(scope="session")
def many_digits(
    tmp_path_factory: pytest.TempPathFactory, digits_file: Callable[[str], Path]
) -> Path:
    """Return so many samples for ``digits`` that its accuracy test takes many seconds."""
    path = tmp_path_factory.mktemp("many") / "many.npz"
    with np.load(digits_file("digits_test.npz")) as few:
        images, labels = np.tile(few["images"], (1000, 1, 1, 1)), np.tile(few["labels"], 1000)
    np.savez(path, images=images, labels=labels)
    return path
