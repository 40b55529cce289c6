"""A result on a terminal: the verdict and its reasons first, then the figures."""

from pathlib import Path

from rich.table import Table
from rich.text import Text

from edgeperf.agent.cli.console import stdout_console
from edgeperf.agent.cli.power_rows import power_rows
from edgeperf.agent.result import Percentiles, Performance, Result, Severity, Status

_COLOUR = {Status.VALID: "bold green", Status.SUSPECT: "bold yellow", Status.INVALID: "bold red"}
_SIGN = {Severity.INVALID: "✗", Severity.SUSPECT: "!", Severity.NOTE: "·"}
#: Too many to print; ``result.json`` has them.
_PER_CLASS = ("recall[", "precision[", "f1[")
_HEADLINES = {
    "latency_p90_early_stopping": ("latency p90", "early-stopping estimate"),
    "query_latency_p99_early_stopping": ("query p99", "early-stopping estimate"),
    "samples_per_second": ("throughput", "LoadGen's, with handing over its list of samples"),
    "scheduled_queries_per_second": ("rate", ""),
}


def print_summary(result: Result, directory: Path) -> None:
    """Print *result* on standard output."""
    console = stdout_console()
    verdict = result.verdict
    console.print(Text(verdict.status.value, style=_COLOUR[verdict.status]), end="")
    comparable = "" if verdict.comparable else "  (not comparable)"
    console.print(f"  {result.id}{comparable}")
    for reason in verdict.reasons:
        console.print(f"  {_SIGN[reason.severity]} {reason.text}", markup=False)
    console.print()
    console.print(_table(result))
    console.print(f"\nresult: {directory}", markup=False)


def _table(result: Result) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    rows = [*_what(result), *_accuracy(result), *_performance(result), *power_rows(result.power)]
    for name, value in rows:
        table.add_row(name, Text(value))
    return table


def _what(result: Result) -> list[tuple[str, str]]:
    model, sut = result.model, result.sut
    rows = [("model", f"{model.name} ({model.file}, sha256 {model.sha256[:12]})")]
    if sut is None:
        return rows
    delegates = ", ".join(sut.delegates)
    rows.append(
        (
            "runtime",
            f"{sut.runtime} {sut.version} on {sut.device}, {sut.precision}"
            + (f", {delegates}" if delegates else ""),
        )
    )
    cores = " | ".join(
        f"{worker.role} on {','.join(map(str, worker.cores))}" for worker in sut.workers
    )
    if sut.workers:
        rows.append(("processes", f"{cores}; {counted(sut.threads_per_worker, 'thread')} each"))
        # Workers mostly fare alike, so each way is told once.
        fared = dict.fromkeys(
            f"{worker.scheduling}, memory {'locked' if worker.memory_locked else 'not locked'}"
            for worker in sut.workers
        )
        rows.append(("priority", " | ".join(fared)))
    rows.append(("timed", f"{', '.join(sut.timed)} (input copy: {sut.input_copy})"))
    rows += [("note", note) for note in sut.notes]
    if (repeat := result.repeat) is not None:
        lost = sorted({one.name for one in repeat.differs if one.matters})
        held = f"not held: {', '.join(lost)}" if lost else "held"
        rows.append(("frozen spec", f"{repeat.digest[:19]} of {repeat.origin}: {held}"))
    return rows


def _accuracy(result: Result) -> list[tuple[str, str]]:
    accuracy = result.accuracy
    if not accuracy.measured or accuracy.value is None:
        return [("accuracy", f"not measured: {accuracy.why_not}")]
    low, high = accuracy.intervals.get(accuracy.metric or "", (None, None))
    text = f"{accuracy.metric} {accuracy.value:.4f}"
    if low is not None:
        text += f" [{low:.4f}, {high:.4f}]"
    text += f" over {accuracy.samples} samples"
    if accuracy.threshold is not None:
        word = "passes" if accuracy.passed else "misses"
        share = "" if accuracy.gate is None else f" = {accuracy.gate:.1%} of FP32"
        text += f"; {word} {accuracy.threshold:.4f}{share}"
    others = ", ".join(
        f"{name} {value:.4f}"
        for name, value in accuracy.metrics.items()
        if name != accuracy.metric and not name.startswith(_PER_CLASS)
    )
    return [("accuracy", text), *([("", others)] if others else [])]


def _performance(result: Result) -> list[tuple[str, str]]:
    performance = result.performance
    if performance is None:
        return [("performance", "withheld: see the verdict")]
    rows = []
    head = performance.headline
    if head is not None:
        label, remark = _HEADLINES.get(head.name, (head.name, ""))
        value = time_text(head.value) if head.unit == "ns" else f"{head.value:,.1f} {head.unit}"
        remarks = [remark] if remark else []
        if performance.target_latency_ns is not None and performance.loadgen is not None:
            kept = "kept" if performance.loadgen.valid else "NOT kept"
            remarks.append(f"bound of {time_text(performance.target_latency_ns)} at p99 {kept}")
        if result.accuracy.passed is False:
            remarks.append("UNGATED: accuracy missed")
        rows.append((label, f"{value} ({'; '.join(remarks)})" if remarks else value))
    if performance.latency_ns is not None:
        rows.append(("raw latency", _percentiles(performance.latency_ns)))
    rows.append(("load", _load(performance)))
    watch = performance.stopwatch
    if watch is not None:
        word = "agrees" if watch.agrees else "DISAGREES"
        within = time_text(watch.worst_difference_ns)
        rows.append(("second stopwatch", f"{word}, within {within} at p50, p90, p99"))
    return rows


def _percentiles(latency: Percentiles) -> str:
    names = ("p50", "p90", "p99", "p99_9", "max")
    return ", ".join(
        f"{name.replace('_', '.')} {time_text(float(getattr(latency, name)))}" for name in names
    )


def _load(performance: Performance) -> str:
    queries = "1 query" if performance.queries == 1 else f"{performance.queries:,} queries"
    text = (
        f"{queries}, {performance.samples:,} samples in"
        f" {performance.duration_ns / 1e9:.1f} s: {performance.throughput_sps:,.1f} samples/s"
    )
    if performance.latency_ns is None:
        text += " from first issue to last answer"
    if performance.tokens_per_s is not None:
        text += f", {performance.tokens_per_s:,.1f} tokens/s"
    if performance.target_latency_ns is not None:
        text += f"; bound {time_text(performance.target_latency_ns)} at p99"
    return text


def counted(number: int, what: str) -> str:
    """Return how many there are of *what*, one or several."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def time_text(nanoseconds: float) -> str:
    """Return a time with the unit that suits it, four digits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.4g} {unit}"
    return f"{nanoseconds:.0f} ns"
