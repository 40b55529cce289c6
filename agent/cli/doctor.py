"""``edgeperf doctor``: what this board can measure, and what is missing."""

import os
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgeperf.agent.board.doctor import Report, examine, report
from edgeperf.agent.board.findings import Board, Finding, Health
from edgeperf.agent.board.probe_meters import find_meters
from edgeperf.agent.board.probe_places import parse_broker
from edgeperf.agent.cli.console import stdout_console

#: Exit status when something is missing that every run needs.
EXIT_UNFIT = 3

_STYLES = {
    Health.OK: "green",
    Health.WARN: "yellow",
    Health.MISSING: "dim",
    Health.FAIL: "bold red",
}


@click.command()
@click.option("--broker", metavar="URL", help="Also try this MQTT broker: mqtt://HOST[:PORT].")
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=Path("edgeperf-results"),
    show_default=True,
    help="Folder that results will go to.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="EDGEPERF_STATE",
    help="Folder with the agent's files.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(broker: str | None, results: Path, state: Path | None, *, as_json: bool) -> None:
    """Say what this board can measure and what is missing, probe by probe.

    Exit status: 0 when a run can work here, 3 when something is missing that it needs.
    """
    if broker is not None:
        parse_broker(broker)  # a wrong one is told before anything takes its time
    board = Board(
        folders=_folders(results),
        broker=broker,
        meters=find_meters,
        fleet=lambda: _fleet(state),
    )
    console = Console(stderr=True)
    found: list[Finding] = []
    with console.status("looking at the board") as status:
        for finding in examine(board):
            found.append(finding)
            status.update(f"{finding.area}: {finding.name}")
    outcome = report(board, found)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(outcome), indent=2))
    else:
        _show(outcome)
    if not outcome.fit:
        click.get_current_context().exit(EXIT_UNFIT)


def _folders(results: Path) -> dict[str, Path]:
    from edgeperf.datasets.assets import Places  # noqa: PLC0415 - keeps `--help` quick

    cache = Places.from_environment(os.environ).cache
    return {"results": results} if cache is None else {"results": results, "cache": cache}


def _fleet(state: Path | None) -> Iterator[Finding]:
    from edgeperf.agent.link.access import probe_fleet  # noqa: PLC0415 - paho, only here
    from edgeperf.agent.link.settings import default_state  # noqa: PLC0415

    yield from probe_fleet(state or default_state(os.environ))


def _show(outcome: Report) -> None:
    console = stdout_console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "probe", "found, and → what to do"):
        table.add_column(column, overflow="fold")
    area = None
    for finding in outcome.findings:
        if finding.area != area:
            area = finding.area
            table.add_row("", f"[bold]{area}[/bold]")
        style = _STYLES[finding.status]
        mark = f"[{style}]{finding.status.value}[/{style}]"
        advice = f"\n→ {finding.what_to_do}" if finding.what_to_do else ""
        table.add_row(mark, escape(finding.name), escape(finding.value + advice))
    console.print(table)
    failed = sum(finding.status is Health.FAIL for finding in outcome.findings)
    if failed:
        what = "1 needed thing" if failed == 1 else f"{failed} needed things"
        console.print(f"\n[bold red]{what} missing: see the lines marked fail[/]")
    else:
        console.print("\n[green]a run can work here[/green]")
