"""The transfer thread: one blob at a time, never while a run is timed.

The service hands it a job and goes on; the end of the job comes back like any other
message. Between two pieces it looks whether it has to wait: an upload must not be heard
in a measurement.
"""

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from edgeperf import EdgeperfError
from edgeperf.agent.link.errors import LinkError, LinkInputError
from edgeperf.agent.link.http import BlobServer


class Upload(NamedTuple):
    """Send a file."""

    sha256: str
    path: Path
    size_bytes: int


class Download(NamedTuple):
    """Fetch a model into the cache. ``purpose`` comes back with the end."""

    sha256: str
    path: Path
    size_bytes: int
    purpose: str


class TransferEnded(NamedTuple):
    """A job is over: ``problem`` is one line, None when it worked; ``final`` bars another try."""

    job: Upload | Download
    problem: str | None
    final: bool = False


class _StoppedError(LinkError):
    """The agent is about to end."""


class Transfers:
    """The thread and its one job.

    Args:
        server: The coordinator.
        deliver: Called from the thread with every :class:`TransferEnded`.

    Attributes:
        moved_s: When a piece last moved, monotonic seconds.
    """

    def __init__(self, server: BlobServer, deliver: Callable[[TransferEnded], None]) -> None:
        self._server = server
        self._deliver = deliver
        self._jobs: queue.SimpleQueue[Upload | Download | None] = queue.SimpleQueue()
        self._may_go = threading.Event()
        self._may_go.set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="transfers", daemon=True)
        self.moved_s = 0.0

    def open(self) -> None:
        """Start the thread."""
        self._thread.start()

    def start(self, job: Upload | Download) -> None:
        """Begin *job*; there is none in progress."""
        self._jobs.put(job)

    def pause(self) -> None:
        """Hold the job in progress after its current piece."""
        self._may_go.clear()

    def resume(self) -> None:
        """Let it go on."""
        self._may_go.set()

    def close(self) -> None:
        """End the thread; the job in progress goes on after the next start of the agent."""
        self._closing.set()
        self._may_go.set()
        self._jobs.put(None)
        self._thread.join(2.0)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            ended = self._do(job)
            if self._closing.is_set():
                return
            self._deliver(ended)

    def _do(self, job: Upload | Download) -> TransferEnded:
        try:
            if isinstance(job, Upload):
                self._server.upload(job.path, job.sha256, job.size_bytes, self._between)
            else:
                self._server.download(job.sha256, job.size_bytes, job.path, self._between)
        except LinkInputError as error:
            return TransferEnded(job, str(error), final=True)
        except (EdgeperfError, OSError, ValueError) as error:
            return TransferEnded(job, str(error))
        return TransferEnded(job, None)

    def _between(self) -> None:
        self.moved_s = time.monotonic()
        self._may_go.wait()
        if self._closing.is_set():
            raise _StoppedError("the agent is stopping")
