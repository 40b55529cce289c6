"""One run in hand: from its model through the cool-down to the end of its child.

Every step returns at once; what ends the run is returned to the queue as its terminal
event. The child's own events are passed on once a second at most.
"""

import time
from datetime import datetime
from typing import NamedTuple

from edgeperf.agent.events import Failed, Phase, Progress
from edgeperf.agent.link.child import Child, tail_of
from edgeperf.agent.link.clock import boot_id
from edgeperf.agent.link.errors import LinkError
from edgeperf.agent.link.journal import Journal, RunKey
from edgeperf.agent.link.lines import LineReader
from edgeperf.agent.link.models import FindModel
from edgeperf.agent.link.policy import check_hours, local_spec, time_limit_s
from edgeperf.agent.link.results import failure, read_result, uploads_of
from edgeperf.agent.link.settings import Settings
from edgeperf.agent.link.thermal import hottest_c
from edgeperf.agent.messages import (
    ErrorClass,
    EventData,
    MessageError,
    RunCooling,
    RunFailed,
    RunInterrupted,
    RunProgress,
    RunRejected,
    RunStart,
    RunTimedOut,
)
from edgeperf.agent.spec import RunSpec

#: Progress is passed on at most so often.
_PROGRESS_S = 1.0
#: How often temperature, time and log are looked at.
LOOK_S = 1.0
_COOLING_REPORT_S = 10.0
_LINES_S = 5.0


class Ending(NamedTuple):
    """How a run ended: its terminal event, and sha256, path and size of what to upload."""

    event: EventData
    uploads: list[tuple[str, str, int]]


class Attempt:
    """The run in hand.

    Args:
        key: Which one.
        start: The command's data.
        settings: The service's.
        journal: Where its steps are written down.
        find_model: Finds or fetches a model.

    Attributes:
        key: As given.
        child: Its process, None before it is started.
    """

    def __init__(
        self,
        key: RunKey,
        start: RunStart,
        *,
        settings: Settings,
        journal: Journal,
        find_model: FindModel,
    ) -> None:
        self.key = key
        self.child: Child | None = None
        self._start, self._settings, self._journal = start, settings, journal
        self._policy = settings.board.policy
        self._find_model = find_model
        self._folder = settings.runs / key.folder
        self._began_s = time.monotonic()
        self._heard_s = self._told_s = self._looked_s = 0.0
        self._phase: Phase | None = None
        self._progress: Progress | None = None
        self._last_word: Failed | None = None
        self._lines = LineReader(self._folder / "run.log")
        self._read_s = 0.0
        #: What to report when the child, told to stop, has ended.
        self._verdict: EventData | None = None

    def next_s(self) -> float:
        """Return seconds until :meth:`tick` has something to do."""
        return 0.05 if self.child is not None and self.child.is_ending else LOOK_S

    def look_now(self) -> None:
        """Do not wait for the next look: something changed."""
        self._looked_s = 0.0

    def tick(self) -> Ending | None:
        """Do what is due; returns the end of the run when this is it."""
        if self.child is not None:
            return self._follow(self.child)
        if not self._may_look():
            return None
        event = self._prepare()
        return None if event is None else Ending(event, [])

    def stop(self, verdict: EventData) -> None:
        """Stop the child; when it has ended, *verdict* is the run's end."""
        if self._verdict is None and self.child is not None:
            self._verdict = verdict
            self.child.stop()

    def interrupt(self, message: str) -> None:
        """Stop the child because the agent stops."""
        self.stop(RunInterrupted(message=message, phase=self._phase))

    def _may_look(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_S:
            return False
        self._looked_s = now_s
        return True

    def _prepare(self) -> EventData | None:
        """Bring the run one step nearer to its child."""
        try:
            spec = local_spec(self._start, self._settings.board)
            check_hours(self._policy, datetime.now().astimezone())
            if self._start.model is not None and not self._find_model(self._start.model):
                return None
        except MessageError as error:
            return RunRejected(code=error.code, reason=error.problem[:1900])
        if (target_c := self._target_c()) is not None:
            now_c = hottest_c()
            if now_c is not None and now_c > target_c:
                return self._cool(now_c, target_c)
        return self._launch(spec)

    def _target_c(self) -> float | None:
        """Return the temperature to wait for; in the end only the board's own limit counts."""
        wanted = [self._policy.max_temperature_c]
        if not self._has_cooled_long_enough():
            wanted.append(self._start.cool_to_c)
        return min((limit for limit in wanted if limit is not None), default=None)

    def _has_cooled_long_enough(self) -> bool:
        return time.monotonic() - self._began_s > self._start.cool_timeout_s

    def _cool(self, now_c: float, target_c: float) -> EventData | None:
        if self._has_cooled_long_enough():
            message = f"{now_c:.1f} °C and not cooling; this board runs below {target_c:g} °C"
            return RunFailed(error_class=ErrorClass.DEVICE, message=message)
        if time.monotonic() - self._told_s >= _COOLING_REPORT_S:
            self._told_s = time.monotonic()
            self._journal.say(self.key, RunCooling(temperature_c=now_c, target_c=target_c))
        return None

    def _launch(self, spec: RunSpec) -> EventData | None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._journal.starting(self.key)
            self.child = Child(
                spec,
                program=self._settings.run_program,
                folder=self._folder,
                cache=self._settings.cache,
                max_memory_bytes=self._policy.max_memory_bytes,
                hold_to=self._start.hold_to,
            )
        except (OSError, LinkError) as error:
            return RunFailed(error_class=ErrorClass.DEVICE, message=str(error)[:1900])
        self._heard_s = time.monotonic()
        self._journal.running(
            self.key,
            pid=self.child.pid,
            started_ticks=self.child.started_ticks,
            boot=boot_id(),
        )
        self.child.go()
        return None

    def _follow(self, child: Child) -> Ending | None:
        exit_code = child.ended()  # before the events, so that none is missed
        for event in child.take_events():
            self._heard_s = time.monotonic()
            if isinstance(event, Progress):
                self._hear(event)
            elif isinstance(event, Failed):
                self._last_word = event
        if exit_code is not None:
            return self._finish(child, exit_code)
        self._tell()
        child.press()
        if not child.is_ending and self._may_look():
            self._watch(child)
        return None

    def _hear(self, progress: Progress) -> None:
        self._progress = progress
        if progress.phase is not self._phase:
            self._phase = progress.phase
            self._told_s = 0.0
            self._journal.phase(self.key, progress.phase.value)

    def _tell(self) -> None:
        progress = self._progress
        if progress is None or time.monotonic() - self._told_s < _PROGRESS_S:
            return
        self._told_s, self._progress = time.monotonic(), None
        self._journal.say(
            self.key,
            RunProgress(
                phase=progress.phase,
                percent=progress.percent,
                eta_s=progress.eta_s,
                temperature_c=progress.temperature_c,
            ),
        )

    def _watch(self, child: Child) -> None:
        """Stop a run that is over its time, silent, chatty or hot."""
        self._pass_lines_on()
        limit_s = time_limit_s(self._start, self._policy)
        silent_s = time.monotonic() - self._heard_s
        if child.elapsed_s > limit_s:
            self._time_out(f"stopped after {limit_s:g} s, its limit")
        elif silent_s > self._settings.silence_s:
            self._time_out(f"hung: it said nothing for {silent_s:.0f} s")
        elif child.log_is_too_long():
            self._time_out("stopped: it prints without end")
        elif (most_c := self._policy.max_temperature_c) is not None:
            now_c = hottest_c()
            if now_c is not None and now_c > most_c:
                message = f"stopped at {now_c:.1f} °C; this board runs below {most_c:g} °C"
                tail = tail_of(child.log)
                self.stop(RunFailed(error_class=ErrorClass.DEVICE, message=message, tail=tail))

    def _pass_lines_on(self, *, at_end: bool = False) -> None:
        """Report what the run printed, now and then, and never in the timed phase."""
        is_due = time.monotonic() - self._read_s > _LINES_S
        if not at_end and (not is_due or self._phase is Phase.PERFORMANCE):
            return
        self._read_s = time.monotonic()
        if (lines := self._lines.take(at_end=at_end)) is not None:
            self._journal.add(self.key, lines)

    def _time_out(self, message: str) -> None:
        self.stop(RunTimedOut(message=message, tail=tail_of(self._folder / "run.log")))

    def _finish(self, child: Child, exit_code: int) -> Ending:
        child.close()
        self._pass_lines_on(at_end=True)
        if self._verdict is not None:
            return Ending(self._verdict, [])
        result = read_result(self._folder, exit_code, child.elapsed_s)
        if result is None:
            return Ending(failure(self._folder, exit_code, self._last_word), [])
        return Ending(result, uploads_of(self._folder, result, everything=self._start.files))
