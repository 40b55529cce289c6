"""Preprocessed samples that something else touched: told or made anew, never taken for whole."""

import shutil
import threading
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from edgeperf.datasets.base import Array
from edgeperf.datasets.stored.build import clean
from edgeperf.datasets.stored.shards import DamagedError, Store, StoredInputs
from edgeperf.datasets.tensors import TensorSpec

COUNT = 4
X = TensorSpec(name="x", shape=(1, 16), dtype="uint8")


class Bytes:
    """A library whose samples are the bytes of its files; *meet* is called with each."""

    recipe = b"bytes"

    def __init__(self, folder: Path, meet: Callable[[], object] = lambda: None) -> None:
        folder.mkdir(exist_ok=True)
        self._paths = [folder / f"{index}.bin" for index in range(COUNT)]
        self._meet = meet
        for index, path in enumerate(self._paths):
            if not path.exists():
                path.write_bytes(bytes([index + 1]) * 16)

    def __len__(self) -> int:
        """Return how many files there are."""
        return COUNT

    def files(self, index: int) -> tuple[Path, ...]:
        """Return the one file."""
        return (self._paths[index],)

    def write(self, index: int, out: Sequence[Array]) -> None:
        """Copy the file."""
        self._meet()
        out[0][...] = np.frombuffer(self._paths[index].read_bytes(), np.uint8)


class Desk:
    """A store of one shard, made."""

    def __init__(self, folder: Path) -> None:
        self.library = Bytes(folder / "data")
        self.folder = folder / "store"
        (self.folder / "seen").mkdir(parents=True)
        self.make()

    def store(self) -> Store:
        """Look at the files anew."""
        return Store(self.folder, self.library, [X], b"recipe")

    def make(self) -> None:
        """Make what is missing."""
        store = self.store()
        for shard in store.missing():
            store.make(shard, self.library)
        (self.path,) = [path for shard in store.shards if (path := store.find(shard))]
        (self.seen,) = [self.folder / "seen" / shard.seen for shard in store.shards]

    def read(self) -> list[int]:
        """Return the first byte of each sample as it is read back."""
        inputs, row = StoredInputs(self.store(), [self.path], COUNT), np.zeros(16, np.uint8)
        found = []
        for index in range(COUNT):
            inputs.write(index, [row.reshape(X.sample_shape)])
            found.append(int(row[0]))
        return found


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return a store that is whole."""
    made = Desk(tmp_path)
    assert made.read() == [1, 2, 3, 4]
    return made


def test_a_shard_that_was_overwritten_is_told(desk: Desk) -> None:
    """Other bytes of the same length are no samples: their file goes, and is made anew."""
    raw = bytearray(desk.path.read_bytes())
    raw[20] ^= 1
    desk.path.write_bytes(raw)
    with pytest.raises(DamagedError, match="sample 1 was damaged since it was stored"):
        desk.read()
    assert len(desk.store().missing()) == 1
    desk.make()
    assert desk.read() == [1, 2, 3, 4]


def test_a_damaged_shard_is_not_taken_over(desk: Desk) -> None:
    """Found by content under another name, it is looked at whole."""
    raw = desk.path.read_bytes()
    desk.path.write_bytes(b"\xff" * len(raw))
    desk.seen.unlink()
    desk.make()
    assert desk.path.read_bytes() == raw


def test_every_sample_has_its_own_sum(desk: Desk) -> None:
    """So a start need not read everything to know that what it uses is whole."""
    raw = desk.path.read_bytes()
    sums = np.frombuffer(raw[COUNT * 16 :], "<u4")
    assert [zlib.crc32(bytes([n]) * 16) for n in (1, 2, 3, 4)] == sums.tolist()


@pytest.mark.parametrize(
    "harm",
    [b"\xff\xfe\x00", b"", b"short", b"../data/0.bin", b"/etc/passwd", b"\0" * 64, b"a" * 63],
)
def test_a_damaged_name_is_no_name(desk: Desk, harm: bytes) -> None:
    """What a power cut left of it ends no later run, and leads nowhere else."""
    desk.seen.write_bytes(harm)
    assert len(desk.store().missing()) == 1
    desk.make()
    assert desk.read() == [1, 2, 3, 4]


def test_a_copy_in_place_of_a_file_is_seen(desk: Desk, tmp_path: Path) -> None:
    """Same size, same time of change: its samples are others all the same."""
    (before,) = desk.library.files(0)
    other = tmp_path / "other.bin"
    other.write_bytes(b"\x09" * 16)
    shutil.copystat(before, other)
    shutil.copy2(other, before)
    desk.make()
    assert desk.read() == [9, 2, 3, 4]


def test_two_may_make_the_same_shard(tmp_path: Path) -> None:
    """Containers that share a cache may have the same process ids: neither breaks the other."""
    together = threading.Barrier(2, timeout=30)
    folder = tmp_path / "store"
    (folder / "seen").mkdir(parents=True)
    failed: list[BaseException] = []

    def make() -> None:
        library = Bytes(tmp_path / "data", together.wait)
        store = Store(folder, library, [X], b"recipe")
        try:
            for _ in range(20):
                for path in folder.glob("[0-9a-f]*"):
                    path.unlink(missing_ok=True)
                together.wait()
                store.make(store.shards[0], library)
        except OSError as error:
            failed.append(error)
            together.abort()
        except threading.BrokenBarrierError:
            pass

    Bytes(tmp_path / "data")
    threads = [threading.Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert not list(folder.rglob("*.part"))


def test_a_part_that_vanishes_is_nothing_to_tell(tmp_path: Path) -> None:
    """Another run renames its part between our listing and our look at it."""
    (tmp_path / "seen").mkdir()
    (tmp_path / ".gone.part").symlink_to("nowhere")
    clean(tmp_path)
