"""From answers and truth to a score: every metric that applies, with its interval."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.base import DatasetError
from edgeperf.datasets.metrics.bootstrap import Interval, Weights, with_intervals
from edgeperf.datasets.metrics.classes import Decided, calibration_error, confusion
from edgeperf.datasets.metrics.misuse import chance_remarks, class_remarks, ranking_remarks
from edgeperf.datasets.metrics.ranking import Costs, Curve, Ranking, has_both_classes
from edgeperf.datasets.score import Score

#: The most classes whose confusion matrix is kept.
MOST_CONFUSED = 64
#: Among how many classes "one of the best five" says something.
_FEWEST_FOR_TOP5 = 20
_TOP = 5
#: How far from a half the area under the ROC curve is where scores order nothing.
_NO_ORDER = 0.1
#: What rows of probabilities may sum to: 8-bit ones are rounded.
_SUM_TOLERANCE = 0.02

Labels = NDArray[np.int64]
Scores = NDArray[np.float32]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of the answers, beside what always is.

    Attributes:
        gate: Name of the metric that decides.
        positive: Of several classes, the one that is told from the rest by its score.
        threshold: From which score a single score means yes.
        precisions: Precisions at which recall is wanted.
        recalls: Recalls at which precision is wanted.
        costs: What wrong answers cost; None asks for no cost.
    """

    gate: str
    positive: int | None = None
    threshold: float = 0.5
    precisions: tuple[float, ...] = ()
    recalls: tuple[float, ...] = ()
    costs: Costs | None = None


class Extra(msgspec.Struct, frozen=True, kw_only=True):
    """Questions that somebody has after the run; the fields are those of :class:`Question`."""

    precisions: tuple[float, ...] = ()
    recalls: tuple[float, ...] = ()
    costs: Costs | None = None

    def added_to(self, question: Question) -> Question:
        """Return *question* with these added; costs replace those it has."""
        return msgspec.structs.replace(
            question,
            precisions=tuple(dict.fromkeys((*question.precisions, *self.precisions))),
            recalls=tuple(dict.fromkeys((*question.recalls, *self.recalls))),
            costs=self.costs or question.costs,
        )


def score_classes(
    scores: Scores, labels: Labels, names: Sequence[str], question: Question
) -> Score:
    """Score rows of class scores; the lower class wins a tie.

    Args:
        scores: Finite, shape ``(samples, classes)``.
        labels: Shape ``(samples,)``, below ``classes``.
        names: Of all classes, in order.
        question: What is asked.
    """
    answers = scores.argmax(axis=1).astype(np.int64)
    right = answers == labels
    decided = Decided(labels, answers, names)
    hit = _among_best(scores, labels) if len(names) >= _FEWEST_FOR_TOP5 else None
    confidence = scores.max(axis=1) if are_probabilities(scores) else None
    ranked = _ranked(scores, labels, question.positive)
    suffix = "" if question.positive is None else f"[{names[question.positive]}]"
    if len(names) == 2:  # noqa: PLR2004 - two classes need no name
        suffix = ""

    def measure(weights: Weights) -> dict[str, float]:
        values = {"top1": _mean(right, weights), **decided.measure(weights)}
        if hit is not None:
            values["top5"] = _mean(hit, weights)
        if confidence is not None:
            values["ece"] = calibration_error(confidence, right, weights)
        if ranked is not None:
            values |= _of_curve(ranked.curve(weights), question, suffix)
        return values

    metrics, intervals = with_intervals(measure, len(labels))
    remarks = class_remarks(labels, answers, names, question.gate)
    remarks += chance_remarks(labels, answers, len(names))
    if ranked is not None:
        remarks += ranking_remarks(metrics, question.precisions, suffix)
    return msgspec.structs.replace(
        gated(question.gate, metrics, intervals, len(labels)),
        classes=decided.scores(),
        confusion=_matrix(labels, answers, len(names)),
        remarks=tuple(remarks),
    )


def score_yes_no(
    scores: Scores,
    positive: NDArray[np.bool_],
    question: Question,
    names: Sequence[str] = ("no", "yes"),
) -> Score:
    """Score one number per sample, higher meaning yes.

    Args:
        scores: Finite, shape ``(samples,)``.
        positive: The truth, shape ``(samples,)``.
        question: What is asked.
        names: Of the negative and the positive class.
    """
    said = scores >= question.threshold
    labels, answers = positive.astype(np.int64), said.astype(np.int64)
    decided = Decided(labels, answers, names)
    ranked = Ranking(scores, positive) if has_both_classes(positive) else None
    probable = bool(((scores >= 0) & (scores <= 1)).all())
    confidence = np.maximum(scores, 1 - scores)
    likelier = (scores >= 0.5) == positive  # noqa: PLR2004 - the more probable of two

    def measure(weights: Weights) -> dict[str, float]:
        values = {"accuracy": _mean(said == positive, weights), **decided.measure(weights)}
        if probable:
            values["ece"] = calibration_error(confidence, likelier, weights)
        if ranked is not None:
            values |= _of_curve(ranked.curve(weights), question, "")
        return values

    metrics, intervals = with_intervals(measure, len(scores))
    remarks = class_remarks(labels, answers, names, question.gate)
    if abs(metrics.get("roc_auc", 0.5) - 0.5) < _NO_ORDER:  # else it is but the threshold
        remarks += chance_remarks(labels, answers, len(names))
    remarks += ranking_remarks(metrics, question.precisions, "")
    return msgspec.structs.replace(
        gated(question.gate, metrics, intervals, len(scores)),
        classes=decided.scores(),
        confusion=_matrix(labels, answers, len(names)),
        remarks=tuple(remarks),
    )


def score_best(
    best: Labels,
    right: NDArray[np.bool_],
    *,
    gate: str,
    confidence: Scores | None = None,
    truth: tuple[Labels, Sequence[str]] | None = None,
) -> Score:
    """Score answers of which only the best few classes were kept.

    Args:
        best: Classes, best first, shape ``(samples, kept)``.
        right: Which of them are right, same shape.
        gate: Name of the metric that decides.
        confidence: Probability of the first, None where scores are no probabilities.
        truth: The one right class of each sample and the names of all classes; None where
            samples have several.
    """
    among: NDArray[np.bool_] = np.asarray(right.any(axis=1))
    decided = None if truth is None else Decided(truth[0], best[:, 0], truth[1])

    def measure(weights: Weights) -> dict[str, float]:
        values = {"top1": _mean(right[:, 0], weights), "top5": _mean(among, weights)}
        if decided is not None:
            values |= decided.measure(weights)
        if confidence is not None:
            values["ece"] = calibration_error(confidence, right[:, 0], weights)
        return values

    score = gated(gate, *with_intervals(measure, len(best)), len(best))
    if truth is None or decided is None:
        return score
    labels, names = truth
    remarks = class_remarks(labels, best[:, 0], names, gate)
    remarks += chance_remarks(labels, best[:, 0], len(names))
    return msgspec.structs.replace(score, classes=decided.scores(), remarks=tuple(remarks))


def gated(
    gate: str, metrics: dict[str, float], intervals: dict[str, Interval], samples: int
) -> Score:
    """Return the score whose value is that of the gate's metric.

    Raises:
        DatasetError: The answers have no such metric; the message lists those they have.
    """
    if gate not in metrics:
        raise DatasetError(
            f"metric {gate!r}: these answers do not have it; they have {', '.join(metrics)}"
        )
    return Score(
        metric=gate, value=metrics[gate], metrics=metrics, samples=samples, intervals=intervals
    )


def _matrix(labels: Labels, answers: Labels, count: int) -> tuple[tuple[int, ...], ...]:
    if count > MOST_CONFUSED:
        return ()
    return tuple(tuple(map(int, row)) for row in confusion(labels, answers, count))


def are_probabilities(scores: Scores) -> bool:
    """Say whether rows of scores are probabilities: none negative, each row adding up to 1."""
    total = scores.sum(axis=1)
    return bool((scores >= 0).all() and (np.abs(total - 1) <= _SUM_TOLERANCE).all())


def _among_best(scores: Scores, labels: Labels) -> NDArray[np.bool_]:
    """Say for each sample whether its class is among the best five, ties by class."""
    own = scores[np.arange(len(labels)), labels][:, None]
    earlier = np.arange(scores.shape[1]) < labels[:, None]
    better: NDArray[np.bool_] = ((scores > own) | ((scores == own) & earlier)).sum(axis=1) < _TOP
    return better


def _ranked(scores: Scores, labels: Labels, positive: int | None) -> Ranking | None:
    """Return the ranking by the positive class, of two classes the second's."""
    place = 1 if positive is None and scores.shape[1] == 2 else positive  # noqa: PLR2004
    if place is None or not has_both_classes(labels == place):
        return None
    return Ranking(scores[:, place], labels == place)


def _of_curve(curve: Curve, question: Question, suffix: str) -> dict[str, float]:
    values = curve.areas()
    if not values:
        return {}
    for precision in question.precisions:
        recall, threshold = curve.recall_at_precision(precision)
        values[f"recall@precision={precision:g}"] = recall
        values[f"threshold@precision={precision:g}"] = threshold
    for recall in question.recalls:
        precision, threshold = curve.precision_at_recall(recall)
        values[f"precision@recall={recall:g}"] = precision
        values[f"threshold@recall={recall:g}"] = threshold
    if question.costs is not None:
        values["cost"] = curve.cost_at(question.threshold, question.costs)
        least, threshold = curve.least_cost(question.costs)
        values |= {"least_cost": least, "threshold@least_cost": threshold}
    return {f"{name}{suffix}": value for name, value in values.items()}


def _mean(flags: NDArray[np.bool_], weights: Weights) -> float:
    return float(weights[flags].sum() / weights.sum())
