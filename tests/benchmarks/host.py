"""The parent's side of contestants: start, ask, count their CPU time, end them."""

import contextlib
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.protocol import Command, Figures, Hello

from edgeperf import EdgeperfError
from edgeperf.agent.run.jobs import WorkerJob
from edgeperf.agent.run.process import child_environment

_ENCODE = msgspec.json.encode
#: No measurement takes so long.
_LONGEST_S = 120.0


class Found(msgspec.Struct, frozen=True):
    """What came of one measurement.

    Attributes:
        figures: What the contestant found.
        cpu_ns: CPU time of all its processes, per sample.
        memory_bytes: What all its processes have of their own; 0 where not looked at.
    """

    figures: Figures
    cpu_ns: float
    memory_bytes: int = 0


class ContestantError(EdgeperfError):
    """A contestant died."""


class Resident:
    """One contestant's process, loaded and waiting.

    Attributes:
        pids: All processes that belong to it.
    """

    def __init__(self, kind: str, job: WorkerJob, cores: Sequence[int], log: Path) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.child", kind, *map(str, cores)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                pass_fds=job.wiring.descriptors(),
                env=child_environment(job.sut.threads),
            )
        self._write(job)
        self.pids: tuple[int, ...] = (self._process.pid,)

    def wait_ready(self) -> None:
        """Wait until the model is loaded.

        Raises:
            ContestantError: It was not; its last words are in the message.
        """
        self.pids = msgspec.json.decode(self._read(), type=Hello).pids

    def tell(self, command: Command) -> None:
        """Have it begin; :meth:`hear` waits for the end."""
        self._write(command)

    def hear(self) -> Figures:
        """Wait for what it found.

        Raises:
            ContestantError: It died.
        """
        return msgspec.json.decode(self._read(), type=Figures)

    def ask(self, command: Command) -> Figures:
        """Have it measure, and return what it found."""
        self.tell(command)
        return self.hear()

    def _write(self, thing: Any) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # the read that follows tells
                self._process.stdin.write(_ENCODE(thing) + b"\n")
                self._process.stdin.flush()

    def _read(self) -> bytes:
        stream = self._process.stdout
        if stream is None or not select.select([stream], [], [], _LONGEST_S)[0]:
            raise ContestantError(f"{self._log.stem}: no answer after {_LONGEST_S:.0f} s")
        line = stream.readline()
        if not line:
            words = self._log.read_text(errors="replace").splitlines()[-8:]
            raise ContestantError(f"{self._log.stem} died: {' | '.join(words)}")
        return line

    def close(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def cpu_ns(pids: Iterable[int]) -> int:
    """Return the CPU time that these processes have had, nanoseconds.

    Source: clock_getcpuclockid(3), as glibc computes the id.
    """
    return sum(time.clock_gettime_ns(~pid << 3 | 2) for pid in pids)
