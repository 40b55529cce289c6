"""What boards upload, tied to the runs that list it.

A ``result.json`` too large for a message comes as a blob, before or after the event that
names it; whichever is second puts it into the store.
"""

import contextlib

import msgspec

from edgeperf.coordinator.blobs import BlobError, BlobStore
from edgeperf.coordinator.store import Store, results, runs

#: Of a ``result.json``; the largest that we read.
_MAX_RESULT_BYTES = 16 * 1024**2


class Artefacts:
    """Blobs, with their effect on the store."""

    def __init__(self, store: Store, blobs: BlobStore) -> None:
        self._store = store
        self.blobs = blobs

    def append(self, sha256: str, data: bytes, *, first: int, total: int) -> bool:
        """See :meth:`~edgeperf.coordinator.blobs.BlobStore.append`."""
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
            if file.name == results.RESULT_FILE and self.blobs.size(file.sha256) is not None:
                self.arrived(file.sha256)

    def _read(self, sha256: str) -> dict[str, object] | None:
        with contextlib.suppress(BlobError, msgspec.DecodeError, RecursionError):
            if (self.blobs.size(sha256) or 0) <= _MAX_RESULT_BYTES:
                with self.blobs.open(sha256) as file:
                    return msgspec.json.decode(file.read(), type=dict[str, object])
        return None
