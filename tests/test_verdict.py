"""The verdict is the worst of its reasons, and every gate gives its reason."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.agent.board import WindowConditions
from edgeperf.agent.result import (
    Accuracy,
    Headline,
    LoadGen,
    Percentiles,
    Performance,
    Reason,
    Severity,
    Status,
    Stopwatch,
)
from edgeperf.agent.run.verdict import (
    accuracy_reasons,
    affinity_reasons,
    board_reasons,
    is_comparable,
    length_reasons,
    performance_reasons,
    verdict,
)
from edgeperf.agent.spec import spec_from_mapping

SEVERITIES = st.lists(st.sampled_from(Severity), max_size=6)


def reasons_of(severities: Iterable[Severity]) -> list[Reason]:
    """Return one reason for each."""
    return [
        Reason(code=f"code-{place}", severity=severity, text="text")
        for place, severity in enumerate(severities)
    ]


@pytest.mark.parametrize(
    ("severities", "status"),
    [
        ([], "VALID"),
        (["note"], "VALID"),
        (["note", "note"], "VALID"),
        (["suspect"], "SUSPECT"),
        (["note", "suspect"], "SUSPECT"),
        (["invalid"], "INVALID"),
        (["suspect", "invalid", "note"], "INVALID"),
    ],
)
def test_worst_reason_decides(severities: list[str], status: str) -> None:
    """Notes do nothing; one invalid reason outweighs any number of others."""
    found = verdict(reasons_of(map(Severity, severities)), comparable=True)
    assert found.status.value == status


@given(severities=SEVERITIES)
def test_verdict_keeps_every_reason_worst_first(severities: list[Severity]) -> None:
    """No reason is lost; within a severity they stay in order; only VALID compares."""
    given_reasons = reasons_of(severities)
    found = verdict(given_reasons, comparable=True)
    assert sorted(found.reasons, key=lambda r: r.code) == given_reasons
    order = {Severity.INVALID: 0, Severity.SUSPECT: 1, Severity.NOTE: 2}
    ranks = [(order[reason.severity], reason.code) for reason in found.reasons]
    assert ranks == sorted(ranks)
    assert found.comparable == (found.status is Status.VALID)
    assert not verdict(given_reasons, comparable=False).comparable


def accuracy(**changes: Any) -> Accuracy:
    """Return a test that passed, changed as told."""
    passed = Accuracy(
        measured=True,
        metric="top1",
        value=0.9,
        samples=100,
        reference=0.905,
        gate=0.99,
        threshold=0.89595,
        passed=True,
    )
    return msgspec.structs.replace(passed, **changes)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"preset": "valid"}, None),
        ({"preset": "valid", "min_duration_ms": 600_000}, None),
        ({"preset": "valid", "min_duration_ms": 700_000}, None),
        ({"preset": "valid", "min_duration_ms": 599_999}, "too-short"),
        ({"preset": "valid", "min_query_count": 100}, "too-short"),
        ({"preset": "fast"}, "short-preset"),
        ({"preset": "smoke"}, "short-preset"),
        ({"preset": "smoke", "min_duration_ms": 600_000}, "short-preset"),
    ],
    ids=str,
)
def test_run_shorter_than_the_rules_ask_says_so(changes: dict[str, Any], code: str | None) -> None:
    """A short preset in a note, a cut ``valid`` as SUSPECT; neither is comparable."""
    spec = spec_from_mapping({"model": "digits"} | changes)
    reasons = {reason.code: reason.severity.value for reason in length_reasons(spec)}
    severity = {"too-short": "suspect", "short-preset": "note"}
    assert reasons == ({code: severity[code]} if code else {})
    assert is_comparable(spec, accuracy()) == (code is None)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, accuracy(gate=0.98)),
        ({}, accuracy(gate=None)),
        ({"task": "mine.toml"}, accuracy()),
        ({"data": "own.npz"}, accuracy()),
        ({"scenario": "MultiStream", "samples_per_query": 4}, accuracy()),
        ({"scenario": "Server", "target_latency_ms": 100}, accuracy()),
        ({"accuracy": False}, Accuracy(measured=False, why_not="switched off")),
        ({}, accuracy(passed=False)),
        ({}, accuracy(passed=None, reference=None, threshold=None)),
    ],
    ids=str,
)
def test_run_outside_the_rules_is_not_comparable(changes: dict[str, Any], found: Accuracy) -> None:
    """Whatever MLPerf fixes and the user chose otherwise; and accuracy that did not pass."""
    whole = {"model": "digits", "preset": "valid"}
    assert is_comparable(spec_from_mapping(whole), accuracy())
    assert not is_comparable(spec_from_mapping(whole | changes), found)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (accuracy(), {}),
        (accuracy(value=0.8, passed=False), {"accuracy-gate": "invalid"}),
        (accuracy(reference=None, threshold=None, passed=None), {"no-reference": "note"}),
        (Accuracy(measured=False, why_not="no dataset"), {"accuracy-not-measured": "note"}),
        (
            Accuracy(measured=False, passed=False, why_not="see the verdict"),
            {"accuracy-not-measured": "invalid"},
        ),
    ],
)
def test_accuracy_gate(found: Accuracy, expected: dict[str, str]) -> None:
    """Passed, missed, without a reference, not asked for, not to be had: each is told."""
    reasons = {reason.code: reason.severity.value for reason in accuracy_reasons(found)}
    assert reasons == expected


def test_missed_gate_gives_the_figures() -> None:
    """What was reached, what was asked and how that follows from the reference."""
    (reason,) = accuracy_reasons(accuracy(value=0.8, passed=False))
    for figure in ("0.8000", "0.8960", "99.0%", "0.9050", "100 samples"):
        assert figure in reason.text


LATENCY = Percentiles(min=1, mean=1, p50=1, p90=1, p95=1, p97=1, p99=1, p99_9=1, max=1)


def offline(samples_per_second: float) -> Headline:
    """Return Offline's figure; the second stopwatch's is 1 sample a second."""
    return Headline(name="samples_per_second", value=samples_per_second, unit="samples/s")


HEADLINE = Headline(name="latency_p90_early_stopping", value=1.0, unit="ns")


def performance(
    *,
    valid: bool = True,
    errors: tuple[str, ...] = (),
    agrees: bool = True,
    headline: Headline | None = HEADLINE,
) -> Performance:
    """Return a performance test that went as told."""
    return Performance(
        headline=headline,
        queries=100,
        samples=100,
        duration_ns=1,
        throughput_sps=1.0,
        latency_ns=LATENCY,
        target_qps=None,
        target_latency_ns=None,
        calibrated_latency_ns=None,
        window_start_mono_ns=0,
        window_end_mono_ns=1,
        loadgen=LoadGen(
            version="6",
            valid=valid,
            reasons=() if valid else ("too few queries", "too slow"),
            errors=errors,
            settings={},
            latency_ns={},
        ),
        stopwatch=Stopwatch(latency_ns=LATENCY, worst_difference_ns=7_300.0, agrees=agrees),
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, {}),
        (performance(), {}),
        (performance(valid=False), {"loadgen-invalid": "invalid"}),
        (performance(errors=("a", "b")), {"loadgen-error": "invalid"}),
        (performance(agrees=False), {"stopwatch": "suspect"}),
        (performance(headline=None), {"no-headline": "invalid"}),
        (performance(headline=offline(1.05)), {}),
        (performance(headline=offline(0.95)), {}),
        (performance(headline=offline(1.2)), {"stopwatch": "suspect"}),
        (performance(headline=offline(1e9)), {"stopwatch": "suspect"}),
        (
            performance(valid=False, errors=("a",), agrees=False),
            {"loadgen-invalid": "invalid", "loadgen-error": "invalid", "stopwatch": "suspect"},
        ),
    ],
)
def test_performance_gates(found: Performance | None, expected: dict[str, str]) -> None:
    """LoadGen's verdict, its errors, and the second stopwatch count each for itself."""
    reasons = {reason.code: reason.severity.value for reason in performance_reasons(found)}
    assert reasons == expected


def test_loadgens_words_are_passed_on() -> None:
    """Its reasons and each of its errors are in the text."""
    texts = [r.text for r in performance_reasons(performance(valid=False, errors=("a", "b")))]
    assert len(texts) == 3
    assert "too few queries; too slow" in texts[0]
    assert texts[1:] == ["LoadGen: a", "LoadGen: b"]


def test_threads_off_their_cores_are_suspect() -> None:
    """All of them are named in one reason; none gives none."""
    assert not list(affinity_reasons([]))
    (reason,) = affinity_reasons(["python (7) of leader 0 on 0,1", "io (8) of follower 1 on 0"])
    assert reason.severity is Severity.SUSPECT
    assert "(7)" in reason.text
    assert "(8)" in reason.text


def window(**changes: Any) -> WindowConditions:
    """Return a quiet minute, changed as told."""
    quiet = WindowConditions(
        duration_ns=60_000_000_000,
        readings=60,
        cores=(),
        foreign_share=0.0,
        steal_share=0.0,
        pressure={},
        temperatures_max_c={},
        throttled=False,
        throttle_reasons=(),
        under_voltage=False,
        over_temperature=False,
        clock_step_ns=0,
        clock_rate_ppm=0.0,
        memory_available_min_bytes=None,
        swap_in_bytes=0,
        swap_out_bytes=0,
        quota_stall_share=None,
    )
    return msgspec.structs.replace(quiet, **changes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"clock_step_ns": 5_000_000_000}, {"clock-step": "invalid"}),
        ({"clock_step_ns": -2_000_000}, {"clock-step": "invalid"}),
        ({"clock_step_ns": 900_000}, {}),
        ({"clock_rate_ppm": 50_000.0}, {"clock-rate": "suspect"}),
        ({"foreign_share": 0.03}, {"foreign-load": "suspect"}),
        ({"foreign_share": 0.01}, {}),
        ({"steal_share": 0.02}, {"steal": "suspect"}),
        ({"wait_share": 0.02}, {"run-queue-wait": "suspect"}),
        ({"quota_stall_share": 0.01}, {"cpu-quota": "suspect"}),
        ({"swap_in_bytes": 4096}, {"swap": "suspect"}),
        ({"under_voltage": True, "throttled": True}, {"under-voltage": "suspect"}),
        ({"over_temperature": True, "throttled": True}, {"over-temperature": "suspect"}),
        ({"throttled": True}, {"throttled": "suspect"}),
    ],
    ids=str,
)
def test_what_the_board_did(changes: dict[str, Any], expected: dict[str, str]) -> None:
    """A stepped clock spoils the times; everything else makes them doubtful."""
    reasons = list(board_reasons(window(**changes), test="performance test"))
    assert {reason.code: reason.severity.value for reason in reasons} == expected
    assert all(reason.text.startswith("performance test: ") for reason in reasons)


def test_test_without_conditions_has_no_board_reasons() -> None:
    """A test that ended too early to tell says nothing about the board."""
    assert not list(board_reasons(None, test="performance test"))
