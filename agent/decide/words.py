"""A decision in words: the phrases that every form of the report shares."""

from collections.abc import Iterator, Sequence

from edgeperf.agent.decide.configurations import ARENA
from edgeperf.agent.decide.decision import Candidate, Decision, Group
from edgeperf.agent.decide.judge import Judged, Line, Outcome, Reading
from edgeperf.agent.decide.names import Asked
from edgeperf.agent.decide.sources import Run
from edgeperf.agent.decide.units import text_of
from edgeperf.agent.result import Severity

_OUTCOME = {
    Outcome.PASSES: "passes",
    Outcome.SUSPECT: "not counted: SUSPECT",
    Outcome.FAILS: "fails",
    Outcome.REFUSED: "refused: INVALID",
}
#: From so many times the limit on, percent say little.
_MANY = 9
#: So many dominators are named.
_FEW = 3


def plain(text: str) -> str:
    """Return text from a board on one line, without what would steer a terminal."""
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def outcome_text(judged: Judged) -> str:
    """Return what becomes of a configuration, with its mark."""
    text = _OUTCOME[judged.outcome]
    marks = []
    if judged.suspect and judged.outcome in (Outcome.PASSES, Outcome.FAILS):
        marks.append("SUSPECT")
    if any(line.within_noise for line in judged.lines):
        marks.append("within noise")
    return f"{text} ({', '.join(marks)})" if marks else text


def title_of(candidate: Candidate) -> str:
    """Return the model of a configuration."""
    return plain(candidate.judged.configuration.model)


def where_of(candidate: Candidate) -> str:
    """Return runtime, precision, board, what else tells it apart, and its runs."""
    one = candidate.judged.configuration
    runs = len(candidate.judged.read) or len(one.runs)
    words = [f"{one.backend} {one.precision} on {one.board}", *candidate.settings]
    if runs > 1:
        words.append(f"{runs} runs")
    return plain(", ".join(words))


def name_of(candidate: Candidate) -> str:
    """Return the whole configuration on one line."""
    one = candidate.judged.configuration
    return plain(f"{one.model}, {where_of(candidate)}")


def value_text(asked: Asked, reading: Reading) -> str:
    """Return the median, or that it was not measured."""
    return "not measured" if reading.value is None else text_of(asked.kind, reading.value)


def interval_text(asked: Asked, reading: Reading) -> str:
    """Return ``[low, high]``, and of how many runs if not of all; empty where nothing tells."""
    some = f"in {reading.runs} of {reading.of_runs} runs" if reading.runs < reading.of_runs else ""
    if reading.value is None or (reading.low is None and reading.high is None):
        return some if reading.value is not None else ""
    ends = ["?" if end is None else text_of(asked.kind, end) for end in (reading.low, reading.high)]
    return f"[{', '.join(ends)}] {some}".rstrip()


def margin_text(line: Line) -> str:
    """Return by how much a line is kept or missed, absolute and relative."""
    if line.by is None:
        return plain(line.reading.why_not)
    side = "over" if line.by > 0 else "under"
    amount = text_of(line.limit.asked.kind, abs(line.by))
    share = "" if line.by_relative is None else f" ({_percent(line.by_relative)})"
    noise = ", within noise" if line.within_noise else ""
    return f"{amount} {side}{share}{noise}" if line.by else f"exactly at the limit{noise}"


def _percent(share: float) -> str:
    if share >= _MANY:
        return f"{share + 1:.3g} times"
    if 0 < share + 1 < 1 / (_MANY + 1):
        return f"1/{1 / (share + 1):.3g} of it"
    return f"{share:+.0%}" if abs(share) >= 0.1 else f"{share:+.1%}"  # noqa: PLR2004 - two digits


def verdict_words(decision: Decision) -> str:
    """Return the decision in one sentence."""
    passing, total = decision.count(Outcome.PASSES), sum(len(g.candidates) for g in decision.groups)
    if not total:
        return "no result to choose from"
    asked = "what is asked" if decision.limits else "the verdict; nothing else is asked"
    text = f"{passing} of {total} configurations pass {asked}"
    if total == 1:
        text = f"{passing} of 1 configuration passes {asked}"
    suspect = decision.count(Outcome.SUSPECT)
    if suspect:
        text += f"; {suspect} would, but are SUSPECT (--accept-suspect counts them)"
    return text


def difference_words(decision: Decision) -> str | None:
    """Return in what the groups differ; None with one."""
    if len(decision.groups) < 2:  # noqa: PLR2004 - nothing to tell apart
        return None
    differing = {
        part: list(dict.fromkeys(group.arena.what[part] for group in decision.groups))
        for part in ARENA
    }
    words = [f"{part} ({'; '.join(v)})" for part, v in differing.items() if len(v) > 1]
    return plain(
        f"{len(decision.groups)} groups that do not compare: they differ in {', '.join(words)}"
    )


def group_title(group: Group) -> str:
    """Return what is common to a group."""
    what = group.arena.what
    return plain(f"{what['task']}, {what['scenario']}, {what['length']}; {what['samples']}")


def other_figures(group: Group) -> list[Asked]:
    """Return the figures that rank or place, and that no constraint shows already."""
    limited = {line.limit.asked.name for one in group.candidates for line in one.judged.lines}
    both = dict.fromkeys((group.prefer, *group.over))
    return [asked for asked in both if asked.name not in limited]


def titles_of(group: Group) -> list[str]:
    """Return the heading of every figure's column: constraints first."""
    lines = next((one.judged.lines for one in group.candidates if one.judged.lines), ())
    limits = [str(line.limit) for line in lines]
    return [*limits, *(asked.name for asked in other_figures(group))]


def reading_text(asked: Asked, judged: Judged) -> tuple[str, str]:
    """Return a figure with its interval, and why it is missing; both empty if refused."""
    reading = judged.readings.get(asked.name)
    if reading is None:
        return "", ""
    words = [value_text(asked, reading), interval_text(asked, reading)]
    return " ".join(word for word in words if word), plain(reading.why_not)


def rank_words(group: Group) -> str:
    """Return what the order is by."""
    better = group.prefer.better
    return f"best first by {group.prefer.name}, {better} is better ({group.why_prefer})"


def pareto_words(group: Group) -> Iterator[str]:
    """Yield the Pareto set, what dominates the others, and who is not placed."""
    over = ", ".join(f"{asked.name} ({asked.better} is better)" for asked in group.over)
    placed = [one for one in group.candidates if one.place is not None]
    if not placed:
        yield f"no Pareto set over {over}: no run is VALID; --accept-suspect takes SUSPECT ones"
        return
    front = [one.number for one in placed if one.place is not None and one.place.on_front]
    yield f"Pareto set over {over}: {', '.join(map(str, front)) or 'empty'}"
    for one in placed:
        if one.place is None or one.place.on_front:
            continue
        if one.place.on_front is None:
            yield f"{one.number} not placed: {', '.join(one.place.missing)} not measured"
            continue
        noise = " (within noise)" if one.place.within_noise else ""
        yield f"{one.number} dominated by {_few(one.dominators, front)}{noise}"


def _few(dominators: Sequence[int], front: Sequence[int]) -> str:
    """Return those of the Pareto set, which there always are, and of these a few."""
    best = [number for number in dominators if number in front]
    more = len(dominators) - len(best[:_FEW])
    text = ", ".join(map(str, best[:_FEW]))
    return f"{text} and {more} more" if more else text


def reason_of(run: Run) -> str:
    """Return why a run is not VALID."""
    verdict = run.result.verdict
    reasons = [r.text for r in verdict.reasons if r.severity is not Severity.NOTE]
    return plain(f"{verdict.status.value}: {'; '.join(reasons) or 'no reason given'}")


def left_out(decision: Decision) -> Iterator[tuple[str, str]]:
    """Yield name and reason of everything that was not read, or is not believed."""
    for group in decision.groups:
        for candidate in group.candidates:
            judged = candidate.judged
            for run in judged.left_out:
                yield f"{candidate.number}  {plain(run.result.id)}", reason_of(run)
    for one in decision.unread:
        yield plain(one.name), plain(one.why)


def doubted(decision: Decision) -> Iterator[tuple[str, str]]:
    """Yield name and reason of each SUSPECT run that was read."""
    for group in decision.groups:
        for candidate in group.candidates:
            if candidate.judged.suspect:
                for run in candidate.judged.read:
                    yield f"{candidate.number}  {plain(run.result.id)}", reason_of(run)


def best_words(group: Group) -> str | None:
    """Return what to choose in a group; None where nothing passes."""
    first = group.candidates[0]
    if first.judged.outcome is not Outcome.PASSES:
        return None
    reading = first.judged.readings[group.prefer.name]
    return f"best: {first.number}, {name_of(first)}: {group.prefer.name} " + value_text(
        group.prefer, reading
    )
