"""What a segmentation is worth: overlap of what was found with what is there."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.base import Array
from edgeperf.datasets.metrics.bootstrap import Interval, Weights, with_intervals

#: For each class: places found, places there, places found that are there.
COLUMNS = 3


def overlaps(found: Array, truth: Array, classes: int) -> NDArray[np.float64]:
    """Count places of each class: found, there, and both; shape ``(classes, 3)``."""
    counts = np.bincount(
        truth.reshape(-1).astype(np.int64) * classes + found.reshape(-1).astype(np.int64),
        minlength=classes * classes,
    ).reshape(classes, classes)
    return np.stack([counts.sum(axis=0), counts.sum(axis=1), counts.diagonal()], axis=1).astype(
        np.float64
    )


def dice(
    counts: NDArray[np.floating], names: Sequence[str]
) -> tuple[dict[str, float], dict[str, Interval]]:
    """Return the mean DICE over samples: of each class but the first, and their mean.

    Args:
        counts: From :func:`overlaps`, shape ``(samples, classes, 3)``.
        names: Of the classes; the first is the background.

    Source:
        MLPerf 3D U-Net (KiTS19): ``2 |A and B| / (|A| + |B|)`` of each sample, 1 where a
        class is neither found nor there; means over samples, then over classes.
    """
    found, there, both = np.moveaxis(counts[:, 1:].astype(np.float64), -1, 0)
    total = found + there
    shares = np.ones_like(total)
    np.divide(2 * both, total, out=shares, where=total > 0)

    def measure(weights: Weights) -> dict[str, float]:
        means = weights @ shares / weights.sum()
        each = {f"dice[{name}]": float(value) for name, value in zip(names[1:], means, strict=True)}
        return {"dice": float(means.mean()), **each}

    return with_intervals(measure, len(counts))
