"""Commands come in here: checked, written down once, carried out once, answered always.

Who cannot be believed gets no answer, only a count (:class:`Alert`), so that a stranger can
neither fill the outbox nor learn anything. Who can be believed and is refused gets the reason.
"""

import os
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from edgeperf.agent.link.clock import BoardClock
from edgeperf.agent.link.database import Database
from edgeperf.agent.link.errors import LinkInputError
from edgeperf.agent.link.journal import Journal, RunKey
from edgeperf.agent.link.ledger import Ledger, Seen
from edgeperf.agent.link.log import note, warn
from edgeperf.agent.link.outbox import Outbox
from edgeperf.agent.link.pace import Pace
from edgeperf.agent.link.policy import check_hours, local_spec
from edgeperf.agent.link.results import read_result, uploads_of
from edgeperf.agent.link.runs import Runs
from edgeperf.agent.link.settings import Settings
from edgeperf.agent.link.uploads import Blobs
from edgeperf.agent.messages import (
    COMMAND,
    Alert,
    Code,
    Command,
    CommandDone,
    CommandRejected,
    Describe,
    Drain,
    MessageError,
    ModelPrefetch,
    Ping,
    RunAccepted,
    RunCancel,
    RunCancelled,
    RunInterrupted,
    RunRejected,
    RunStart,
    Selftest,
    read_command,
    verify,
)

#: Clocks of coordinator and board may differ by so much before a deadline counts.
_CLOCK_TOLERANCE = timedelta(seconds=60)
_ALERT_S = 300.0
_REPEAT_S = 1.0
#: Attempt number of the row that says "cancelled before it came".
_BEFORE_ALL = 0

#: Looks at the board and answers the command of that id; True for a self-test.
Inspect = Callable[[str, bool], None]


class Desk:
    """Carries commands out.

    Args:
        settings: The service's.
        database: For one commit over several tables.
        ledger: Which commands were seen.
        journal: Runs.
        outbox: Answers.
        runs: The queue.
        blobs: For prefetching.
        clock: For deadlines.
        inspect: Looks at the board.
    """

    def __init__(  # noqa: PLR0913 - it connects all parts of the service
        self,
        settings: Settings,
        *,
        database: Database,
        ledger: Ledger,
        journal: Journal,
        outbox: Outbox,
        runs: Runs,
        blobs: Blobs,
        clock: BoardClock,
        inspect: Inspect,
    ) -> None:
        self._settings = settings
        self._identity = settings.identity
        self._keys = settings.identity.verifying_keys()
        self._database, self._ledger, self._journal = database, ledger, journal
        self._outbox, self._runs, self._blobs = outbox, runs, blobs
        self._clock = clock
        self._inspect = inspect
        self._alerts = Pace(_ALERT_S)
        self._repeats = Pace(_REPEAT_S)

    @property
    def drained(self) -> str | None:
        """Why no new runs are taken, None when they are."""
        return self._database.value("drained")

    def why_not(self) -> tuple[Code, str] | None:
        """Return why the board takes no new runs now, None when it does."""
        if (reason := self.drained) is not None:
            return Code.DRAINING, reason or "draining"
        floor = self._settings.board.storage.free_space_floor_bytes
        disk = os.statvfs(self._settings.state)
        if (free := disk.f_bavail * disk.f_frsize) < floor:
            return Code.NO_SPACE, f"{free} bytes free; at least {floor} are asked for"
        if self._outbox.is_full:
            return Code.NO_SPACE, f"{self._outbox.size_bytes} bytes wait for the coordinator"
        if self._journal.queued() >= self._settings.board.policy.max_queue:
            return Code.QUEUE_FULL, f"{self._journal.queued()} runs wait"
        return None

    def take(self, raw: bytes) -> None:
        """Handle what came on the command topic, whatever it is."""
        try:
            document = verify(raw, self._keys, COMMAND)
        except MessageError as error:
            self.alert(error)
            return
        try:
            command = read_command(
                document, fleet=self._identity.fleet, device=self._identity.device
            )
            seen = self._ledger.judge(command, raw)
        except MessageError as error:
            self._turn_away(error)
            return
        if seen is Seen.DUPLICATE:
            self._repeat(command)
            return
        with self._database.transaction():
            self._ledger.record(command, raw)
            self._begin(command)

    def alert(self, error: MessageError) -> None:
        """Note a message from somebody who cannot be believed."""
        warn(f"ignored a message: {error}")
        if count := self._alerts.allows(error.code.value):
            self._outbox.put(Alert(code=error.code, text=error.problem[:500], count=count))

    def done(
        self, command_id: str, name: str, *, ok: bool, text: str = "", data: object = None
    ) -> None:
        """Answer a command."""
        reply = CommandDone(
            command=command_id,
            name=name,
            ok=ok,
            text=text[:1900],
            data=msgspec.to_builtins(data) if data is not None else {},
        )
        with self._database.transaction():
            self._ledger.keep_reply(command_id, self._outbox.put(reply))

    def _turn_away(self, error: MessageError) -> None:
        """Refuse a command with a good signature; others' commands are noise, not errors."""
        if error.code is Code.WRONG_DEVICE:
            self.alert(error)
            return
        warn(f"refused a command: {error}")
        if self._repeats.allows(error.message_id or error.code.value):
            self._outbox.put(
                CommandRejected(
                    command=error.message_id,
                    code=error.code,
                    reason=error.problem[:1900],
                    counter=self._ledger.counter,
                )
            )

    def _repeat(self, command: Command) -> None:
        if not self._repeats.allows(command.id):
            return
        data = command.data
        if isinstance(data, RunStart):
            self._journal.say_again(RunKey(data.run, data.attempt))
        elif (reply := self._ledger.reply(command.id)) is not None:
            self._outbox.put_again(reply)
        else:  # the agent died before it answered; doing these twice does no harm
            self._begin(command)

    def _begin(self, command: Command) -> None:
        if self._is_late(command):
            self._refuse(command, Code.EXPIRED, f"its deadline was {command.deadline}")
            return
        data = command.data
        if isinstance(data, RunStart):
            self._start(command, data)
        elif isinstance(data, RunCancel):
            self._cancel(command, data)
        elif isinstance(data, ModelPrefetch):
            self._prefetch(command, data)
        elif isinstance(data, Drain):
            self._drain(command, data)
        elif isinstance(data, Ping):
            self.done(command.id, command.name, ok=True)
        elif isinstance(data, (Describe, Selftest)):
            self._inspect(command.id, isinstance(data, Selftest))

    def _is_late(self, command: Command) -> bool:
        now = self._clock.trusted_now()
        return now is not None and now > command.deadline + _CLOCK_TOLERANCE

    def _refuse(self, command: Command, code: Code, reason: str) -> None:
        if isinstance(command.data, RunStart):
            key = RunKey(command.data.run, command.data.attempt)
            if self._journal.state(key) is None:
                self._journal.refuse(key, RunRejected(code=code, reason=reason[:1900]))
                note(f"run {key.run}: rejected: {code.value}: {reason}")
            return
        reply = CommandRejected(
            command=command.id, code=code, reason=reason[:1900], counter=self._ledger.counter
        )
        self._ledger.keep_reply(command.id, self._outbox.put(reply))

    def _start(self, command: Command, start: RunStart) -> None:
        key = RunKey(start.run, start.attempt)
        if self._journal.state(key) is not None:
            self._journal.say_again(key)
            return
        if self._journal.state(RunKey(start.run, _BEFORE_ALL)) is not None:
            self._journal.refuse(key, RunCancelled(reason="cancelled before it came"))
            return
        if (self._settings.runs / key.folder).exists():
            self._claim_old(key)
            return
        try:
            local_spec(start, self._settings.board)
            check_hours(self._settings.board.policy, datetime.now().astimezone())
        except MessageError as error:
            self._refuse(command, error.code, error.problem)
            return
        if (refusal := self.why_not()) is not None:
            self._refuse(command, *refusal)
            return
        self._journal.accept(
            key, msgspec.json.encode(start), RunAccepted(position=self._journal.queued())
        )
        note(f"run {key.run}: accepted")

    def _claim_old(self, key: RunKey) -> None:
        """Report a run whose directory outlived the journal; it is not run again."""
        folder = self._settings.runs / key.folder
        result = read_result(folder, exit_code=0, duration_s=0.0)
        if result is not None:
            self._journal.refuse(key, result, uploads_of(folder, result, everything=True))
            return
        lost = RunInterrupted(message="it was run before this board's journal was lost")
        self._journal.refuse(key, lost)

    def _cancel(self, command: Command, cancel: RunCancel) -> None:
        if self._runs.cancel(cancel.run, cancel.reason):
            text = "stopping"
        elif self._journal.knows(cancel.run):
            text = "it was over already"
        else:  # the cancellation overtook the start
            text = "not here; it will not be run"
            key = RunKey(cancel.run, _BEFORE_ALL)
            self._journal.refuse(key, RunCancelled(reason=cancel.reason))
        self.done(command.id, command.name, ok=True, text=text)

    def _prefetch(self, command: Command, prefetch: ModelPrefetch) -> None:
        allowed = self._settings.board.policy.models
        if allowed is not None and prefetch.model.sha256 not in allowed:
            self._refuse(command, Code.POLICY, "model: not among those this board allows")
        elif self._blobs.cached(prefetch.model) is not None:
            self.done(command.id, command.name, ok=True, text="in the cache")
        else:
            try:
                self._blobs.fetch(prefetch.model, command.id)
            except LinkInputError as error:
                self._refuse(command, Code.MODEL, str(error))

    def _drain(self, command: Command, drain: Drain) -> None:
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM meta WHERE name = 'drained'")
            if drain.on:
                self._database.keep("drained", drain.reason or "drained by the coordinator")
        self.done(command.id, command.name, ok=True, text="draining" if drain.on else "online")
