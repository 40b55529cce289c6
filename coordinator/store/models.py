"""Models that the fleet gives to its boards."""

from typing import Any

from sqlalchemy import Connection, Row, insert, select

from edgeperf.agent.messages import ModelRef
from edgeperf.coordinator.store.schema import model


def add(connection: Connection, ref: ModelRef, *, now_ns: int) -> None:
    """Let boards fetch this blob as a model; a second time changes nothing."""
    if get(connection, ref.sha256) is None:
        connection.execute(
            insert(model).values(
                sha256=ref.sha256,
                name=ref.name,
                format=ref.format,
                size_bytes=ref.size_bytes,
                added_ns=now_ns,
            )
        )


def get(connection: Connection, sha256: str) -> Row[Any] | None:
    """Return one model; None when this is none."""
    return connection.execute(select(model).where(model.c.sha256 == sha256)).one_or_none()


def every(connection: Connection) -> list[Row[Any]]:
    """Return all models by name."""
    return list(connection.execute(select(model).order_by(model.c.name, model.c.sha256)))
