"""Forward migrations of the store, in plain SQL that SQLite and PostgreSQL both read.

History of the schema::

    1  devices, runs, events, metrics, conditions, artefacts, commands, campaigns
    2  indices for the queries of ``fleet results`` and of the scheduler

A step is never edited once released: a store is brought up by running the steps it has
not seen, in one transaction each. There is no way back; copy the file first.
"""

import time
from collections.abc import Callable

from sqlalchemy import Connection, inspect

from edgeperf import EdgeperfError


class StoreError(EdgeperfError):
    """The store cannot be opened or written; the message names it.

    Attributes:
        passing: The database itself was in the way (locked, gone, full), not what we
            wrote: the same may work later.
    """

    def __init__(self, problem: str, *, passing: bool = False) -> None:
        super().__init__(problem)
        self.passing = passing


_TABLES = """
CREATE TABLE store_info (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE device (
  id TEXT PRIMARY KEY,
  enrolled_ns BIGINT NOT NULL,
  revoked_ns BIGINT,
  state TEXT NOT NULL,
  session TEXT,
  status TEXT,
  seen_ns BIGINT,
  counter BIGINT NOT NULL,
  description TEXT,
  temperature_c DOUBLE PRECISION
);
CREATE TABLE device_label (
  device TEXT NOT NULL REFERENCES device (id),
  label TEXT NOT NULL,
  PRIMARY KEY (device, label)
);
CREATE TABLE invite (
  code TEXT PRIMARY KEY,
  device TEXT,
  expires_ns BIGINT NOT NULL,
  used_ns BIGINT
);
CREATE TABLE run (
  id TEXT PRIMARY KEY,
  device TEXT NOT NULL REFERENCES device (id),
  state TEXT NOT NULL,
  version BIGINT NOT NULL,
  attempt BIGINT NOT NULL,
  origin TEXT NOT NULL,
  campaign TEXT,
  cell BIGINT,
  request TEXT,
  spec TEXT NOT NULL,
  model TEXT,
  model_sha256 TEXT,
  backend TEXT,
  scenario TEXT,
  preset TEXT,
  task TEXT,
  created_ns BIGINT NOT NULL,
  started_ns BIGINT,
  ended_ns BIGINT,
  progress TEXT,
  progress_seq BIGINT NOT NULL,
  error_class TEXT,
  error TEXT,
  exit_code BIGINT,
  verdict TEXT,
  comparable BIGINT,
  headline TEXT,
  headline_value DOUBLE PRECISION,
  headline_unit TEXT,
  result_id TEXT,
  result_sha256 TEXT,
  result TEXT
);
CREATE TABLE event (
  device TEXT NOT NULL REFERENCES device (id),
  id TEXT NOT NULL,
  stream TEXT NOT NULL,
  seq BIGINT NOT NULL,
  type TEXT NOT NULL,
  run TEXT,
  received_ns BIGINT NOT NULL,
  attempt BIGINT,
  body TEXT NOT NULL,
  PRIMARY KEY (device, id)
);
CREATE TABLE log (
  run TEXT NOT NULL REFERENCES run (id),
  number BIGINT NOT NULL,
  line TEXT NOT NULL,
  PRIMARY KEY (run, number)
);
CREATE TABLE metric (
  run TEXT NOT NULL REFERENCES run (id),
  name TEXT NOT NULL,
  unit TEXT NOT NULL,
  value DOUBLE PRECISION NOT NULL,
  PRIMARY KEY (run, name)
);
CREATE TABLE condition (
  run TEXT NOT NULL REFERENCES run (id),
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (run, name)
);
CREATE TABLE artefact (
  run TEXT NOT NULL REFERENCES run (id),
  name TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  size_bytes BIGINT NOT NULL,
  PRIMARY KEY (run, name)
);
CREATE TABLE model (
  sha256 TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  format TEXT NOT NULL,
  size_bytes BIGINT NOT NULL,
  added_ns BIGINT NOT NULL
);
CREATE TABLE command (
  id TEXT PRIMARY KEY,
  device TEXT NOT NULL REFERENCES device (id),
  run TEXT,
  type TEXT NOT NULL,
  counter BIGINT NOT NULL,
  body TEXT NOT NULL,
  issued_ns BIGINT NOT NULL,
  deadline_ns BIGINT NOT NULL,
  state TEXT NOT NULL,
  tries BIGINT NOT NULL,
  sent_ns BIGINT,
  reply TEXT
);
CREATE TABLE campaign (
  name TEXT PRIMARY KEY,
  source TEXT NOT NULL,
  state TEXT NOT NULL,
  created_ns BIGINT NOT NULL
);
CREATE TABLE cell (
  campaign TEXT NOT NULL REFERENCES campaign (name),
  number BIGINT NOT NULL,
  device TEXT NOT NULL REFERENCES device (id),
  request TEXT NOT NULL,
  state TEXT NOT NULL,
  attempts BIGINT NOT NULL,
  run TEXT,
  not_before_ns BIGINT NOT NULL,
  PRIMARY KEY (campaign, number)
)
"""

_INDICES = """
CREATE UNIQUE INDEX event_by_seq ON event (device, stream, seq);
CREATE INDEX event_by_run ON event (run);
CREATE INDEX run_by_device ON run (device, created_ns);
CREATE INDEX run_by_state ON run (state);
CREATE INDEX run_by_campaign ON run (campaign);
CREATE INDEX command_by_state ON command (state, device);
CREATE INDEX cell_by_state ON cell (state, device)
"""

#: Step ``n`` (counted from 1) takes a store of version ``n - 1`` to version ``n``.
STEPS: tuple[str, ...] = (_TABLES, _INDICES)
SCHEMA_VERSION = len(STEPS)


def version_of(connection: Connection) -> int:
    """Return the schema version of a store; 0 is an empty one.

    Raises:
        StoreError: It holds tables, but not ours.
    """
    tables = inspect(connection).get_table_names()
    if "store_info" not in tables:
        if tables:
            raise StoreError(
                f"the store holds tables that are not edgeperf's ({', '.join(sorted(tables)[:3])});"
                " name an empty database or another file"
            )
        return 0
    row = connection.exec_driver_sql("SELECT value FROM store_info WHERE name = 'schema_version'")
    return int(row.scalar_one())


def migrate(connection: Connection, *, clock_ns: Callable[[], int] = time.time_ns) -> int:
    """Bring the store to :data:`SCHEMA_VERSION`, inside the caller's transaction.

    Returns:
        The version that it had.

    Raises:
        StoreError: It is newer than this edgeperf.
    """
    found = version_of(connection)
    if found > SCHEMA_VERSION:
        raise StoreError(
            f"the store has schema version {found}, newer than this edgeperf reads"
            f" ({SCHEMA_VERSION}); upgrade edgeperf"
        )
    for number in range(found, SCHEMA_VERSION):
        for statement in STEPS[number].split(";"):
            connection.exec_driver_sql(statement)
        _record(connection, "schema_version", str(number + 1))
        _record(connection, f"migrated_to_{number + 1}_ns", str(clock_ns()))
    return found


def _record(connection: Connection, name: str, value: str) -> None:
    connection.exec_driver_sql(
        f"INSERT INTO store_info (name, value) VALUES ('{name}', '{value}')"  # noqa: S608 - ours
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
    )
