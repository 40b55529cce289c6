"""Annotated photographs for a detector: the library that a run asks for.

A prediction has one row for each detection, best first: top, left, bottom, right as shares
of the photograph's sides, score, category; the category is -1 where there is none left.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.base import Array, DatasetError
from edgeperf.datasets.classification import require_finite
from edgeperf.datasets.detection.boxes import keep_strongest
from edgeperf.datasets.detection.coco import Annotated, read_coco
from edgeperf.datasets.detection.heads import Found, class_count, make_head
from edgeperf.datasets.encoding import one_input
from edgeperf.datasets.metrics.detection import (
    Truth,
    mean_average_precision,
    require_pycocotools,
)
from edgeperf.datasets.metrics.scoring import gated
from edgeperf.datasets.own.images import ImageMaker, placement, recipe_of
from edgeperf.datasets.own.inputs import PixelEncoder, image_size
from edgeperf.datasets.own.taskfile import TaskFile
from edgeperf.datasets.score import Remark, Score, Shown
from edgeperf.datasets.tensors import TensorSpec

COLUMNS = 6
SCORE, CATEGORY = 4, 5
NONE = -1
#: A detector below this AP50 finds nothing on purpose, where there are boxes enough to tell.
_USELESS, _FEWEST = 0.1, 20
#: MLPerf's log has seven numbers for each detection.
_LOGGED = 7


class Detection:
    """Annotated photographs of the user's, or of COCO.

    Attributes:
        annotated: The photographs and what is on them.
    """

    def __init__(
        self,
        name: str,
        task: TaskFile,
        data: Path,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
    ) -> None:
        """Check that annotations, task and model fit.

        Raises:
            DatasetError: They do not, or something that scoring needs is not installed.
        """
        require_pycocotools(name)
        spec = one_input("of your own", inputs)
        self._name = name
        self._task = task
        self._inputs = tuple(inputs)
        self._size = image_size(task.input, spec)
        self.annotated: Annotated = read_coco(data, task.data.images)
        self._head = make_head(task.output, outputs, self._size)
        self._maker = ImageMaker(task.input, self._size)
        self._encoder = PixelEncoder(task.input, spec, self._size)
        self._categories = _categories(task, self.annotated, class_count(task.output, outputs))
        self._undo = [
            _undoing(task, picture.size, self._size) for picture in self.annotated.pictures
        ]

    def __len__(self) -> int:
        """Return how many photographs there are."""
        return len(self.annotated.pictures)

    def write(self, index: int, out: Sequence[Array]) -> None:
        """Make the model's input of photograph *index*."""
        self._encoder.write(self._maker.decode(self.annotated.pictures[index].path), out[0])

    def files(self, index: int) -> tuple[Path, ...]:
        """Return the file of photograph *index*."""
        return (self.annotated.pictures[index].path,)

    @property
    def recipe(self) -> bytes:
        """Return what decides how a file becomes an input."""
        return recipe_of(self._task.input, self._inputs)

    @property
    def prediction_shape(self) -> tuple[int, ...]:
        """One row for each detection."""
        return (self._task.output.most, COLUMNS)

    @property
    def payload_bytes(self) -> int:
        """Seven numbers for each detection."""
        return 4 * _LOGGED * self._task.output.most

    def predict(self, index: int, outputs: Sequence[Array], out: Array) -> None:
        """Read boxes, take off doubles, and bring them back onto photograph *index*."""
        recipe = self._task.output
        found = self._head(outputs)
        if not (np.isfinite(found.scores).all() and np.isfinite(found.boxes).all()):
            out[...] = np.nan
            return
        kept = _strongest(found, recipe.score_at_least, recipe.nms_iou, recipe.most)
        count = len(kept.scores)
        start, scale = self._undo[index]
        shares = (kept.boxes - start) * scale
        out[:count, :4] = shares.clip(0, 1) if recipe.clip else shares
        out[:count, SCORE] = kept.scores
        # The last entry stands for whatever is no category.
        places = kept.classes + recipe.class_offset
        outside = (places < 0) | (places >= len(self._categories))
        out[:count, CATEGORY] = self._categories[np.where(outside, -1, places)]
        out[count:] = (0, 0, 0, 0, 0, NONE)

    def payload(self, index: int, prediction: Array, out: NDArray[np.uint8]) -> int:
        """Write seven float32 for each detection, which ``accuracy-coco.py`` reads."""
        found = prediction[prediction[:, CATEGORY] != NONE]
        rows = out[: 4 * _LOGGED * len(found)].view(np.float32).reshape(-1, _LOGGED)
        rows[:, 0] = index
        rows[:, 1:] = found
        return rows.nbytes

    def score(self, predictions: NDArray[np.float32]) -> Score:
        """Return mean average precision and its kin.

        Raises:
            DatasetError: An answer is not finite.
        """
        require_finite(self._name, predictions)
        metrics, intervals = mean_average_precision(self._truth(), self._detections(predictions))
        score = gated(self._task.gate, metrics, intervals, len(predictions))
        return msgspec.structs.replace(score, remarks=tuple(self._remarks(predictions, metrics)))

    def _remarks(
        self, predictions: NDArray[np.float32], metrics: Mapping[str, float]
    ) -> Iterator[Remark]:
        found = predictions[predictions[..., CATEGORY] != NONE]
        strangers = int((found[:, CATEGORY] == self._categories[-1]).sum())
        if not len(found):
            yield Remark(code="no-detections", text="the model found nothing", doubt=True)
        if (ap50 := metrics["AP50"]) < _USELESS and len(self.annotated.boxes) >= _FEWEST:
            text = (
                f"AP50 {ap50:.4f} is little more than boxes at random: are photographs, boxes and"
                " classes what the model was trained with?"
            )
            yield Remark(code="chance", text=text, doubt=True)
        if strangers:
            text = (
                f"{strangers} of {len(found)} detections are of a class that is no category: see"
                " class_offset and class_is in the task file"
            )
            yield Remark(code="strange-classes", text=text, doubt=True)

    def _truth(self) -> Truth:
        names = self.annotated.names
        return Truth(
            [
                {"id": picture.id, "height": picture.size[0], "width": picture.size[1]}
                for picture in self.annotated.pictures
            ],
            [{"id": number, "name": name} for number, name in names.items()],
            self.annotated.boxes,
        )

    def _detections(self, predictions: NDArray[np.float32]) -> list[dict[str, object]]:
        detections: list[dict[str, object]] = []
        for picture, rows in zip(self.annotated.pictures, predictions, strict=True):
            height, width = picture.size
            found = rows[rows[:, CATEGORY] != NONE]
            # In float32, as MLPerf's script has it: the last digits are to agree.
            corners = found[:, :4] * np.array([height, width, height, width], np.float32)
            boxes = np.stack(
                [corners[:, 1], corners[:, 0], corners[:, 3] - corners[:, 1],
                 corners[:, 2] - corners[:, 0]], axis=1
            )  # fmt: skip
            detections += [
                {
                    "image_id": picture.id,
                    "category_id": int(row[CATEGORY]),
                    "bbox": list(map(float, box)),
                    "score": float(row[SCORE]),
                }
                for row, box in zip(found, boxes, strict=True)
            ]
        return detections

    def shown(self, index: int, prediction: Array) -> Shown:
        """Put photograph *index* and the boxes found into words; the best one decides."""
        picture = self.annotated.pictures[index]
        boxes = [box for box in self.annotated.boxes if box["image_id"] == picture.id]
        there = [self.annotated.names[box["category_id"]] for box in boxes]
        found = prediction[prediction[:, CATEGORY] != NONE]
        given = [
            f"{self.annotated.names.get(int(row[CATEGORY]), int(row[CATEGORY]))} ({row[SCORE]:.2f})"
            for row in found[:4]
        ]
        right = bool(len(found)) and _is_there(found[0], boxes, picture.size)
        truth = ", ".join(f"{there.count(name)} {name}" for name in sorted(set(there))) or "nothing"
        return Shown(
            name=str(picture.path),
            truth=truth,
            answer=", ".join(given) or "nothing",
            right=right if boxes else None,
            label=1 if boxes else -1,
            given=int(right) if boxes else -1,
        )


def _strongest(found: Found, least: float, iou: float | None, most: int) -> Found:
    """Return what is strong enough, without doubles, best first."""
    strong = found.scores >= least
    boxes, scores, classes = found.boxes[strong], found.scores[strong], found.classes[strong]
    if iou is not None:
        order = keep_strongest(boxes, scores, classes, iou, most)
    else:
        order = np.argsort(-scores, kind="stable")[:most]
    return Found(boxes[order], scores[order], classes[order])


def _is_there(row: Array, boxes: Sequence[dict[str, Any]], size: tuple[int, int]) -> bool:
    """Say whether a detection covers a box of its category, half of both together."""
    top, left, bottom, right = row[:4] * np.array([*size, *size])
    for box in boxes:
        x, y, width, height = box["bbox"]
        across = max(0.0, min(right, x + width) - max(left, x))
        down = max(0.0, min(bottom, y + height) - max(top, y))
        together = (bottom - top) * (right - left) + width * height - across * down
        if box["category_id"] == row[CATEGORY] and 2 * across * down >= together > 0:
            return True
    return False


def _undoing(
    task: TaskFile, size: tuple[int, int], target: tuple[int, int]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return what to subtract and multiply to get from the input's pixels to shares."""
    placed = placement(task.input, size, target)
    scale = [1 / (placed.scale[axis] * size[axis]) for axis in (0, 1)]
    return np.array(placed.start * 2, np.float32), np.array(scale * 2, np.float32)


def _categories(task: TaskFile, annotated: Annotated, told: int | None) -> NDArray[np.float32]:
    """Return the category of each class of the model; last, one that is none.

    Raises:
        DatasetError: Classes and categories do not fit.
    """
    numbers = sorted(annotated.names)
    stranger = numbers[-1] + 1
    if task.output.class_is == "id" and not task.classes:
        known = set(numbers)
        return np.array(
            [*(place if place in known else stranger for place in range(stranger)), stranger],
            np.float32,
        )
    if task.classes:
        by_name = {name: number for number, name in annotated.names.items()}
        strange = [name for name in task.classes if name not in by_name]
        if strange:
            raise DatasetError(
                f"{annotated.where}: has no category {strange[0]!r}, a class of the task; it has"
                f" {', '.join(list(by_name)[:8])}, ..."
            )
        numbers = [by_name[name] for name in task.classes]
    if told is not None and told != len(numbers):
        raise DatasetError(
            f"{annotated.where}: the model tells {told} classes, and there are {len(numbers)}"
            " categories: name one for each class, classes = [...] in a task file"
        )
    return np.array([*numbers, stranger], np.float32)
