"""Blobs: whole and right, or not there; any interruption can be continued."""

import hashlib
import io
import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeperf.coordinator.blobs import (
    BlobDigestError,
    BlobError,
    BlobFullError,
    BlobOffsetError,
    BlobStore,
)

CONTENT = bytes(range(256)) * 40


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    """Open an empty blob store."""
    return BlobStore(tmp_path / "blobs")


@settings(max_examples=50, deadline=None)
@given(cuts=st.lists(st.integers(0, len(CONTENT)), max_size=6))
def test_any_division_into_parts_gives_the_blob(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    """Parts of any size, a restart between each, and the whole is what was sent."""
    root = tmp_path_factory.mktemp("blobs")
    edges = [0, *sorted(cuts), len(CONTENT)]
    whole = False
    for first, last in itertools.pairwise(edges):
        store = BlobStore(root)
        assert store.offset(_digest(CONTENT)) == first or whole
        whole = store.append(_digest(CONTENT), CONTENT[first:last], first=first, total=len(CONTENT))
    assert whole
    with BlobStore(root).open(_digest(CONTENT)) as file:
        assert file.read() == CONTENT


def test_part_in_the_wrong_place_is_told_where_to_go_on(blobs: BlobStore) -> None:
    """A gap, and an overlap: neither is written."""
    sha256 = _digest(CONTENT)
    blobs.append(sha256, CONTENT[:100], first=0, total=len(CONTENT))
    for first in (0, 50, 101):
        with pytest.raises(BlobOffsetError) as caught:
            blobs.append(sha256, CONTENT[first : first + 10], first=first, total=len(CONTENT))
        assert caught.value.offset == 100
    assert blobs.append(sha256, CONTENT[100:], first=100, total=len(CONTENT))


def test_wrong_digest_is_thrown_away(blobs: BlobStore) -> None:
    """Nothing of it stays, and the right content can still come."""
    sha256 = _digest(CONTENT)
    with pytest.raises(BlobDigestError):
        blobs.append(sha256, b"x" * len(CONTENT), first=0, total=len(CONTENT))
    assert blobs.size(sha256) is None
    assert blobs.offset(sha256) == 0
    assert blobs.append(sha256, CONTENT, first=0, total=len(CONTENT))


def test_blob_that_is_there_is_not_taken_again(blobs: BlobStore) -> None:
    """A second upload, also of something else under its name, changes nothing."""
    sha256 = _digest(CONTENT)
    assert blobs.add_file(io.BytesIO(CONTENT), total=len(CONTENT)) == sha256
    assert blobs.append(sha256, b"evil", first=0, total=4)
    with blobs.open(sha256) as file:
        assert file.read() == CONTENT


def test_many_who_send_one_blob_at_once_give_it_once(blobs: BlobStore) -> None:
    """Whoever is first adds a byte, all others are told where to go on, and it comes out right."""
    content = CONTENT[:400]
    sha256 = _digest(content)

    def send(_: int) -> None:
        whole, at = False, 0
        while not whole:
            try:
                whole = blobs.append(sha256, content[at : at + 1], first=at, total=len(content))
                at += 1
            except BlobOffsetError as error:
                at = error.offset

    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(6) as senders:
            list(senders.map(send, range(6)))
    finally:
        sys.setswitchinterval(usual_s)
    assert blobs.size(sha256) == len(content)
    assert blobs.offset(sha256) == 0, "a late part was kept beside the whole"


def test_a_disk_that_fails_is_an_error_of_ours(tmp_path: Path) -> None:
    """What the kernel says is passed on, and the same blob can be sent again later."""
    blobs, sha256 = BlobStore(tmp_path), _digest(CONTENT)
    (tmp_path / "incoming" / sha256).symlink_to("/dev/full")
    for _ in range(2):
        with pytest.raises(BlobFullError, match="No space left"):
            blobs.append(sha256, CONTENT, first=0, total=len(CONTENT))
    (tmp_path / "incoming" / sha256).unlink()
    assert blobs.append(sha256, CONTENT, first=0, total=len(CONTENT))


def test_empty_blob(blobs: BlobStore) -> None:
    """Nought bytes are a blob too."""
    assert blobs.append(_digest(b""), b"", first=0, total=0)
    assert blobs.size(_digest(b"")) == 0


@given(name=st.text(max_size=80))
def test_no_name_reaches_the_file_system(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    """Whatever is not 64 hexadecimal digits is refused before any path is made of it."""
    store = BlobStore(tmp_path_factory.getbasetemp() / "names")
    with pytest.raises(BlobError):
        store.size(f"{name}!")
    with pytest.raises(BlobError):
        store.append(f"../{name}", b"", first=0, total=0)
    with pytest.raises(BlobError):
        store.open("A" * 64)


def test_limits(tmp_path: Path) -> None:
    """Too large, more than announced, and a disk that is nearly full."""
    small = BlobStore(tmp_path / "a", max_blob_bytes=10)
    with pytest.raises(BlobError, match="at most 10"):
        small.append("a" * 64, b"", first=0, total=11)
    with pytest.raises(BlobError):
        small.append("a" * 64, b"12345", first=0, total=4)
    full = BlobStore(tmp_path / "b", free_floor_bytes=2**60)
    with pytest.raises(BlobFullError, match="nearly full"):
        full.append("a" * 64, b"1", first=0, total=2)
