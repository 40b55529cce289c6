"""Commands in the store: signed once, sent until answered, dead after their deadline."""

from typing import Any

from sqlalchemy import Connection, Row, insert, or_, select, update

from edgeperf.agent.messages import Command
from edgeperf.coordinator.store.devices import is_away
from edgeperf.coordinator.store.schema import command, device

PENDING = "pending"


def add(connection: Connection, message: Command, raw: bytes, *, run: str | None) -> None:
    """Keep a signed command; the bytes are sent as they are, however often."""
    connection.execute(
        insert(command).values(
            id=message.id,
            device=message.device,
            run=run,
            type=message.name,
            counter=message.counter,
            body=raw.decode(),
            issued_ns=_ns(message.issued.timestamp()),
            deadline_ns=_ns(message.deadline.timestamp()),
            state=PENDING,
            tries=0,
        )
    )


def due(
    connection: Connection, *, now_ns: int, resend_after_ns: int, limit: int = 500
) -> list[Row[Any]]:
    """Return the commands to send now, oldest first per board: none for a board that is away."""
    query = (
        select(command, device.c.state.label("board_state"))
        .join(device, device.c.id == command.c.device)
        .where(
            command.c.state == PENDING,
            device.c.revoked_ns.is_(None),
            or_(command.c.sent_ns.is_(None), command.c.sent_ns <= now_ns - resend_after_ns),
        )
        .order_by(command.c.device, command.c.counter)
        .limit(limit)
    )
    return [row for row in connection.execute(query) if not is_away(row.board_state)]


def overdue(connection: Connection, *, now_ns: int) -> list[Row[Any]]:
    """Return the commands that nobody answered in time."""
    query = select(command).where(command.c.state == PENDING, command.c.deadline_ns <= now_ns)
    return list(connection.execute(query))


def sent(connection: Connection, command_ids: list[str], *, now_ns: int) -> None:
    """Note that commands went out."""
    connection.execute(
        update(command)
        .where(command.c.id.in_(command_ids))
        .values(sent_ns=now_ns, tries=command.c.tries + 1)
    )


def send_again(connection: Connection, board: str) -> None:
    """Make every open command of a board due at once: it began a new life."""
    connection.execute(
        update(command)
        .where(command.c.device == board, command.c.state == PENDING)
        .values(sent_ns=None)
    )


def settle(connection: Connection, command_id: str, state: str, *, reply: str = "") -> bool:
    """Close a command; False when it was closed before."""
    closed = connection.execute(
        update(command)
        .where(command.c.id == command_id, command.c.state == PENDING)
        .values(state=state, reply=reply)
    )
    return closed.rowcount == 1


def settle_starts(connection: Connection, run: str) -> None:
    """Close the open ``run.start`` of a run: the board has spoken of it."""
    connection.execute(
        update(command)
        .where(command.c.run == run, command.c.state == PENDING, command.c.type == "run.start")
        .values(state="done")
    )


def get(connection: Connection, command_id: str) -> Row[Any] | None:
    """Return one command; None when there is none of that id."""
    return connection.execute(select(command).where(command.c.id == command_id)).one_or_none()


def _ns(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
