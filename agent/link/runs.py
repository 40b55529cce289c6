"""The runs of this board, one at a time, in the order they were accepted.

Everything here is driven by :meth:`Runs.tick` from the service's one thread; nothing
waits. The journal knows more than this does: after any death, :meth:`Runs.recover` picks up.
"""

import time

import msgspec

from edgeperf.agent.events import Phase
from edgeperf.agent.link.attempt import Attempt
from edgeperf.agent.link.clock import boot_id
from edgeperf.agent.link.errors import LinkError
from edgeperf.agent.link.journal import Journal, Leftover, RunKey
from edgeperf.agent.link.log import note
from edgeperf.agent.link.models import FindModel
from edgeperf.agent.link.processes import is_same, kill_session
from edgeperf.agent.link.results import read_result, uploads_of
from edgeperf.agent.link.settings import Settings
from edgeperf.agent.messages import (
    ErrorClass,
    EventData,
    RunCancelled,
    RunFailed,
    RunInterrupted,
    RunPreparing,
    RunStart,
)

_KILL_S = 5.0


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
        self._attempt: Attempt | None = None

    @property
    def current(self) -> RunKey | None:
        """The run in hand."""
        return None if self._attempt is None else self._attempt.key

    @property
    def is_measuring(self) -> bool:
        """Whether a child runs, which nothing may disturb."""
        return self._attempt is not None and self._attempt.child is not None

    def descriptors(self) -> list[int]:
        """Return what to select for reading."""
        attempt = self._attempt
        return attempt.child.descriptors() if attempt and attempt.child else []

    def next_s(self) -> float | None:
        """Return seconds until :meth:`tick` has something to do, None when it waits for others."""
        return None if self._attempt is None else self._attempt.next_s()

    def recover(self) -> None:
        """Report what an earlier life of the agent left unfinished; kills what still runs.

        Raises:
            LinkError: A process of an earlier life cannot be killed.
        """
        for leftover in self._journal.leftovers():
            _kill(leftover)
            folder = self._settings.runs / leftover.key.folder
            result = read_result(folder, exit_code=0, duration_s=0.0)
            if result is not None:  # it ended while nobody was listening
                uploads = uploads_of(folder, result, everything=True)
                self._over(leftover.key, result, uploads)
                continue
            phase = Phase(leftover.phase) if leftover.phase else None
            message = "the agent or the board stopped while it ran"
            self._over(leftover.key, RunInterrupted(message=message, phase=phase))

    def tick(self, *, may_start: bool = True) -> None:
        """Do what is due.

        Args:
            may_start: Whether the next run may leave the queue.
        """
        if self._attempt is None and may_start:
            self._take_next()
        if self._attempt is not None and (end := self._attempt.tick()) is not None:
            self._over(self._attempt.key, end.event, end.uploads)

    def cancel(self, run: str, reason: str) -> bool:
        """Stop every attempt at *run*; tells whether there was one."""
        found = self._journal.attempts(run)
        for key in found:
            if self._attempt is not None and self._attempt.key == key and self.is_measuring:
                self._attempt.stop(RunCancelled(reason=reason))
            else:
                self._over(key, RunCancelled(reason=reason))
        return bool(found)

    def close(self) -> None:
        """Stop the run in hand, as the agent stops; it is reported as interrupted.

        What has no child yet stays in the queue: the next start takes it up again.
        """
        if self._attempt is None or not self.is_measuring:
            return
        self._attempt.interrupt("the agent was stopped")
        while self._attempt is not None:
            time.sleep(0.02)
            self.tick(may_start=False)

    def model_fetched(self, problem: str | None) -> None:
        """Take note that the fetch that a run may wait for has ended."""
        if self._attempt is None or self.is_measuring:
            return
        if problem is not None:
            failed = RunFailed(error_class=ErrorClass.DEVICE, message=problem[:1900])
            self._over(self._attempt.key, failed)
        else:
            self._attempt.look_now()

    def _take_next(self) -> None:
        found = self._journal.next_queued()
        if found is None:
            return
        key, raw = found
        self._attempt = Attempt(
            key,
            msgspec.json.decode(raw, type=RunStart),
            settings=self._settings,
            journal=self._journal,
            find_model=self._find_model,
        )
        self._journal.say(key, RunPreparing())

    def _over(
        self, key: RunKey, event: EventData, uploads: list[tuple[str, str, int]] | None = None
    ) -> None:
        self._journal.end(key, event, uploads or [])
        note(f"run {key.run}: {type(event).__name__.removeprefix('Run').lower()}")
        if self.current == key:
            self._attempt = None


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
