"""What a board may fill of the coordinator's disk: its share, and no more."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from edgeperf.agent.messages import BlobRef, RunResult
from edgeperf.coordinator.blobs import BlobDigestError, BlobFullError, BlobStore
from edgeperf.coordinator.shares import BlobUnlistedError, Shares
from edgeperf.coordinator.store import Store, devices, events

KIB = 1024
RUN = "20260101t000000z-digits"


class Desk:
    """Boards ``pi5`` and ``pi4``, and what they send."""

    def __init__(self, store: Store, root: Path, make_event: Any) -> None:
        self.store, self._root, self._make_event = store, root, make_event
        with store.writing() as connection:
            devices.enroll(connection, "pi4", now_ns=1)
        self.start()

    def start(self, *, board_bytes: int = 1000 * KIB, ahead_bytes: int = 300 * KIB) -> None:
        """Start, or start again."""
        self.blobs = BlobStore(self._root)
        self.shares = Shares(
            self.store, self.blobs, board_bytes=board_bytes, ahead_bytes=ahead_bytes, ahead_blobs=50
        )

    def report(self, *contents: bytes) -> None:
        """Let ``pi5`` say that a run left these files."""
        files = tuple(
            BlobRef(name=f"{i}", sha256=_digest(content), size_bytes=len(content))
            for i, content in enumerate(contents)
        )
        event = self._make_event(
            RunResult(status="VALID", exit_code=0, result=None, files=files, duration_s=1.0),
            run=RUN,
        )
        with self.store.writing() as connection:
            assert events.apply_event(connection, event, now_ns=1) is events.Outcome.APPLIED

    def send(self, content: bytes, *, board: str = "pi5", name: str = "") -> None:
        """Upload a whole file."""
        sha256 = name or _digest(content)
        with self.shares.taking(board, sha256, len(content), total=len(content)):
            self.blobs.append(sha256, content, first=0, total=len(content))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def desk(store: Store, tmp_path: Path, make_event: Any) -> Desk:
    """Return a store with boards that have sent nothing."""
    return Desk(store, tmp_path / "blobs", make_event)


def test_what_no_result_names_is_taken_within_bounds(desk: Desk) -> None:
    """An upload may come before its event; junk without end may not, and others go on."""
    result = b"r" * 200 * KIB
    desk.send(result)
    with pytest.raises(BlobUnlistedError, match="no result of board pi5 names it yet"):
        desk.send(b"x" * 200 * KIB)
    desk.send(b"x" * 200 * KIB, board="pi4")
    desk.report(result, b"y" * 250 * KIB)
    desk.send(b"y" * 250 * KIB)
    desk.send(b"z" * 200 * KIB)  # the first is named by now


def test_a_share_is_the_end(desk: Desk) -> None:
    """Named or not, before and after a start; a file that is here costs nothing."""
    files = [bytes([i]) * 300 * KIB for i in range(4)]
    desk.report(*files)
    for content in files[:3]:
        desk.send(content)
    desk.send(files[0])
    with pytest.raises(BlobFullError, match="its share; see --board-space"):
        desk.send(files[3])
    desk.start()
    with pytest.raises(BlobFullError):
        desk.send(files[3])
    desk.start(board_bytes=1200 * KIB)
    desk.send(files[3])


def test_what_was_not_kept_is_given_back(desk: Desk) -> None:
    """A file with the wrong digest is thrown away and may be sent again."""
    for _ in range(5):
        with pytest.raises(BlobDigestError):
            desk.send(b"b" * 250 * KIB, name=_digest(b"a"))
    desk.send(b"c" * 250 * KIB)


def _pieces(desk: Desk, board: str, piece: bytes, *, total: int = 10) -> int:
    """Begin blobs with *piece* until no more are taken; returns how many were begun."""
    for number in range(200):
        sha256 = _digest(f"{board} {number}".encode())
        try:
            with desk.shares.taking(board, sha256, len(piece), total=total):
                desk.blobs.append(sha256, piece, first=0, total=total)
        except BlobUnlistedError:
            return number
    return 200


def test_many_small_files_are_not_small(desk: Desk, tmp_path: Path) -> None:
    """A byte takes a block of the disk and an inode; both count."""
    desk.start(ahead_bytes=100 * KIB)
    assert _pieces(desk, "pi5", b"x") == 25  # of 4 KiB each
    desk.start()
    assert _pieces(desk, "pi4", b"x") == 50
    assert len(list((tmp_path / "blobs" / "incoming").iterdir())) == 75


def test_nothing_takes_nothing(desk: Desk, tmp_path: Path) -> None:
    """Empty pieces begin no file and are counted nowhere; an empty file is one."""
    assert _pieces(desk, "pi5", b"") == 200
    assert not list((tmp_path / "blobs" / "incoming").iterdir())
    assert _pieces(desk, "pi5", b"x") == 50
    desk.send(b"")
    assert desk.blobs.size(_digest(b"")) == 0


def test_refused_pieces_leave_room(desk: Desk) -> None:
    """What was given back is forgotten, not kept as a blob of no bytes."""
    for number in range(60):
        with pytest.raises(BlobDigestError):
            desk.send(b"wrong", name=_digest(f"{number}".encode()))
    assert _pieces(desk, "pi5", b"x") == 50
