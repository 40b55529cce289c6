"""Metrics of a yes-or-no question with scores: areas, and what a threshold gives.

Equal scores are one threshold: an order among them would be luck. That is the whole
difference to the naive sums, and what makes 8-bit models (at most 256 scores) come out
right. The numbers are those of scikit-learn's ``roc_auc_score``,
``average_precision_score`` and ``precision_recall_curve``.
"""

from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.metrics.bootstrap import Weights

Scores = NDArray[np.floating]
Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]
Cost = Annotated[float, msgspec.Meta(ge=0)]


def has_both_classes(positive: Flags) -> bool:
    """Return whether the metrics below exist: some samples are positive and some are not."""
    return 0 < int(positive.sum()) < len(positive)


class Costs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a wrong answer costs, in any unit.

    Attributes:
        miss: A positive answered with no.
        false_alarm: A negative answered with yes.
    """

    miss: Cost
    false_alarm: Cost


class Ranking:
    """Scores and truth, sorted once."""

    def __init__(self, scores: Scores, positive: Flags) -> None:
        """Sort.

        Args:
            scores: Higher means more likely positive, shape ``(n,)``, finite.
            positive: The truth, shape ``(n,)``.
        """
        self._order = np.argsort(-scores, kind="stable")
        ordered = scores[self._order]
        self._last = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(ordered) - 1)
        self._thresholds = ordered[self._last]
        self._positive = positive[self._order]

    def curve(self, weights: Weights | None = None) -> "Curve":
        """Return what each threshold gives when samples count *weights* times (None: once)."""
        counted = np.ones(len(self._order), np.int64) if weights is None else weights[self._order]
        true = np.cumsum(counted * self._positive)[self._last]
        return Curve(self._thresholds, true, np.cumsum(counted)[self._last] - true)


class Curve:
    """What each distinct threshold gives, highest first: "yes" from that score upwards.

    Attributes:
        positives: How many samples are positive.
        negatives: How many are not.
    """

    def __init__(self, thresholds: Scores, true: Counts, false: Counts) -> None:
        """Take true and false positives at each threshold."""
        self._thresholds = thresholds
        self._true = true
        self._false = false
        self.positives = int(true[-1])
        self.negatives = int(false[-1])

    @property
    def base_rate(self) -> float:
        """Return the share of positives: the PR-AUC of answers that know nothing."""
        return self.positives / (self.positives + self.negatives)

    def areas(self) -> dict[str, float]:
        """Return both areas and the base rate, by the names of metrics; none without both kinds."""
        if not self.positives or not self.negatives:
            return {}
        return {
            "roc_auc": self.roc_auc(),
            "pr_auc": self.average_precision(),
            "base_rate": self.base_rate,
        }

    def roc_auc(self) -> float:
        """Return the probability that a positive scores above a negative, a tie counting half.

        Source:
            Area under the ROC curve by the trapezoidal rule over distinct thresholds,
            which is the Mann-Whitney statistic divided by the number of pairs.
        """
        width = np.diff(self._false, prepend=0)
        height = self._true + np.append(0, self._true[:-1])
        return float((width * height).sum() / 2 / (self.positives * self.negatives))

    def _precision(self) -> NDArray[np.float64]:
        both = self._true + self._false
        precision = np.zeros(len(both))
        np.divide(self._true, both, out=precision, where=both > 0)
        return precision

    def average_precision(self) -> float:
        """Return PR-AUC as average precision: precision at each threshold times its gain.

        Source:
            scikit-learn, ``average_precision_score``: no interpolation between thresholds,
            which would flatter.
        """
        gain = np.diff(self._true, prepend=0) / self.positives
        return float((gain * self._precision()).sum())

    def recall_at_precision(self, precision: float) -> tuple[float, float]:
        """Return the highest recall whose precision is at least *precision*, and its threshold.

        Returns:
            Recall, 0 if no threshold is that precise, and the highest threshold that
            gives it, infinite in that case.
        """
        reached = np.where(self._precision() >= precision, self._true, 0)
        best = int(reached.argmax())
        if not reached[best]:
            return 0.0, float("inf")
        return float(reached[best] / self.positives), float(self._thresholds[best])

    def precision_at_recall(self, recall: float) -> tuple[float, float]:
        """Return the highest precision whose recall is at least *recall*, and its threshold."""
        enough = self._true >= recall * self.positives
        best = int(np.where(enough, self._precision(), -1).argmax())
        return float(self._precision()[best]), float(self._thresholds[best])

    def at(self, threshold: float) -> tuple[int, int]:
        """Return true and false positives when "yes" is a score of at least *threshold*."""
        above = int((self._thresholds >= threshold).sum())
        return (int(self._true[above - 1]), int(self._false[above - 1])) if above else (0, 0)

    def cost_at(self, threshold: float, costs: Costs) -> float:
        """Return the expected cost of one sample at *threshold*."""
        true, false = self.at(threshold)
        missed = self.positives - true
        return (costs.miss * missed + costs.false_alarm * false) / (self.positives + self.negatives)

    def least_cost(self, costs: Costs) -> tuple[float, float]:
        """Return the lowest expected cost of one sample, and the threshold that has it.

        The threshold is infinite where never saying yes is cheapest.
        """
        missed = self.positives - np.append(0, self._true)
        total = costs.miss * missed + costs.false_alarm * np.append(0, self._false)
        best = int(total.argmin())
        threshold = float(self._thresholds[best - 1]) if best else float("inf")
        return float(total[best] / (self.positives + self.negatives)), threshold
