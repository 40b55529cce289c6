"""What must be known before figures of one arena are laid side by side."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from edgeperf.agent.decide.configurations import Arena
from edgeperf.agent.decide.constraints import Limit
from edgeperf.agent.decide.judge import Judged
from edgeperf.agent.decide.names import COSTS, RIGHT, Asked
from edgeperf.agent.decide.units import Kind
from edgeperf.agent.decide.words import plain
from edgeperf.agent.result import Result
from edgeperf.datasets.metrics.names import bare

if TYPE_CHECKING:
    from edgeperf.datasets.metrics.ranking import Costs

#: A class this frequent makes the share of right answers a matter of always naming it.
_MAJORITY = 0.9
_LASTS = {"smoke": "seconds", "fast": "a minute"}


def notes_of(
    arena: Arena,
    judged: Sequence[Judged],
    limits: Sequence[Limit],
    others: Sequence[Asked],
    costs: "Costs | None",
) -> Iterator[str]:
    """Yield one sentence for each thing to know.

    Args:
        arena: What is common.
        judged: Its configurations.
        limits: What was asked of them.
        others: Further figures that rank or place them.
        costs: What the user said that wrong answers cost.
    """
    results = [run.result for one in judged for run in one.read]
    asked = [*(limit.asked for limit in limits), *others]
    yield from _length(results)
    yield from _energy(results, asked)
    yield from _rates(arena, asked)
    yield from _backwards(limits)
    yield from _quality(judged, limits)
    yield from _imbalance(results, limits)
    yield from _again(judged)
    yield from _unread(judged)
    yield from _spread(judged, limits)
    if costs is None and any(bare(one.name) in COSTS for one in asked):
        yield "cost is at the costs that each result's own task names; --cost-miss sets one for all"
    versions = sorted({result.edgeperf for result in results})
    if len(versions) > 1:
        yield f"measured by different versions of edgeperf: {', '.join(versions)}"


def _length(results: Sequence[Result]) -> Iterator[str]:
    for preset, time in _LASTS.items():
        if any(result.spec.get("preset") == preset for result in results):
            yield f"runs of preset {preset} last {time}: confirm the choice with --preset valid"


def _energy(results: Sequence[Result], asked: Sequence[Asked]) -> Iterator[str]:
    uses = [one for one in asked if one.kind in (Kind.ENERGY, Kind.POWER) or "joule" in one.name]
    powers = [result.power for result in results if result.power is not None]
    boundaries = Counter(str(power.get("boundary")) for power in powers)
    if not uses or not boundaries:
        return
    if len(boundaries) == 1:
        yield f"joules and watts are those at the {next(iter(boundaries))}"
        return
    several = ", ".join(f"{name} ({count} runs)" for name, count in sorted(boundaries.items()))
    yield f"joules do not compare: meters sit at different boundaries: {several}"


def _rates(arena: Arena, asked: Sequence[Asked]) -> Iterator[str]:
    if "Server" in arena.what["scenario"] and any(one.kind is Kind.TIME for one in asked):
        yield "Server: each latency is at that run's own rate; lay qps beside it"


def _backwards(limits: Sequence[Limit]) -> Iterator[str]:
    """Say that a constraint keeps what is worse, as one that was turned round by mistake does."""
    for limit in limits:
        if limit.asked.better == ("higher" if limit.op.is_ceiling else "lower"):
            asked = limit.asked
            yield f"{limit} asks for the worse: of {asked.name} {asked.better} is better"


def _quality(judged: Sequence[Judged], limits: Sequence[Limit]) -> Iterator[str]:
    if any(limit.asked.quality for limit in limits):
        return
    unmeasured = sum(
        not any(run.result.accuracy.measured for run in one.read) for one in judged if one.read
    )
    text = "nothing asked of quality"
    if unmeasured:
        those = "1 configuration" if unmeasured == 1 else f"{unmeasured} configurations"
        yield f"{text}, and accuracy of {those} was not measured at all"
    elif limits:
        yield f"{text}: only each run's own gate stands for it"


def _imbalance(results: Sequence[Result], limits: Sequence[Limit]) -> Iterator[str]:
    """Say aloud that a share of right answers says little where one answer is mostly right."""
    asked = [limit.asked.name for limit in limits if limit.asked.name in RIGHT]
    counts = [{one.name: one.samples for one in result.accuracy.classes} for result in results]
    classes = next((count for count in counts if any(count.values())), {})
    if not asked or not classes:
        return
    commonest = max(classes, key=lambda name: classes[name])
    share = classes[commonest] / sum(classes.values())
    if share >= _MAJORITY:
        yield (
            f"{asked[0]} decides little on these samples: always answering {commonest!r} has"
            f" {share:.4f}; ask for pr_auc, balanced_accuracy or recall@precision=0.9"
        )


def _again(judged: Sequence[Judged]) -> Iterator[str]:
    found = {line.limit.asked.name for one in judged for line in one.lines if line.reading.again}
    found |= {name for one in judged for name, reading in one.readings.items() if reading.again}
    if found:
        yield (
            f"{', '.join(sorted(found))}: scored again from the kept predictions; a threshold"
            " chosen on these samples flatters itself on them"
        )


def _unread(judged: Sequence[Judged]) -> Iterator[str]:
    """Say that raw times, which a result lists, could not be read: nothing vouches for it."""
    for one in judged:
        readings = [*(line.reading for line in one.lines), *one.readings.values()]
        why = next((reading.no_interval for reading in readings if reading.no_interval), "")
        if why:
            text = f"{one.configuration.model}: latencies are neither checked nor have an interval"
            yield plain(f"{text}: {why}")


def _spread(judged: Sequence[Judged], limits: Sequence[Limit]) -> Iterator[str]:
    if not any(not limit.asked.quality for limit in limits):
        return
    if any(len(one.read) == 1 for one in judged):
        yield (
            "one run of a configuration does not tell how much serving figures differ from run to"
            " run: repeat those that matter"
        )
