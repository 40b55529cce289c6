"""Real-time priority and locked memory for a worker, where the system permits them.

They keep others off the core and out of the memory, which shortens the slowest queries and
does not move the median. Neither is ever needed, and what came of it is in the result.

The trap: a real-time process that never sleeps starves whatever else belongs on its core,
if only the kernel's own threads, and the kernel then gives those 50 ms in every second, in
one piece: queries of 25 to 50 ms, worse than what was to be kept away. Kernels before 6.12
do so wanted or not. So it is only taken on isolated cores, where nothing else belongs.
"""

import ctypes
import os
import platform
import re
import resource
from collections.abc import Collection
from pathlib import Path

from edgeperf.agent.board import core_limits
from edgeperf.agent.run.jobs import WorkerJob

#: The lowest real-time priority: above every ordinary process, below the kernel's own.
_LOWEST = os.sched_param(1)
#: No thread that is started inherits it. Who may not raise priorities at will may not drop
#: this flag again either: giving back without it fails, and leaves the process real-time.
_ALONE = os.SCHED_RESET_ON_FORK
#: First kernel in which only starving tasks take time from real-time ones (``dl_server``).
_FIRST_KERNEL = (6, 12)
_LIMIT_FILE = Path("/proc/sys/kernel/sched_rt_runtime_us")
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4
_CAP_IPC_LOCK = 14


class Priority:
    """Whether a worker may have real-time priority; taking it and giving it back.

    Args:
        job: The worker's.
        isolated: Cores that the kernel keeps free; None asks it.

    Attributes:
        scheduling: ``fifo``, or ``normal`` and why.
    """

    def __init__(self, job: WorkerJob, isolated: Collection[int] | None = None) -> None:
        if isolated is None:
            isolated = core_limits().isolated
        why_not = _against(job, isolated) or _forbidden()
        self.scheduling = f"normal ({why_not})" if why_not else "fifo"
        self._may = not why_not

    def take(self) -> None:
        """Take it for the calling thread; threads that it starts do not inherit it."""
        if self._may:
            os.sched_setscheduler(0, os.SCHED_FIFO | _ALONE, _LOWEST)

    def give_back(self) -> None:
        """Make the calling thread an ordinary one again."""
        if self._may:
            os.sched_setscheduler(0, os.SCHED_OTHER | _ALONE, os.sched_param(0))


def _against(job: WorkerJob, isolated: Collection[int]) -> str:
    """Return what speaks against it, empty when nothing does."""
    others = {*job.housekeeping, *(() if job.issuing == job.cores else job.issuing)}
    reasons = (
        (not job.realtime, "as asked"),
        (job.load.accuracy, "accuracy is not timed"),
        (bool(others & set(job.cores)), "its core has other work of the run to do"),
        (
            not set(job.cores) <= set(isolated),
            "its core is not isolated: who starves there cuts in",
        ),
        (job.sut.threads > 1, "the runtime's own threads would wait behind it"),
        (_kernel() < _FIRST_KERNEL, "kernels before 6.12 stop it for 50 ms each second"),
        (_limit_us() <= 0, "the system sets no limit to real-time work"),
    )
    return next((why for holds, why in reasons if holds), "")


def _forbidden() -> str:
    """Try it, and return why it cannot be had."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | _ALONE, _LOWEST)
        os.sched_setscheduler(0, os.SCHED_OTHER | _ALONE, os.sched_param(0))
    except OSError:
        return "not permitted"
    return ""


def _kernel() -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    return tuple(map(int, found.groups())) if found else (0, 0)


def _limit_us() -> int:
    try:
        return int(_LIMIT_FILE.read_text())
    except (OSError, ValueError):
        return 0


def lock_memory(job: WorkerJob) -> bool:
    """Keep what is in memory there, also what comes later; return whether that worked.

    Not for accuracy, which is not timed and goes through samples by the gigabyte. Pages are
    locked when they are first used: the blocks of a test are laid out for the largest one
    and stay mostly empty.
    """
    if job.load.accuracy or not _may_lock():
        return False  # within a finite limit it would work until LoadGen's queries exceed it
    flags = _MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT
    return bool(ctypes.CDLL(None).mlockall(flags) == 0)


def _may_lock() -> bool:
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] == resource.RLIM_INFINITY:
        return True
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_IPC_LOCK & 1)
    return False
