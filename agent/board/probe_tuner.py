"""Probe of what a run could have held: governor, clock and fan, and of who would hold it."""

from collections.abc import Iterator

from edgeperf.agent.board.findings import Area, Board, Finding
from edgeperf.agent.tuner import Wish, problem_of
from edgeperf.agent.tuner.knobs import choose

_AREA = Area("tuner")
_EVERYTHING = Wish(governor="performance", clock_hz="max", fan="full")


def probe_tuner(board: Board) -> Iterator[Finding]:
    """Say which knobs there are and whether the service that turns them answers."""
    knobs, _ = choose(board.root, _EVERYTHING)
    if not knobs:
        yield _AREA.missing("knobs", "no governor, clock or fan that could be held")
        return
    where: dict[str, list[str]] = {}
    for knob in knobs:
        places = where.setdefault(knob.knob, [])
        places += [] if knob.where in places else [knob.where]
    told = "; ".join(f"{name} ({', '.join(places)})" for name, places in where.items())
    yield _AREA.ok("knobs", told)
    problem = problem_of(board.tuner)
    if problem:
        value, _, what_to_do = problem.partition("; ")
        yield _AREA.missing("service", value, what_to_do)
    else:
        yield _AREA.ok("service", "holds them for a run with --governor, --clock, --fan")
