"""Takes campaigns forward: one run at a time on each board, retries by error class.

Everything is in the store, so a scheduler that starts again goes on where the last one
was, and several may take turns: each step is one transaction. A cell waits while its board
is away or draining, so that a deadline never passes because a board was switched off.
"""

import logging
from collections.abc import Callable
from typing import Any

import msgspec
from sqlalchemy import Connection, Row

from edgeperf.agent.messages import Presence, RunCancel, RunStart
from edgeperf.coordinator.campaign.file import Retries, parse_campaign
from edgeperf.coordinator.commander import Commander
from edgeperf.coordinator.store import Store, campaigns, devices, runs

_log = logging.getLogger(__name__)

_WITHIN_S = 3600.0
_S = 1_000_000_000
#: Of PostgreSQL's advisory lock, so that one coordinator schedules at a time.
_LOCK = 7236292


class Scheduler:
    """Moves every running campaign as far as it goes now, at each :meth:`tick`."""

    def __init__(self, store: Store, commander: Commander, *, clock_ns: Callable[[], int]) -> None:
        self._store = store
        self._commander = commander
        self._clock_ns = clock_ns
        self._retries: dict[str, Retries] = {}

    def tick(self) -> None:
        """Close cells whose run is over, and start the next cell on every idle board."""
        with self._store.reading() as connection:
            running = campaigns.every(connection, state=campaigns.RUNNING)
        if not running:
            return
        with self._store.writing() as connection:
            if self._is_my_turn(connection):
                self._close_cells(connection)
                self._close_campaigns(connection)
                self._start_cells(connection)

    def cancel(self, connection: Connection, name: str) -> int:
        """Stop a campaign: cancel its run on each board, and start no other.

        Returns:
            How many cells it will never run.
        """
        campaigns.get(connection, name)
        left = 0
        for cell in campaigns.cells(connection, name):
            if cell.state == campaigns.RUNNING:
                cancel = RunCancel(run=cell.run, reason=f"campaign {name} was cancelled")
                self._commander.issue(connection, cell.device, cancel, within_s=86400)
            if cell.state in {campaigns.RUNNING, campaigns.WAITING}:
                campaigns.change_cell(connection, cell, state=campaigns.CANCELLED)
                left += 1
        campaigns.change(connection, name, campaigns.CANCELLED)
        return left

    def _is_my_turn(self, connection: Connection) -> bool:
        if not self._store.many_writers:
            return True
        asked = connection.exec_driver_sql(f"SELECT pg_try_advisory_xact_lock({_LOCK})")
        return bool(asked.scalar_one())

    def _close_cells(self, connection: Connection) -> None:
        for cell in campaigns.under_way(connection):
            if cell.run_state == "succeeded":
                campaigns.change_cell(connection, cell, state=campaigns.DONE)
            elif cell.run_state in runs.OVER:
                self._retry_or_fail(connection, cell)

    def _retry_or_fail(self, connection: Connection, cell: Row[Any]) -> None:
        retries = self._retries_of(connection, cell.campaign)
        if cell.attempts > retries.allowed(cell.error_class):
            campaigns.change_cell(connection, cell, state=campaigns.FAILED)
            return
        pause_ns = int(retries.pause_s * 2 ** (cell.attempts - 1) * _S)
        campaigns.change_cell(
            connection, cell, state=campaigns.WAITING, not_before_ns=self._clock_ns() + pause_ns
        )

    def _close_campaigns(self, connection: Connection) -> None:
        for campaign in campaigns.every(connection, state=campaigns.RUNNING):
            states = campaigns.counts(connection, campaign.name)
            if not states.keys() & {campaigns.WAITING, campaigns.RUNNING}:
                over = campaigns.FAILED if campaigns.FAILED in states else campaigns.DONE
                campaigns.change(connection, campaign.name, over)
                _log.info("campaign %s: %s", campaign.name, over)

    def _start_cells(self, connection: Connection) -> None:
        now_ns = self._clock_ns()
        busy = {cell.device for cell in campaigns.under_way(connection)}
        for board in campaigns.boards_waited_for(connection, now_ns=now_ns):
            if board not in busy and _takes_work(connection, board):
                cell = campaigns.next_for(connection, board, now_ns=now_ns)
                if cell is not None:
                    self._start(connection, cell)

    def _start(self, connection: Connection, cell: Row[Any]) -> None:
        start = msgspec.json.decode(cell.request, type=RunStart)
        start = msgspec.structs.replace(start, attempt=cell.attempts + 1)
        campaigns.change_cell(connection, cell, state=campaigns.RUNNING, attempts=cell.attempts + 1)
        if cell.attempts:
            self._commander.retry_run(connection, cell.device, start, within_s=_WITHIN_S)
            return
        self._commander.start_run(
            connection,
            cell.device,
            start,
            within_s=_WITHIN_S,
            origin="campaign",
            campaign=cell.campaign,
            cell=cell.number,
        )

    def _retries_of(self, connection: Connection, name: str) -> Retries:
        if name not in self._retries:
            source = campaigns.get(connection, name).source
            self._retries[name] = parse_campaign(source, where=name).retries
        return self._retries[name]


def _takes_work(connection: Connection, board: str) -> bool:
    row = devices.get(connection, board)
    ready = (Presence.ONLINE.value, Presence.BUSY.value)
    return row.revoked_ns is None and row.state in ready
