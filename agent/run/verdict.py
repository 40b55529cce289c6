"""Whether to believe a run: every gate, each with its reason in plain words.

No gate is skipped in silence: what was not measured is a reason of its own, a note.
"""

from collections.abc import Iterator, Sequence

from edgeperf.agent.board import WindowConditions, doubts
from edgeperf.agent.result import (
    Accuracy,
    Performance,
    Reason,
    Severity,
    Status,
    Verdict,
    status_of,
)
from edgeperf.agent.run.harness import HONEST
from edgeperf.agent.spec import Preset, RunSpec
from edgeperf.datasets import is_task_file

#: MLPerf Inference rules, "Scenarios": every run lasts at least 600 s.
RULES_DURATION_S = 600
#: ... reaches 99 % of the FP32 reference, and asks 8 samples at a time in MultiStream.
RULES_GATE = 0.99
#: Offline: LoadGen's window begins before its list of samples is handed to Python.
OFFLINE_OFF = 0.1
RULES_SAMPLES_PER_QUERY = 8
_RANK = {Severity.INVALID: 0, Severity.SUSPECT: 1, Severity.NOTE: 2}


def verdict(reasons: Sequence[Reason], *, comparable: bool) -> Verdict:
    """Return the verdict that follows from *reasons*."""
    ranked = tuple(sorted(reasons, key=lambda reason: _RANK[reason.severity]))
    status = status_of(ranked)
    return Verdict(status=status, comparable=comparable and status is Status.VALID, reasons=ranked)


def is_full_length(spec: RunSpec) -> bool:
    """Return whether the spec asks for a run as long as the rules do."""
    long_enough = spec.min_duration_ms is None or spec.min_duration_ms >= RULES_DURATION_S * 1000
    return spec.preset is Preset.VALID and long_enough and spec.min_query_count is None


def is_comparable(spec: RunSpec, accuracy: Accuracy) -> bool:
    """Return whether a VALID result may stand beside others of its model and task.

    It was as long as the rules ask, its accuracy passed MLPerf's gate on the task's own
    samples, and nothing that the rules fix was chosen otherwise.
    """
    by_the_rules = (
        accuracy.gate is not None
        and accuracy.gate >= RULES_GATE
        and spec.data is None
        and not is_task_file(spec.task or "")
        and spec.samples_per_query == RULES_SAMPLES_PER_QUERY
        and spec.target_latency_ms is None
    )
    return is_full_length(spec) and accuracy.passed is True and by_the_rules


def length_reasons(spec: RunSpec) -> Iterator[Reason]:
    """Say that a run is shorter than the rules ask, which the short presets mean to be."""
    if is_full_length(spec):
        return
    if spec.preset is Preset.VALID:
        yield _reason(
            "too-short",
            Severity.SUSPECT,
            "shorter than MLPerf's rules ask: duration or query count of --preset valid was"
            " overridden",
        )
    else:
        text = f"preset {spec.preset.value}: not comparable with runs of {RULES_DURATION_S} s"
        yield _reason("short-preset", Severity.NOTE, text)


def sample_reasons(notes: Sequence[str]) -> Iterator[Reason]:
    """Say what a reader must know of how the samples were made ready."""
    for note in notes:
        yield _reason("not-stored", Severity.NOTE, note)


def accuracy_reasons(accuracy: Accuracy) -> Iterator[Reason]:
    """Judge the accuracy test."""
    if not accuracy.measured:
        severity = Severity.INVALID if accuracy.passed is False else Severity.NOTE
        text = f"accuracy: not measured ({accuracy.why_not})"
        yield _reason("accuracy-not-measured", severity, text)
        return
    if accuracy.passed is None:
        yield _reason(
            "no-reference",
            Severity.NOTE,
            f"accuracy: no FP32 reference for {accuracy.metric}, and no floor: nothing is gated",
        )
    if accuracy.passed is False and accuracy.value is not None and accuracy.threshold is not None:
        yield _reason(
            "accuracy-gate",
            Severity.INVALID,
            f"accuracy gate missed: {accuracy.metric} {accuracy.value:.4f}, asked"
            f" {accuracy.threshold:.4f} ({_asked(accuracy)}) over {accuracy.samples} samples",
        )


def _asked(accuracy: Accuracy) -> str:
    if accuracy.gate is None or accuracy.reference is None:
        return "the task's own bound"
    return f"{accuracy.gate:.1%} of {accuracy.reference:.4f}"


def data_reasons(spec: RunSpec, accuracy: Accuracy) -> Iterator[Reason]:
    """Say that a reference was found on other samples than those that were answered.

    A task file's reference is the user's own, for whatever samples are named with it.
    """
    own_task = spec.task is not None and is_task_file(spec.task)
    if spec.data is not None and accuracy.reference is not None and not own_task:
        text = "accuracy: your own samples, judged by a reference found on the task's"
        yield _reason("own-data", Severity.NOTE, text)


def performance_reasons(performance: Performance | None) -> Iterator[Reason]:
    """Judge the performance test by LoadGen's word and by the second stopwatch."""
    if performance is None or performance.loadgen is None:
        return
    loadgen = performance.loadgen
    if performance.headline is None and loadgen.valid:  # else its own reason says why
        yield _reason("no-headline", Severity.INVALID, "LoadGen gives no figure for the scenario")
    if not loadgen.valid:
        why = "; ".join(loadgen.reasons) or "it gives no reason"
        yield _reason("loadgen-invalid", Severity.INVALID, f"LoadGen: INVALID: {why}")
    for error in loadgen.errors:
        yield _reason("loadgen-error", Severity.INVALID, f"LoadGen: {error}")
    yield from _offline_reasons(performance)
    yield from _harness_reasons(performance)
    watch = performance.stopwatch
    if watch is not None and not watch.agrees:
        yield _reason(
            "stopwatch",
            Severity.SUSPECT,
            "LoadGen's latencies and the second stopwatch differ by up to"
            f" {watch.worst_difference_ns / 1e3:.1f} µs",
        )


def _harness_reasons(performance: Performance) -> Iterator[Reason]:
    """Judge whether the model is slow enough to be told from the harness."""
    added_ns, model_ns = performance.harness_ns, performance.calibrated_latency_ns
    if added_ns is None or not model_ns or model_ns >= HONEST * added_ns:
        return
    what = "sample" if performance.latency_ns is None else "query"
    text = (
        f"the harness adds {added_ns / 1e3:.1f} µs to a {what} of {model_ns / 1e3:.1f} µs (as"
        f" timed before the test); what takes less than {HONEST} times as long is measured together"
        " with it"
    )
    yield _reason("harness-share", Severity.SUSPECT, text)


def _offline_reasons(performance: Performance) -> Iterator[Reason]:
    """Lay Offline's rate beside our own: there is one query, and so no percentiles."""
    head = performance.headline
    if head is None or head.name != "samples_per_second" or not performance.throughput_sps:
        return
    off = head.value / performance.throughput_sps - 1
    if abs(off) > OFFLINE_OFF:
        text = (
            f"LoadGen's {head.value:,.1f} samples/s and the second stopwatch's"
            f" {performance.throughput_sps:,.1f} differ by {abs(off):.1%}"
        )
        yield _reason("stopwatch", Severity.SUSPECT, text)


def board_reasons(conditions: WindowConditions | None, *, test: str) -> Iterator[Reason]:
    """Judge what the board did while the clock ran."""
    if conditions is None:
        return
    for doubt in doubts(conditions):
        yield _reason(doubt.code, doubt.severity, f"{test}: {doubt.text}")


def clock_reasons(conditions: WindowConditions | None) -> Iterator[Reason]:
    """Judge the clock during the accuracy test, whose answers do not depend on it."""
    if conditions is None:
        return
    for doubt in doubts(conditions):
        if doubt.code == "clock-step":
            yield _reason(doubt.code, Severity.NOTE, f"accuracy test: {doubt.text}")


def affinity_reasons(escaped: Sequence[str] | None) -> Iterator[Reason]:
    """Judge threads that were seen off their cores; None: nobody had a look."""
    if escaped is None:
        text = "threads: the test was over before their cores were looked at"
        yield _reason("affinity-not-seen", Severity.NOTE, text)
    elif escaped:
        text = f"threads not pinned as planned: {', '.join(escaped)}"
        yield _reason("affinity", Severity.SUSPECT, text)


def _reason(code: str, severity: Severity, text: str) -> Reason:
    return Reason(code=code, severity=severity, text=text)
