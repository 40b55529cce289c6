"""Ending processes for good: a run's child leads a session, and all of it goes.

A pid alone names nothing, it is used again; with its start time in this boot it names one
process. What left the child's process group is still in its session; what left the session
becomes the agent's own child when its parent dies, since the agent is a "subreaper".
"""

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_SET_CHILD_SUBREAPER = 36


class _Stat(NamedTuple):
    session: int
    started_ticks: int
    is_zombie: bool


def started_ticks(pid: int) -> int | None:
    """Return when process *pid* started, in ticks since boot; None when there is none."""
    stat = _stat(pid)
    return None if stat is None else stat.started_ticks


def is_same(pid: int, ticks: int | None) -> bool:
    """Tell whether *pid* is still the process that started at *ticks*."""
    stat = _stat(pid)
    return stat is not None and stat.started_ticks == ticks and not stat.is_zombie


def session_members(session: int) -> Iterator[int]:
    """Yield the processes of a session that still run."""
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            stat = _stat(int(entry.name))
            if stat is not None and stat.session == session and not stat.is_zombie:
                yield int(entry.name)


def kill_session(session: int, *, leader_ticks: int) -> int:
    """Kill every process of a session that a child of ours led.

    Linux gives no new process a number that is still the session of a living one. So a
    process of that number that started at another time means that our session is gone.

    Args:
        session: Its id: the pid of the child.
        leader_ticks: When the child started.

    Returns:
        How many were killed.
    """
    leader = _stat(session)
    if leader is not None and leader.started_ticks != leader_ticks:
        return 0
    return sum(send(pid, signal.SIGKILL) for pid in list(session_members(session)))


def adopt_orphans() -> bool:
    """Make this process the parent of its descendants' orphans; tells whether it worked.

    Source: prctl(2), PR_SET_CHILD_SUBREAPER.
    """
    try:
        return bool(ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def end_orphans(*, known: set[int]) -> int:
    """Kill and reap the children of this process that nobody here started.

    Args:
        known: Those that somebody did start, and will wait for.

    Returns:
        How many there were.
    """
    ended = 0
    while orphans := [pid for pid in _children() if pid not in known]:
        for pid in orphans:
            send(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            ended += 1
    return ended


def _children() -> list[int]:
    tasks = _PROC / "self" / "task"
    found = [(task / "children").read_text("ascii") for task in tasks.iterdir()]
    return [int(pid) for text in found for pid in text.split()]


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; tells whether there was a process to take it."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text("ascii", "replace")
    except OSError:
        return None
    # The name in brackets may hold anything; fields are counted from behind it.
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20:  # noqa: PLR2004 - starttime is field 22 of proc(5), state is 3
        return None
    return _Stat(int(fields[3]), int(fields[19]), fields[0] in "ZX")
