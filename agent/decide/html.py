"""A decision as one HTML page: tables and, over two figures, a picture of the Pareto set.

Everything is in the file: no script, no font, no address. Text from boards is escaped.
"""

from collections.abc import Callable, Iterator, Sequence
from html import escape

from edgeperf import __version__
from edgeperf.agent.decide.decision import Candidate, Decision, Group
from edgeperf.agent.decide.judge import Line, Outcome
from edgeperf.agent.decide.names import Asked
from edgeperf.agent.decide.units import text_of
from edgeperf.agent.decide.words import (
    best_words,
    difference_words,
    doubted,
    group_title,
    interval_text,
    left_out,
    margin_text,
    name_of,
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

_STYLE = """
body{font:16px/1.45 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;
padding:.3rem .8rem .3rem 0;border-bottom:1px solid #ccc}small{color:#666}
.passes,.met{color:#176b2c}.fails,.refused,.missed{color:#a4161a}.suspect{color:#8a5a00}
svg{max-width:40rem;width:100%;height:auto}
"""
_WIDTH, _HEIGHT, _EDGE = 640, 360, 60


def as_html(decision: Decision) -> bytes:
    """Return the report."""
    return "\n".join(_page(decision)).encode()


def _page(decision: Decision) -> Iterator[str]:
    title = escape(verdict_words(decision))
    yield f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
    yield f"<style>{_STYLE}</style><h1>{title}</h1>"
    asked = " · ".join(map(str, decision.limits)) or "nothing but a VALID verdict"
    yield f"<p>edgeperf {__version__}, from {decision.runs} results. Asked: {escape(asked)}</p>"
    difference = difference_words(decision)
    if difference is not None:
        yield f"<p><b>{escape(difference)}</b></p>"
    for group in decision.groups:
        yield from _group(group, decision.own_notes(group))
    yield from _small(decision.common_notes)
    yield from _list("Not counted", list(left_out(decision)))
    yield from _list("SUSPECT runs that were read", list(doubted(decision)))
    yield "</html>\n"


def _group(group: Group, notes: Sequence[str]) -> Iterator[str]:
    yield f"<h2>{escape(group_title(group))}</h2>"
    best = best_words(group)
    if best is not None:
        yield f"<p><b>{escape(best)}</b></p>"
    yield f"<p>{escape(rank_words(group))}</p>"
    titles = titles_of(group)
    heads = "".join(f"<th>{escape(title)}" for title in ["", "configuration", *titles, "outcome"])
    yield f"<table><tr>{heads}"
    for one in group.candidates:
        yield from _row(one, group)
    yield "</table>"
    yield from _picture(group)
    yield "<ul>" + "".join(f"<li>{escape(words)}" for words in pareto_words(group)) + "</ul>"
    yield from _small(notes)


def _small(notes: Sequence[str]) -> Iterator[str]:
    if notes:
        yield "<ul>" + "".join(f"<li><small>{escape(note)}</small>" for note in notes) + "</ul>"


def _row(candidate: Candidate, group: Group) -> Iterator[str]:
    judged = candidate.judged
    yield f"<tr><td>{candidate.number}<td>{escape(title_of(candidate))}"
    yield f"<br><small>{escape(where_of(candidate))}</small>"
    if judged.outcome is Outcome.REFUSED:
        yield from ["<td>-"] * len(titles_of(group))
    else:
        yield from map(_cell, judged.lines)
        for found, why in (reading_text(asked, judged) for asked in other_figures(group)):
            yield f"<td>{escape(found)}<br><small>{escape(why)}</small>"
    yield f'<td class="{judged.outcome.value}">{escape(outcome_text(judged))}'


def _cell(line: Line) -> str:
    asked, reading = line.limit.asked, line.reading
    word, mark = ("met", "✓") if line.met else ("missed", "✗")
    shown = f"{mark} {value_text(asked, reading)} {interval_text(asked, reading)}"
    return f'<td class="{word}">{escape(shown)}<br><small>{escape(margin_text(line))}</small>'


def _picture(group: Group) -> Iterator[str]:
    """Draw the first two figures of the Pareto set against each other."""
    points = [(one, *_values(one, group)) for one in group.candidates if one.place is not None]
    drawn = [(one, x, y) for one, x, y in points if x is not None and y is not None]
    if len(group.over) < 2 or len(drawn) < 2:  # noqa: PLR2004 - no plane, or no picture
        return
    across, up = group.over[:2]
    x_limits, y_limits = _limits(group, across), _limits(group, up)
    at_x = _Axis(across, [*x_limits, *(x for _, x, _ in drawn)], _EDGE, _WIDTH - _EDGE)
    at_y = _Axis(up, [*y_limits, *(y for _, _, y in drawn)], _HEIGHT - _EDGE, _EDGE / 2)
    yield f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" font-size="13">'
    yield f"<title>{escape(f'{across.name} and {up.name}')}</title>"
    yield f'<path d="M{_EDGE} {_EDGE / 2}V{_HEIGHT - _EDGE}H{_WIDTH - _EDGE}" fill="none" stroke="#888"/>'  # noqa: E501 - one element
    yield from at_x.labels(lambda at: f'x="{at:.0f}" y="{_HEIGHT - 40}" text-anchor="middle"')
    yield from at_y.labels(lambda at: f'x="{_EDGE - 6}" y="{at + 4:.0f}" text-anchor="end"')
    yield f'<text x="{_WIDTH / 2:.0f}" y="{_HEIGHT - 18}" text-anchor="middle">{escape(_axis(across))}</text>'  # noqa: E501
    yield f'<text x="8" y="16">{escape(_axis(up))}</text>'
    for place in map(at_x.at, x_limits):
        yield _dashed(f"M{place:.1f} {_EDGE / 2}V{_HEIGHT - _EDGE}")
    for place in map(at_y.at, y_limits):
        yield _dashed(f"M{_EDGE} {place:.1f}H{_WIDTH - _EDGE}")
    for one, x, y in drawn:
        front = one.place is not None and one.place.on_front
        colour = "#176b2c" if one.judged.outcome is Outcome.PASSES else "#a4161a"
        fill = colour if front else "none"
        centre = f'cx="{at_x.at(x):.1f}" cy="{at_y.at(y):.1f}"'
        yield f'<circle {centre} r="6" fill="{fill}" stroke="{colour}">'
        yield f"<title>{escape(name_of(one))}</title></circle>"
        yield f'<text x="{at_x.at(x) + 9:.1f}" y="{at_y.at(y) - 6:.1f}">{one.number}</text>'
    yield "</svg><p><small>Filled: the Pareto set. Green: passes. Dashed: asked.</small></p>"


def _values(candidate: Candidate, group: Group) -> tuple[float | None, float | None]:
    readings = [candidate.judged.readings.get(asked.name) for asked in group.over[:2]]
    x, y = ([None if one is None else one.value for one in readings] + [None, None])[:2]
    return x, y


def _limits(group: Group, asked: Asked) -> list[float]:
    lines = (line for one in group.candidates for line in one.judged.lines)
    return list(dict.fromkeys(line.limit.value for line in lines if line.limit.asked == asked))


def _dashed(path: str) -> str:
    return f'<path d="{path}" stroke="#8a5a00" stroke-dasharray="4 4" fill="none"/>'


def _axis(asked: Asked) -> str:
    return f"{asked.name}, {asked.better} is better"


class _Axis:
    """Maps a figure's values to places on the page."""

    def __init__(self, asked: Asked, values: Sequence[float], start: float, end: float) -> None:
        self._asked = asked
        self._low, self._high = min(values), max(values)
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        """Return the place of *value*; the middle where all are the same."""
        width = self._high - self._low
        share = (value - self._low) / width if width else 0.5
        return self._start + (0.05 + 0.9 * share) * (self._end - self._start)

    def labels(self, place: Callable[[float], str]) -> Iterator[str]:
        """Yield the text at the lowest and the highest value."""
        for value in dict.fromkeys((self._low, self._high)):
            text = escape(text_of(self._asked.kind, value))
            yield f"<text {place(self.at(value))}>{text}</text>"


def _list(title: str, rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    if rows:
        items = "".join(f"<li>{escape(name)}: {escape(why)}" for name, why in rows)
        yield f"<h2>{escape(title)}</h2><ul>{items}</ul>"
