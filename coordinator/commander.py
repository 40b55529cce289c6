"""Commands to boards: made, signed and kept in one transaction, sent when the board hears.

A command is sent until the board answers: again on every new life of its agent, and after
a while without an answer. The board knows it by its id, so that costs nothing but a message.
"""

import logging
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import Connection, Row

from edgeperf.agent.messages import (
    Command,
    CommandData,
    RunCancel,
    RunStart,
    new_id,
    parse_command,
    sign_command,
)
from edgeperf.coordinator.link import Wire
from edgeperf.coordinator.store import Store, commands, devices, runs
from edgeperf.coordinator.trust import Keys

_log = logging.getLogger(__name__)

_RESEND_S = 15.0
_S = 1_000_000_000
_WHY_EXPIRED = "the board did not answer before the command's deadline; is it on and connected?"


class Commander:
    """Issues commands, sends what is due, and gives up what is overdue.

    Args:
        clock_ns: The wall clock.
    """

    def __init__(
        self, store: Store, link: Wire, keys: Keys, fleet: str, *, clock_ns: Callable[[], int]
    ) -> None:
        self._store = store
        self._link = link
        self._keys = keys
        self._fleet = fleet
        self._clock_ns = clock_ns

    def issue(
        self, connection: Connection, board: str, data: CommandData, *, within_s: float
    ) -> str:
        """Make a command, inside the caller's transaction; returns its id.

        Args:
            connection: A writing one.
            board: Exactly this board.
            data: What is asked.
            within_s: The board shall not begin it later than this.
        """
        return self._issue(connection, board, data, within_s=within_s, above=0)

    def start_run(
        self, connection: Connection, board: str, start: RunStart, *, within_s: float, **row: Any
    ) -> None:
        """Add a run and the command that asks for it.

        Args:
            connection: A writing one.
            board: Exactly this board.
            start: The run.
            within_s: The board shall not begin it later than this.
            row: ``origin``, ``campaign`` and ``cell`` of the run.
        """
        runs.create(connection, start, board, now_ns=self._clock_ns(), **row)
        self.issue(connection, board, start, within_s=within_s)

    def retry_run(
        self, connection: Connection, board: str, start: RunStart, *, within_s: float
    ) -> None:
        """Ask for the next attempt of a run."""
        runs.begin_attempt(connection, start)
        self.issue(connection, board, start, within_s=within_s)

    def issue_again(self, connection: Connection, command_id: str, *, above: int) -> None:
        """Make a refused command anew with a counter above what the board has seen."""
        row = commands.get(connection, command_id)
        if row is None:
            return
        old = parse_command(
            row.body.encode(),
            {self._keys.id: self._keys.signing.public_key()},
            fleet=self._fleet,
            device=row.device,
        )
        left_s = (row.deadline_ns - self._clock_ns()) / _S
        if left_s > 0:
            self._issue(connection, row.device, old.data, within_s=left_s, above=above)

    def send_due(self) -> int:
        """Send every command that is due; returns how many."""
        now_ns = self._clock_ns()
        with self._store.reading() as connection:
            due = commands.due(connection, now_ns=now_ns, resend_after_ns=int(_RESEND_S * _S))
        went = [row.id for row in due if self._send(row, now_ns)]
        if went:
            with self._store.writing() as connection:
                commands.sent(connection, went, now_ns=now_ns)
        return len(went)

    def send_at_once(self, connection: Connection, command_id: str) -> None:
        """Send a command even though the board seems to be away."""
        row = commands.get(connection, command_id)
        if row is not None and self._send(row, self._clock_ns()):
            commands.sent(connection, [row.id], now_ns=self._clock_ns())

    def give_up_overdue(self) -> None:
        """Close the commands that nobody answered in time, and the runs that hang on them."""
        now_ns = self._clock_ns()
        with self._store.reading() as connection:
            late = commands.overdue(connection, now_ns=now_ns)
        if not late:
            return
        with self._store.writing() as connection:
            for row in late:
                closed = commands.settle(connection, row.id, "expired", reply=_WHY_EXPIRED)
                if closed and row.type == "run.start":
                    self._expire(connection, row, now_ns)

    def _expire(self, connection: Connection, row: Row[Any], now_ns: int) -> None:
        found = runs.get(connection, row.run, lock=True)
        if found is None or found.state != "queued":
            return
        _log.warning("run %s on %s: %s", row.run, row.device, _WHY_EXPIRED)
        runs.touch(
            connection,
            row.run,
            state="expired",
            error_class="device",
            error=_WHY_EXPIRED,
            ended_ns=now_ns,
        )
        # It may have heard us after all, and its answer be on the way.
        cancel = RunCancel(run=row.run, reason="its deadline passed before the board answered")
        self.issue(connection, row.device, cancel, within_s=86400)

    def _issue(
        self,
        connection: Connection,
        board: str,
        data: CommandData,
        *,
        within_s: float,
        above: int,
    ) -> str:
        now = datetime.fromtimestamp(self._clock_ns() / _S, timezone.utc)
        command = Command(
            id=new_id(),
            fleet=self._fleet,
            device=board,
            nonce=secrets.token_hex(16),
            issued=now,
            deadline=now + timedelta(seconds=within_s),
            counter=devices.next_counter(connection, board, above=above),
            data=data,
        )
        raw = sign_command(command, self._keys.signing)
        commands.add(connection, command, raw, run=getattr(data, "run", None))
        return command.id

    def _send(self, row: Row[Any], now_ns: int) -> bool:
        left_s = (row.deadline_ns - now_ns) // _S
        if left_s <= 0:
            return False
        return self._link.send(row.device, "cmd", row.body.encode(), expiry_s=int(left_s))
