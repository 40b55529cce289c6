"""``edgeperf fleet``: what a coordinator knows, and what it shall have done.

Talks to the coordinator's HTTP interface with the administrator's token, so that one
process owns the store. The parts are in ``fleet_runs.py``, ``fleet_results.py`` and
``fleet_campaigns.py``.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeperf.agent.cli import fleet_campaigns, fleet_results, fleet_runs, fleet_simulate

if TYPE_CHECKING:
    from edgeperf.coordinator.client import Client

_Folder = click.Path(path_type=Path, file_okay=False)
_File = click.Path(path_type=Path, dir_okay=False)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
@click.option(
    "--coordinator", "url", envvar="EDGEPERF_COORDINATOR", help="Its URL.  [the one running here]"
)
@click.option("--token-file", type=_File, help="File with its admin token.  [DATA/admin.token]")
@click.option("--ca", "ca_file", type=_File, help="CA of its https URL.")
@click.option(
    "--data", type=_Folder, envvar="EDGEPERF_COORDINATOR_DATA", help="Its directory, if it is here."
)
@click.pass_context
def fleet(context: click.Context, /, data: Path | None, **where: Any) -> None:
    """Boards, runs, campaigns and results of a fleet."""

    def connect() -> "Client":
        from edgeperf.coordinator.client import find_coordinator  # noqa: PLC0415
        from edgeperf.coordinator.files import default_directory  # noqa: PLC0415

        return find_coordinator(data=data or default_directory(), **where)

    context.obj = connect


@fleet.command("ls")
@_json
@click.pass_obj
def list_boards(connect: Callable[[], "Client"], *, as_json: bool) -> None:
    """List the boards: state, what they do, when they were last heard of."""
    boards = connect().get("/v1/boards")
    if as_json:
        click.echo(json.dumps(boards, indent=2))
        return
    if not boards:
        click.echo("no boards yet; boards join with: edgeperf coordinator enroll")
        return
    from edgeperf.agent.cli.fleet_tables import board_table, print_table  # noqa: PLC0415 - rich

    print_table(board_table(boards))


@fleet.command()
@click.argument("name")
@_json
@click.pass_obj
def show(connect: Callable[[], "Client"], name: str, *, as_json: bool) -> int:
    """Show NAME: a board with all it said of itself, or a run with its result."""
    client = connect()
    if any(board["name"] == name for board in client.get("/v1/boards")):
        board = client.get(f"/v1/boards/{name}")
        if as_json:
            click.echo(json.dumps(board, indent=2))
        else:
            from edgeperf.agent.cli.fleet_tables import board_facts, print_table  # noqa: PLC0415

            print_table(board_facts(board))
        return 0
    view = client.get(f"/v1/runs/{fleet_runs.quoted(name)}", log_after=2**53)
    return fleet_runs.report(view, as_json=as_json)


@fleet.command()
@click.argument("board")
@click.argument("labels", nargs=-1, required=True)
@click.pass_obj
def label(connect: Callable[[], "Client"], board: str, labels: tuple[str, ...]) -> None:
    """Give BOARD labels, or take them away: -NAME (after --)."""
    add = [text for text in labels if not text.startswith("-")]
    drop = [text[1:] for text in labels if text.startswith("-")]
    view = connect().post(
        f"/v1/boards/{fleet_runs.quoted(board)}/labels", {"add": add, "drop": drop}
    )
    click.echo(f"{view['name']}: {', '.join(view['labels']) or 'no labels'}")


@fleet.command()
@click.argument("board")
@click.option("--off", is_flag=True, help="Take new runs again.")
@click.option("--reason", default="", help="For people.")
@click.pass_obj
def drain(connect: Callable[[], "Client"], board: str, reason: str, *, off: bool) -> None:
    """Let BOARD finish what it has and take no new runs."""
    connect().post(
        f"/v1/boards/{fleet_runs.quoted(board)}/drain", {"on": not off, "reason": reason}
    )
    click.echo(f"{board} was asked to {'take runs again' if off else 'drain'}")


for command in (
    fleet_runs.run,
    fleet_runs.watch,
    fleet_runs.cancel,
    fleet_runs.clone,
    fleet_runs.logs,
    fleet_results.results,
    fleet_campaigns.campaign,
    fleet_simulate.simulate,
):
    fleet.add_command(command)
