"""Metrics of yes-or-no scores are scikit-learn's, for any ties, weights and degenerate input."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeperf.datasets.base import DatasetError
from edgeperf.datasets.classification import best_classes, require_finite
from edgeperf.datasets.metrics.ranking import Costs, Ranking, has_both_classes

Case = tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.int64]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw scores with many ties, labels of both kinds, and how often each sample counts."""
    levels = draw(st.sampled_from([2, 5, 256]))
    one = st.tuples(st.integers(0, levels), st.booleans(), st.integers(0, 3))
    rows = draw(st.lists(one, min_size=0, max_size=60))
    rows += [(draw(st.integers(0, levels)), kind, 1) for kind in (True, False)]
    scores, positive, weights = zip(*rows, strict=True)
    return (
        (np.array(scores) / levels).astype(np.float32),
        np.array(positive, np.bool_),
        np.array(weights, np.int64),
    )


@given(cases())
def test_areas_are_scikit_learns(sklearn_metrics: Any, case: Case) -> None:
    """ROC-AUC and average precision, for samples that count several times or not at all."""
    scores, positive, weights = case
    curve = Ranking(scores, positive).curve(weights)
    options = {"sample_weight": weights}
    assert curve.roc_auc() == pytest.approx(
        sklearn_metrics.roc_auc_score(positive, scores, **options)
    )
    assert curve.average_precision() == pytest.approx(
        sklearn_metrics.average_precision_score(positive, scores, **options)
    )
    assert curve.base_rate == pytest.approx(np.average(positive, weights=weights))


@given(cases(), st.sampled_from([0.2, 0.5, 0.8, 0.95, 1.0]))
def test_operating_points_are_the_best_of_scikit_learns_curve(
    sklearn_metrics: Any, case: Case, wanted: float
) -> None:
    """Recall at a precision and precision at a recall, each with the threshold that gives it."""
    scores, positive, _ = case
    curve = Ranking(scores, positive).curve()
    precisions, recalls, _ = sklearn_metrics.precision_recall_curve(positive, scores)
    recall, threshold = curve.recall_at_precision(wanted)
    # The last point of scikit-learn's curve is no threshold: precision 1 by convention.
    assert recall == pytest.approx(max(recalls[:-1][precisions[:-1] >= wanted], default=0.0))
    if recall:
        said = scores >= threshold
        assert (said & positive).sum() / positive.sum() == pytest.approx(recall)
        assert positive[said].mean() >= wanted
    precision, threshold = curve.precision_at_recall(wanted)
    assert precision == pytest.approx(max(precisions[:-1][recalls[:-1] >= wanted]))
    said = scores >= threshold
    assert positive[said].mean() == pytest.approx(precision)


@given(cases(), st.floats(0, 1))
def test_threshold_and_cost_count_the_errors(case: Case, threshold: float) -> None:
    """The cost at a threshold is what the misses and false alarms there cost; none is less."""
    scores, positive, weights = case
    curve = Ranking(scores, positive).curve(weights)
    costs = Costs(miss=7.0, false_alarm=2.0)

    def cost(at: float) -> float:
        said = scores >= at
        wrong = 7.0 * (positive & ~said) + 2.0 * (~positive & said)
        return float((wrong * weights).sum() / weights.sum())

    assert curve.cost_at(threshold, costs) == pytest.approx(cost(threshold))
    least, best = curve.least_cost(costs)
    assert least == pytest.approx(cost(best))
    every = [*scores.tolist(), np.inf]
    assert least == pytest.approx(min(map(cost, every)))


def test_metrics_of_known_scores() -> None:
    """The example of scikit-learn's own documentation gives its published values."""
    scores, positive = np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True])
    curve = Ranking(scores, positive).curve()
    assert curve.roc_auc() == 0.75
    assert curve.average_precision() == pytest.approx(0.8333, abs=1e-4)
    assert curve.recall_at_precision(1.0) == (0.5, 0.8)
    assert curve.precision_at_recall(1.0) == pytest.approx((2 / 3, 0.35))


def test_order_within_equal_scores_does_not_matter() -> None:
    """A constant score is worth nothing, whichever class is listed first."""
    positive = np.array([True] * 5 + [False] * 15)
    for order in (positive, positive[::-1]):
        curve = Ranking(np.zeros(20), order).curve()
        assert curve.roc_auc() == 0.5
        assert curve.average_precision() == 0.25


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
            Ranking(mine[column], mine["label"] == 1).curve().roc_auc()
            for column in ("score_f32", "score_int8")
        ]
        assert found == pytest.approx(expected, abs=5e-5)


def test_the_lower_class_wins_a_tie() -> None:
    """Scores of 8-bit models tie often; the answer must not depend on the sort."""
    assert best_classes(np.array([0, 2, 2], np.float32), 3).tolist() == [1, 2, 0]


def test_answers_that_are_no_numbers_are_counted() -> None:
    """NaN and infinity are refused, each answer counted once."""
    scores = np.zeros((360, 10), np.float32)
    scores[:11, 3] = np.nan
    scores[5, 4] = np.inf
    scores[40] = -np.inf
    with pytest.raises(DatasetError, match=r"^task digits: 12 of 360 answers are not finite$"):
        require_finite("digits", scores)
    require_finite("digits", np.zeros((2, 10), np.float32))
