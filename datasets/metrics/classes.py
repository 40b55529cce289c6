"""Metrics of answers that name one class: shares, averages over classes, calibration."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.metrics.bootstrap import Weights
from edgeperf.datasets.score import ClassScore

Classes = NDArray[np.int64]
#: Bins of the calibration error, as in the paper that introduced it.
BINS = 15
#: With more classes than this, only the averages are metrics; the table has each class.
MOST_NAMED = 20

_Column = NDArray[np.float64]


def confusion(labels: Classes, answers: Classes, count: int) -> NDArray[np.int64]:
    """Return how often each class (row) was answered with each (column)."""
    return np.bincount(labels * count + answers, minlength=count * count).reshape(count, count)


class Decided:
    """Truth and one answer for each sample."""

    def __init__(self, labels: Classes, answers: Classes, names: Sequence[str]) -> None:
        """Take labels and answers, both shape ``(n,)``, and the name of each class."""
        self._labels = labels
        self._answers = answers
        self._right = labels == answers
        self._names = names

    def measure(self, weights: Weights) -> dict[str, float]:
        """Return the averages over classes that occur, and each class where they are few.

        Source:
            scikit-learn, ``balanced_accuracy_score`` and ``f1_score(average="macro")``.
        """
        table = self._table(weights)
        occurs = table.true > 0
        seen = occurs | (table.answered > 0)
        values = {
            "balanced_accuracy": float(table.recall[occurs].mean()),
            "macro_f1": float(table.f1[seen].mean()),
        }
        if len(self._names) <= MOST_NAMED:
            for place in np.flatnonzero(occurs).tolist():
                name = self._names[place]
                values[f"recall[{name}]"] = float(table.recall[place])
                values[f"precision[{name}]"] = float(table.precision[place])
                values[f"f1[{name}]"] = float(table.f1[place])
        return values

    def scores(self) -> tuple[ClassScore, ...]:
        """Return every class."""
        table = self._table(np.ones(len(self._labels), np.int64))
        columns = (table.true, table.precision, table.recall, table.f1)
        return tuple(
            ClassScore(name=name, samples=int(true), precision=precision, recall=recall, f1=f1)
            for name, true, precision, recall, f1 in zip(
                self._names, *(column.tolist() for column in columns), strict=True
            )
        )

    def _table(self, weights: Weights) -> "_Table":
        counted = [
            np.bincount(which, weights=weighted, minlength=len(self._names)).astype(np.float64)
            for which, weighted in (
                (self._labels, weights),
                (self._answers, weights),
                (self._labels, weights * self._right),
            )
        ]
        return _Table(*counted)


class _Table:
    """One number per class: how often it is true, is answered, and what follows."""

    def __init__(self, true: _Column, answered: _Column, both: _Column) -> None:
        self.true = true
        self.answered = answered
        self.precision = _quotient(both, answered)
        self.recall = _quotient(both, true)
        self.f1 = _quotient(2 * both, true + answered)


def _quotient(part: _Column, whole: _Column) -> _Column:
    quotient = np.zeros(len(whole))
    np.divide(part, whole, out=quotient, where=whole > 0)
    return quotient


def calibration_error(
    confidence: NDArray[np.floating], right: NDArray[np.bool_], weights: Weights
) -> float:
    """Return the expected calibration error: how far stated probabilities are from the truth.

    Args:
        confidence: Probability of the answer given, 0 to 1, shape ``(n,)``.
        right: Whether that answer is right, shape ``(n,)``.
        weights: How often each sample counts.

    Source:
        Guo et al. 2017, "On Calibration of Modern Neural Networks": 15 bins of equal
        width, ``sum of |right - confidence| weighted by the bin's share``.
    """
    bins = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
    stated = np.bincount(bins, weights=weights * confidence, minlength=BINS)
    found = np.bincount(bins, weights=weights * right, minlength=BINS)
    return float(np.abs(stated - found).sum() / weights.sum())
