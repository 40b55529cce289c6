"""The runs of this board, one at a time: from the queue through the child to the report.

A run passes through these steps, each written down before it has an effect: queued,
model (fetch it), cooling (wait for the board), running (the child), ended. Everything here is
driven by :meth:`Runs.tick` from the service's one thread; nothing waits.
"""

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec

from edgeperf.agent.events import Failed, Phase, Progress
from edgeperf.agent.link.child import Child, tail_of
from edgeperf.agent.link.clock import boot_id
from edgeperf.agent.link.errors import LinkError
from edgeperf.agent.link.journal import Journal, Leftover, RunKey
from edgeperf.agent.link.policy import check_hours, local_spec, time_limit_s
from edgeperf.agent.link.processes import is_same, kill_session
from edgeperf.agent.link.results import failure, read_result, uploads_of
from edgeperf.agent.link.settings import Settings
from edgeperf.agent.link.thermal import hottest_c
from edgeperf.agent.messages import (
    ErrorClass,
    EventData,
    MessageError,
    ModelRef,
    RunCancelled,
    RunCooling,
    RunFailed,
    RunInterrupted,
    RunPreparing,
    RunProgress,
    RunRejected,
    RunStart,
    RunTimedOut,
)

#: Progress is passed on at most so often.
_PROGRESS_S = 1.0
#: How often temperature, time and log are looked at while something is going on.
_LOOK_S = 1.0
_COOLING_REPORT_S = 10.0
_KILL_S = 5.0
#: Returns the model's path when it is in the cache, else fetches it and returns None, or raises.
FindModel = Callable[[ModelRef], Path | None]


class _Current:
    """The run in hand and how far it is."""

    def __init__(self, key: RunKey, start: RunStart, folder: Path, limit_s: float) -> None:
        self.key, self.start, self.folder, self.limit_s = key, start, folder, limit_s
        self.child: Child | None = None
        self.began_s = time.monotonic()
        self.heard_s = self.began_s
        self.told_s = 0.0
        self.phase: Phase | None = None
        self.progress: Progress | None = None
        self.last_word: Failed | None = None
        #: What to report when the child, told to stop, has ended.
        self.verdict: EventData | None = None


class Runs:
    """The queue and the run in hand.

    Args:
        settings: The service's.
        journal: Where runs are written down.
        find_model: Finds or fetches a model.
    """

    def __init__(self, settings: Settings, journal: Journal, find_model: FindModel) -> None:
        self._settings = settings
        self._journal = journal
        self._find_model = find_model
        self._current: _Current | None = None
        self._looked_s = 0.0

    @property
    def current(self) -> RunKey | None:
        """The run in hand."""
        return None if self._current is None else self._current.key

    @property
    def is_measuring(self) -> bool:
        """Whether a child runs, which nothing may disturb."""
        return self._current is not None and self._current.child is not None

    def descriptors(self) -> list[int]:
        """Return what to select for reading."""
        current = self._current
        return current.child.descriptors() if current and current.child else []

    def next_s(self) -> float | None:
        """Return seconds until :meth:`tick` has something to do, None when it waits for others."""
        if self._current is None:
            return None
        if self._current.child is not None and self._current.child.is_ending:
            return 0.05
        return _LOOK_S

    def recover(self) -> None:
        """Report what an earlier life of the agent left unfinished; kills what still runs."""
        for leftover in self._journal.leftovers():
            _kill(leftover)
            folder = self._settings.runs / leftover.key.folder
            result = read_result(folder, exit_code=0, duration_s=0.0)
            if result is not None:  # it ended while nobody was listening
                uploads = uploads_of(folder, result, everything=True)
                self._journal.end(leftover.key, result, uploads)
                continue
            phase = Phase(leftover.phase) if leftover.phase else None
            message = "the agent or the board stopped while it ran"
            self._journal.end(leftover.key, RunInterrupted(message=message, phase=phase), [])

    def tick(self, *, may_start: bool = True) -> None:
        """Do what is due.

        Args:
            may_start: Whether the next run may leave the queue.
        """
        if self._current is None and may_start:
            self._take_next()
        current = self._current
        if current is None:
            return
        if current.child is not None:
            self._follow(current, current.child)
        elif time.monotonic() - self._looked_s >= _LOOK_S:
            self._looked_s = time.monotonic()
            self._prepare(current)

    def cancel(self, run: str, reason: str) -> bool:
        """Stop every attempt at *run*; tells whether there was one."""
        found = self._journal.attempts(run)
        for key in found:
            current = self._current
            if current is not None and current.key == key and current.child is not None:
                self._stop(current, RunCancelled(reason=reason))
            else:
                self._over(key, RunCancelled(reason=reason))
        return bool(found)

    def close(self) -> None:
        """Stop the run in hand, as the agent stops; it is reported as interrupted."""
        current = self._current
        if current is None:
            return
        if current.child is None:
            return  # still queued in the journal: the next start takes it up again
        self._stop(current, RunInterrupted(message="the agent was stopped", phase=current.phase))
        while self._current is not None:
            time.sleep(0.02)
            self._follow(current, current.child)

    def model_fetched(self, problem: str | None) -> None:
        """Take note that the fetch that a run waited for has ended."""
        current = self._current
        if current is not None and current.child is None and problem is not None:
            failed = RunFailed(error_class=ErrorClass.DEVICE, message=problem)
            self._over(current.key, failed)
        self._looked_s = 0.0

    def _take_next(self) -> None:
        found = self._journal.next_queued()
        if found is None:
            return
        key, raw = found
        start = msgspec.json.decode(raw, type=RunStart)
        limit_s = time_limit_s(start, self._settings.board.policy)
        self._current = _Current(key, start, self._settings.runs / key.folder, limit_s)
        self._journal.say(key, RunPreparing())
        self._looked_s = 0.0

    def _prepare(self, current: _Current) -> None:
        """Bring a run from the queue to its child, one step at a time."""
        try:
            spec = local_spec(current.start, self._settings.board)
            check_hours(self._settings.board.policy, datetime.now().astimezone())
            if current.start.model is not None and self._find_model(current.start.model) is None:
                return
        except MessageError as error:
            self._over(current.key, RunRejected(code=error.code, reason=error.problem))
            return
        if self._is_too_warm(current):
            return
        try:
            current.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._journal.starting(current.key)
            child = Child(
                spec,
                program=self._settings.run_program,
                folder=current.folder,
                cache=self._settings.cache,
                max_memory_bytes=self._settings.board.policy.max_memory_bytes,
            )
        except (OSError, LinkError) as error:
            failed = RunFailed(error_class=ErrorClass.DEVICE, message=str(error))
            self._over(current.key, failed)
            return
        current.child = child
        current.heard_s = time.monotonic()
        self._journal.running(
            current.key, pid=child.pid, started_ticks=child.started_ticks, boot=boot_id()
        )

    def _is_too_warm(self, current: _Current) -> bool:
        wanted = [current.start.cool_to_c, self._settings.board.policy.max_temperature_c]
        limits = [limit for limit in wanted if limit is not None]
        now_c = hottest_c() if limits else None
        if now_c is None or now_c <= min(limits):
            return False
        waited_s = time.monotonic() - current.began_s
        most_c = self._settings.board.policy.max_temperature_c
        if waited_s > current.start.cool_timeout_s:
            if most_c is None or now_c <= most_c:
                return False
            message = f"{now_c:.1f} °C after {waited_s:.0f} s; this board runs below {most_c:g} °C"
            self._over(current.key, RunFailed(error_class=ErrorClass.DEVICE, message=message))
            return True
        if time.monotonic() - current.told_s >= _COOLING_REPORT_S:
            current.told_s = time.monotonic()
            event = RunCooling(temperature_c=now_c, target_c=min(limits))
            self._journal.say(current.key, event)
        return True

    def _follow(self, current: _Current, child: Child) -> None:
        exit_code = child.ended()  # before the events, so that none is missed
        for event in child.take_events():
            current.heard_s = time.monotonic()
            if isinstance(event, Progress):
                self._hear(current, event)
            elif isinstance(event, Failed):
                current.last_word = event
        if exit_code is not None:
            self._finish(current, child, exit_code)
            return
        self._tell(current)
        child.press()
        self._watch(current, child)

    def _hear(self, current: _Current, progress: Progress) -> None:
        current.progress = progress
        if progress.phase is not current.phase:
            current.phase = progress.phase
            current.told_s = 0.0
            self._journal.phase(current.key, progress.phase.value)

    def _tell(self, current: _Current) -> None:
        """Pass the newest progress on, once a second at most."""
        progress = current.progress
        if progress is None or time.monotonic() - current.told_s < _PROGRESS_S:
            return
        current.told_s = time.monotonic()
        current.progress = None
        self._journal.say(
            current.key,
            RunProgress(
                phase=progress.phase,
                percent=progress.percent,
                eta_s=progress.eta_s,
                temperature_c=progress.temperature_c,
            ),
        )

    def _watch(self, current: _Current, child: Child) -> None:
        now_s = time.monotonic()
        if child.is_ending or now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        silent_s = now_s - current.heard_s
        if child.elapsed_s > current.limit_s:
            self._time_out(current, f"stopped after {current.limit_s:g} s, its limit")
        elif silent_s > self._settings.silence_s:
            self._time_out(current, f"hung: it said nothing for {silent_s:.0f} s")
        elif child.log_is_too_long():
            self._time_out(current, "stopped: it prints without end")
        elif (most_c := self._settings.board.policy.max_temperature_c) is not None:
            self._check_heat(current, most_c)

    def _check_heat(self, current: _Current, most_c: float) -> None:
        now_c = hottest_c()
        if now_c is not None and now_c > most_c:
            message = f"stopped at {now_c:.1f} °C; this board runs below {most_c:g} °C"
            tail = tail_of(current.folder / "run.log")
            self._stop(
                current, RunFailed(error_class=ErrorClass.DEVICE, message=message, tail=tail)
            )

    def _time_out(self, current: _Current, message: str) -> None:
        tail = tail_of(current.folder / "run.log")
        self._stop(current, RunTimedOut(message=message, tail=tail))

    def _stop(self, current: _Current, verdict: EventData) -> None:
        if current.verdict is None and current.child is not None:
            current.verdict = verdict
            current.child.stop()

    def _finish(self, current: _Current, child: Child, exit_code: int) -> None:
        child.close()
        duration_s = child.elapsed_s
        if current.verdict is not None:
            self._over(current.key, current.verdict)
            return
        result = read_result(current.folder, exit_code, duration_s)
        if result is None:
            self._over(current.key, failure(current.folder, exit_code, current.last_word))
            return
        uploads = uploads_of(current.folder, result, everything=current.start.files)
        self._over(current.key, result, uploads)

    def _over(
        self, key: RunKey, event: EventData, uploads: list[tuple[str, str, int]] | None = None
    ) -> None:
        self._journal.end(key, event, uploads or [])
        if self.current == key:
            self._current = None


def _kill(leftover: Leftover) -> None:
    """End what an earlier agent's child and its family still do."""
    pid, ticks = leftover.pid, leftover.started_ticks
    if pid is None or ticks is None or leftover.boot != boot_id():
        return
    give_up_s = time.monotonic() + _KILL_S
    while kill_session(pid, leader_ticks=ticks) or is_same(pid, ticks):
        if time.monotonic() > give_up_s:
            raise LinkError(f"process {pid} of an earlier run cannot be killed; restart the board")
        time.sleep(0.02)
