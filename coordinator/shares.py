"""How much of the coordinator's disk each board may take.

A board that was let in may still be broken or hostile, and blobs stay. So its bytes are
counted: all of them against its share, and those that no result of its names (yet: an upload
may overtake the event that lists it) against a small part of that. What is here already is
counted at a board's first upload after a start; only what nothing lists is forgotten by then.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from edgeperf import EdgeperfError
from edgeperf.coordinator.blobs import BlobDigestError, BlobFullError, BlobStore
from edgeperf.coordinator.store import Store, results

GIB = 1024**3
#: Of a board's share, without a result that names it.
AHEAD_BYTES = 256 * 1024**2
#: So many blobs of that kind, however small.
AHEAD_BLOBS = 1000
#: What a blob takes of a disk at the least, however small.
BLOCK_BYTES = 4096


class BlobUnlistedError(EdgeperfError):
    """Nobody asked for this blob so far; it may be tried again."""


class Shares:
    """Counts what boards send.

    Args:
        store: Knows which result names which file.
        blobs: Knows which file is here.
        board_bytes: What one board may have here.
        ahead_bytes: What of that no result needs to name.
        ahead_blobs: In how many blobs.
    """

    def __init__(
        self,
        store: Store,
        blobs: BlobStore,
        *,
        board_bytes: int,
        ahead_bytes: int = AHEAD_BYTES,
        ahead_blobs: int = AHEAD_BLOBS,
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._board_bytes = board_bytes
        self._ahead_bytes = ahead_bytes
        self._ahead_blobs = ahead_blobs
        self._used: dict[str, int] = {}
        self._ahead: dict[str, dict[str, int]] = defaultdict(dict)
        self._lock = threading.Lock()

    @contextmanager
    def taking(self, board: str, sha256: str, size_bytes: int, *, total: int) -> Iterator[None]:
        """Take *size_bytes* of a blob into *board*'s share while the context writes them.

        Args:
            board: Who sends.
            sha256: Digest of the blob.
            size_bytes: Of this piece.
            total: Of the whole blob, bytes.

        Raises:
            BlobFullError: Its share is used up.
            BlobUnlistedError: No result names the blob, and too many of that kind are here.
        """
        if self._blobs.size(sha256) is not None:  # nothing will be written
            yield
            return
        kept = self._blobs.offset(sha256)
        taken = _on_disk(kept + size_bytes) - _on_disk(kept)
        if taken:
            with self._lock:
                self._admit(board, sha256, taken)
        try:
            yield
        except BlobDigestError:  # all of it was thrown away
            self._give_back(board, sha256, _on_disk(total))
            raise
        except EdgeperfError:
            self._give_back(board, sha256, taken)
            raise

    def _admit(self, board: str, sha256: str, size_bytes: int) -> None:
        used = self._used[board] if board in self._used else self._listed(board)
        if used + size_bytes > self._board_bytes:
            raise BlobFullError(
                f"blob {sha256}: board {board} has {used / GIB:.1f} GiB here, which is its share;"
                " see --board-space"
            )
        if not self._is_listed(board, sha256):
            ahead = self._ahead[board]
            if self._is_too_much(ahead, sha256, size_bytes):
                for known in [one for one in ahead if self._is_listed(board, one)]:
                    del ahead[known]
            if self._is_too_much(ahead, sha256, size_bytes):
                raise BlobUnlistedError(f"blob {sha256}: no result of board {board} names it yet")
            ahead[sha256] = ahead.get(sha256, 0) + size_bytes
        self._used[board] = used + size_bytes

    def _is_too_much(self, ahead: dict[str, int], sha256: str, size_bytes: int) -> bool:
        return sum(ahead.values()) + size_bytes > self._ahead_bytes or (
            sha256 not in ahead and len(ahead) >= self._ahead_blobs
        )

    def _give_back(self, board: str, sha256: str, size_bytes: int) -> None:
        with self._lock:
            self._used[board] = max(0, self._used.get(board, 0) - size_bytes)
            ahead = self._ahead[board]
            left = ahead.pop(sha256, 0) - size_bytes
            if left > 0:
                ahead[sha256] = left

    def _is_listed(self, board: str, sha256: str) -> bool:
        with self._store.reading() as connection:
            return results.is_wanted(connection, sha256, board) is not None

    def _listed(self, board: str) -> int:
        with self._store.reading() as connection:
            digests = results.listed(connection, board)
        return sum(_on_disk(self._blobs.size(sha256) or 0) for sha256 in digests)


def _on_disk(size_bytes: int) -> int:
    """Return what a blob of that size counts as; one that is not there is nothing."""
    return max(BLOCK_BYTES, size_bytes) if size_bytes else 0
