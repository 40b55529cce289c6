"""``edgeperf decide``: which model, runtime, precision and board does what is asked."""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgeperf import InputError
from edgeperf.agent.decide.configurations import ARENA

if TYPE_CHECKING:
    from edgeperf.agent.decide.decision import Decision
    from edgeperf.datasets.metrics.ranking import Costs

#: Where ``edgeperf run`` puts results when nothing else is said.
_RESULTS = "edgeperf-results"


@click.command()
@click.argument("arguments", nargs=-1, metavar="[RESULT|CONSTRAINT]...")
@click.option("--prefer", metavar="FIGURE", help="Ranks what passes; default: see the output.")
@click.option(
    "--pareto", "over", metavar="A,B", help="Figures of the Pareto set; default: those asked."
)
@click.option("--accept-suspect", is_flag=True, help="Count SUSPECT results, marked.")
@click.option("--cost-miss", type=float, metavar="C", help="Cost of a missed positive.")
@click.option("--cost-false-alarm", type=float, metavar="C", help="Cost of a false alarm.")
@click.option(
    "--across",
    multiple=True,
    type=click.Choice(ARENA),
    help="Compare in spite of a different one; the output says so.",
)
@click.option(
    "--report",
    "reports",
    multiple=True,
    metavar="FILE",
    help="Write FILE.md, FILE.html, FILE.csv or FILE.json.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the decision as JSON.")
def decide(  # noqa: PLR0913 - click passes every option
    arguments: tuple[str, ...],
    *,
    prefer: str | None,
    over: str | None,
    accept_suspect: bool,
    cost_miss: float | None,
    cost_false_alarm: float | None,
    across: tuple[str, ...],
    reports: tuple[str, ...],
    as_json: bool,
) -> int:
    """Tell which configuration of many results passes every CONSTRAINT, and the Pareto set.

    RESULT is a result directory, a result.json, a folder to search, a pattern, or what
    "edgeperf fleet results --format json" wrote; default: edgeperf-results. CONSTRAINT is a
    figure and its limit, in quotes: 'p99<20ms' 'accuracy>=0.9' 'j_per_sample<50mJ'
    'recall@precision=0.9>=0.8'.

    Exit status: 0 something passes, 1 nothing does, 2 bad input.
    """
    from edgeperf.agent.decide.choose import decide as made  # noqa: PLC0415
    from edgeperf.agent.decide.constraints import looks_like_one  # noqa: PLC0415 - only here
    from edgeperf.agent.decide.decision import Wish  # noqa: PLC0415
    from edgeperf.agent.decide.judge import Outcome  # noqa: PLC0415
    from edgeperf.agent.decide.sources import find  # noqa: PLC0415

    if "" in arguments:
        raise InputError("'': is neither a result nor a constraint; leave it out")
    writers = [(Path(name), _writer(name)) for name in reports]
    constraints = tuple(
        text for text in arguments if looks_like_one(text) and not Path(text).exists()
    )
    wish = Wish(
        constraints=constraints,
        prefer=prefer,
        over=tuple(name.strip() for name in (over or "").split(",") if name.strip()),
        across=across,
        costs=_costs(cost_miss, cost_false_alarm),
        accept_suspect=accept_suspect,
    )
    named = [text for text in arguments if text not in constraints]
    decision = made(find(named or [_RESULTS]), wish)
    for path, write in writers:
        _write(path, write(decision))
    if as_json:
        from edgeperf.agent.decide.data import as_json as json_of  # noqa: PLC0415

        sys.stdout.write(json_of(decision).decode())
    else:
        from edgeperf.agent.cli.decide_tables import print_decision  # noqa: PLC0415 - rich

        print_decision(decision)
    return 0 if decision.count(Outcome.PASSES) else 1


def _writer(name: str) -> "Callable[[Decision], bytes]":
    """Return what writes a report of the kind that *name* ends in.

    Raises:
        InputError: There is no such kind, or the file is there already.
    """
    from edgeperf.agent.decide.data import as_csv, as_json  # noqa: PLC0415 - only here
    from edgeperf.agent.decide.html import as_html  # noqa: PLC0415
    from edgeperf.agent.decide.markdown import as_markdown  # noqa: PLC0415

    writers = {".md": as_markdown, ".html": as_html, ".csv": as_csv, ".json": as_json}
    writer = writers.get(Path(name).suffix)
    if writer is None:
        raise InputError(f"--report {name}: expected a file that ends in {', '.join(writers)}")
    if Path(name).exists():
        raise InputError(f"--report {name}: is there already; give another file")
    return writer


def _write(path: Path, content: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(content)
    except OSError as error:
        raise InputError(f"--report {path}: {error.strerror}") from error
    click.echo(f"edgeperf: wrote {path}", err=True)


def _costs(miss: float | None, false_alarm: float | None) -> "Costs | None":
    if miss is None and false_alarm is None:
        return None
    from edgeperf.datasets.metrics.ranking import Costs  # noqa: PLC0415 - numpy, only here

    for option, value in (("--cost-miss", miss), ("--cost-false-alarm", false_alarm)):
        if value is None:
            raise InputError(f"{option}: give both costs")
        if not math.isfinite(value) or value < 0:
            raise InputError(f"{option} {value}: expected a cost of 0 or more")
    return Costs(miss=miss or 0.0, false_alarm=false_alarm or 0.0)
