"""The threads of a process as the kernel sees them, and pinning them.

A runtime's own word about its threads is not evidence: ONNX Runtime's default pool
leaves an inherited affinity mask. So the threads are read from /proc. The trap of
pinning: a mask is a thread's, not a process's, and the kernel silently drops cores that
the cpuset forbids, so every mask is read back.
"""

import os
from collections.abc import Collection
from pathlib import Path

import msgspec

from edgeperf import EdgeperfError
from edgeperf.agent.board.kernel_files import (
    format_core_list,
    numbered,
    parse_core_list,
    read_fields,
    read_text,
)


class PinError(EdgeperfError):
    """A thread could not be pinned to the cores it was meant for."""


class ThreadSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One thread, at one moment.

    Attributes:
        tid: Thread id; the main thread's is the process id.
        name: Its name, at most 15 characters.
        allowed: Cores in its affinity mask.
        core: Core it last ran on.
        started_ticks: Start time since boot in clock ticks; with the id it names the
            thread for ever, ids are used again.
        run_ns: CPU time it has had.
        wait_ns: Time it waited on a run queue, ready but without a core; None where the
            kernel does not count it.
        voluntary: Times it gave up its core.
        involuntary: Times its core was taken.
    """

    tid: int
    name: str
    allowed: tuple[int, ...]
    core: int
    started_ticks: int
    run_ns: int
    wait_ns: int | None
    voluntary: int
    involuntary: int


def threads_of(pid: int, root: Path = Path("/")) -> tuple[ThreadSeen, ...]:
    """Return the threads of process *pid*; none when it is gone."""
    seen = (_thread(tid, path) for tid, path in numbered(root / f"proc/{pid}/task", ""))
    return tuple(thread for thread in seen if thread is not None)


def _thread(tid: int, folder: Path) -> ThreadSeen | None:
    stat = read_text(folder / "stat")
    status = read_fields(folder / "status")
    if not stat or not status:  # it ended while we looked
        return None
    # The name stands in parentheses and may itself hold spaces and parentheses.
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    schedstat = (read_text(folder / "schedstat") or "").split()
    ticks = int(fields[11]) + int(fields[12])
    return ThreadSeen(
        tid=tid,
        name=name,
        allowed=parse_core_list(status.get("Cpus_allowed_list")),
        core=int(fields[36]),
        started_ticks=int(fields[19]),
        run_ns=int(schedstat[0]) if schedstat else ticks * 1_000_000_000 // _TICKS_PER_S,
        wait_ns=int(schedstat[1]) if len(schedstat) > 1 else None,
        voluntary=int(status.get("voluntary_ctxt_switches", "0")),
        involuntary=int(status.get("nonvoluntary_ctxt_switches", "0")),
    )


_TICKS_PER_S: int = os.sysconf("SC_CLK_TCK")


def pin(tid: int, cores: Collection[int]) -> None:
    """Pin one thread to *cores* and check that it is.

    Args:
        tid: Thread id; 0 is the calling thread. Threads it starts later inherit the mask.
        cores: Core numbers.

    Raises:
        PinError: The kernel refused, or left the thread with another mask.
    """
    who = "this thread" if tid == 0 else f"thread {tid}"
    where = format_core_list(cores)
    try:
        os.sched_setaffinity(tid, cores)
        held = os.sched_getaffinity(tid)
    except (OSError, ValueError, OverflowError) as error:
        raise PinError(f"cannot pin {who} to cores {where}: {error}") from error
    if held != set(cores):
        raise PinError(
            f"pinned {who} to cores {where}, but the kernel left it on"
            f" {format_core_list(held)}; check the cpuset of its control group"
        )


def pin_process(pid: int, cores: Collection[int]) -> None:
    """Pin every thread that process *pid* has now; those it starts later inherit it.

    Raises:
        PinError: A thread could not be pinned, or the process does not exist.
    """
    threads = [tid for tid, _ in numbered(Path(f"/proc/{pid}/task"), "")]
    if not threads:
        raise PinError(f"cannot pin process {pid}: no such process")
    for tid in threads:
        _pin_unless_ended(pid, tid, cores)


def _pin_unless_ended(pid: int, tid: int, cores: Collection[int]) -> None:
    try:
        pin(tid, cores)
    except PinError:
        if Path(f"/proc/{pid}/task/{tid}").exists():
            raise
