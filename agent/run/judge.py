"""What the accuracy test is worth: LoadGen's log must hold exactly what was scored."""

import numpy as np

from edgeperf.agent.result import Accuracy, Reason, Severity
from edgeperf.agent.run.jobs import Prepared
from edgeperf.agent.run.loadgen_log import DetailLog, LogError, read_answers
from edgeperf.agent.run.measure import Measurement
from edgeperf.agent.run.plan import Plan


def judge_answers(
    plan: Plan, test: Measurement, prepared: Prepared, reasons: list[Reason]
) -> Accuracy:
    """Return what the accuracy test found; append what spoiled it to *reasons*."""
    unmeasured = Accuracy(measured=False, passed=False, why_not="see the verdict")
    if test.problem is not None:
        reasons.append(test.problem)
        return unmeasured
    try:
        log = DetailLog(test.directory / "mlperf_log_detail.txt", "accuracy")
        answers = read_answers(test.directory / "mlperf_log_accuracy.json")
    except LogError as error:
        text = f"LoadGen: {error}"
        reasons.append(Reason(code="loadgen-log", severity=Severity.INVALID, text=text))
        return unmeasured
    reasons += [
        Reason(code="loadgen-error", severity=Severity.INVALID, text=f"accuracy test: {error}")
        for error in log.errors
    ]
    payloads = test.payloads
    same = payloads is not None and all(
        np.array_equal(answer, payloads[index : index + 1], equal_nan=True)
        for index, answer in answers.items()
    )
    if len(answers) != prepared.library_size or not same:
        text = f"LoadGen logged answers to {len(answers)} of {prepared.library_size} samples" + (
            "" if same else ", and not those that were scored"
        )
        reasons.append(Reason(code="accuracy-log", severity=Severity.INVALID, text=text))
        return unmeasured
    score = test.done.score if test.done else None
    if score is None:
        why = (test.done.not_scored if test.done else None) or "not scored"
        reasons.append(Reason(code="answers-not-finite", severity=Severity.INVALID, text=why))
        return Accuracy(measured=False, passed=False, why_not=why)
    reference = plan.model.reference
    threshold = None if reference is None else plan.spec.gate * reference
    return Accuracy(
        measured=True,
        metric=score.metric,
        value=score.value,
        metrics=score.metrics,
        samples=score.samples,
        reference=reference,
        reference_source=plan.model.reference_source,
        gate=plan.spec.gate,
        threshold=threshold,
        passed=None if threshold is None else score.value >= threshold,
    )
