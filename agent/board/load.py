"""CPU time of our own processes, core by core, and how long they waited for a core.

What a core did beyond this was somebody else's work. The trap: the kernel counts a
thread's time, not where it had it. So each increment is put on the core where the thread
was seen at its end, which is exact for a pinned thread and good to one reading for
others. Read a last time while the processes still live: a dead one cannot be asked.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from edgeperf.agent.board.threads import ThreadSeen, threads_of


class OwnLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What our own processes did between the first reading and the last.

    Attributes:
        cpu_ns: CPU time by core.
        wait_ns: Longest time one thread waited, ready to run, for a core; None where
            the kernel does not count it.
        involuntary: Times that a core was taken from one of the threads.
        threads: Every thread as last seen.
    """

    cpu_ns: dict[int, int]
    wait_ns: int | None
    involuntary: int
    threads: tuple[ThreadSeen, ...]


class OwnLoadMeter:
    """Adds up the CPU time of some processes from reading to reading.

    Args:
        pids: The processes.
        root: Root of the file tree.
    """

    def __init__(self, pids: Iterable[int], root: Path = Path("/")) -> None:
        self._pids = tuple(pids)
        self._root = root
        self._first: dict[tuple[int, int], ThreadSeen] = {}
        self._last: dict[tuple[int, int], ThreadSeen] = {}
        self._cpu_ns: dict[int, int] = {}
        for thread in self._seen():
            self._first[_key(thread)] = self._last[_key(thread)] = thread

    def read(self) -> None:
        """Take one reading."""
        for thread in self._seen():
            earlier = self._last.get(_key(thread))
            spent_ns = thread.run_ns - (earlier.run_ns if earlier else 0)
            self._cpu_ns[thread.core] = self._cpu_ns.get(thread.core, 0) + spent_ns
            self._last[_key(thread)] = thread

    def load(self) -> OwnLoad:
        """Return what was added up so far."""
        waits_ns = [
            last.wait_ns - (first.wait_ns or 0 if first else 0)
            for last, first in self._spans()
            if last.wait_ns is not None
        ]
        return OwnLoad(
            cpu_ns=dict(sorted(self._cpu_ns.items())),
            wait_ns=max(waits_ns, default=None),
            involuntary=sum(
                last.involuntary - (first.involuntary if first else 0)
                for last, first in self._spans()
            ),
            threads=tuple(self._last.values()),
        )

    def _seen(self) -> list[ThreadSeen]:
        return [thread for pid in self._pids for thread in threads_of(pid, self._root)]

    def _spans(self) -> list[tuple[ThreadSeen, ThreadSeen | None]]:
        # A thread born inside the window started from zero.
        return [(last, self._first.get(key)) for key, last in self._last.items()]


def _key(thread: ThreadSeen) -> tuple[int, int]:
    return thread.tid, thread.started_ticks
