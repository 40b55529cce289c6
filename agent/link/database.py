"""The agent's one SQLite file: what was asked, what runs, what is not yet acknowledged.

WAL with ``synchronous=FULL``: a commit is on the disk before anything outside happens.
Only the agent's main thread writes. A file that a power cut left unreadable is set
aside, never deleted, and a new one begins; the run directories then stand in for the journal.

History of ``user_version``::

    1  first version
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgeperf.agent.link.errors import LinkError, LinkInputError
from edgeperf.agent.messages import new_id

VERSION = 1

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE outbox (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, rank INTEGER NOT NULL,
    run TEXT, attempt INTEGER, body BLOB NOT NULL
);
CREATE INDEX outbox_rank ON outbox (rank, seq);
CREATE TABLE commands (
    id TEXT PRIMARY KEY, counter INTEGER NOT NULL UNIQUE, nonce TEXT NOT NULL UNIQUE,
    digest TEXT NOT NULL, reply BLOB
) WITHOUT ROWID;
CREATE TABLE runs (
    place INTEGER PRIMARY KEY, run TEXT NOT NULL, attempt INTEGER NOT NULL,
    state TEXT NOT NULL, command BLOB, pid INTEGER, started_ticks INTEGER, boot TEXT,
    phase TEXT, last_event BLOB, cancel TEXT, UNIQUE (run, attempt)
);
CREATE INDEX runs_state ON runs (state, place);
CREATE TABLE uploads (
    sha256 TEXT NOT NULL, path TEXT NOT NULL, size_bytes INTEGER NOT NULL,
    PRIMARY KEY (sha256, path)
) WITHOUT ROWID;
"""


class Database:
    """The open file.

    Attributes:
        connection: For statements; commits go through :meth:`transaction`.
        set_aside: Where an unreadable file was moved, None when there was none.
    """

    def __init__(self, path: Path) -> None:
        self.set_aside: Path | None = None
        try:
            self.connection = _open(path)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and not _is_damage(error):
                raise LinkError(f"{path}: {error}") from error
            self.set_aside = _set_aside(path)
            self.connection = _open(path)

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Commit everything inside, or nothing.

        Args:
            durable: On the disk when this returns. Without it a power cut may lose the
                commit, but never breaks an earlier one.

        Raises:
            LinkError: The disk is full or failed.
        """
        if self.connection.in_transaction:  # part of a larger one
            yield self.connection
            return
        try:
            self.connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
            except BaseException:
                self.connection.execute("ROLLBACK")
                raise
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise LinkError(f"the agent's journal: {error}") from error

    def value(self, name: str) -> str | None:
        """Return what is kept under *name*."""
        row = self.connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def keep(self, name: str, value: str) -> None:
        """Keep *value* under *name*."""
        with self.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def close(self) -> None:
        """Close the file."""
        self.connection.close()


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=5.0)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA cache_size=-512")
        _check(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise LinkInputError(
            f"{path}: written by a newer edgeperf (version {version}, this one reads"
            f" {VERSION}); upgrade edgeperf"
        )
    if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
        raise sqlite3.DatabaseError("database disk image is malformed")
    if version == 0:
        _create(connection)


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in filter(str.strip, _SCHEMA.split(";")):
        connection.execute(statement)
    meta = {"stream": new_id(), "next_seq": "1", "counter": "0"}
    connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
    connection.execute(f"PRAGMA user_version={VERSION}")
    connection.execute("COMMIT")


def _is_damage(error: sqlite3.OperationalError) -> bool:
    return "malformed" in str(error) or "not a database" in str(error)


def _set_aside(path: Path) -> Path:
    target = path.with_name(f"{path.name}.damaged-{new_id()}")
    path.replace(target)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return target
