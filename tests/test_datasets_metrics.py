"""ROC-AUC, PR-AUC and recall at a precision, against their definitions written plainly."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeperf.datasets.base import DatasetError
from edgeperf.datasets.binary import (
    average_precision,
    has_both_classes,
    recall_at_precision,
    roc_auc,
)
from edgeperf.datasets.classification import best_classes, require_finite, top1

Case = tuple[NDArray[np.float32], NDArray[np.bool_]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw scores with many ties, and labels of both kinds."""
    levels = draw(st.sampled_from([2, 5, 256]))
    rows = draw(st.lists(st.tuples(st.integers(0, levels), st.booleans()), min_size=0, max_size=60))
    rows += [(draw(st.integers(0, levels)), True), (draw(st.integers(0, levels)), False)]
    scores, positive = zip(*rows, strict=True)
    return (np.array(scores) / levels).astype(np.float32), np.array(positive, np.bool_)


def _thresholds(case: Case) -> list[tuple[float, float]]:
    """Return precision and recall for each distinct score taken as the threshold."""
    scores, positive = case
    chosen = [scores >= threshold for threshold in sorted(set(scores.tolist()), reverse=True)]
    return [(positive[some].mean(), positive[some].sum() / positive.sum()) for some in chosen]


@given(cases())
def test_roc_auc_is_the_share_of_pairs_in_order(case: Case) -> None:
    """Of all pairs of a positive and a negative, those in order; a tie counts half."""
    scores, positive = case
    difference = scores[positive][:, None] - scores[~positive][None, :]
    pairs = (difference > 0) + 0.5 * (difference == 0)
    assert roc_auc(scores, positive) == pytest.approx(pairs.mean())


@given(cases())
def test_average_precision_sums_precision_over_gains_in_recall(case: Case) -> None:
    """Each threshold's precision times the recall that it adds to the one above it."""
    total, reached = 0.0, 0.0
    for precision, recall in _thresholds(case):
        total += precision * (recall - reached)
        reached = recall
    assert average_precision(*case) == pytest.approx(total)


@given(cases(), st.sampled_from([0.5, 0.8, 0.95, 1.0]))
def test_recall_at_precision_is_the_best_threshold(case: Case, precision: float) -> None:
    """The best recall of any threshold that is precise enough, 0 if none is."""
    recalls = [recall for got, recall in _thresholds(case) if got >= precision]
    assert recall_at_precision(*case, precision) == pytest.approx(max(recalls, default=0.0))


def test_metrics_of_known_scores() -> None:
    """The example of scikit-learn's own documentation gives its published values."""
    scores, positive = np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True])
    assert roc_auc(scores, positive) == 0.75
    assert average_precision(scores, positive) == pytest.approx(0.8333, abs=1e-4)


def test_order_within_equal_scores_does_not_matter() -> None:
    """A constant score is worth nothing, whichever class is listed first."""
    positive = np.array([True] * 5 + [False] * 15)
    for order in (positive, positive[::-1]):
        assert roc_auc(np.zeros(20), order) == 0.5
        assert average_precision(np.zeros(20), order) == 0.25


def test_both_classes_are_needed() -> None:
    """A set of one class has no such metrics."""
    assert has_both_classes(np.array([True, False]))
    assert not has_both_classes(np.array([True, True]))
    assert not has_both_classes(np.array([False]))


def test_auc_of_published_anomaly_scores(models_dir: Path) -> None:
    """2459 real anomaly scores give the AUC of each machine that their README states."""
    rows = np.genfromtxt(
        models_dir / "ad_toycar" / "data" / "toycar_reference_scores.csv",
        delimiter=",",
        names=True,
        dtype=None,
        encoding="utf-8",
    )
    stated = {1: (0.9066, 0.8646), 2: (0.9206, 0.8940), 3: (0.7238, 0.6795), 4: (0.9530, 0.9279)}
    for machine, expected in stated.items():
        mine = rows[rows["machine_id"] == machine]
        found = [
            roc_auc(mine[column], mine["label"] == 1) for column in ("score_f32", "score_int8")
        ]
        assert found == pytest.approx(expected, abs=5e-5)


def test_best_class_wins_and_the_lower_one_wins_a_tie() -> None:
    """Scores of 8-bit models tie often; the answer must not depend on the sort."""
    scores = np.array([[0, 2, 2], [1, 0, 0]], np.float32)
    assert top1(scores, np.array([1, 0])) == 1.0
    assert top1(scores, np.array([2, 0])) == 0.5
    assert best_classes(scores[0], 3).tolist() == [1, 2, 0]


def test_answers_that_are_no_numbers_are_counted() -> None:
    """NaN and infinity are refused, each answer counted once."""
    scores = np.zeros((360, 10), np.float32)
    scores[:11, 3] = np.nan
    scores[5, 4] = np.inf
    scores[40] = -np.inf
    with pytest.raises(DatasetError, match=r"^task digits: 12 of 360 answers are not finite$"):
        require_finite("digits", scores)
    require_finite("digits", np.zeros((2, 10), np.float32))
