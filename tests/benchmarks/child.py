"""Entry point of a contestant's process: load once, then measure whenever told to."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
from benchmarks.protocol import Command, Figures, Hello

from edgeperf.agent.run.jobs import decode_job
from edgeperf.agent.run.process import die_with


class Contestant(Protocol):
    """A harness with a model loaded."""

    def pids(self) -> tuple[int, ...]:
        """Return all its processes."""
        ...

    def do(self, command: Command) -> Figures:
        """Measure once."""
        ...


def _ours(job: Any, cores: Sequence[int]) -> Contestant:
    from benchmarks.ours import Ours

    del cores
    return Ours(job)


def _reference(job: Any, cores: Sequence[int]) -> Contestant:
    from benchmarks.reference import Reference

    return Reference(job, cores)


def _queue(job: Any, cores: Sequence[int]) -> Contestant:
    from benchmarks.naive import Naive

    return Naive(job, cores, "queue")


def _pipe(job: Any, cores: Sequence[int]) -> Contestant:
    from benchmarks.naive import Naive

    return Naive(job, cores, "pipe")


KINDS: dict[str, Callable[[Any, Sequence[int]], Contestant]] = {
    "ours": _ours,
    "reference": _reference,
    "queue": _queue,
    "pipe": _pipe,
}


def main() -> None:
    """Be the contestant named on the command line, on the cores behind its name."""
    kind, *cores = sys.argv[1:]
    die_with(os.getppid())
    with os.fdopen(os.dup(1), "wb", buffering=0) as answers:
        os.dup2(2, 1)  # what runtimes print must not look like an answer
        job = decode_job(sys.stdin.buffer.readline())
        contestant = KINDS[kind](job, [int(core) for core in cores])
        answers.write(msgspec.json.encode(Hello(pids=contestant.pids())) + b"\n")
        for line in sys.stdin.buffer:
            found = contestant.do(msgspec.json.decode(line, type=Command))
            answers.write(msgspec.json.encode(found) + b"\n")
    os._exit(0)  # threads and runtimes do not always end in peace


if __name__ == "__main__":
    main()
