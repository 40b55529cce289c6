"""Metrics for a yes-or-no question with scores: ROC-AUC, PR-AUC, recall at a precision.

Equal scores are one threshold: an order among them would be luck. That is the whole
difference to the naive sums, and what makes 8-bit models (at most 256 scores) come out
right. The numbers are those of scikit-learn's ``roc_auc_score``,
``average_precision_score`` and ``precision_recall_curve``; no scikit-learn is needed.
"""

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.floating]
Flags = NDArray[np.bool_]


def has_both_classes(positive: Flags) -> bool:
    """Return whether the metrics below exist: some samples are positive and some are not."""
    return 0 < int(positive.sum()) < len(positive)


def _counts(scores: Scores, positive: Flags) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return true and false positives at each distinct threshold, highest score first."""
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    last_of_equals = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(ordered) - 1)
    true = np.cumsum(positive[order], dtype=np.int64)[last_of_equals]
    return true, last_of_equals + 1 - true


def roc_auc(scores: Scores, positive: Flags) -> float:
    """Return the probability that a positive scores above a negative, a tie counting half.

    Args:
        scores: Higher means more likely positive, shape ``(n,)``.
        positive: The truth, shape ``(n,)``; both classes occur.

    Source:
        Area under the ROC curve by the trapezoidal rule over distinct thresholds, which
        is the Mann-Whitney statistic divided by the number of pairs.
    """
    true, false = _counts(scores, positive)
    width = np.diff(false, prepend=0)
    height = true + np.append(0, true[:-1])
    return float((width * height).sum() / 2 / (int(true[-1]) * int(false[-1])))


def average_precision(scores: Scores, positive: Flags) -> float:
    """Return PR-AUC as average precision: precision at each threshold times its gain in recall.

    Args:
        scores: Higher means more likely positive, shape ``(n,)``.
        positive: The truth, shape ``(n,)``; at least one is.

    Source:
        scikit-learn, ``average_precision_score``: no interpolation between thresholds,
        which would flatter.
    """
    true, false = _counts(scores, positive)
    gain = np.diff(true, prepend=0) / true[-1]
    return float((gain * true / (true + false)).sum())


def recall_at_precision(scores: Scores, positive: Flags, precision: float) -> float:
    """Return the highest recall among thresholds whose precision is at least *precision*.

    Args:
        scores: Higher means more likely positive, shape ``(n,)``.
        positive: The truth, shape ``(n,)``; at least one is.
        precision: 0 to 1.

    Returns:
        0 to 1; 0 if no threshold is that precise.
    """
    true, false = _counts(scores, positive)
    precise = true >= precision * (true + false)
    return float(true[precise].max(initial=0) / true[-1])
