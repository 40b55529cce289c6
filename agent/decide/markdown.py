"""A decision as one Markdown page that needs nothing beside it."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from edgeperf import __version__
from edgeperf.agent.decide.decision import Candidate, Decision, Group
from edgeperf.agent.decide.judge import Line, Outcome
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

_SPECIAL = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_{}[]<>|#"})


def as_markdown(decision: Decision) -> bytes:
    """Return the report."""
    return ("\n".join(_lines(decision)) + "\n").encode()


def _lines(decision: Decision) -> Iterator[str]:
    yield f"# Decision: {_safe(verdict_words(decision))}"
    yield ""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    yield f"edgeperf {__version__}, {now}, from {decision.runs} results."
    yield ""
    yield from _asked(decision)
    difference = difference_words(decision)
    if difference is not None:
        yield from ("", f"**{_safe(difference)}**")
    for group in decision.groups:
        yield from _group(group, decision.own_notes(group))
    yield ""
    for note in decision.common_notes:
        yield f"> {_safe(note)}  "
    yield from _list("Not counted", list(left_out(decision)))
    yield from _list("SUSPECT runs that were read", list(doubted(decision)))
    yield from _runs(decision)


def _asked(decision: Decision) -> Iterator[str]:
    if not decision.limits:
        yield "Nothing was asked but a VALID verdict."
        return
    yield "Asked:"
    yield ""
    for limit in decision.limits:
        yield f"- {_safe(str(limit))}"
    if decision.wish.costs is not None:
        costs = decision.wish.costs
        yield f"- a miss costs {costs.miss:g}, a false alarm {costs.false_alarm:g}"
    if decision.wish.accept_suspect:
        yield "- SUSPECT runs count, marked"


def _group(group: Group, notes: Sequence[str]) -> Iterator[str]:
    yield from ("", f"## {_safe(group_title(group))}", "")
    best = best_words(group)
    if best is not None:
        yield from (f"**{_safe(best)}**", "")
    yield from (f"{_safe(rank_words(group))}.", "")
    columns = titles_of(group)
    yield _row(["", "configuration", *columns, "outcome"])
    yield "|" + "---|" * (len(columns) + 3)
    for one in group.candidates:
        yield _row([str(one.number), *_cells(one, group), outcome_text(one.judged)])
    yield ""
    for words in pareto_words(group):
        yield f"- {_safe(words)}"
    yield ""
    for note in notes:
        yield f"> {_safe(note)}  "


def _cells(candidate: Candidate, group: Group) -> list[str]:
    what = f"{title_of(candidate)}; {where_of(candidate)}"
    judged = candidate.judged
    if judged.outcome is Outcome.REFUSED:
        return [what, *["-"] * len(titles_of(group))]
    others = [" ".join(reading_text(asked, judged)) for asked in other_figures(group)]
    return [what, *map(_cell, judged.lines), *others]


def _cell(line: Line) -> str:
    asked, reading = line.limit.asked, line.reading
    mark = "✓" if line.met else "✗"
    words = [value_text(asked, reading), interval_text(asked, reading)]
    shown = " ".join(word for word in words if word)
    return f"{mark} {shown}: {margin_text(line)}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_safe, cells)) + " |"


def _list(title: str, rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    if rows:
        yield from ("", f"## {title}", "")
        for name, why in rows:
            yield f"- {_safe(name)}: {_safe(why)}"


def _runs(decision: Decision) -> Iterator[str]:
    yield from ("", "## Runs that were read", "")
    yield "| | result | verdict | comparable | where |"
    yield "|---|---|---|---|---|"
    for group in decision.groups:
        for one in group.candidates:
            for run in one.judged.read:
                verdict = run.result.verdict
                comparable = "yes" if verdict.comparable else "no"
                yield _row(
                    [str(one.number), run.result.id, verdict.status.value, comparable, run.where]
                )


def _safe(text: str) -> str:
    """Return *text* so that Markdown shows it as it is."""
    return text.translate(_SPECIAL)
