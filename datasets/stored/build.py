"""Making the missing shards with all cores: processes that are told which, one at a time."""

import contextlib
import os
import selectors
import shutil
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from edgeperf import EdgeperfError
from edgeperf.datasets.assets import Places
from edgeperf.datasets.base import DatasetError, InputLibrary
from edgeperf.datasets.stored.shards import FromFiles, Shard, Store, StoredInputs
from edgeperf.datasets.tensors import TensorSpec

#: Fewer samples are decoded each time: storing them would be slower than that.
FEWEST_STORED = 500
#: What is left free on the disk.
RESERVE_BYTES = 1 << 30
_STALE_S = 86_400
#: The folder we stand in may hold a `datasets`; Python 3.10 cannot leave it out.
_SAFE = ["-P"] if sys.version_info >= (3, 11) else []

#: Told how many samples are there, and of how many.
Progress = Callable[[int, int], None]


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What a process must know to make shards: how the library is opened.

    Attributes:
        task: Name or file of the task.
        data: The user's samples; None for the task's own.
        inputs: The model's inputs.
        outputs: The model's outputs.
        folder: Where shards go.
        recipe: How files become inputs, as text.
    """

    task: str
    data: str | None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    folder: str
    recipe: str


class BuildError(EdgeperfError):
    """Preprocessing failed: a process died, or the disk did not take it."""


def stored(
    library: InputLibrary,
    work: Work,
    *,
    cores: Sequence[int],
    progress: Progress | None = None,
) -> tuple[StoredInputs | None, str | None]:
    """Return *library* read back from the disk, making first what is missing.

    Args:
        library: What the samples are made from.
        work: The same for other processes.
        cores: Cores to make it with, one process each; none: only what is there is used.
        progress: Told how far it is.

    Returns:
        The inputs, or None and why it is better without: None where there is nothing to say.

    Raises:
        DatasetError: A file is missing or damaged; the message names it.
        BuildError: A process died or the disk failed.
    """
    if not isinstance(library, FromFiles) or len(library) < FEWEST_STORED or not library.files(0):
        return None, None
    folder = Path(work.folder)
    store = Store(folder, library, work.inputs, work.recipe.encode())
    missing = store.missing()
    if missing and not cores:
        return None, None
    if missing:
        why_not = _no_room(folder, store, missing)
        if why_not is not None:
            return None, why_not
        _build(missing, work, cores=cores, total=len(library), progress=progress)
    paths = [path for shard in store.shards if (path := store.find(shard)) is not None]
    if len(paths) < len(store.shards):
        raise BuildError(f"{folder}: shards vanished while they were made; free some room")
    return StoredInputs(store, paths, len(library)), None


def store_folder(places: Places) -> Path | None:
    """Return where shards lie; None where there is no cache."""
    return None if places.cache is None else places.cache / "preprocessed"


def _no_room(folder: Path, store: Store, missing: Sequence[Shard]) -> str | None:
    """Make the folder and say why shards cannot go there."""
    needed = sum(shard.end - shard.begin for shard in missing) * store.sample_bytes
    try:
        (folder / "seen").mkdir(parents=True, exist_ok=True)
        clean(folder)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return f"preprocessed samples are not stored: {folder}: {error.strerror}"
    if free < needed + RESERVE_BYTES:
        return (
            f"preprocessed samples are not stored: they need {needed / 1e9:.1f} GB in {folder},"
            f" and {free / 1e9:.1f} GB are free (1 GB stays); EDGEPERF_CACHE names another place"
        )
    return None


def clean(folder: Path) -> None:
    """Remove what runs left that were killed; another run may be doing the same."""
    for part in [*folder.glob(".*.part"), *(folder / "seen").glob(".*.part")]:
        with contextlib.suppress(FileNotFoundError):
            if time.time() - part.stat().st_mtime > _STALE_S:
                part.unlink()


def _build(
    missing: Sequence[Shard],
    work: Work,
    *,
    cores: Sequence[int],
    total: int,
    progress: Progress | None,
) -> None:
    waiting = deque(missing)
    done = total - sum(shard.end - shard.begin for shard in missing)
    with _Workers(work, min(len(cores), len(missing)), cores) as workers:
        for worker in workers.all:
            worker.give(waiting.popleft())
        while (busy := workers.busy()) > 0 or waiting:
            if busy == 0:
                raise BuildError("preprocessing: no process is left")
            for worker in workers.ready():
                shard = worker.take()
                done += shard.end - shard.begin
                if progress is not None:
                    progress(done, total)
                if waiting:
                    worker.give(waiting.popleft())


class _Worker:
    """One process that makes shards."""

    def __init__(self, work: Work, core: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *_SAFE, "-m", "edgeperf.datasets.stored.worker"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
            )
        os.sched_setaffinity(self._process.pid, {core})
        self._socket = ours
        self._lines = ours.makefile("rb")
        self._shard: Shard | None = None
        self._say(msgspec.json.encode(work))

    @property
    def busy(self) -> bool:
        """Whether it has a shard to make."""
        return self._shard is not None

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._socket.fileno()

    def _say(self, line: bytes) -> None:
        try:
            self._socket.sendall(line + b"\n")
        except (BrokenPipeError, ConnectionResetError) as error:
            raise BuildError("preprocessing: a process died") from error

    def give(self, shard: Shard) -> None:
        """Tell it what to make."""
        self._shard = shard
        self._say(msgspec.json.encode(shard))

    def take(self) -> Shard:
        """Return the shard that it made.

        Raises:
            DatasetError: A file is missing or damaged.
            BuildError: It died, or the disk failed.
        """
        try:
            line = self._lines.readline()
        except ConnectionResetError:
            line = b""
        shard, self._shard = self._shard, None
        if not line or shard is None:
            status = self._process.wait()
            raise BuildError(f"preprocessing: a process ended with status {status}")
        problem = msgspec.json.decode(line, type=_Said)
        if problem.input_error is not None:
            raise DatasetError(problem.input_error)
        if problem.error is not None:
            raise BuildError(f"preprocessing: {problem.error}")
        return shard

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._lines.close()
        self._socket.close()


class _Said(msgspec.Struct):
    input_error: str | None = None
    error: str | None = None


class _Workers:
    def __init__(self, work: Work, count: int, cores: Sequence[int]) -> None:
        self.all = [_Worker(work, cores[place]) for place in range(count)]
        self._selector = selectors.DefaultSelector()
        for place, worker in enumerate(self.all):
            self._selector.register(worker, selectors.EVENT_READ, place)

    def __enter__(self) -> "_Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for worker in self.all:
            worker.close()

    def busy(self) -> int:
        """Return how many have something to do."""
        return sum(worker.busy for worker in self.all)

    def ready(self) -> list[_Worker]:
        """Wait until some have something to say, and return those."""
        return [
            key.fileobj for key, _ in self._selector.select() if isinstance(key.fileobj, _Worker)
        ]
