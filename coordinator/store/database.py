"""The coordinator's database: SQLite in its data directory, or PostgreSQL by URL.

SQLite runs in WAL mode with one writer at a time, which every product that let several
threads write learned the hard way ("database is locked"); ``synchronous=FULL`` because an
application ack tells a board to forget an event. With PostgreSQL several coordinators may
write, and rows that they contend for are locked.
"""

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    InterfaceError,
    OperationalError,
    SQLAlchemyError,
    TimeoutError,  # noqa: A004 - SQLAlchemy's: no connection was free
)

from edgeperf import InputError
from edgeperf.coordinator.store.migrations import StoreError, migrate

_BUSY_TIMEOUT_S = 5.0


class StoreUrlError(InputError):
    """The store's URL cannot be used; the message says what was expected."""


class Store:
    """An open store. Use :meth:`reading` and :meth:`writing`, nothing else, to reach rows.

    Attributes:
        many_writers: Whether other coordinators may write at the same time (PostgreSQL).
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.many_writers = engine.dialect.name == "postgresql"
        self._writer = contextlib.nullcontext() if self.many_writers else threading.Lock()
        self._changed = threading.Condition()
        self._changes = 0

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give a consistent view; nothing may be written.

        Raises:
            StoreError: The database failed.
        """
        with _failures(), self._engine.connect() as connection, connection.begin():
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Give the one write transaction; it is durable when the block ends without error.

        Raises:
            StoreError: The database failed; nothing of the block is kept.
        """
        with _failures(), self._writer, self._engine.connect() as raw:
            connection = raw.execution_options(edgeperf_writing=True)
            with connection.begin():
                yield connection
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    @property
    def changes(self) -> int:
        """Write transactions so far in this process."""
        return self._changes

    def wait_for_change(self, seen: int, timeout_s: float) -> int:
        """Wait until more than *seen* writes happened in this process, or the time is over.

        Returns:
            The number of writes now, for the next call.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._changes > seen, timeout_s)
            return self._changes

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()


def open_store(where: Path | str) -> Store:
    """Open a store and bring its schema up to date.

    Args:
        where: An SQLite file, made if absent, or ``postgresql://USER:PASSWORD@HOST/NAME``.

    Raises:
        StoreUrlError: The URL is none that we know, or its driver is not installed.
        StoreError: The database cannot be reached or is newer than this edgeperf.
    """
    engine = _sqlite(where) if isinstance(where, Path) else _postgresql(where)
    store = Store(engine)
    try:
        with store.writing() as connection:
            if store.many_writers:  # two coordinators that start together take turns
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7236291)")
            migrate(connection)
    except StoreError as error:
        engine.dispose()
        raise StoreError(f"store {_shown(engine.url)}: {error}") from error
    return store


def _sqlite(path: Path) -> Engine:
    engine = create_engine(URL.create("sqlite", database=str(path)))
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    # Python's own implicit BEGIN would come too late to take the write lock.
    connection.isolation_level = None
    for setting in (
        f"busy_timeout={int(_BUSY_TIMEOUT_S * 1000)}",
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
    ):
        connection.execute(f"PRAGMA {setting}")


def _begin_sqlite(connection: Connection) -> None:
    writing = connection.get_execution_options().get("edgeperf_writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _postgresql(text: str) -> Engine:
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise StoreUrlError(f"store {text!r}: not a URL; {_EXPECTED}") from error
    if url.drivername not in {"postgresql", "postgres"}:
        raise StoreUrlError(f"store {_shown(url)}: unknown kind {url.drivername!r}; {_EXPECTED}")
    try:
        return create_engine(
            url.set(drivername="postgresql+psycopg"), pool_pre_ping=True, pool_size=10
        )
    except ImportError as error:
        raise StoreUrlError(
            f"store {_shown(url)}: PostgreSQL needs psycopg; pip install 'edgeperf[postgres]'"
        ) from error


_EXPECTED = "expected postgresql://USER:PASSWORD@HOST/NAME"


def _shown(url: URL) -> str:
    return url.render_as_string(hide_password=True)


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Turn the driver's exceptions into ours."""
    try:
        yield
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        passing = isinstance(error, OperationalError | InterfaceError | TimeoutError)
        raise StoreError(" ".join(str(cause).split()), passing=passing) from error
