"""Preprocessed samples: made once by all cores, found again by content, mended where broken."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeperf.datasets import open_task
from edgeperf.datasets.base import DatasetError, SampleLibrary
from edgeperf.datasets.stored import build, shards
from edgeperf.datasets.stored.build import BuildError, Work, stored
from edgeperf.datasets.stored.shards import FromFiles, StoredInputs
from edgeperf.datasets.tensors import TensorSpec

PIL = pytest.importorskip("PIL.Image")

COUNT = 600
X = TensorSpec(name="x", shape=(1, 6, 6, 3), dtype="float32")
Y = TensorSpec(name="y", shape=(1, 2), dtype="float32")


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    """Return a folder with two classes of small pictures."""
    for index in range(COUNT):
        folder = tmp_path / "data" / "ab"[index % 2]
        folder.mkdir(parents=True, exist_ok=True)
        PIL.new("RGB", (8, 8), (index % 256, index // 256, 7)).save(folder / f"{index:03}.png")
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make shards of 40 samples, so that there are many."""
    monkeypatch.setattr(shards, "SHARD_BYTES", 40 * 6 * 6 * 3 * 4)


class Run:
    """One use of the store: what it gave, and how often it told of progress."""

    def __init__(self, data: Path, folder: Path, recipe: str = "", **how: Any) -> None:
        task = data.parent / "t.toml"
        task.write_text(f"[input]\n{recipe}\n")
        self.library: SampleLibrary = open_task(str(task)).open([X], [Y], data=data)
        assert isinstance(self.library, FromFiles)
        work = Work(
            task=str(task), data=str(data), inputs=(X,), outputs=(Y,), folder=str(folder),
            recipe=self.library.recipe.decode(),
        )  # fmt: skip
        self.told: list[int] = []
        how.setdefault("cores", sorted(os.sched_getaffinity(0))[:2])
        self.inputs, self.why_not = stored(
            self.library, work, progress=lambda done, _: self.told.append(done), **how
        )

    def check(self) -> None:
        """Make sure that every sample is the one that would be made anew."""
        assert isinstance(self.inputs, StoredInputs)
        assert len(self.inputs) == COUNT
        made, kept = np.zeros((2, *X.sample_shape), np.float32)
        for index in range(0, COUNT, 7):
            self.library.write(index, [made])
            self.inputs.write(index, [kept])
            assert (made == kept).all()


def test_made_once_and_found_again(photographs: Path, tmp_path: Path) -> None:
    """The second run makes nothing, and gives the same."""
    first = Run(photographs, tmp_path / "store")
    assert first.told[-1] == COUNT
    assert len(first.told) == COUNT / 40
    first.check()
    second = Run(photographs, tmp_path / "store", cores=())
    assert second.told == []
    second.check()
    assert not list((tmp_path / "store").rglob("*.part"))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def test_nothing_of_the_store_stays_in_memory(photographs: Path, tmp_path: Path) -> None:
    """What was read is no part of this process: it may be locked, and the store is large."""
    run = Run(photographs, tmp_path / "store")
    run.check()
    assert str(tmp_path / "store") not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("harm", [Path.unlink, _cut], ids=["lost", "cut"])
def test_shards_that_go_while_they_are_read_are_named(
    photographs: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    """One line with the file, and no sample of something else."""
    run = Run(photographs, tmp_path / "store")
    for path in (tmp_path / "store").glob("[0-9a-f]*"):
        harm(path)
    assert run.inputs is not None
    with pytest.raises(DatasetError, match="preprocessed samples /"):
        run.inputs.write(COUNT - 1, [np.zeros(X.sample_shape, np.float32)])


def test_found_again_by_content(photographs: Path, tmp_path: Path) -> None:
    """A copy of the photographs is the same samples: nothing is stored twice."""
    Run(photographs, tmp_path / "store")
    files = sorted((tmp_path / "store").glob("[0-9a-f]*"))
    for path in photographs.rglob("*.png"):
        os.utime(path, (1, 1))
    Run(photographs, tmp_path / "store").check()
    assert sorted((tmp_path / "store").glob("[0-9a-f]*")) == files


def test_what_changes_is_made_anew(photographs: Path, tmp_path: Path) -> None:
    """Another photograph, or another recipe."""
    Run(photographs, tmp_path / "store")
    PIL.new("RGB", (8, 8), (9, 9, 9)).save(photographs / "a" / "000.png")
    changed = Run(photographs, tmp_path / "store")
    assert len(changed.told) == 1
    changed.check()
    other = Run(photographs, tmp_path / "store", "mean = [1]")
    assert len(other.told) > 1
    other.check()


@pytest.mark.parametrize("harm", [Path.unlink, _cut], ids=["lost", "cut"])
def test_broken_shards_are_made_anew(
    photographs: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    """A shard that is gone or cut short is no shard."""
    Run(photographs, tmp_path / "store")
    harm(next((tmp_path / "store").glob("[0-9a-f]*")))
    again = Run(photographs, tmp_path / "store")
    if not again.told:
        pytest.fail("a broken shard was taken for whole")
    again.check()


def test_damaged_photographs_are_named(photographs: Path, tmp_path: Path) -> None:
    """The error of another process is ours: the file, in one line; whole shards stay."""
    (photographs / "b" / "501.png").write_bytes(b"no picture")
    with pytest.raises(DatasetError, match=r"501.png: cannot be decoded as an image"):
        Run(photographs, tmp_path / "store")
    kept = len(list((tmp_path / "store").glob("[0-9a-f]*")))
    assert kept > 0
    PIL.new("RGB", (8, 8)).save(photographs / "b" / "501.png")
    again = Run(photographs, tmp_path / "store")
    assert again.told[0] > 40
    again.check()


def test_too_little_room_is_said(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without room samples are made as they are needed, and the reason is told."""
    monkeypatch.setattr(build, "RESERVE_BYTES", 1 << 60)
    run = Run(photographs, tmp_path / "store")
    assert run.inputs is None
    assert run.why_not is not None
    assert "they need" in run.why_not
    assert "EDGEPERF_CACHE names another place" in run.why_not
    (tmp_path / "file").write_text("")
    no_folder = Run(photographs, tmp_path / "file" / "store")
    assert no_folder.inputs is None
    assert no_folder.why_not is not None
    assert "Not a directory" in no_folder.why_not


def test_few_samples_are_not_stored(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be slower than making them."""
    monkeypatch.setattr(build, "FEWEST_STORED", COUNT + 1)
    run = Run(photographs, tmp_path / "store")
    assert (run.inputs, run.why_not) == (None, None)
    assert not (tmp_path / "store").exists()


def test_a_killed_worker_ends_it(tmp_path: Path) -> None:
    """A process that dies is an error, not a wait; what is whole stays."""
    code = (
        "import os\n"
        "from edgeperf.datasets.stored.build import BuildError, Work, _Worker\n"
        "from edgeperf.datasets.stored.shards import Shard\n"
        "work = Work(task='digits', data=None, inputs=(), outputs=(),"
        f" folder={str(tmp_path)!r}, recipe='')\n"
        "worker = _Worker(work, min(os.sched_getaffinity(0)))\n"
        "worker._process.kill()\n"
        "try:\n"
        "    worker.give(Shard(0, 1, 'x'))\n"
        "    worker.take()\n"
        "except BuildError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "preprocessing: a process" in done.stdout


def test_a_killed_builder_leaves_no_process(photographs: Path, tmp_path: Path) -> None:
    """Its processes end when nobody tells them what to do any more."""
    task = tmp_path / "t.toml"
    task.write_text("")
    code = (
        "import os\nfrom pathlib import Path\n"
        "from edgeperf.datasets.stored.build import Work, _Worker\n"
        f"work = Work(task={str(task)!r}, data={str(photographs)!r}, inputs=(), outputs=(),"
        f" folder={str(tmp_path)!r}, recipe='')\n"
        "worker = _Worker(work, min(os.sched_getaffinity(0)))\n"
        "print(worker._process.pid, flush=True)\n"
        "import time\ntime.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as builder:
        assert builder.stdout is not None
        pid = int(builder.stdout.readline())
        builder.send_signal(signal.SIGKILL)
    until = time.monotonic() + 30
    while _runs(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    """Say whether a process runs: one that has ended stays where process 1 reaps nobody."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def test_a_process_that_ended_does_not_run() -> None:
    """Not waited for, it is still in the table."""
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        assert _runs(sleeper.pid)
        sleeper.kill()
        until = time.monotonic() + 30
        while _runs(sleeper.pid) and time.monotonic() < until:
            time.sleep(0.01)
        assert Path(f"/proc/{sleeper.pid}").exists()
        assert not _runs(sleeper.pid)
    assert not _runs(sleeper.pid)


def test_a_store_that_is_emptied_while_it_is_made(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said, rather than measured on nothing."""

    def empty(*args: Any, **more: Any) -> None:
        build_them(*args, **more)
        shutil.rmtree(tmp_path / "store" / "seen")

    build_them = build._build
    monkeypatch.setattr(build, "_build", empty)
    with pytest.raises(BuildError, match="shards vanished while they were made"):
        Run(photographs, tmp_path / "store")
