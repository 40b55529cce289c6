"""Boards in the store: who is enrolled, what they last said, which labels they carry."""

from collections.abc import Iterable
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, delete, insert, select, update

from edgeperf import InputError
from edgeperf.agent.messages import BoardState, Description, Presence, is_name
from edgeperf.coordinator.store.schema import device, device_label, invite
from edgeperf.coordinator.store.schema import store_info as info

#: A board that was enrolled and has not spoken yet.
UNKNOWN = "unknown"
_AWAY = (UNKNOWN, Presence.OFFLINE.value, Presence.LOST.value)


class UnknownBoardError(InputError):
    """A board or label was named that is not there, or that means more than one."""


def is_away(state: str) -> bool:
    """Tell whether a board in this state hears nothing now."""
    return state in _AWAY


def enroll(connection: Connection, name: str, *, now_ns: int) -> Row[Any]:
    """Take a board in, or give one that is there new credentials; returns its row.

    Its command counter goes on from where it was, or its journal would refuse us.

    Raises:
        UnknownBoardError: The name cannot stand in a topic.
    """
    if not is_name(name):
        raise UnknownBoardError(f"board {name[:60]!r}: a name is 1 to 40 of a-z, 0-9 and -")
    renewed = connection.execute(
        update(device).where(device.c.id == name).values(enrolled_ns=now_ns, revoked_ns=None)
    )
    if not renewed.rowcount:
        connection.execute(
            insert(device).values(id=name, enrolled_ns=now_ns, state=UNKNOWN, counter=0)
        )
    return get(connection, name)


def revoke(connection: Connection, name: str, *, now_ns: int) -> None:
    """Shut a board out; its runs stay."""
    get(connection, name)
    connection.execute(update(device).where(device.c.id == name).values(revoked_ns=now_ns))


def enrolled(connection: Connection) -> dict[str, int]:
    """Return every board that may connect, and when it was enrolled (ns)."""
    rows = connection.execute(
        select(device.c.id, device.c.enrolled_ns).where(device.c.revoked_ns.is_(None))
    )
    return {row.id: row.enrolled_ns for row in rows}


def get(connection: Connection, name: str, *, lock: bool = False) -> Row[Any]:
    """Return the row of exactly this board.

    Raises:
        UnknownBoardError: There is none.
    """
    query = select(device).where(device.c.id == name)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise UnknownBoardError(f"board {name[:60]!r}: not enrolled; `edgeperf fleet ls` lists all")
    return row


def find(connection: Connection, target: str) -> list[str]:
    """Return the boards that *target* means: one name, or ``label:NAME``.

    Raises:
        UnknownBoardError: No board has that name, it was revoked, or none carries the label.
    """
    if not target.startswith("label:"):
        if get(connection, target).revoked_ns is not None:
            raise UnknownBoardError(f"board {target!r}: was revoked; enrol it again to use it")
        return [target]
    label = target.removeprefix("label:")
    carried = labels_of(connection)
    query = select(device.c.id).where(device.c.revoked_ns.is_(None)).order_by(device.c.id)
    found = [n for n in connection.execute(query).scalars() if label in carried.get(n, ())]
    if not found:
        raise UnknownBoardError(f"label {label!r}: no board carries it")
    return found


def find_one(connection: Connection, target: str) -> str:
    """Return the one board that *target* means, never another.

    Raises:
        UnknownBoardError: There is none, or the label means several; the message lists them.
    """
    found = find(connection, target)
    if len(found) > 1:
        raise UnknownBoardError(
            f"{target}: carried by {len(found)} boards ({', '.join(found[:8])}); name one"
        )
    return found[0]


def every(connection: Connection) -> list[Row[Any]]:
    """Return all boards by name."""
    return list(connection.execute(select(device).order_by(device.c.id)))


def labels_of(connection: Connection) -> dict[str, list[str]]:
    """Return the labels of every board that has any.

    Those that the fleet gave it, and its owner's own as ``NAME=VALUE``.
    """
    found: dict[str, list[str]] = {}
    for row in connection.execute(select(device_label).order_by(device_label.c.label)):
        found.setdefault(row.device, []).append(row.label)
    described = select(device.c.id, device.c.description).where(device.c.description.is_not(None))
    for row in connection.execute(described):
        own = msgspec.json.decode(row.description, type=_Owned).labels
        if own:
            found.setdefault(row.id, []).extend(f"{name}={own[name]}" for name in sorted(own))
    return found


class _Owned(msgspec.Struct):
    labels: dict[str, str] = msgspec.field(default_factory=dict)


def relabel(connection: Connection, name: str, *, add: Iterable[str], drop: Iterable[str]) -> None:
    """Add and drop labels of a board."""
    get(connection, name, lock=True)
    dropped = set(drop) | set(add)
    connection.execute(
        delete(device_label).where(device_label.c.device == name, device_label.c.label.in_(dropped))
    )
    rows = [{"device": name, "label": label} for label in sorted(set(add))]
    if rows:
        connection.execute(insert(device_label), rows)


def apply_state(connection: Connection, name: str, state: BoardState, *, now_ns: int) -> bool:
    """Take in what a board, or its last will, says of itself.

    Returns:
        Whether a new life of the agent began.
    """
    row = get(connection, name, lock=True)
    if state.status is Presence.LOST and row.session not in {None, state.session}:
        return False  # the late will of an older connection
    connection.execute(
        update(device)
        .where(device.c.id == name)
        .values(
            state=state.status.value,
            session=state.session,
            status=msgspec.json.encode(state).decode(),
            counter=max(row.counter, state.counter),
            seen_ns=now_ns,
        )
    )
    return bool(state.session != row.session)


def apply_description(
    connection: Connection, name: str, description: Description, *, now_ns: int
) -> None:
    """Keep what a board says it is."""
    connection.execute(
        update(device)
        .where(device.c.id == name)
        .values(description=msgspec.json.encode(description).decode(), seen_ns=now_ns)
    )


def apply_temperature(connection: Connection, name: str, temperature_c: float | None) -> None:
    """Keep a board's last temperature."""
    connection.execute(
        update(device).where(device.c.id == name).values(temperature_c=temperature_c)
    )


def next_counter(connection: Connection, name: str, *, above: int = 0) -> int:
    """Return the next command counter of a board, and keep it."""
    counter: int = max(get(connection, name, lock=True).counter, above) + 1
    connection.execute(update(device).where(device.c.id == name).values(counter=counter))
    return counter


def add_invite(connection: Connection, code: str, *, board: str | None, expires_ns: int) -> None:
    """Keep a one-time code, for *board* only or for any name."""
    connection.execute(insert(invite).values(code=code, device=board, expires_ns=expires_ns))


def open_invites(connection: Connection, *, now_ns: int) -> list[Row[Any]]:
    """Return the codes that may still be used, and forget the others."""
    connection.execute(delete(invite).where(invite.c.expires_ns <= now_ns))
    return list(connection.execute(select(invite).where(invite.c.used_ns.is_(None))))


def use_invite(connection: Connection, code: str, *, now_ns: int) -> bool:
    """Spend a code; False when someone else was faster."""
    spent = connection.execute(
        update(invite)
        .where(invite.c.code == code, invite.c.used_ns.is_(None))
        .values(used_ns=now_ns)
    )
    return spent.rowcount == 1


def remember(connection: Connection, name: str, value: str) -> str:
    """Keep a fact about the store the first time it is said; returns what is kept."""
    kept: str | None = connection.execute(
        select(info.c.value).where(info.c.name == name)
    ).scalar_one_or_none()
    if kept is not None:
        return kept
    connection.execute(insert(info).values(name=name, value=value))
    return value
