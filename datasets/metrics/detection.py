"""Mean average precision by pycocotools, and its interval.

The values are pycocotools' own. The interval comes from the matches that it found: images
count as often as a draw with replacement has them, and nothing is matched again.
"""

import contextlib
import io
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.base import DatasetError
from edgeperf.datasets.metrics.bootstrap import Interval, Weights, with_intervals

#: Places of pycocotools' summary and what they are.
STATS = {
    "mAP": 0,
    "AP50": 1,
    "AP75": 2,
    "AP_small": 3,
    "AP_medium": 4,
    "AP_large": 5,
    "AR1": 6,
    "AR10": 7,
    "AR100": 8,
}
RESAMPLES = 200
#: Detections in all draws together, about: many detections have fewer draws.
_MOST_DRAWN, _FEWEST_DRAWS = 10_000_000, 40
#: Where of the ten overlaps from 0.5 on 0.5 and 0.75 are.
_AT_50, _AT_75 = 0, 5
#: pycocotools' sizes of boxes, in its order; the first is all of them.
_SIZES = ("", "AP_small", "AP_medium", "AP_large")


def require_pycocotools(task: str) -> None:
    """Make sure, before anything is measured, that detections can be scored afterwards.

    Raises:
        DatasetError: pycocotools is not installed.
    """
    if find_spec("pycocotools") is None:
        raise DatasetError(
            f"task {task}: mean average precision needs pycocotools; pip install"
            " 'edgeperf[metrics]'"
        )


class Truth(msgspec.Struct, frozen=True):
    """What pycocotools compares with: images, categories and boxes, in COCO's words."""

    images: Sequence[dict[str, Any]]
    categories: Sequence[dict[str, Any]]
    annotations: Sequence[dict[str, Any]]


def mean_average_precision(
    truth: Truth, detections: Sequence[dict[str, Any]]
) -> tuple[dict[str, float], dict[str, Interval]]:
    """Return COCO's metrics of *detections*, and their intervals.

    Args:
        truth: What is right.
        detections: COCO's result format: ``image_id``, ``category_id``, ``bbox`` (left,
            top, width, height in pixels), ``score``.

    Source:
        pycocotools, ``COCOeval`` for boxes: overlaps 0.50 to 0.95, 101 recalls, at most
        100 detections of an image.
    """
    if not detections:  # pycocotools cannot load none
        return dict.fromkeys(STATS, 0.0), {}
    coco, evaluate = (import_module(f"pycocotools.{name}") for name in ("coco", "cocoeval"))
    with contextlib.redirect_stdout(io.StringIO()):
        right = coco.COCO()
        right.dataset = {
            "info": {},
            "images": list(truth.images),
            "categories": list(truth.categories),
            "annotations": [dict(box) for box in truth.annotations],
        }
        right.createIndex()
        given = right.loadRes([dict(detection) for detection in detections])
        evaluation = evaluate.COCOeval(right, given, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    metrics = {
        name: float(evaluation.stats[place])
        for name, place in STATS.items()
        if evaluation.stats[place] >= 0  # -1: no such box in the truth
    }
    matches = _Matches(evaluation)
    draws = max(_FEWEST_DRAWS, min(RESAMPLES, _MOST_DRAWN // max(1, len(detections))))
    _, intervals = with_intervals(matches.measure, len(truth.images), resamples=draws)
    return metrics, intervals


class _Matches:
    """What pycocotools matched, category by category, sorted once by score."""

    def __init__(self, evaluation: Any) -> None:
        self._recalls = evaluation.params.recThrs
        self._most = evaluation.params.maxDets
        images, sizes = len(evaluation.params.imgIds), len(evaluation.params.areaRng)
        self._of_size = [
            [
                category
                for place in range(len(evaluation.params.catIds))
                if (category := _category(evaluation, (place * sizes + size) * images, images))
                is not None
            ]
            for size in range(sizes)
        ]

    def measure(self, weights: Weights) -> dict[str, float]:
        """Return the metrics when images count *weights* times; those that do not exist are out."""
        values = {}
        for name, categories in zip(_SIZES, self._of_size, strict=True):
            precisions = np.array(list(self._precisions(categories, weights)))
            if len(precisions) and name:
                values[name] = float(precisions.mean())
            elif len(precisions):
                values["mAP"] = float(precisions.mean())
                values["AP50"] = float(precisions[:, _AT_50].mean())
                values["AP75"] = float(precisions[:, _AT_75].mean())
        return values | self._recall(weights)

    def _precisions(
        self, categories: Sequence["_Category"], weights: Weights
    ) -> Iterator[NDArray[np.float64]]:
        """Yield the average precision at each overlap, for each category that has boxes."""
        for category in categories:
            boxes = float(category.boxes @ weights)
            if boxes:
                counted = weights[category.image]
                right = np.cumsum(category.right * counted, axis=1, dtype=np.float64)
                wrong = np.cumsum(category.wrong * counted, axis=1, dtype=np.float64)
                yield np.array(
                    [
                        _average(hits, misses, boxes, self._recalls)
                        for hits, misses in zip(right, wrong, strict=True)
                    ]
                )

    def _recall(self, weights: Weights) -> dict[str, float]:
        """Return the share of boxes found among the best few detections of each image."""
        found = [
            (category.hits @ weights).mean(axis=1) / boxes
            for category in self._of_size[0]
            if (boxes := float(category.boxes @ weights))
        ]
        if not found:
            return {}
        means = np.mean(found, axis=0)
        return {f"AR{most}": float(means[place]) for place, most in enumerate(self._most)}


class _Category(msgspec.Struct, frozen=True):
    """Detections of one category, best first, and the boxes of each image.

    Attributes:
        image: Of each detection.
        right: Whether it covers a box, for each overlap.
        wrong: Whether it covers none.
        boxes: How many each image has.
        hits: How many of those its best few detections cover, shape (numbers of detections,
            overlaps, images).
    """

    image: NDArray[np.intp]
    right: NDArray[np.bool_]
    wrong: NDArray[np.bool_]
    boxes: NDArray[np.int64]
    hits: NDArray[np.int64]


def _category(evaluation: Any, start: int, images: int) -> _Category | None:
    """Collect what pycocotools found for one category over all sizes; None without a box."""
    found = [
        (image, entry)
        for image, entry in enumerate(evaluation.evalImgs[start : start + images])
        if entry is not None
    ]
    boxes = np.zeros(images, np.int64)
    most, overlaps = evaluation.params.maxDets, len(evaluation.params.iouThrs)
    hits = np.zeros((len(most), overlaps, images), np.int64)
    for image, entry in found:
        boxes[image] = int((~np.asarray(entry["gtIgnore"], bool)).sum())
        right = (entry["dtMatches"] > 0) & ~np.asarray(entry["dtIgnore"], bool)
        for place, count in enumerate(most):
            hits[place, :, image] = right[:, :count].sum(axis=1)
    if not boxes.any():
        return None
    scores = np.concatenate([np.asarray(entry["dtScores"], float) for _, entry in found])
    image_of = np.concatenate([np.full(len(entry["dtScores"]), image) for image, entry in found])
    matched = np.concatenate([entry["dtMatches"] for _, entry in found], axis=1) > 0
    ignored = np.concatenate([entry["dtIgnore"] for _, entry in found], axis=1) > 0
    order = np.argsort(-scores, kind="mergesort")
    matched, ignored = matched[:, order], ignored[:, order]
    return _Category(
        image_of[order].astype(np.intp), matched & ~ignored, ~matched & ~ignored, boxes, hits
    )


def _average(
    hits: NDArray[np.float64], misses: NDArray[np.float64], boxes: float, recalls: Any
) -> float:
    """Return the mean of the best precision at each recall, as ``accumulate`` has it."""
    if not len(hits):
        return 0.0
    precision = hits / np.maximum(hits + misses, np.spacing(1))
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(hits / boxes, recalls, side="left")
    reached = places < len(precision)
    return float(precision[places[reached]].sum() / len(recalls))
