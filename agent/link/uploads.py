"""Which blob moves when: models before results, nothing while a run is timed."""

import time
from collections import deque
from pathlib import Path

from edgeperf.agent.link.chunks import ChunkSender
from edgeperf.agent.link.errors import LinkInputError
from edgeperf.agent.link.journal import Journal
from edgeperf.agent.link.log import warn
from edgeperf.agent.link.transfers import Download, TransferEnded, Transfers, Upload
from edgeperf.agent.messages import BlobStatus, ModelRef

_FIRST_PAUSE_S = 2.0


class Blobs:
    """Uploads from the journal and downloads on demand, one at a time.

    Args:
        journal: Knows what is still to be uploaded.
        cache: Directory for models.
        transfers: HTTP, None where there is none.
        chunks: The way over MQTT, used where there is no HTTP.
        longest_pause_s: After failures, before the next attempt.
    """

    def __init__(
        self,
        journal: Journal,
        cache: Path,
        transfers: Transfers | None,
        chunks: ChunkSender,
        *,
        longest_pause_s: float,
    ) -> None:
        self._journal = journal
        self._cache = cache
        self._transfers = transfers
        self._chunks = chunks
        self._job: Upload | Download | None = None
        self._wanted: deque[Download] = deque()
        self._longest_pause_s = longest_pause_s
        self._pause_s = _FIRST_PAUSE_S
        self._failed: set[str] = set()
        self._not_before_s = 0.0
        self._chunk_s = 0.0

    @property
    def moved_s(self) -> float:
        """When something last moved, monotonic seconds."""
        return max(self._chunk_s, self._transfers.moved_s if self._transfers else 0.0)

    @property
    def is_idle(self) -> bool:
        """Whether nothing moves and nothing could move now."""
        if self._job is not None or self._wanted:
            return False
        return time.monotonic() < self._not_before_s or not self._journal.uploads(1)

    def next_s(self) -> float | None:
        """Return seconds until :meth:`tick` has something to do, None when it has nothing."""
        if self._job is None and not self._journal.uploads(1):
            return None
        return max(1.0, self._not_before_s - time.monotonic())

    def cached(self, model: ModelRef) -> Path | None:
        """Return the path of a model in the cache, None when it is not there."""
        path = self._cache / f"{model.sha256}.{model.format}"
        return path if path.is_file() else None

    def fetch(self, model: ModelRef, purpose: str) -> None:
        """Download a model when the line is free.

        Raises:
            LinkInputError: This board has no HTTP to the coordinator.
        """
        if self._transfers is None:
            raise LinkInputError("this board has no HTTP to the coordinator to fetch models by")
        path = self._cache / f"{model.sha256}.{model.format}"
        job = Download(model.sha256, path, model.size_bytes, purpose)
        if job != self._job and job not in self._wanted:
            self._wanted.append(job)

    def hold(self) -> None:
        """Stop after the current piece: a run is about to be timed."""
        if self._transfers is not None:
            self._transfers.pause()

    def tick(self) -> None:
        """Go on; called only while no run is timed."""
        if self._transfers is not None:
            self._transfers.resume()
        if self._job is not None:
            self._chunks.tick()
        elif self._wanted:
            self._begin(self._wanted.popleft())
        elif time.monotonic() >= self._not_before_s and (upload := self._next_upload()):
            self._begin(upload)

    def take(self, status: BlobStatus) -> TransferEnded | None:
        """Pass on what the coordinator says about an upload over MQTT."""
        self._chunk_s = time.monotonic()
        return self._chunks.take(status)

    def ended(self, end: TransferEnded) -> None:
        """Note the end of a job."""
        self._job = None
        if end.problem is None or end.final:
            self._pause_s = _FIRST_PAUSE_S
            if isinstance(end.job, Upload):
                self._journal.uploaded(end.job.sha256)
        else:
            self._failed.add(end.job.sha256)
            self._not_before_s = time.monotonic() + self._pause_s
            self._pause_s = min(self._pause_s * 2, self._longest_pause_s)
        if end.problem is not None:
            warn(end.problem)

    def try_now(self) -> None:
        """Forget the pause after a failure: the coordinator is back."""
        self._not_before_s = 0.0

    def _next_upload(self) -> Upload | None:
        """Return the first file that did not fail lately, so that one cannot hold up all."""
        found = self._journal.uploads(len(self._failed) + 1)
        fresh = [row for row in found if row[0] not in self._failed]
        if not fresh:
            self._failed.clear()
        sha256, path, size_bytes = (fresh or found or [("", "", 0)])[0]
        return Upload(sha256, Path(path), size_bytes) if sha256 else None

    def _begin(self, job: Upload | Download) -> None:
        self._job = job
        if self._transfers is not None:
            self._transfers.start(job)
        elif isinstance(job, Upload):
            self._chunks.start(job)
