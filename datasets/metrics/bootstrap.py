"""Confidence intervals: what the value would have been on other samples of the same kind."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

#: How often each sample counts.
Weights = NDArray[np.int64]
#: Metrics for these weights; one that does not exist for them is left out or NaN.
Measure = Callable[[Weights], dict[str, float]]
Interval = tuple[float, float]

RESAMPLES = 1000
#: Of very many samples fewer draws do: the interval is narrow anyway.
_MOST_DRAWN = 200_000_000
_FEWEST_RESAMPLES = 100
_PERCENT = (2.5, 97.5)


def with_intervals(
    measure: Measure, samples: int, *, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[dict[str, float], dict[str, Interval]]:
    """Return each metric and its 95 % interval; the same answers give the same interval.

    Args:
        measure: The metrics.
        samples: How many samples there are, at least 1.
        resamples: How many draws with replacement.
        seed: Of the draws.

    Source:
        Efron, percentile bootstrap: the 2.5th and 97.5th percentile of the metric over
        draws, with replacement, of as many samples. A metric that does not exist for most
        draws (recall where no draw has a positive) gets no interval.
    """
    values = _existing(measure(np.ones(samples, np.int64)))
    random = np.random.default_rng(seed)
    draws: dict[str, list[float]] = {name: [] for name in values}
    count = min(resamples, max(_FEWEST_RESAMPLES, _MOST_DRAWN // samples))
    for _ in range(count):
        weights = np.bincount(random.integers(samples, size=samples), minlength=samples)
        drawn = measure(weights)
        for name, found in draws.items():
            value = drawn.get(name, np.nan)
            if np.isfinite(value):
                found.append(value)
    return values, {
        name: _interval(found) for name, found in draws.items() if 2 * len(found) > count
    }


def _existing(values: dict[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if np.isfinite(value)}


def _interval(found: list[float]) -> Interval:
    low, high = np.percentile(found, _PERCENT)
    return float(low), float(high)


def mean_of(name: str, values: NDArray[np.floating]) -> Measure:
    """Return the measure that is the mean of one value per sample."""

    def measure(weights: Weights) -> dict[str, float]:
        return {name: float(values @ weights / weights.sum())}

    return measure
