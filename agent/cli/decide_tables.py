"""A decision on a terminal: a table where it fits, else a block for each configuration."""

from collections.abc import Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from edgeperf.agent.cli.console import stdout_console
from edgeperf.agent.decide.decision import Candidate, Decision, Group
from edgeperf.agent.decide.judge import Judged, Line, Outcome
from edgeperf.agent.decide.words import (
    best_words,
    difference_words,
    doubted,
    group_title,
    interval_text,
    left_out,
    margin_text,
    other_figures,
    outcome_text,
    pareto_words,
    rank_words,
    reading_text,
    title_of,
    titles_of,
    value_text,
    verdict_words,
    where_of,
)

_COLOUR = {
    Outcome.PASSES: "green",
    Outcome.SUSPECT: "yellow",
    Outcome.FAILS: "red",
    Outcome.REFUSED: "red",
}
#: Of a large fleet a screen full is enough of each list.
_MOST_LINES = 25
_WIDEST = 10_000


def print_decision(decision: Decision) -> None:
    """Print *decision* on standard output."""
    console = stdout_console()
    _say(console, verdict_words(decision), style="bold")
    if decision.limits:
        _say(console, f"asked: {' · '.join(map(str, decision.limits))}")
    difference = difference_words(decision)
    if difference is not None:
        _say(console, difference)
    for group in decision.groups:
        console.print()
        _print_group(console, group, decision.own_notes(group))
    if decision.common_notes:
        console.print()
    for note in decision.common_notes:
        _say(console, f"· {note}", style="dim")
    _print_reasons(console, "not counted", list(left_out(decision)))
    _print_reasons(console, "read, but SUSPECT", list(doubted(decision)))


def _print_group(console: Console, group: Group, notes: Sequence[str]) -> None:
    _say(console, group_title(group), style="bold")
    best = best_words(group)
    if best is not None:
        _say(console, best, style="green")
    _say(console, rank_words(group), style="dim")
    console.print()
    table = _table(group)
    unbounded = console.options.update(width=_WIDEST)
    if Measurement.get(console, unbounded, table).maximum <= console.width:
        console.print(table)
    else:
        for candidate in group.candidates:
            _print_block(console, candidate, group)
    console.print()
    _say_few(console, list(pareto_words(group)))
    for note in notes:
        _say(console, f"· {note}", style="dim")


def _table(group: Group) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column("configuration")
    titles = titles_of(group)
    for title in titles:
        table.add_column(Text(title))  # a class in brackets is no markup
    table.add_column("outcome")
    for one in group.candidates:
        lines = [(_found(line), margin_text(line)) for line in one.judged.lines]
        cells = [_cell(*pair) for pair in (*lines, *_others(group, one.judged))]
        cells += [Text("-")] * (len(titles) - len(cells))
        table.add_row(
            str(one.number),
            Text(f"{title_of(one)}\n{where_of(one)}"),
            *cells,
            Text(outcome_text(one.judged).replace(" (", "\n("), style=_colour(one.judged)),
        )
    return table


def _others(group: Group, judged: Judged) -> list[tuple[Text, str]]:
    """Return the figures that rank and place, as far as no constraint shows them."""
    if judged.outcome is Outcome.REFUSED:
        return []
    pairs = [reading_text(asked, judged) for asked in other_figures(group)]
    return [(Text(found), why) for found, why in pairs]


def _cell(found: Text, remark: str) -> Text:
    return Text("\n").join([found, Text(remark, style="dim")])


def _found(line: Line) -> Text:
    asked, reading = line.limit.asked, line.reading
    mark, colour = ("✓", "green") if line.met else ("✗", "red")
    words = [f"{mark} {value_text(asked, reading)}", interval_text(asked, reading)]
    return Text(" ".join(word for word in words if word), style=colour)


def _print_block(console: Console, candidate: Candidate, group: Group) -> None:
    judged = candidate.judged
    heading = Text.assemble(
        f"{candidate.number}  {title_of(candidate)}  ",
        (outcome_text(judged), _colour(judged)),
    )
    console.print(heading)
    console.print(Padding(Text(where_of(candidate)), (0, 0, 0, 3)))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    lines = [(_found(line), margin_text(line)) for line in judged.lines]
    pairs = [*lines, *_others(group, judged)]
    for title, (found, remark) in zip(titles_of(group), pairs, strict=False):
        table.add_row(Text(title), Text.assemble(found, "  ", (remark, "dim")))
    if pairs:
        console.print(Padding(table, (0, 0, 0, 3)))


def _print_reasons(console: Console, title: str, rows: Sequence[tuple[str, str]]) -> None:
    if not rows:
        return
    console.print()
    _say(console, title, style="bold")
    _say_few(console, [f"{name}: {why}" for name, why in rows])


def _say_few(console: Console, lines: Sequence[str]) -> None:
    for text in lines[:_MOST_LINES]:
        _say(console, text)
    if len(lines) > _MOST_LINES:
        _say(console, f"and {len(lines) - _MOST_LINES} more: --json and --report have them all")


def _colour(judged: Judged) -> str:
    marked = judged.suspect and judged.outcome is Outcome.PASSES
    return "yellow" if marked else _COLOUR[judged.outcome]


def _say(console: Console, text: str, *, style: str = "") -> None:
    console.print(Text(text, style=style))
