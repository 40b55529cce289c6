"""What it costs to hand something to another process and get it back: each way that there is.

The other process is this module, run by name. It answers each way in turn, so both sides
know what comes next and nothing but the thing measured crosses between them.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np

from edgeperf import EdgeperfError
from edgeperf.agent.run.memory import Field, map_fields, new_block, new_event, new_pipe
from edgeperf.agent.run.process import child_environment, die_with

ROUNDS = 400
#: After this long without work an idle core has gone to sleep.
PAUSE_S = 0.003
_PAUSED_ROUNDS = 40
_WORDS = [Field(name="words", shape=(16,), dtype="int64")]
#: Looks at a word before the other side counts as lost; some seconds.
_LONGEST_WATCH = 1 << 27
_ASK, _ANSWER = 0, 8  # a cache line apart
#: Far longer than all ways take on the slowest board, with the start of the other process.
_LONGEST_S = 60.0


class WakeUp(msgspec.Struct, frozen=True, kw_only=True):
    """One way of waking another process.

    Attributes:
        way: ``watch`` (both look at a word in shared memory), ``event`` or ``pipe``
            (both sleep until the kernel wakes them).
        where: ``other core`` or ``same core``.
        p50_ns: Median of there and back.
        p90_ns: 90th percentile.
        paused_p50_ns: Median after a pause of 3 ms; None where nobody sleeps.
    """

    way: str
    where: str
    p50_ns: float
    p90_ns: float
    paused_p50_ns: float | None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Descriptors between the two processes.

    Attributes:
        words: Shared memory.
        events: One each way.
        pipes: Reading and writing end, there and back.
    """

    words: int
    events: tuple[int, int]
    pipes: tuple[tuple[int, int], tuple[int, int]]

    def descriptors(self) -> list[int]:
        """Return every descriptor."""
        return [self.words, *self.events, *self.pipes[0], *self.pipes[1]]


def wakeups(core: int, other: int | None) -> tuple[WakeUp, ...]:
    """Measure every way between *core* and *other*, and on *core* alone.

    Args:
        core: Where the asking side runs.
        other: Where the answering side runs; None where there is no other core.

    Raises:
        EdgeperfError: The answering side died, or does not answer.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        far = [] if other is None else _measure("other core", other, ("watch", "event", "pipe"))
        # Watching needs two cores: on one, either side would wait for the other's turn to end.
        return (*far, *_measure("same core", core, ("event", "pipe")))
    finally:
        os.sched_setaffinity(0, before)


def _measure(where: str, core: int, ways: tuple[str, ...]) -> list[WakeUp]:
    with _line() as line, _answering(line, core, ways) as check:
        return [_wakeup(way, where, _asking(way, line), check) for way in ways]


@contextlib.contextmanager
def _line() -> Iterator[Line]:
    line = Line(
        words=new_block("wakeups"),
        events=(new_event(), new_event()),
        pipes=(new_pipe(4096), new_pipe(4096)),
    )
    try:
        yield line
    finally:
        for descriptor in line.descriptors():
            os.close(descriptor)


@contextlib.contextmanager
def _answering(line: Line, core: int, ways: tuple[str, ...]) -> Iterator[Callable[[], None]]:
    """Start the side that answers; yield what raises once it is lost.

    No round looks for that itself, which would be measured too: a thread sleeps until the
    process ends, and wakes whoever waits for an answer of it.
    """
    plan = msgspec.json.encode((line, core, ways, os.getpid())).decode()
    safe = ["-P"] if sys.version_info >= (3, 11) else []
    process = subprocess.Popen(
        [sys.executable, *safe, "-m", "edgeperf.agent.run.wakeups", plan],
        pass_fds=line.descriptors(),
        env=child_environment(1),
    )
    handle, lost = os.pidfd_open(process.pid), threading.Event()

    def watch() -> None:
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        ended.poll(_LONGEST_S * 1e3)
        lost.set()
        os.eventfd_write(line.events[1], 1)
        os.write(line.pipes[1][1], b"x")

    def check() -> None:
        if lost.is_set():
            raise EdgeperfError("wake-ups cannot be measured: the other process is lost")

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        os.read(line.pipes[1][0], 1)  # it is ready
        check()
        yield check
    finally:
        process.kill()
        process.wait()
        watcher.join()
        os.close(handle)


def _wakeup(way: str, where: str, ask: Callable[[], None], check: Callable[[], None]) -> WakeUp:
    paused = None if way == "watch" else _times(ask, check, _PAUSED_ROUNDS, PAUSE_S)
    times = _times(ask, check, ROUNDS, 0.0)
    p50, p90 = np.percentile(times, [50, 90])
    return WakeUp(
        way=way,
        where=where,
        p50_ns=float(p50),
        p90_ns=float(p90),
        paused_p50_ns=None if paused is None else float(np.median(paused)),
    )


def _times(
    ask: Callable[[], None], check: Callable[[], None], rounds: int, pause_s: float
) -> list[int]:
    times = []
    for _ in range(rounds):
        if pause_s:
            time.sleep(pause_s)
        began = time.monotonic_ns()
        ask()
        times.append(time.monotonic_ns() - began)
        check()
    return times


def _asking(way: str, line: Line) -> Callable[[], None]:
    """Return one round of the side that asks."""
    words = map_fields(line.words, _WORDS)["words"].data

    def watch() -> None:
        number = words[_ASK] + 1
        words[_ASK] = number
        for _ in range(_LONGEST_WATCH):
            if words[_ANSWER] == number:
                return
        raise EdgeperfError("the other process does not answer: wake-ups cannot be measured")

    def event() -> None:
        os.eventfd_write(line.events[0], 1)
        os.eventfd_read(line.events[1])

    def pipe() -> None:
        os.write(line.pipes[0][1], b"x")
        os.read(line.pipes[1][0], 1)

    return {"watch": watch, "event": event, "pipe": pipe}[way]


def _answer(way: str, line: Line) -> None:
    """Answer every round of *way*."""
    words = map_fields(line.words, _WORDS)["words"].data
    rounds = ROUNDS if way == "watch" else ROUNDS + _PAUSED_ROUNDS
    for number in range(1, rounds + 1):
        if way == "watch":
            while words[_ASK] != number:
                pass
            words[_ANSWER] = number
        elif way == "event":
            os.eventfd_read(line.events[0])
            os.eventfd_write(line.events[1], 1)
        else:
            os.read(line.pipes[0][0], 1)
            os.write(line.pipes[1][1], b"x")


def main() -> None:
    """Be the answering side that the command line describes."""
    plan: Any = msgspec.json.decode(sys.argv[1], type=tuple[Line, int, tuple[str, ...], int])
    line, core, ways, parent = plan
    die_with(parent)
    os.sched_setaffinity(0, {core})
    os.write(line.pipes[1][1], b"r")
    for way in ways:
        _answer(way, line)
    signal.pause()  # that it ends means that it is lost


if __name__ == "__main__":
    main()
