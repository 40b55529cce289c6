"""What edgeperf wants to reach, and whether a run of the benchmark shows it.

Nothing here fails a build: a number from a busy machine proves nothing. A goal is met
when the median keeps the limit; the interval says how sure that is.
"""

from collections.abc import Iterator

import msgspec
from benchmarks.analysis import Estimate, Line, estimate
from benchmarks.arena import EDGEPERF, PEERS
from benchmarks.rounds import APP
from benchmarks.rows import Facts, Record

US, MS = 1e3, 1e6
#: SingleStream may add this to the bare loop's 90th percentile: a share, or nanoseconds.
ADDED_SHARE, ADDED_NS = 1.01, 5 * US
_QUICK_NS = 250 * US
_MILLIS = 1 * MS
MB = 1e6
#: What a process may take beyond runtime and inputs.
_LIMITS_MB = {"worker": 60.0, "supervisor, its share": 40.0}


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """One goal on one target.

    Attributes:
        target: What was measured.
        text: What is compared.
        ratio: What came out.
        limit: At most this, or at least where ``least``.
        least: Whether the limit is a lower one.
        met: Whether the median keeps it.
        note: What else a reader must know.
    """

    target: str
    text: str
    ratio: Estimate
    limit: float
    least: bool = False
    met: bool
    note: str = ""


def goals(record: Record, lines: list[Line]) -> list[Goal]:
    """Return every goal that the measured targets allow to judge."""
    table = {(line.target, line.scenario, line.contestant): line for line in lines}
    found: list[Goal] = []
    for target, facts in record.facts.items():
        own = {key[1:]: line for key, line in table.items() if key[0] == target}
        for scenario, part in _PARTS.items():
            if (scenario, EDGEPERF) in own:
                found += part(target, facts, own)
    return [*found, *_memory(record)]


def _memory(record: Record) -> Iterator[Goal]:
    for process, limit_mb in _LIMITS_MB.items():
        for name, size in record.memory.items():
            if name.startswith(process):
                found = Estimate(size / MB, size / MB, size / MB)
                yield _most("memory, MB", name, found, limit_mb)


Lines = dict[tuple[str, str], Line]


def _most(target: str, text: str, ratio: Estimate, limit: float, note: str = "") -> Goal:
    met = ratio.value <= limit
    return Goal(target=target, text=text, ratio=ratio, limit=limit, met=met, note=note)


def _least(target: str, text: str, ratio: Estimate, limit: float) -> Goal:
    met = ratio.value >= limit
    return Goal(target=target, text=text, ratio=ratio, limit=limit, least=True, met=met)


def _over(mine: Line, theirs: Line, name: str) -> Estimate:
    """Return one line's ratio to bare over another's, with the wider of their intervals."""
    own, other = mine.ratios[name], theirs.ratios[name]
    return Estimate(own.value / other.value, own.low / other.high, own.high / other.low)


def _single(target: str, facts: Facts, own: Lines) -> Iterator[Goal]:
    mine = own["SingleStream", EDGEPERF]
    added = mine.added_p90_ns or estimate([0.0])
    goal = _most(
        target,
        "SingleStream p90 / bare loop",
        mine.ratios["p90_ns"],
        ADDED_SHARE,
        f"added {added.value / US:+.1f} µs [{added.low / US:+.1f}, {added.high / US:+.1f}]",
    )
    yield msgspec.structs.replace(goal, met=goal.met or added.value <= ADDED_NS)
    if app := own.get(("SingleStream", APP)):
        ratio = _over(mine, app, "p50_ns")
        note = "its clock is inside the C++ call, which ours contains"
        yield _most(target, "SingleStream p50 / benchmark_app, latency hint", ratio, 1.0, note)
        text = "SingleStream samples/s / benchmark_app, latency hint"
        yield _least(target, text, _over(mine, app, "sps"), 1.0)
    if facts.bare_ns < _QUICK_NS:
        ratio = _over(mine, own["SingleStream", "reference"], "p90_ns")
        yield _most(target, "SingleStream p90 / reference style", ratio, 1.0)


def _multi(target: str, facts: Facts, own: Lines) -> Iterator[Goal]:
    mine = own["MultiStream", EDGEPERF]
    slow = facts.bare_ns >= _MILLIS
    ideal = "MultiStream {} / ideal of 8 samples"
    if slow or facts.bare_ns >= 0.15 * MS:
        limit = 1.03 if slow else 1.06
        yield _most(target, ideal.format("p50"), mine.ratios["p50_ns"], limit)
    if slow:
        yield _most(target, ideal.format("p99"), mine.ratios["p99_ns"], 1.15)
    best = min(
        (own["MultiStream", peer] for peer in PEERS), key=lambda line: line.ratios["p50_ns"].value
    )
    text = f"MultiStream p50 / best peer ({best.contestant})"
    yield _most(target, text, _over(mine, best, "p50_ns"), 1.0)


def _offline(target: str, facts: Facts, own: Lines) -> Iterator[Goal]:
    mine = own["Offline", EDGEPERF]
    if facts.bare_ns > 50 * US:
        yield _least(target, "Offline samples/s / bare loops", mine.ratios["sps"], 0.985)
    if app := own.get(("Offline", APP)):
        text = "Offline samples/s / benchmark_app, throughput hint"
        yield _least(target, text, _over(mine, app, "sps"), 1.0)
    if facts.bare_ns < 200 * US:
        ratio = _over(mine, own["Offline", "pipe"], "sps")
        yield _least(target, "Offline samples/s / pipe", ratio, 1.5)


def _server(target: str, facts: Facts, own: Lines) -> Iterator[Goal]:
    mine = own["Server", EDGEPERF]
    best = max((own["Server", peer] for peer in PEERS), key=lambda line: line.ratios["sps"].value)
    text = f"Server rate at p99 ≤ {facts.bound_ns / MS:g} ms / best peer ({best.contestant})"
    yield _least(target, text, _over(mine, best, "sps"), 1.0)


_PARTS = {"SingleStream": _single, "MultiStream": _multi, "Offline": _offline, "Server": _server}
