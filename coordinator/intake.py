"""What boards send, taken in exactly once.

One thread takes whatever has arrived, up to a few hundred messages, puts it into the store
in one transaction and only then acknowledges it: many boards share one disk flush, and no
acknowledged event can be lost. A message that cannot be read is set aside, and one that
spoils a transaction is found by taking the batch one by one.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import NamedTuple

from sqlalchemy import Connection

from edgeperf.agent.messages import (
    Ack,
    BoardState,
    Code,
    CommandRejected,
    Describe,
    Description,
    Event,
    MessageError,
    RunResult,
    Telemetry,
    parse_description,
    parse_device_topic,
    parse_event,
    parse_state,
    parse_telemetry,
    ranges,
    sign_ack,
    stream_and_seq,
)
from edgeperf.coordinator.artefacts import Artefacts
from edgeperf.coordinator.commander import Commander
from edgeperf.coordinator.link import Inbound, Wire
from edgeperf.coordinator.store import Store, StoreError, commands, devices, events, runs
from edgeperf.coordinator.trust import Keys
from edgeperf.coordinator.uploads import Uploads

_log = logging.getLogger(__name__)

_BATCH = 400
_WAIT_S = 0.5
_RETRY_S = 1.0
_REBIRTH_S = 60.0
_MOST_COMPLAINTS = 1000


class _Unread(NamedTuple):
    """An event that could not be read, but whose place is known."""

    stream: str
    seq: int
    why: str


_Message = BoardState | Description | Telemetry | Event | _Unread


class _Item(NamedTuple):
    board: str
    message: _Message


class Intake:
    """Takes in what :class:`~edgeperf.coordinator.link.Link` receives, until stopped.

    Args:
        on_change: Called after each batch: commands or campaigns may have work.

    Attributes:
        turned_at: When its loop last came round, monotonic seconds.
    """

    def __init__(  # noqa: PLR0913 - the parts that it ties together
        self,
        store: Store,
        link: Wire,
        keys: Keys,
        fleet: str,
        *,
        artefacts: Artefacts,
        commander: Commander,
        clock_ns: Callable[[], int],
        on_change: Callable[[], None],
    ) -> None:
        self._store = store
        self._link = link
        self._keys = keys
        self._fleet = fleet
        self._artefacts = artefacts
        self._commander = commander
        self._clock_ns = clock_ns
        self._on_change = on_change
        self._uploads = Uploads(link, keys, fleet, artefacts=artefacts)
        self._complained: set[tuple[str, str]] = set()
        self._asked: dict[str, float] = {}
        self._stop = threading.Event()
        self.turned_at = time.monotonic()

    def run(self) -> None:
        """Work until :meth:`stop`."""
        while not self._stop.is_set():
            self.turned_at = time.monotonic()
            batch = self._link.take(_BATCH, _WAIT_S)
            if not batch:
                continue
            try:
                self.take_in(batch)
            except StoreError as error:
                if not error.passing:
                    raise
                _log.warning("store: %s; boards will send again", error)

    def stop(self) -> None:
        """Return from :meth:`run` soon."""
        self._stop.set()

    def take_in(self, batch: Iterable[Inbound]) -> None:
        """Take in one batch, and acknowledge what is stored."""
        items = [item for message in batch if (item := self._parse(message)) is not None]
        while items and not self._stop.is_set():
            try:
                stored = self._store_batch(items)
            except StoreError as error:
                if not error.passing:
                    raise
                _log.warning("store: %s; trying again", error)  # boards keep everything meanwhile
                self._stop.wait(_RETRY_S)
                continue
            self._acknowledge(stored)
            self._fetch_results(stored)
            self._on_change()
            return

    def _parse(self, message: Inbound) -> _Item | None:
        board = "?"
        try:
            topic = parse_device_topic(message.topic)
            board = topic.device
            if topic.leaf == "blob":
                if self._is_known(board):
                    self._uploads.take(board, topic, message.payload)
                return None
            if not message.payload:  # a retained message was taken away
                return None
            return _Item(board, self._read(board, topic.leaf, message.payload))
        except MessageError as error:
            self._complain(board, error.code.value, str(error))
            return None

    def _read(self, board: str, leaf: str, payload: bytes) -> _Message:
        if leaf == "state":
            return parse_state(payload)
        if leaf == "desc":
            return parse_description(payload)
        if leaf == "tlm":
            return parse_telemetry(payload)
        if leaf != "evt":
            raise MessageError(Code.UNKNOWN_TYPE, f"nothing for us at {leaf!r}")
        try:
            return parse_event(payload, fleet=self._fleet, device=board)
        except MessageError as error:
            place = stream_and_seq(payload)
            if place is None:
                raise
            self._complain(board, error.code.value, str(error))
            return _Unread(*place, str(error))

    def _is_known(self, board: str) -> bool:
        with self._store.reading() as connection:
            return board in devices.enrolled(connection)

    def _store_batch(self, items: list[_Item]) -> list[_Item]:
        try:
            return self._store_all(items)
        except StoreError as error:
            if error.passing:
                raise
        return [done for item in items for done in self._store_one(item)]

    def _store_all(self, items: list[_Item]) -> list[_Item]:
        with self._store.writing() as connection:
            known = devices.enrolled(connection)
            stored = []
            for item in items:
                if item.board in known:
                    self._apply(connection, item)
                    stored.append(item)
                else:
                    self._complain(item.board, "unknown", "a board that is not enrolled speaks")
        return stored

    def _store_one(self, item: _Item) -> list[_Item]:
        try:
            return self._store_all([item])
        except StoreError as error:
            if error.passing:  # nothing is wrong with the message
                raise
            self._complain(item.board, "store", str(error))
            if not isinstance(item.message, Event):
                return []
            unread = _Unread(item.message.stream, item.message.seq, str(error))
        return self._store_one(item._replace(message=unread))

    def _apply(self, connection: Connection, item: _Item) -> None:
        now_ns, board, message = self._clock_ns(), item.board, item.message
        match message:
            case BoardState():
                if devices.apply_state(connection, board, message, now_ns=now_ns):
                    commands.send_again(connection, board)
            case Description():
                devices.apply_description(connection, board, message, now_ns=now_ns)
            case Telemetry():
                devices.apply_temperature(connection, board, message.temperature_c)
            case Event():
                self._apply_event(connection, message, now_ns)
            case _Unread():
                events.set_aside(
                    connection, board, message.stream, message.seq, why=message.why, now_ns=now_ns
                )

    def _apply_event(self, connection: Connection, event: Event, now_ns: int) -> None:
        outcome = events.apply_event(connection, event, now_ns=now_ns)
        if outcome is events.Outcome.FOREIGN:
            self._complain(event.device, "foreign", f"speaks of run {event.run}, not its own")
        if isinstance(event.data, CommandRejected) and outcome is events.Outcome.APPLIED:
            self._refused(connection, event.data, now_ns)
        if devices.is_away(devices.get(connection, event.device).state):
            self._ask_for_rebirth(connection, event.device)

    def _refused(self, connection: Connection, answer: CommandRejected, now_ns: int) -> None:
        """Make up for a counter of ours that went back, else end the run that was refused."""
        row = commands.get(connection, answer.command) if answer.command else None
        if row is None:
            return
        if answer.code is Code.COUNTER:
            self._commander.issue_again(connection, row.id, above=answer.counter)
        elif row.type == "run.start" and answer.code is not Code.REPLAYED:
            found = runs.get(connection, row.run, lock=True)
            if found is not None and found.state in {"queued", "expired"}:
                runs.touch(
                    connection,
                    row.run,
                    state="rejected",
                    error_class="rejected",
                    error=f"{answer.code.value}: {answer.reason}"[:500].replace("\x00", ""),
                    ended_ns=now_ns,
                )

    def _ask_for_rebirth(self, connection: Connection, board: str) -> None:
        """A board that we think is away speaks: the broker lost its state, so ask for it."""
        now = time.monotonic()
        if now - self._asked.get(board, -_REBIRTH_S) >= _REBIRTH_S:
            self._asked[board] = now
            command = self._commander.issue(connection, board, Describe(), within_s=_REBIRTH_S)
            self._commander.send_at_once(connection, command)

    def _acknowledge(self, stored: list[_Item]) -> None:
        seqs: dict[tuple[str, str], list[int]] = defaultdict(list)
        for item in stored:
            if isinstance(item.message, Event | _Unread):
                seqs[item.board, item.message.stream].append(item.message.seq)
        for (board, stream), found in seqs.items():
            ack = Ack(
                subject=f"{self._fleet}/{board}",
                stream=stream,
                seqs=ranges(found),
                time=datetime.fromtimestamp(self._clock_ns() / 1e9, timezone.utc),
            )
            self._link.send(board, "ack", sign_ack(ack, self._keys.signing))

    def _fetch_results(self, stored: list[_Item]) -> None:
        for item in stored:
            event = item.message
            if not isinstance(event, Event) or not isinstance(event.data, RunResult):
                continue
            if event.data.result is None and event.run is not None:
                self._artefacts.look_for(event.run)

    def _complain(self, board: str, kind: str, text: str) -> None:
        """Log what is wrong once per board and kind: a flood must not fill the disk."""
        if (board, kind) not in self._complained and len(self._complained) < _MOST_COMPLAINTS:
            self._complained.add((board, kind))
            _log.warning("board %s: %s (said once)", board, text[:300])
