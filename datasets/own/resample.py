"""Resizing as OpenCV does: ``INTER_LINEAR`` and ``INTER_AREA``, without OpenCV.

Both are one weighted sum along each axis. Results are OpenCV's but for its fixed-point
rounding (a grey level here and there).
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]


def resampled(pixels: Pixels, size: tuple[int, int], method: str) -> Pixels:
    """Resize an image.

    Args:
        pixels: Height first, with or without channels.
        size: Height and width wanted.
        method: ``linear`` or ``area``; the latter enlarges as ``linear`` does.

    Source:
        OpenCV, ``imgproc/src/resize.cpp``: sample centres at half pixels, edges repeated;
        area: each pixel counts with the share of it that lies under the new one.
    """
    down, across = (
        _weights(had, want, method) for had, want in zip(pixels.shape[:2], size, strict=True)
    )
    flat = pixels.reshape(pixels.shape[0], -1).astype(np.float32)
    rows = (down @ flat).reshape(size[0], *pixels.shape[1:])
    resized = np.einsum("wx,hx...->hw...", across, rows, optimize=True)
    levels: Pixels = np.rint(resized).clip(0, 255).astype(np.uint8)
    return levels


@lru_cache(maxsize=64)
def _weights(had: int, want: int, method: str) -> NDArray[np.float32]:
    """Return the share of each old place in each new one, shape ``(want, had)``."""
    step = had / want
    if method == "area" and step > 1:
        edges = np.arange(want + 1) * step
        old = np.arange(had)
        covered = np.minimum(edges[1:, None], old + 1) - np.maximum(edges[:-1, None], old)
        shares: NDArray[np.float32] = (covered.clip(0, 1) / step).astype(np.float32)
        return shares
    centre = (np.arange(want) + 0.5) * step - 0.5
    below = np.floor(centre).astype(np.int64)
    rest = centre - below
    weights = np.zeros((want, had))
    place = np.arange(want)
    np.add.at(weights, (place, below.clip(0, had - 1)), 1 - rest)
    np.add.at(weights, (place, (below + 1).clip(0, had - 1)), rest)
    return weights.astype(np.float32)
