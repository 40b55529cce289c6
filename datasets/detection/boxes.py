"""Boxes: their formats, and taking off those that say the same thing twice."""

import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.base import Array

Boxes = NDArray[np.float32]
#: Only so many of the strongest are compared; of fewer than a thousand kept none is missed.
MOST_COMPARED = 30_000


def as_corners(boxes: Array, box_format: str) -> Boxes:
    """Return boxes as ``(top, left, bottom, right)``.

    Args:
        boxes: Shape ``(n, 4)``.
        box_format: ``yxyx`` or ``xyxy``: two corners; ``xywh``: a corner and the size;
            ``cxcywh``: the centre and the size.
    """
    boxes = np.asarray(boxes, np.float32)
    if box_format == "yxyx":
        return boxes
    if box_format == "xyxy":
        return boxes[:, [1, 0, 3, 2]]
    x, y, width, height = boxes.T
    if box_format == "cxcywh":
        x, y = x - width / 2, y - height / 2
    return np.stack([y, x, y + height, x + width], axis=1)


def keep_strongest(
    boxes: Boxes, scores: NDArray[np.float32], classes: NDArray[np.int64], iou: float, most: int
) -> NDArray[np.intp]:
    """Return the places of the boxes that stay, best first: greedy NMS within each class.

    Args:
        boxes: Corners, shape ``(n, 4)``.
        scores: Shape ``(n,)``.
        classes: Shape ``(n,)``.
        iou: Overlap (intersection over union) above which the weaker box falls.
        most: How many may stay.
    """
    if not len(boxes):
        return np.empty(0, np.intp)
    # Boxes of different classes are moved apart, so that they cannot overlap.
    span = float(boxes.max() - boxes.min()) + 1
    top, left, bottom, right = (boxes + (classes * span).astype(np.float32)[:, None]).T
    area = (bottom - top) * (right - left)
    order = np.argsort(-scores, kind="stable")[:MOST_COMPARED]
    kept: list[int] = []
    while order.size and len(kept) < most:
        best, rest = order[0], order[1:]
        kept.append(int(best))
        height = np.minimum(bottom[best], bottom[rest]) - np.maximum(top[best], top[rest])
        width = np.minimum(right[best], right[rest]) - np.maximum(left[best], left[rest])
        shared = height.clip(0) * width.clip(0)
        order = rest[shared <= iou * (area[best] + area[rest] - shared)]
    return np.array(kept, np.intp)
