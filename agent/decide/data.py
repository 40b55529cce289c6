"""A decision as plain data: JSON for programs, CSV with one row per configuration and line."""

import csv
import io
from collections.abc import Iterator
from typing import Any

import msgspec

from edgeperf import __version__
from edgeperf.agent.decide.decision import Candidate, Decision, Group
from edgeperf.agent.decide.judge import Line, Outcome, Reading
from edgeperf.agent.decide.names import Asked
from edgeperf.agent.decide.words import difference_words, margin_text, reason_of

FORMAT_VERSION = 1
#: What a spreadsheet would take for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_COLUMNS = (
    *("number", "task", "samples", "scenario", "length", "model", "model_sha256", "backend"),
    *(
        "precision",
        "board",
        "settings",
        "results",
        "outcome",
        "suspect",
        "on_front",
        "dominated_by",
    ),
    *("figure", "op", "limit", "unit", "value", "low", "high", "met", "within_noise", "by"),
    *("by_relative", "why"),
)


def as_data(decision: Decision) -> dict[str, Any]:
    """Return the decision as JSON has it; values are in the unit beside them."""
    wish = decision.wish
    return {
        "format_version": FORMAT_VERSION,
        "edgeperf": __version__,
        "asked": [_limit(limit.asked, limit.op.value, limit.value) for limit in decision.limits],
        "costs": None if wish.costs is None else msgspec.to_builtins(wish.costs),
        "accept_suspect": wish.accept_suspect,
        "across": list(wish.across),
        "counts": {outcome.value: decision.count(outcome) for outcome in Outcome},
        "results": decision.runs,
        "named_twice": decision.twice,
        "difference": difference_words(decision),
        "groups": [_group(group) for group in decision.groups],
        "unread": [{"name": one.name, "why": one.why} for one in decision.unread],
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        **group.arena.what,
        "prefer": group.prefer.name,
        "why_prefer": group.why_prefer,
        "pareto_over": [asked.name for asked in group.over],
        "pareto_set": [
            one.number for one in group.candidates if one.place is not None and one.place.on_front
        ],
        "notes": list(group.notes),
        "configurations": [_candidate(one, group) for one in group.candidates],
    }


def _candidate(candidate: Candidate, group: Group) -> dict[str, Any]:
    judged, place = candidate.judged, candidate.place
    one = judged.configuration
    others = {asked.name: asked for asked in (group.prefer, *group.over)}
    return {
        "number": candidate.number,
        "model": one.model,
        "model_sha256": one.model_sha256,
        "backend": one.backend,
        "precision": one.precision,
        "board": one.board,
        "settings": one.settings,
        "told_apart_by": list(candidate.settings),
        "outcome": judged.outcome.value,
        "suspect": judged.suspect,
        "runs": [
            {
                "id": run.result.id,
                "where": run.where,
                "status": run.result.verdict.status.value,
                "comparable": run.result.verdict.comparable,
            }
            for run in judged.read
        ],
        "left_out": [
            {"id": run.result.id, "where": run.where, "why": reason_of(run)}
            for run in judged.left_out
        ],
        "lines": [_line(line) for line in judged.lines],
        "figures": {
            name: {"unit": others[name].kind.value, **_reading(reading)}
            for name, reading in judged.readings.items()
        },
        "on_front": None if place is None else place.on_front,
        "dominated_by": list(candidate.dominators),
        "dominated_within_noise": place is not None and place.within_noise,
    }


def _limit(asked: Asked, op: str, value: float) -> dict[str, Any]:
    return {"figure": asked.name, "op": op, "limit": value, "unit": asked.kind.value}


def _line(line: Line) -> dict[str, Any]:
    return {
        **_limit(line.limit.asked, line.limit.op.value, line.limit.value),
        **_reading(line.reading),
        "met": line.met,
        "within_noise": line.within_noise,
        "by": line.by,
        "by_relative": line.by_relative,
        "words": margin_text(line),
    }


def _reading(reading: Reading) -> dict[str, Any]:
    return {
        "value": reading.value,
        "low": reading.low,
        "high": reading.high,
        "runs": reading.runs,
        "why": reading.why_not or None,
        "scored_again": reading.again,
    }


def as_json(decision: Decision) -> bytes:
    """Return the decision as JSON, indented, ending in a newline."""
    return msgspec.json.format(msgspec.json.encode(as_data(decision)), indent=2) + b"\n"


def as_csv(decision: Decision) -> bytes:
    """Return one row per configuration and constraint; one without figures where none is."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for row in _rows(as_data(decision)):
        writer.writerow({name: _harmless(row.get(name)) for name in _COLUMNS})
    return text.getvalue().encode()


def _rows(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for group in data["groups"]:
        for one in group["configurations"]:
            common = {
                **group,
                **one,
                "settings": ", ".join(one["told_apart_by"]),
                "results": " ".join(run["id"] for run in one["runs"]),
                "dominated_by": " ".join(map(str, one["dominated_by"])),
            }
            why = "; ".join(run["why"] for run in one["left_out"])
            for line in one["lines"] or [{"why": why}]:
                yield {**common, **line}
    for one in data["unread"]:
        yield {"model": one["name"], "outcome": "unread", "why": one["why"]}


def _harmless(value: object) -> object:
    """Keep a spreadsheet from computing what a board wrote."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
