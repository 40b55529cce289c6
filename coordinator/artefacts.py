"""What boards upload, tied to the runs that list it.

A ``result.json`` too large for a message comes as a blob, before or after the event that
names it; whichever is second puts it into the store.
"""

import logging

import msgspec

from edgeperf.agent.result.files import RESULT
from edgeperf.coordinator.blobs import BlobError, BlobStore
from edgeperf.coordinator.settings import BOARD_SPACE_GIB
from edgeperf.coordinator.shares import GIB, Shares
from edgeperf.coordinator.store import Store, results, runs

_log = logging.getLogger(__name__)

#: Of a ``result.json``; the largest that we read.
_MAX_RESULT_BYTES = 16 * 1024**2


class Artefacts:
    """Blobs, with their effect on the store.

    Args:
        store: Knows the runs.
        blobs: The files.
        board_space_gib: What one board may have here.
    """

    def __init__(
        self, store: Store, blobs: BlobStore, *, board_space_gib: float = BOARD_SPACE_GIB
    ) -> None:
        self._store = store
        self._shares = Shares(store, blobs, board_bytes=int(board_space_gib * GIB))
        self.blobs = blobs

    def append(
        self, sha256: str, data: bytes, *, first: int, total: int, board: str | None
    ) -> bool:
        """See :meth:`~edgeperf.coordinator.blobs.BlobStore.append`.

        Args:
            sha256: Its digest.
            data: The bytes from offset *first* on.
            first: Where they go.
            total: Size of the whole blob.
            board: Whose share they come out of; None for the administrator.

        Raises:
            BlobUnlistedError: Too much that no result of the board names.
        """
        if board is None:
            whole = self.blobs.append(sha256, data, first=first, total=total)
        else:
            with self._shares.taking(board, sha256, len(data), total=total):
                whole = self.blobs.append(sha256, data, first=first, total=total)
        if whole:
            self.arrived(sha256)
        return whole

    def arrived(self, sha256: str) -> None:
        """Read the blob into every run that waits for it as its ``result.json``."""
        with self._store.reading() as connection:
            waiting = results.awaiting(connection, sha256)
        document = self._read(sha256) if waiting else None
        if document is not None:
            with self._store.writing() as connection:
                for run_id in waiting:
                    results.keep_document(connection, run_id, document)

    def look_for(self, run_id: str) -> None:
        """Read a run's ``result.json`` if it is here already."""
        with self._store.reading() as connection:
            files = runs.artefacts(connection, run_id)
        for file in files:
            if file.name == RESULT and self._is_here(file.sha256):
                self.arrived(file.sha256)

    def _is_here(self, sha256: str) -> bool:
        try:
            return self.blobs.size(sha256) is not None
        except OSError as error:
            _log.warning("result %s: cannot be looked for: %s", sha256, error.strerror)
            return False

    def _read(self, sha256: str) -> dict[str, object] | None:
        try:
            if (self.blobs.size(sha256) or 0) <= _MAX_RESULT_BYTES:
                with self.blobs.open(sha256) as file:
                    return msgspec.json.decode(file.read(), type=dict[str, object])
        except (BlobError, msgspec.DecodeError, RecursionError) as error:
            _log.debug("result %s: %s", sha256, error)
        except OSError as error:  # a disk that fails here must not end the intake
            _log.warning("result %s: cannot be read: %s", sha256, error.strerror)
        return None
