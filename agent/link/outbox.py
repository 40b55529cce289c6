"""Events on their way: kept until the coordinator itself says that it has them.

A row leaves on the coordinator's acknowledgement, never on the broker's PUBACK. There is
one retransmitter, this one: a small window of events is in flight, in order of ``seq``, and
what stays unanswered is sent again after a while that doubles. The box is bounded: when
it is full, progress goes first, then log lines, then the rest; the end of a run never goes.
"""

import time
from collections.abc import Iterable
from sqlite3 import Connection

import msgspec

from edgeperf.agent.link.clock import BoardClock, utc_now
from edgeperf.agent.link.database import Database
from edgeperf.agent.messages import (
    TERMINAL,
    Ack,
    Event,
    EventData,
    RunLog,
    RunProgress,
    encode_event,
    new_id,
    parse_event,
)

#: What is given up first when the box is full. The last rank never is.
_PROGRESS, _LOG, _OTHER, _FINAL = range(4)
_LONGEST_WAIT_S = 120.0


class Outbox:
    """The rows of one board.

    Args:
        database: The agent's file.
        fleet: Name of the fleet.
        device: Name of this board.
        session: This life of the agent.
        clock: Stamps the events.
        max_bytes: The box holds no more, results apart.
        ack_timeout_s: Patience before the first repetition.
        window: Most events in flight.
    """

    def __init__(  # noqa: PLR0913 - one value each from identity, board file and service
        self,
        database: Database,
        *,
        fleet: str,
        device: str,
        session: str,
        clock: BoardClock,
        max_bytes: int = 64 << 20,
        ack_timeout_s: float = 10.0,
        window: int = 20,
    ) -> None:
        self._database = database
        self._fleet, self._device, self._session = fleet, device, session
        self._clock = clock
        self._max_bytes = max_bytes
        self._ack_timeout_s = ack_timeout_s
        self._window = window
        self.stream = database.value("stream") or ""
        self._bytes: int = database.connection.execute(
            "SELECT coalesce(sum(length(body)), 0) FROM outbox"
        ).fetchone()[0]
        #: seq -> (when it is to be sent again, how often it was sent)
        self._in_flight: dict[int, tuple[float, int]] = {}

    def __len__(self) -> int:
        count: int = self._database.connection.execute("SELECT count(*) FROM outbox").fetchone()[0]
        return count

    @property
    def size_bytes(self) -> int:
        """Bytes of all events in the box."""
        return self._bytes

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another run's events."""
        return self._bytes > self._max_bytes

    def put(self, data: EventData, *, run: str | None = None, attempt: int | None = None) -> bytes:
        """Keep a new event; what it says is on the disk when this returns, progress apart.

        Returns:
            The event as it goes on the wire.

        Raises:
            LinkError: The disk is full or failed.
        """
        rank = _rank(data)
        with self._database.transaction(durable=rank > _LOG) as connection:
            if rank == _PROGRESS:
                self._forget_progress(connection, run, attempt)
            event = Event(
                id=new_id(),
                fleet=self._fleet,
                device=self._device,
                time=utc_now(),
                stream=self.stream,
                seq=_next_seq(connection),
                session=self._session,
                clock=self._clock.stamp(),
                data=data,
                run=run,
                attempt=attempt,
            )
            body = self._insert(connection, event, rank)
            self._make_room(connection)
        return body

    def put_again(self, body: bytes) -> None:
        """Say once more what was said: the same event, its id included, at the end of the box."""
        event = parse_event(body, fleet=self._fleet, device=self._device)
        with self._database.transaction() as connection:
            row = connection.execute("SELECT seq FROM outbox WHERE id = ?", (event.id,)).fetchone()
            if row is not None:  # still here: it will be sent anyway
                return
            event = msgspec.structs.replace(
                event, seq=_next_seq(connection), stream=self.stream, session=self._session
            )
            self._insert(connection, event, _rank(event.data))

    def due(self) -> list[tuple[int, bytes]]:
        """Return what is to be sent now, in order; it then counts as in flight."""
        now_s = time.monotonic()
        rows = self._database.connection.execute(
            "SELECT seq FROM outbox ORDER BY seq LIMIT ?", (self._window,)
        ).fetchall()
        wanted = [seq for (seq,) in rows if self._in_flight.get(seq, (0.0, 0))[0] <= now_s]
        for seq in wanted:
            sent = self._in_flight.get(seq, (0.0, 0))[1] + 1
            wait_s = min(self._ack_timeout_s * 2 ** (sent - 1), _LONGEST_WAIT_S)
            self._in_flight[seq] = (now_s + wait_s, sent)
        return [(seq, self._body(seq)) for seq in wanted]

    def next_due_s(self) -> float | None:
        """Return seconds until :meth:`due` has something to repeat; None when nothing waits."""
        if not self._in_flight:
            return None
        return max(0.0, min(at for at, _ in self._in_flight.values()) - time.monotonic())

    def send_all_again(self) -> None:
        """Forget what is in flight: the other side is new and knows of nothing."""
        self._in_flight.clear()

    def acknowledge(self, ack: Ack) -> int:
        """Drop the events that *ack* names, and return how many those were."""
        if ack.stream != self.stream:
            return 0
        with self._database.transaction(durable=False) as connection:
            return sum(self._drop(connection, "seq BETWEEN ? AND ?", pair) for pair in ack.seqs)

    def _insert(self, connection: Connection, event: Event, rank: int) -> bytes:
        body = encode_event(event)
        connection.execute(
            "INSERT INTO outbox VALUES (?, ?, ?, ?, ?, ?)",
            (event.seq, event.id, rank, event.run, event.attempt, body),
        )
        self._bytes += len(body)
        return body

    def _body(self, seq: int) -> bytes:
        found = self._database.connection.execute("SELECT body FROM outbox WHERE seq = ?", (seq,))
        return bytes(found.fetchone()[0])

    def _drop(self, connection: Connection, where: str, values: Iterable[object]) -> int:
        found = connection.execute(
            f"DELETE FROM outbox WHERE {where} RETURNING seq, length(body)",  # noqa: S608 - ours
            tuple(values),
        ).fetchall()
        for seq, size_bytes in found:
            self._in_flight.pop(seq, None)
            self._bytes -= size_bytes
        return len(found)

    def _forget_progress(
        self, connection: Connection, run: str | None, attempt: int | None
    ) -> None:
        """Keep only the newest progress of a run that has not been sent yet."""
        last_sent = max(self._in_flight, default=0)
        self._drop(
            connection,
            "rank = ? AND run = ? AND attempt = ? AND seq > ?",
            (_PROGRESS, run, attempt, last_sent),
        )

    def _make_room(self, connection: Connection) -> None:
        for rank in range(_FINAL):
            while self._bytes > self._max_bytes:
                chosen = "seq IN (SELECT seq FROM outbox WHERE rank = ? ORDER BY seq LIMIT 50)"
                if not self._drop(connection, chosen, (rank,)):
                    break


def _rank(data: EventData) -> int:
    if isinstance(data, RunProgress):
        return _PROGRESS
    if isinstance(data, RunLog):
        return _LOG
    return _FINAL if isinstance(data, TERMINAL) else _OTHER


def _next_seq(connection: Connection) -> int:
    row = connection.execute(
        "UPDATE meta SET value = value + 1 WHERE name = 'next_seq' RETURNING value - 1"
    ).fetchone()
    return int(row[0])
