"""Runs of this board: what was accepted, what is running, how it ended.

A row is written before anything happens and its terminal event lies in the same commit as its
last state, so whenever the power goes, the next start knows what to say. Rows are never
deleted, only emptied: a run that was once here is never run again.
"""

import enum
from collections.abc import Sequence
from typing import NamedTuple

from edgeperf.agent.link.database import Database
from edgeperf.agent.link.outbox import Outbox
from edgeperf.agent.messages import EventData, RunProgress

#: Terminal events kept for duplicates of old commands; older ones are answered by silence.
_KEPT_EVENTS = 500


class RunState(str, enum.Enum):
    """Where a run is on this board."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


class RunKey(NamedTuple):
    """One attempt at one run."""

    run: str
    attempt: int

    @property
    def folder(self) -> str:
        """Name of its directory; both parts were checked on the way in."""
        return f"{self.run}-{self.attempt}"


class Leftover(NamedTuple):
    """A run that an earlier life of the agent left behind.

    Attributes:
        pid: Of its child, None when it was not started.
        started_ticks: When the child started, as /proc/PID/stat says it.
        boot: The boot it was started in.
    """

    key: RunKey
    pid: int | None
    started_ticks: int | None
    boot: str | None
    phase: str | None


class Journal:
    """The runs table, and the outbox beside it."""

    def __init__(self, database: Database, outbox: Outbox) -> None:
        self._database = database
        self._outbox = outbox

    def state(self, key: RunKey) -> RunState | None:
        """Return where a run is, None if it never came here."""
        row = self._one("SELECT state FROM runs WHERE run = ? AND attempt = ?", key)
        return None if row is None else RunState(str(row[0]))

    def accept(self, key: RunKey, command: bytes, event: EventData) -> None:
        """Take a run into the queue and say so."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO runs (run, attempt, state, command) VALUES (?, ?, 'queued', ?)",
                (*key, command),
            )
            self.say(key, event)

    def refuse(
        self, key: RunKey, event: EventData, uploads: Sequence[tuple[str, str, int]] = ()
    ) -> None:
        """Write down that a run is over before it began, or before this journal did."""
        with self._database.transaction() as connection:
            connection.execute("INSERT INTO runs (run, attempt, state) VALUES (?, ?, 'ended')", key)
            connection.executemany("INSERT OR IGNORE INTO uploads VALUES (?, ?, ?)", uploads)
            self.say(key, event)

    def starting(self, key: RunKey) -> None:
        """Write down that the run's child is about to be started."""
        self._set(key, "state = 'starting'")

    def running(self, key: RunKey, *, pid: int, started_ticks: int, boot: str) -> None:
        """Write down which process runs it."""
        self._set(
            key,
            "state = 'running', pid = ?, started_ticks = ?, boot = ?",
            pid,
            started_ticks,
            boot,
        )

    def phase(self, key: RunKey, phase: str) -> None:
        """Write down the phase it entered."""
        self._set(key, "phase = ?", phase)

    def end(self, key: RunKey, event: EventData, uploads: list[tuple[str, str, int]]) -> None:
        """Write down how a run ended, say so, and keep its files for upload.

        Args:
            key: The run.
            event: Its terminal event.
            uploads: sha256, path and size in bytes of each file.
        """
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE runs SET state = 'ended', command = NULL, pid = NULL"
                " WHERE run = ? AND attempt = ?",
                key,
            )
            connection.executemany("INSERT OR IGNORE INTO uploads VALUES (?, ?, ?)", uploads)
            self.say(key, event)
            connection.execute(
                "UPDATE runs SET last_event = NULL WHERE state = 'ended' AND last_event NOTNULL"
                " AND place <= (SELECT max(place) FROM runs) - ?",
                (_KEPT_EVENTS,),
            )

    def say(self, key: RunKey, event: EventData) -> None:
        """Put an event about a run into the outbox and remember it as the run's last."""
        with self._database.transaction(durable=not isinstance(event, RunProgress)) as connection:
            body = self._outbox.put(event, run=key.run, attempt=key.attempt)
            connection.execute(
                "UPDATE runs SET last_event = ? WHERE run = ? AND attempt = ?", (body, *key)
            )

    def add(self, key: RunKey, event: EventData) -> None:
        """Put an event about a run into the outbox; its state stays what it was."""
        self._outbox.put(event, run=key.run, attempt=key.attempt)

    def say_again(self, key: RunKey) -> bool:
        """Repeat the last event of a run; tells whether there was one."""
        row = self._one("SELECT last_event FROM runs WHERE run = ? AND attempt = ?", key)
        body = b"" if row is None else _bytes(row[0])
        if not body:
            return False
        self._outbox.put_again(body)
        return True

    def next_queued(self) -> tuple[RunKey, bytes] | None:
        """Return the run that is next, and its command's data."""
        row = self._one(
            "SELECT run, attempt, command FROM runs WHERE state = 'queued' ORDER BY place LIMIT 1",
            (),
        )
        return None if row is None else (RunKey(str(row[0]), int(str(row[1]))), _bytes(row[2]))

    def queued(self) -> int:
        """Return how many runs wait."""
        row = self._one("SELECT count(*) FROM runs WHERE state = 'queued'", ())
        return int(str(row[0])) if row else 0

    def attempts(self, run: str) -> list[RunKey]:
        """Return the attempts at *run* that are not over."""
        rows = self._database.connection.execute(
            "SELECT run, attempt FROM runs WHERE run = ? AND state != 'ended'", (run,)
        )
        return [RunKey(*row) for row in rows]

    def knows(self, run: str) -> bool:
        """Tell whether any attempt at *run* ever came here."""
        return self._one("SELECT 1 FROM runs WHERE run = ? LIMIT 1", (run,)) is not None

    def leftovers(self) -> list[Leftover]:
        """Return the runs that were under way when the agent last died."""
        rows = self._database.connection.execute(
            "SELECT run, attempt, pid, started_ticks, boot, phase FROM runs"
            " WHERE state IN ('starting', 'running') ORDER BY place"
        ).fetchall()
        return [Leftover(RunKey(row[0], row[1]), *row[2:]) for row in rows]

    def uploads(self, limit: int) -> list[tuple[str, str, int]]:
        """Return sha256, path and size in bytes of files that are still to be uploaded."""
        return self._database.connection.execute(
            "SELECT sha256, path, size_bytes FROM uploads ORDER BY path LIMIT ?", (limit,)
        ).fetchall()

    def uploaded(self, sha256: str) -> None:
        """Write down that the coordinator has a file."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM uploads WHERE sha256 = ?", (sha256,))

    def _one(self, query: str, values: tuple[object, ...]) -> tuple[object, ...] | None:
        row: tuple[object, ...] | None = self._database.connection.execute(query, values).fetchone()
        return row

    def _set(self, key: RunKey, change: str, *values: object) -> None:
        with self._database.transaction() as connection:
            connection.execute(
                f"UPDATE runs SET {change} WHERE run = ? AND attempt = ?",  # noqa: S608 - ours
                (*values, *key),
            )


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else b""
