"""``edgeperf overhead``: what the harness adds on this board, and what is slow enough for it."""

from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgeperf import InputError
from edgeperf.agent.cli.console import stdout_console
from edgeperf.agent.cli.summary import time_text
from edgeperf.agent.cli.values import cores_of
from edgeperf.agent.spec import RunSpec

if TYPE_CHECKING:
    from edgeperf.agent.run.overhead import Overhead

#: Exit status when a model was asked about that is too fast in some scenario, or when the
#: figures cannot be believed.
EXIT_TOO_FAST = 1
_WAYS = {
    "watch": "both watch a word in shared memory",
    "event": "both sleep on a counting event",
    "pipe": "both sleep on a pipe",
}


@click.command()
@click.argument("model", required=False)
@click.option("--backend", help="Runtime for MODEL; default: what fits the file.")
@click.option("--cores", metavar="LIST", help="Cores to use, such as 2,3 or 0-3; default: all.")
@click.option("--threads", type=int, help="Threads for MODEL.  [1]")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def overhead(
    model: str | None,
    backend: str | None,
    cores: str | None,
    threads: int | None,
    as_json: bool,  # noqa: FBT001 - click passes flags by name
) -> int:
    """Measure what edgeperf itself adds on this board, in some ten seconds.

    It runs a model that does nothing through each scenario. With MODEL, also whether that
    model is slow enough to be measured honestly: at least twenty times as slow as what is
    added to it. Exit status: 0 when it is, or without MODEL; 1 when it is too fast in some
    scenario, or when other work or the board itself disturbed the measurement (SUSPECT).
    """
    from edgeperf.agent.run.overhead import overhead as measure  # noqa: PLC0415 - brings numpy

    asked = None
    used = None if cores is None else cores_of(cores)
    if model is None and (backend is not None or threads is not None):
        raise InputError(f"{'--backend' if backend else '--threads'}: means nothing without MODEL")
    if model is not None:
        asked = RunSpec(
            model=model, backend=backend, threads=1 if threads is None else threads, cores=used
        )
    console = Console(stderr=True)
    with console.status("measuring") as status:
        found = measure(asked, used, lambda text: status.update(escape(text)))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        _show(found)
    believed = not found.doubts and all(share.honest for share in found.shares)
    return 0 if believed else EXIT_TOO_FAST


def _show(found: "Overhead") -> None:
    console = stdout_console()
    if found.doubts:
        console.print("SUSPECT: more than edgeperf itself is in these figures; repeat when quiet")
        for doubt in found.doubts:
            console.print(f"  ! {doubt.text}", markup=False)
        console.print()
    table = _table("scenario", "workers", "added p50", "added p90", "honest from")
    for each in found.added:
        table.add_row(
            each.scenario,
            str(each.workers),
            f"{time_text(each.p50_ns)} per {each.per}",
            "" if each.p90_ns is None else time_text(each.p90_ns),
            f"{time_text(each.honest_ns)} per {each.per}",
        )
    console.print(table)
    console.print(
        "\n'added' is the latency of a model that does nothing; a model is measured honestly from"
        " twenty times that"
        f"\none look at the clock {time_text(found.clock_ns)}, a bare call of the null session"
        f" {time_text(found.bare_ns)}\n"
    )
    table = _table("waking another process", "where", "there and back", "p90", "after 3 ms idle")
    for wakeup in found.wakeups:
        paused = wakeup.paused_p50_ns
        table.add_row(
            _WAYS[wakeup.way],
            wakeup.where,
            time_text(wakeup.p50_ns),
            time_text(wakeup.p90_ns),
            "" if paused is None else time_text(paused),
        )
    console.print(table)
    if found.model is not None:
        console.print()
        table = _table(found.model, "takes", "added to it", "share", "measured honestly")
        for share in found.shares:
            word = "yes" if share.honest else "NO: too fast"
            times = time_text(share.model_ns), time_text(share.added_ns)
            table.add_row(share.scenario, *times, f"{share.share:.1%}", word)
        console.print(table)
        if not all(share.honest for share in found.shares):
            console.print(
                "\ntoo fast: a run is SUSPECT (harness-share), since more than a twentieth of what"
                " it measures would be the harness"
            )


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(escape(column))
    return table
