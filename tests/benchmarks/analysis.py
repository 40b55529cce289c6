"""From measurements to ratios: medians over rounds, with bootstrap intervals.

A ratio is taken round by round, each contestant against the bare loop of the same round,
so that what a machine does between rounds cancels.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import attrgetter

import msgspec
import numpy as np
from benchmarks.drive import SAMPLES_PER_QUERY
from benchmarks.rounds import BARE
from benchmarks.rows import Facts, Record, Row

_RESAMPLES = 2000
_CONFIDENCE = (2.5, 97.5)
LATENCIES = ("p50_ns", "p90_ns", "p99_ns")


class Estimate(msgspec.Struct, frozen=True):
    """A median over rounds and its 95 % interval."""

    value: float
    low: float
    high: float


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One contestant in one scenario on one target.

    Attributes:
        target: What was measured.
        scenario: MLPerf's name; ``Server`` holds queries per second at the bound.
        contestant: Who.
        figures: Medians over rounds: ``p50_ns``, ``sps``, ``cpu_ns``, ``memory_bytes``, ...
        ratios: Against the bare loops: SingleStream latency and rate against the loop's;
            MultiStream against the ideal share of eight inferences per core; Offline and
            Server samples per second against all loops together.
        added_p90_ns: SingleStream: what is added to the bare loop's 90th percentile.
    """

    target: str
    scenario: str
    contestant: str
    figures: dict[str, float]
    ratios: dict[str, Estimate]
    added_p90_ns: Estimate | None = None


def estimate(values: Sequence[float], seed: int = 1) -> Estimate:
    """Return the median of *values* and its bootstrap interval."""
    found = np.asarray(values, dtype=float)
    picks = np.random.default_rng(seed).integers(0, found.size, (_RESAMPLES, found.size))
    low, high = np.percentile(np.median(found[picks], axis=1), _CONFIDENCE)
    return Estimate(float(np.median(found)), float(low), float(high))


def lines(record: Record) -> list[Line]:
    """Return a line per target, scenario and contestant."""
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in record.rows:
        groups[row.target, row.scenario, row.contestant].append(row)
    found = []
    for (target, scenario, _), rows in groups.items():
        facts = record.facts[target]
        if scenario == "Server":
            found.append(_server(rows, facts))
            continue
        bare = {row.round: row for row in groups[target, scenario, BARE]}
        found.append(_line(rows, [bare[row.round] for row in rows], facts))
    return found


def _line(rows: Sequence[Row], bare: Sequence[Row], facts: Facts) -> Line:
    first = rows[0]
    names = (*LATENCIES, "sps")
    figures = {name: _median([getattr(row.figures, name) for row in rows]) for name in names}
    figures |= _costs(rows)
    ratios = {"cpu": _ratio(rows, bare, attrgetter("cpu_ns"))}
    added = None
    if first.scenario != "MultiStream":
        ratios["sps"] = _ratio(rows, bare, attrgetter("figures.sps"))
    if first.scenario == "MultiStream":
        share = SAMPLES_PER_QUERY / facts.cores
        ideal_ns = [share * loop.figures.p50_ns for loop in bare]
        for name in LATENCIES:
            found_ns = [float(getattr(row.figures, name)) for row in rows]
            ratios[name] = estimate([a / b for a, b in zip(found_ns, ideal_ns, strict=True)])
    elif first.scenario == "SingleStream":
        for name in LATENCIES:
            if figures[name]:
                ratios[name] = _ratio(rows, bare, attrgetter(f"figures.{name}"))
        pairs = [(row, loop) for row, loop in zip(rows, bare, strict=True) if row.figures.p90_ns]
        if pairs:
            added = estimate([row.figures.p90_ns - loop.figures.p90_ns for row, loop in pairs])
    return Line(
        target=first.target,
        scenario=first.scenario,
        contestant=first.contestant,
        figures=figures,
        ratios=ratios,
        added_p90_ns=added,
    )


def _costs(rows: Sequence[Row]) -> dict[str, float]:
    names = ("cpu_ns", "memory_bytes", "foreign_share")
    return {name: _median([getattr(row, name) for row in rows]) for name in names}


def _ratio(rows: Sequence[Row], bare: Sequence[Row], of: Callable[[Row], float]) -> Estimate:
    pairs = [(of(row), of(loop)) for row, loop in zip(rows, bare, strict=True)]
    return estimate([mine / theirs for mine, theirs in pairs if mine and theirs] or [math.nan])


def _median(values: Sequence[float]) -> float:
    known = [value for value in values if value]
    return float(np.median(known)) if known else 0.0


def _server(rows: Sequence[Row], facts: Facts) -> Line:
    """Return the rate at which the bound is just kept, each round's by interpolation."""
    first = rows[0]
    capacity = facts.cores * 1e9 / facts.bare_ns
    rounds: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        rounds[row.round].append(row)
    rates = [_rate_at_bound(each, facts) for each in rounds.values()]
    figures = {"sps": _median(rates), **_costs(rows)}
    return Line(
        target=first.target,
        scenario="Server",
        contestant=first.contestant,
        figures=figures,
        ratios={"sps": estimate([rate / capacity for rate in rates])},
    )


def _rate_at_bound(rows: Sequence[Row], facts: Facts) -> float:
    """Return the highest rate that keeps the bound; the highest offered if all do."""
    kept_qps, kept_ns = 0.0, facts.bare_ns
    for row in sorted(rows, key=lambda row: row.offered_qps):
        if row.figures.p99_ns > facts.bound_ns:
            span = math.log(row.figures.p99_ns / kept_ns)
            share = math.log(facts.bound_ns / kept_ns) / span if span > 0 else 0.0
            return kept_qps + share * (row.offered_qps - kept_qps)
        kept_qps, kept_ns = row.offered_qps, row.figures.p99_ns
    return kept_qps
