"""Blobs in MQTT messages, where no HTTP passes: asked for piece by piece by the coordinator.

``init`` announces a blob, the coordinator answers what it lacks, a few chunks go, ``fin`` asks
again. Both sides may forget everything at any moment: the next ``init`` finds out.
"""

import time
from pathlib import Path

from edgeperf.agent.link.connection import Connection
from edgeperf.agent.link.transfers import TransferEnded, Upload
from edgeperf.agent.messages import MAX_CHUNK_BYTES, BlobInit, BlobStatus, blob_topic, encode

#: Chunks between two questions: half a megabyte.
_CREDIT = 8
_PATIENCE_S = 10.0


class ChunkSender:
    """Sends one blob at a time.

    Args:
        connection: Where to send.
        fleet: Name of the fleet.
        device: Name of this board.
    """

    def __init__(self, connection: Connection, *, fleet: str, device: str) -> None:
        self._connection = connection
        self._fleet, self._device = fleet, device
        self._job: Upload | None = None
        self._asked_s = 0.0

    def start(self, job: Upload) -> None:
        """Begin *job*; there is none in progress."""
        self._job = job
        self._announce(job)

    def take(self, status: BlobStatus) -> TransferEnded | None:
        """Answer the coordinator; returns the end of the job when this is it."""
        job = self._job
        if job is None or status.sha256 != job.sha256:
            return None
        if status.complete:
            self._job = None
            return TransferEnded(job, None)
        try:
            self._send_missing(job, status)
        except OSError as error:
            self._job = None
            return TransferEnded(job, f"{job.path}: {error.strerror or error}", final=True)
        return None

    def tick(self) -> None:
        """Ask again when the coordinator has been silent for too long."""
        if self._job is not None and time.monotonic() - self._asked_s > _PATIENCE_S:
            self._announce(self._job)

    def _announce(self, job: Upload) -> None:
        init = BlobInit(size_bytes=job.size_bytes, chunk_bytes=MAX_CHUNK_BYTES)
        self._send(job, "init", encode(init))
        self._asked_s = time.monotonic()

    def _send_missing(self, job: Upload, status: BlobStatus) -> None:
        credit = _CREDIT
        with Path(job.path).open("rb") as stream:
            for begin, end in status.missing:
                for offset in range(begin, min(end, job.size_bytes), MAX_CHUNK_BYTES):
                    if credit == 0:
                        break
                    credit -= 1
                    stream.seek(offset)
                    size = min(MAX_CHUNK_BYTES, end - offset)
                    self._send(job, offset, stream.read(size))
        self._send(job, "fin", b"")
        self._asked_s = time.monotonic()

    def _send(self, job: Upload, part: str | int, payload: bytes) -> None:
        topic = blob_topic(self._fleet, self._device, job.sha256, part)
        self._connection.send(topic, payload)
