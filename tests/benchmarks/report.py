"""The tables that a run of the benchmark prints, as Markdown."""

from collections.abc import Iterator, Sequence

from benchmarks.analysis import Estimate, Line
from benchmarks.goals import Goal
from benchmarks.growth import ALL, START
from benchmarks.rows import Record

_SCENARIOS = ("SingleStream", "MultiStream", "Offline", "Server")
_COLUMNS = ("p50", "p90", "p99", "per second", "CPU/sample", "memory")
_ORDER = ("bare", "plain", "edgeperf", "reference", "queue", "pipe", "benchmark_app")


def report(record: Record, lines: Sequence[Line], goals: Sequence[Goal]) -> str:
    """Return the whole report."""
    parts = [*_machine(record), *_goals(goals), *_memory(record), *_growth(record)]
    for target in record.facts:
        parts += ["", *_target(record, target, [line for line in lines if line.target == target])]
    return "\n".join(parts) + "\n"


def _machine(record: Record) -> Iterator[str]:
    for name, value in record.machine.items():
        yield f"- {name}: {value}"
    shares = sorted(row.foreign_share for row in record.rows)
    if shares:
        middle, most = shares[len(shares) // 2], shares[int(0.9 * (len(shares) - 1))]
        yield (
            f"- other work on these cores during a measurement: {middle:.1%} in the median,"
            f" {most:.1%} at the 90th percentile"
        )


def _goals(goals: Sequence[Goal]) -> Iterator[str]:
    if not goals:
        return
    yield from ("", "| target | compared | ratio [95 %] | limit | |", "|---|---|---|---|---|")
    for goal in goals:
        sign = "≥" if goal.least else "≤"
        met = "yes" if goal.met else "**no**"
        note = f" ({goal.note})" if goal.note else ""
        ratio = _estimate(goal.ratio)
        yield f"| {goal.target} | {goal.text} | {ratio}{note} | {sign} {goal.limit:g} | {met} |"


def _target(record: Record, target: str, lines: Sequence[Line]) -> Iterator[str]:
    facts = record.facts[target]
    yield (
        f"### {target}: {facts.bare_ns / 1e3:.1f} µs on {facts.runtime}, {facts.precision},"
        f" input copy {facts.input_copy}"
    )
    yield ""
    yield f"| scenario | harness | {' | '.join(_COLUMNS)} | ratio [95 %] |"
    yield f"|---|---|{'--:|' * len(_COLUMNS)}---|"
    for scenario in _SCENARIOS:
        own = [line for line in lines if line.scenario == scenario]
        for line in sorted(own, key=lambda line: _ORDER.index(line.contestant)):
            yield _row(line)


def _row(line: Line) -> str:
    figures = line.figures
    latencies = ("p50_ns", "p90_ns", "p99_ns")
    timed = line.scenario in ("SingleStream", "MultiStream")
    cells = [_us(figures.get(name, 0.0)) if timed else "" for name in latencies]
    rate = f"{figures['sps']:,.0f}"
    ratios = ", ".join(
        f"{name.removesuffix('_ns')} {_estimate(ratio)}"
        for name, ratio in line.ratios.items()
        if name != "cpu" and ratio.value == ratio.value
    )
    # In SingleStream most processes of a harness only wait.
    size = figures["memory_bytes"] if line.scenario != "SingleStream" else 0
    cells += [rate, _us(figures["cpu_ns"]), f"{size / 1e6:.0f} MB" if size else "", ratios]
    return f"| {line.scenario} | {line.contestant} | {' | '.join(cells)} |"


def _memory(record: Record) -> Iterator[str]:
    if record.memory:
        yield from ("", "### Memory of the harness itself", "", "| process | MB |", "|---|--:|")
        for name, size in record.memory.items():
            yield f"| {name} | {size / 1e6:.1f} |"


def _growth(record: Record) -> Iterator[str]:
    if record.growth:
        yield from ("", "### As work grows", "")
        names = list(record.growth[0])
        yield "| " + " | ".join(names) + " |"
        yield "|" + "---|" * len(names)
        for row in record.growth:
            yield "| " + " | ".join(str(row[name]) for name in names) + " |"
        yield from ("", *_slopes(record))


def _slopes(record: Record) -> Iterator[str]:
    """Say what each further query, sample or worker takes, from the least to the most."""
    kinds = dict.fromkeys(row["grows"] for row in record.growth)
    for kind in kinds:
        rows = [row for row in record.growth if row["grows"] == kind]
        least, most = rows[0], rows[-1]
        if (more := most["to"] - least["to"]) > 0:
            memory, start = ((most[name] - least[name]) / more for name in (ALL, START))
            yield f"- {kind}, each: {memory * 1e6:,.0f} bytes, {start * 1e6:,.1f} µs to start"


def _estimate(found: Estimate) -> str:
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


def _us(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e3:,.1f} µs" if nanoseconds else ""
