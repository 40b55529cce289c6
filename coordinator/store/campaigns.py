"""Campaigns in the store: an ordered list of cells per board, each one run and its retries."""

from collections.abc import Iterable
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, func, insert, select, update

from edgeperf import InputError
from edgeperf.agent.messages import RunStart
from edgeperf.coordinator.store.schema import campaign, cell, run

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


def cells(connection: Connection, name: str) -> list[Row[Any]]:
    """Return the cells of a campaign in order."""
    query = select(cell).where(cell.c.campaign == name).order_by(cell.c.number)
    return list(connection.execute(query))


def counts(connection: Connection, name: str) -> dict[str, int]:
    """Return how many cells of a campaign are in each state."""
    number = func.count().label("number")
    query = select(cell.c.state, number).where(cell.c.campaign == name).group_by(cell.c.state)
    return {row.state: row.number for row in connection.execute(query)}


def under_way(connection: Connection) -> list[Row[Any]]:
    """Return the cells of every campaign that a board is at, with the state of their runs."""
    query = (
        select(cell, run.c.state.label("run_state"), run.c.error_class)
        .join(run, run.c.id == cell.c.run)
        .where(cell.c.state == RUNNING)
    )
    return list(connection.execute(query))


def boards_waited_for(connection: Connection, *, now_ns: int) -> list[str]:
    """Return the boards that some cell waits for."""
    query = select(cell.c.device).where(cell.c.state == WAITING, cell.c.not_before_ns <= now_ns)
    return list(connection.execute(query.distinct().order_by(cell.c.device)).scalars())


def next_for(connection: Connection, board: str, *, now_ns: int) -> Row[Any] | None:
    """Return the cell that a board shall do next: of the oldest campaign, in its order."""
    query = (
        select(cell)
        .join(campaign, campaign.c.name == cell.c.campaign)
        .where(
            cell.c.device == board,
            cell.c.state == WAITING,
            cell.c.not_before_ns <= now_ns,
            campaign.c.state == RUNNING,
        )
        .order_by(campaign.c.created_ns, campaign.c.name, cell.c.number)
        .limit(1)
    )
    return connection.execute(query).one_or_none()


def with_runs(connection: Connection, name: str) -> list[Row[Any]]:
    """Return the cells of a campaign in order, with what became of their runs."""
    found = (run.c.state.label("run_state"), run.c.verdict, run.c.error)
    query = (
        select(cell, *found)
        .outerjoin(run, run.c.id == cell.c.run)
        .where(cell.c.campaign == name)
        .order_by(cell.c.number)
    )
    return list(connection.execute(query))


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
