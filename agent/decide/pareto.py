"""The Pareto set: configurations that no other beats or equals in every figure."""

from collections.abc import Sequence

import msgspec

from edgeperf.agent.decide.judge import Reading
from edgeperf.agent.decide.names import Asked


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a configuration stands.

    Attributes:
        on_front: Whether nothing dominates it; None where a figure is missing.
        dominated_by: Places, in the sequence, of those that dominate it.
        within_noise: Whether no dominator is clear of it in any figure in which it is better.
        missing: Figures that were not measured.
    """

    on_front: bool | None
    dominated_by: tuple[int, ...] = ()
    within_noise: bool = False
    missing: tuple[str, ...] = ()


def pareto(rows: Sequence[dict[str, Reading]], over: Sequence[Asked]) -> list[Place]:
    """Place each row among all; one dominates another that is no worse anywhere and better once.

    Args:
        rows: The figures of each configuration, medians and intervals.
        over: Which figures count; each has a direction.
    """
    places = []
    for row in rows:
        missing = tuple(asked.name for asked in over if _value(row, asked) is None)
        if missing or not over:
            places.append(Place(on_front=None, missing=missing))
            continue
        better = [place for place, other in enumerate(rows) if _dominates(other, row, over)]
        noise = bool(better) and not any(_clearly(rows[place], row, over) for place in better)
        places.append(Place(on_front=not better, dominated_by=tuple(better), within_noise=noise))
    return places


def _value(row: dict[str, Reading], asked: Asked) -> float | None:
    """Return the figure so that lower is better."""
    value = row[asked.name].value
    return -value if value is not None and asked.better == "higher" else value


def _dominates(one: dict[str, Reading], other: dict[str, Reading], over: Sequence[Asked]) -> bool:
    strictly = False
    for asked in over:
        mine, theirs = _value(one, asked), _value(other, asked)
        if mine is None or theirs is None or mine > theirs:
            return False
        strictly = strictly or mine < theirs
    return strictly


def _clearly(one: dict[str, Reading], other: dict[str, Reading], over: Sequence[Asked]) -> bool:
    """Say whether *one* is better than *other* in a figure by more than their intervals."""
    return any(_apart(one[asked.name], other[asked.name], asked) for asked in over)


def _apart(one: Reading, other: Reading, asked: Asked) -> bool:
    better, worse = (other, one) if asked.better == "higher" else (one, other)
    if better.value is None or worse.value is None:
        return False
    high = better.value if better.high is None else better.high
    low = worse.value if worse.low is None else worse.low
    return high < low
