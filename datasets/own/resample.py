"""Resizing as OpenCV does: ``INTER_LINEAR`` and ``INTER_AREA``, without OpenCV.

Both are one weighted sum along each axis. Results are OpenCV's but for its fixed-point
rounding (a grey level here and there).
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
#: An old place for each new one, and what it counts there.
Tap = tuple[NDArray[np.int64], NDArray[np.float32]]


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
    flat = pixels.reshape(pixels.shape[0], -1)
    channels = flat.shape[1] // pixels.shape[1]
    rows = _summed(flat, _taps(pixels.shape[0], size[0], 1, method), axis=0)
    resized = _summed(rows, _taps(pixels.shape[1], size[1], channels, method), axis=1)
    # Weights are positive and add up to 1: nothing is out of range.
    levels: Pixels = np.rint(resized, out=resized).astype(np.uint8)
    return levels.reshape(*size, *pixels.shape[2:])


def _summed(values: NDArray[Any], taps: Sequence[Tap], axis: int) -> NDArray[np.float32]:
    """Return the weighted sums along *axis*."""
    across = (slice(None), None) if axis == 0 else (None, slice(None))
    parts = (
        np.multiply(np.take(values, places, axis=axis), weights[across]) for places, weights in taps
    )
    total: NDArray[np.float32] = next(parts)
    for part in parts:
        total += part
    return total


@lru_cache(maxsize=64)
def _taps(had: int, want: int, channels: int, method: str) -> tuple[Tap, ...]:
    """Return what each new place is the weighted sum of, one old place after the other.

    Most places of a weight matrix would be nought: that product is many times slower. Places
    count numbers, not pixels: *channels* of them lie side by side.
    """
    step = had / want
    if method == "area" and step > 1:
        begin, end = np.arange(want) * step, np.arange(1, want + 1) * step
        first = np.floor(begin).astype(np.int64)
        most = int((np.ceil(end).astype(np.int64) - first).max())
        taps = []
        for old in (first + place for place in range(most)):
            covered = np.minimum(end, old + 1) - np.maximum(begin, old)
            taps.append((old.clip(0, had - 1), covered.clip(0, 1) / step))
    else:
        centre = (np.arange(want) + 0.5) * step - 0.5
        below = np.floor(centre).astype(np.int64)
        rest = centre - below
        taps = [(below.clip(0, had - 1), 1 - rest), ((below + 1).clip(0, had - 1), rest)]
    side = np.arange(channels)
    return tuple(
        (
            (places[:, None] * channels + side).reshape(-1),
            np.repeat(weights.astype(np.float32), channels),
        )
        for places, weights in taps
    )
