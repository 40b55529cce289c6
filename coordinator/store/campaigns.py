"""Campaigns in the store: an ordered list of cells per board, each one run and its retries."""

from collections.abc import Iterable
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, insert, select, update

from edgeperf import InputError
from edgeperf.agent.messages import RunStart
from edgeperf.coordinator.store.schema import campaign, cell

WAITING, RUNNING, DONE, FAILED, CANCELLED = "waiting", "running", "done", "failed", "cancelled"


class UnknownCampaignError(InputError):
    """No campaign has this name, or it is taken."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One run that a campaign asks for; ``start.run`` is its run's id from the beginning."""

    device: str
    start: RunStart


def add(
    connection: Connection, name: str, source: str, cells: Iterable[Cell], *, now_ns: int
) -> None:
    """Add a campaign, its cells in the order in which each board shall run them.

    Raises:
        UnknownCampaignError: The name is taken.
    """
    if connection.execute(select(campaign.c.name).where(campaign.c.name == name)).first():
        raise UnknownCampaignError(f"name: a campaign {name!r} is there already; give another name")
    connection.execute(
        insert(campaign).values(name=name, source=source, state=RUNNING, created_ns=now_ns)
    )
    rows = [
        {
            "campaign": name,
            "number": number,
            "device": entry.device,
            "request": msgspec.json.encode(entry.start).decode(),
            "state": WAITING,
            "attempts": 0,
            "run": entry.start.run,
            "not_before_ns": 0,
        }
        for number, entry in enumerate(cells)
    ]
    connection.execute(insert(cell), rows)


def get(connection: Connection, name: str) -> Row[Any]:
    """Return one campaign.

    Raises:
        UnknownCampaignError: There is none of this name.
    """
    row = connection.execute(select(campaign).where(campaign.c.name == name)).one_or_none()
    if row is None:
        raise UnknownCampaignError(f"campaign {name[:60]!r}: there is none of this name")
    return row


def every(connection: Connection, *, state: str | None = None) -> list[Row[Any]]:
    """Return the campaigns, oldest first."""
    query = select(campaign).order_by(campaign.c.created_ns, campaign.c.name)
    return list(
        connection.execute(query if state is None else query.where(campaign.c.state == state))
    )


def cells(connection: Connection, name: str, *, lock: bool = False) -> list[Row[Any]]:
    """Return the cells of a campaign in order."""
    query = select(cell).where(cell.c.campaign == name).order_by(cell.c.number)
    return list(connection.execute(query.with_for_update() if lock else query))


def busy_boards(connection: Connection) -> set[str]:
    """Return the boards that have a cell under way, of whatever campaign."""
    query = select(cell.c.device).where(cell.c.state == RUNNING).distinct()
    return set(connection.execute(query).scalars())


def change_cell(connection: Connection, row: Row[Any], **values: Any) -> None:
    """Change columns of one cell."""
    connection.execute(
        update(cell)
        .where(cell.c.campaign == row.campaign, cell.c.number == row.number)
        .values(**values)
    )


def change(connection: Connection, name: str, state: str) -> None:
    """Change a campaign's state."""
    connection.execute(update(campaign).where(campaign.c.name == name).values(state=state))
