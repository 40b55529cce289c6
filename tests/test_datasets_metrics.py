"""Scores of class answers: scikit-learn's numbers, honest intervals, and misuses said aloud."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeperf.datasets.base import DatasetError
from edgeperf.datasets.metrics.bootstrap import mean_of, with_intervals
from edgeperf.datasets.metrics.classes import calibration_error
from edgeperf.datasets.metrics.misuse import floor_remarks, lost_remarks, share_remarks
from edgeperf.datasets.metrics.ranking import Costs
from edgeperf.datasets.metrics.scoring import Question, score_best, score_classes, score_yes_no
from edgeperf.datasets.score import Score

NAMES = ("cat", "dog", "owl")
TOP1 = Question(gate="top1")

Case = tuple[NDArray[np.float32], NDArray[np.int64]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw rows of three scores, and labels; classes may be missing or never answered."""
    rows = draw(
        st.lists(st.tuples(st.integers(0, 2), *[st.integers(0, 4)] * 3), min_size=1, max_size=30)
    )
    table = np.array(rows)
    return table[:, 1:].astype(np.float32), table[:, 0]


@given(cases())
def test_class_metrics_are_scikit_learns(sklearn_metrics: Any, case: Case) -> None:
    """Accuracy, balanced accuracy, macro F1, each class and the confusion matrix."""
    scores, labels = case
    answers = scores.argmax(axis=1)
    score = score_classes(scores, labels, NAMES, TOP1)
    assert score.value == score.metrics["top1"]
    assert score.value == pytest.approx(sklearn_metrics.accuracy_score(labels, answers))
    recalls = sklearn_metrics.recall_score(
        labels, answers, labels=np.unique(labels), average="macro", zero_division=0
    )
    assert score.metrics["balanced_accuracy"] == pytest.approx(recalls)
    assert score.metrics["macro_f1"] == pytest.approx(
        sklearn_metrics.f1_score(labels, answers, average="macro", zero_division=0)
    )
    matrix = sklearn_metrics.confusion_matrix(labels, answers, labels=[0, 1, 2])
    assert np.array(score.confusion).tolist() == matrix.tolist()
    table = sklearn_metrics.precision_recall_fscore_support(
        labels, answers, labels=[0, 1, 2], zero_division=0
    )
    found = [(row.precision, row.recall, row.f1, row.samples) for row in score.classes]
    np.testing.assert_allclose(found, np.array(table).T)


def test_one_class_is_told_from_the_rest(sklearn_metrics: Any) -> None:
    """A positive class among several has areas and operating points under its own name."""
    random = np.random.default_rng(3)
    labels = random.integers(3, size=200)
    scores = random.random((200, 3)).astype(np.float32)
    scores[np.arange(200), labels] += 0.4
    asked = Question(gate="pr_auc[owl]", positive=2, precisions=(0.8,), recalls=(0.9,))
    score = score_classes(scores, labels, NAMES, asked)
    truth = labels == 2
    expected = sklearn_metrics.average_precision_score(truth, scores[:, 2])
    assert score.value == pytest.approx(expected)
    assert score.metrics["roc_auc[owl]"] == pytest.approx(
        sklearn_metrics.roc_auc_score(truth, scores[:, 2])
    )
    assert score.metrics["base_rate[owl]"] == pytest.approx(truth.mean())
    threshold = score.metrics["threshold@precision=0.8[owl]"]
    said = scores[:, 2] >= threshold
    assert truth[said].mean() >= 0.8
    assert score.metrics["recall@precision=0.8[owl]"] == pytest.approx(said[truth].mean())
    assert "precision@recall=0.9[owl]" in score.metrics


def test_many_classes_have_a_top5(sklearn_metrics: Any) -> None:
    """With twenty classes or more, "among the best five" counts; ties go to the lower class."""
    random = np.random.default_rng(4)
    scores = random.integers(0, 9, (300, 25)).astype(np.float32)
    labels = random.integers(25, size=300)
    score = score_classes(scores, labels, tuple(map(str, range(25))), TOP1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    assert score.metrics["top5"] == pytest.approx((order == labels[:, None]).any(axis=1).mean())
    assert "recall[3]" not in score.metrics
    assert len(score.classes) == 25
    right = order == labels[:, None]
    names = tuple(map(str, range(25)))
    kept = score_best(order, right, gate="top1", truth=(labels, names))
    for name in ("top1", "top5", "balanced_accuracy", "macro_f1"):
        assert kept.metrics[name] == pytest.approx(score.metrics[name])
    assert sklearn_metrics.accuracy_score(labels, order[:, 0]) == kept.value


def test_yes_or_no_by_a_threshold(sklearn_metrics: Any) -> None:
    """One score: decisions at the threshold, areas over all, and what errors cost."""
    random = np.random.default_rng(5)
    truth = random.random(500) < 0.1
    scores = np.clip(random.normal(0.3 + 0.3 * truth, 0.2), 0, 1).astype(np.float32)
    costs = Costs(miss=20.0, false_alarm=1.0)
    asked = Question(gate="cost", threshold=0.6, precisions=(0.5,), costs=costs)
    score = score_yes_no(scores, truth, asked, ("fine", "broken"))
    said = scores >= np.float32(0.6)
    assert score.metrics["accuracy"] == pytest.approx((said == truth).mean())
    assert score.metrics["f1[broken]"] == pytest.approx(sklearn_metrics.f1_score(truth, said))
    expected = (20 * (truth & ~said).sum() + (~truth & said).sum()) / 500
    assert score.value == pytest.approx(expected)
    assert score.metrics["least_cost"] <= score.value
    assert [row.name for row in score.classes] == ["fine", "broken"]


def test_samples_of_one_kind_have_no_areas() -> None:
    """What does not exist is left out, never nought or NaN."""
    scores = np.array([0.2, 0.8], np.float32)
    score = score_yes_no(scores, np.array([True, True]), Question(gate="accuracy"))
    assert score.value == 0.5
    assert "roc_auc" not in score.metrics
    assert all(np.isfinite(value) for value in score.metrics.values())


def test_a_gate_that_the_answers_do_not_have_is_refused() -> None:
    """The message lists the metrics that there are."""
    asked = Question(gate="pr_auc")
    with pytest.raises(DatasetError, match=r"^metric 'pr_auc': .* they have .*accuracy"):
        score_yes_no(np.array([0.2, 0.8], np.float32), np.array([True, True]), asked)


def test_calibration_error_is_its_definition() -> None:
    """Fifteen bins; in each, how far the mean probability is from the share of right answers."""
    random = np.random.default_rng(6)
    confidence = random.random(400)
    right = random.random(400) < confidence**2
    weights = random.integers(0, 3, 400)
    expected = 0.0
    for place in range(15):
        inside = (confidence > place / 15) & (confidence <= (place + 1) / 15)
        inside &= weights > 0
        if inside.any():
            mean = np.average(confidence[inside], weights=weights[inside])
            share = np.average(right[inside], weights=weights[inside])
            expected += weights[inside].sum() / weights.sum() * abs(mean - share)
    assert calibration_error(confidence, right, weights) == pytest.approx(expected)


def test_calibration_is_told_of_probabilities_only() -> None:
    """Logits have no calibration error; rows that add up to 1 do."""
    logits = np.array([[3.0, -1.0, 0.5], [0.0, 2.0, 0.1]], np.float32)
    grown = np.exp(logits)
    labels = np.array([0, 1])
    assert "ece" not in score_classes(logits, labels, NAMES, TOP1).metrics
    probable = grown / grown.sum(axis=1, keepdims=True)
    assert "ece" in score_classes(probable, labels, NAMES, TOP1).metrics


def test_interval_covers_as_often_as_it_says() -> None:
    """Of many experiments, about 95 % of the intervals hold the true share."""
    random = np.random.default_rng(7)
    held = 0
    for seed in range(200):
        values = (random.random(150) < 0.8).astype(float)
        _, intervals = with_intervals(mean_of("m", values), 150, resamples=300, seed=seed)
        low, high = intervals["m"]
        held += low <= 0.8 <= high
    assert 180 <= held <= 199


def test_the_same_answers_give_the_same_interval() -> None:
    """Nothing random is left in a result."""
    values = np.arange(50) / 50
    first = with_intervals(mean_of("m", values), 50)
    assert first == with_intervals(mean_of("m", values), 50)
    assert first[0] == {"m": pytest.approx(0.49)}


def codes(score: Score) -> set[str]:
    """Return the codes of a score's remarks."""
    return {remark.code for remark in score.remarks}


def test_accuracy_on_rare_positives_is_called_a_misuse() -> None:
    """At 1 % positives a gate on accuracy decides nothing, and the score says what to take."""
    truth = np.zeros(1000, np.bool_)
    truth[:10] = True
    never = np.linspace(0, 0.1, 1000).astype(np.float32)
    score = score_yes_no(never, truth, Question(gate="accuracy"), ("no", "yes"))
    assert score.value == 0.99
    assert {"imbalanced", "one-answer", "reversed"} <= codes(score)
    text = next(remark.text for remark in score.remarks if remark.code == "imbalanced")
    assert "99.0% are 'no'" in text
    better = score_yes_no(truth * np.float32(0.9), truth, Question(gate="pr_auc"))
    assert better.value == 1.0
    assert "imbalanced" not in codes(better)


def test_a_precision_that_no_threshold_has_is_said() -> None:
    """A recall of nought may mean that the precision asked is out of reach."""
    truth = np.array([True, False] * 50)
    flat = np.zeros(100, np.float32)
    score = score_yes_no(flat, truth, Question(gate="roc_auc", precisions=(0.9,)))
    assert score.metrics["recall@precision=0.9"] == 0
    assert "threshold@precision=0.9" not in score.metrics
    assert "unreached-precision" in codes(score)


def test_absent_classes_are_said() -> None:
    """Averages over classes leave out those without a sample."""
    scores = np.eye(3, dtype=np.float32)[[0, 0, 1]]
    assert "absent-classes" in codes(score_classes(scores, np.array([0, 0, 1]), NAMES, TOP1))


def test_what_is_lost_against_the_reference_is_said() -> None:
    """The gate may pass while recall is gone; metrics that describe the samples do not count."""
    before = {"top1": 0.90, "recall@precision=0.9": 0.80, "ece": 0.02, "base_rate": 0.5}
    after = {"top1": 0.899, "recall@precision=0.9": 0.60, "ece": 0.05, "base_rate": 0.3}
    (remark,) = lost_remarks(after, before, "top1", 0.99)
    assert "recall@precision=0.9 0.6000 against 0.8000" in remark.text
    assert "ece 0.0500" in remark.text
    assert "base_rate" not in remark.text
    assert lost_remarks(before, before, "top1", 0.99) == ()


def test_too_few_samples_to_decide_is_said() -> None:
    """A floor inside the interval, or a gate finer than one sample."""
    score = Score(
        metric="top1", value=0.82, metrics={}, samples=100, intervals={"top1": (0.74, 0.89)}
    )
    assert "on both sides of the 0.8 asked" in floor_remarks(score, 0.8)[0].text
    assert floor_remarks(score, 0.7) == ()
    assert "one of 100 samples is worth 0.0100" in share_remarks(score, 0.6, 0.594)[0].text
    assert share_remarks(score, 2.0, 1.98) == ()
