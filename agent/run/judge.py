"""What the accuracy test is worth: LoadGen's log must hold exactly what was scored."""

from edgeperf.agent.result import Accuracy, Reason, Severity
from edgeperf.agent.run.jobs import Prepared
from edgeperf.agent.run.loadgen_log import DetailLog, LogError, read_answers
from edgeperf.agent.run.measure import Measurement
from edgeperf.agent.run.model_choice import ModelFile
from edgeperf.agent.run.plan import SHARE, Plan
from edgeperf.datasets.catalogue import find_file
from edgeperf.datasets.metrics.misuse import floor_remarks, lost_remarks, share_remarks
from edgeperf.datasets.metrics.names import falls
from edgeperf.datasets.score import Remark, Score


def no_dataset(model: ModelFile) -> str:
    """Say why accuracy is not measured, and how it would be where the catalogue knows the file."""
    known = find_file(model.sha256)
    if known is None:
        return "no dataset for this model"
    return (
        f"no dataset is named, but this is a file of {known[0].name!r} in the catalogue: edgeperf"
        f" run sha256:{model.sha256} tests it"
    )


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
    given = test.answers
    same = given is not None and all(
        answer == given.payload(index) for index, answer in answers.items()
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
    found = _judged(plan, score)
    reasons += map(_reason, _remarks(plan, score, found))
    return found


def _judged(plan: Plan, score: Score) -> Accuracy:
    """Lay the score beside what is asked."""
    reference, gate = plan.model.reference, plan.gate
    lower = falls(score.metric)
    threshold, share = gate.floor, gate.share if gate.floor is None else None
    if reference is not None and gate.share is not None:
        least = reference / gate.share if lower else reference * gate.share
        if threshold is None or (least < threshold if lower else least > threshold):
            threshold, share = least, gate.share
    passed = None
    if threshold is not None:
        passed = score.value <= threshold if lower else score.value >= threshold
    return Accuracy(
        measured=True,
        metric=score.metric,
        value=score.value,
        metrics=score.metrics,
        samples=score.samples,
        reference=reference,
        reference_source=plan.model.reference_source,
        gate=share,
        threshold=threshold,
        passed=passed,
        intervals=score.intervals,
        classes=score.classes,
        confusion=score.confusion,
    )


def _remarks(plan: Plan, score: Score, found: Accuracy) -> tuple[Remark, ...]:
    """Return what a reader of these answers must know, beyond whether they passed."""
    remarks = score.remarks
    if plan.gate.floor is not None and found.gate is None:
        remarks += floor_remarks(score, plan.gate.floor)
    elif found.threshold is not None and found.reference is not None:
        remarks += share_remarks(score, found.reference, found.threshold)
    if found.passed is False:
        return remarks
    share = plan.gate.share or SHARE
    return remarks + lost_remarks(score.metrics, plan.reference_metrics, score.metric, share)


def _reason(remark: Remark) -> Reason:
    severity = Severity.SUSPECT if remark.doubt else Severity.NOTE
    return Reason(code=remark.code, severity=severity, text=f"accuracy: {remark.text}")
