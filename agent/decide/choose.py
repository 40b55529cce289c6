"""Making the decision: names understood, arenas judged, ranked and placed."""

from collections.abc import Sequence

import msgspec

from edgeperf.agent.decide.configurations import BETWEEN, Arena, arenas_of
from edgeperf.agent.decide.constraints import Limit, parse, require_possible, settle
from edgeperf.agent.decide.decision import Candidate, Decision, Group, Wish
from edgeperf.agent.decide.errors import DecideError
from edgeperf.agent.decide.figures import Figure, read
from edgeperf.agent.decide.judge import Judge, Judged, Outcome
from edgeperf.agent.decide.names import (
    COSTS,
    SERVING,
    Asked,
    Names,
    metric,
    resolve,
    serving,
)
from edgeperf.agent.decide.notes import notes_of
from edgeperf.agent.decide.pareto import pareto
from edgeperf.agent.decide.sources import Found, Run
from edgeperf.datasets.metrics.names import bare

_ORDER = (Outcome.PASSES, Outcome.SUSPECT, Outcome.FAILS, Outcome.REFUSED)
#: What MLPerf reports for a scenario, as a figure of ours.
_HEADLINE = {"Offline": "samples_per_second", "Server": "qps"}


def decide(found: Found, wish: Wish) -> Decision:
    """Decide.

    Raises:
        DecideError: A constraint or a figure's name cannot be understood, or two constraints
            contradict.
    """
    names = names_of(found.runs)
    settled = (
        settle(parsed, _resolved(parsed.name, names, wish, f"constraint {parsed.text!r}"))
        for parsed in map(parse, wish.constraints)
    )
    limits = tuple(dict.fromkeys(settled))
    require_possible(limits)
    prefer = None if wish.prefer is None else _directed(wish.prefer, names, wish, "--prefer")
    over = tuple(dict.fromkeys(_directed(name, names, wish, "--pareto") for name in wish.over))
    ranked = [limit.asked for limit in limits] + list(over) + ([prefer] if prefer else [])
    if wish.costs is not None and not any(bare(asked.name) in COSTS for asked in ranked):
        raise DecideError("--cost-miss: nothing asks for cost or least_cost")
    groups: list[Group] = []
    first = 1
    for arena in arenas_of(found.runs, wish.across):
        group = _group(arena, limits, wish, _Figures(prefer=prefer, over=over), first)
        groups.append(group)
        first += len(group.candidates)
    return Decision(
        wish=wish,
        limits=limits,
        groups=tuple(groups),
        unread=tuple(found.unread),
        runs=len(found.runs),
        twice=found.twice,
    )


def names_of(runs: Sequence[Run]) -> Names:
    """Return the names of all figures that the results have."""
    return Names(
        serving=tuple(name for name in SERVING if any(_states(run, serving(name)) for run in runs)),
        metrics=frozenset(name for run in runs for name in run.result.accuracy.metrics),
    )


def _states(run: Run, asked: Asked) -> bool:
    return isinstance(read(run.result, asked), Figure)


def _resolved(text: str, names: Names, wish: Wish, where: str) -> Asked:
    asked = resolve(text, names, where=where)
    if bare(asked.name) in COSTS and wish.costs is None and asked.name not in names.metrics:
        raise DecideError(f"{where}: {asked.name} needs --cost-miss and --cost-false-alarm")
    return asked


def _directed(text: str, names: Names, wish: Wish, option: str) -> Asked:
    asked = _resolved(text, names, wish, f"{option} {text}")
    if asked.better is None:
        raise DecideError(f"{option} {text}: describes the samples or a setting; none is better")
    return asked


class _Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures that the user named; None and empty where he named none."""

    prefer: Asked | None
    over: tuple[Asked, ...]


def _group(arena: Arena, limits: Sequence[Limit], wish: Wish, named: _Figures, first: int) -> Group:
    prefer, why = _preferred(arena, limits, named.prefer)
    over = named.over or _usual(arena, limits)
    judge = Judge(limits, (prefer, *over), costs=wish.costs, accept_suspect=wish.accept_suspect)
    judged = sorted(
        (judge.judge(configuration) for configuration in arena.configurations),
        key=lambda one: _order(one, prefer),
    )
    taking_part = [
        place for place, one in enumerate(judged) if _is_believed(one, wish.accept_suspect)
    ]
    places = dict(
        zip(taking_part, pareto([judged[at].readings for at in taking_part], over), strict=True)
    )
    candidates = []
    for at, one in enumerate(judged):
        place = places.get(at)
        by = () if place is None else place.dominated_by
        candidates.append(
            Candidate(
                number=first + at,
                judged=one,
                place=place,
                dominators=tuple(first + taking_part[other] for other in by),
                settings=_told_apart(one, judged),
            )
        )
    return Group(
        arena=arena,
        candidates=tuple(candidates),
        prefer=prefer,
        why_prefer=why,
        over=over,
        notes=(
            *(
                f"compared across {part}, at your word: {arena.what[part]}"
                for part in wish.across
                if BETWEEN in arena.what[part]
            ),
            *notes_of(arena, judged, limits, (prefer, *over), wish.costs),
        ),
    )


def _is_believed(judged: Judged, accept_suspect: bool) -> bool:  # noqa: FBT001 - the option
    if judged.outcome is Outcome.REFUSED:
        return False
    return accept_suspect or not judged.suspect


def _order(judged: Judged, prefer: Asked) -> tuple[int, int, bool, float]:
    reading = judged.readings.get(prefer.name)
    value = None if reading is None else reading.value
    signed = 0.0 if value is None else -value if prefer.better == "higher" else value
    failed = sum(not line.met for line in judged.lines)
    return (_ORDER.index(judged.outcome), failed, value is None, signed)


def _preferred(arena: Arena, limits: Sequence[Limit], named: Asked | None) -> tuple[Asked, str]:
    if named is not None:
        return named, "--prefer"
    for limit in limits:
        if not limit.asked.quality and limit.asked.better is not None and _has(arena, limit.asked):
            return limit.asked, "the first serving figure asked; --prefer names another"
    return _headline(arena), "the scenario's own; --prefer names another"


def _has(arena: Arena, asked: Asked) -> bool:
    return any(_states(run, asked) for one in arena.configurations for run in one.runs)


def _headline(arena: Arena) -> Asked:
    scenario = arena.what["scenario"].split()[0]
    return serving(_HEADLINE.get(scenario, "headline_latency"))


def _usual(arena: Arena, limits: Sequence[Limit]) -> tuple[Asked, ...]:
    """Return the figures of the constraints, and of quality and serving one at the least."""
    over = [limit.asked for limit in limits if limit.asked.better is not None]
    if not any(not asked.quality for asked in over):
        over.append(_headline(arena))
    results = [run.result for one in arena.configurations for run in one.runs]
    gates = [result.accuracy.metric for result in results if result.accuracy.measured]
    if gates and gates[0] is not None and not any(asked.quality for asked in over):
        over.append(metric(gates[0]))
    if not limits and any(result.power is not None for result in results):
        over.append(serving("j_per_sample"))
    return tuple(dict.fromkeys(over))


def _told_apart(one: Judged, others: Sequence[Judged]) -> tuple[str, ...]:
    """Return the settings in which *one* differs from its like, in words."""
    mine = one.configuration
    alike = [
        other.configuration.settings
        for other in others
        if other is not one
        and (other.configuration.model_sha256, other.configuration.board)
        == (mine.model_sha256, mine.board)
        and (other.configuration.backend, other.configuration.precision)
        == (mine.backend, mine.precision)
    ]
    named = [other.configuration for other in others if other.configuration.model == mine.model]
    digest = f"sha256 {mine.model_sha256[:8]}"
    several = any(other.model_sha256 != mine.model_sha256 for other in named)
    differing = (
        f"{name} {value or 'not set'}"
        for name, value in mine.settings.items()
        if any(settings.get(name) != value for settings in alike)
    )
    return ((digest,) if several else ()) + tuple(differing)
