"""What detectors give, read into boxes, scores and classes; one function per kind."""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.base import Array, DatasetError
from edgeperf.datasets.detection.boxes import Boxes, as_corners
from edgeperf.datasets.own.recipes import OutputRecipe
from edgeperf.datasets.tensors import TensorSpec

#: Rows of a detector's output: four numbers of a box, then what the kind says.
BOX = 4
STRIDES = (8, 16, 32)
#: With many classes to a box: scores below are noise, whatever the task asks.
_LEAST = 1e-6

Size = tuple[int, int]


class Found(msgspec.Struct, frozen=True):
    """Boxes in pixels of the model's input, their scores and the model's classes."""

    boxes: Boxes
    scores: NDArray[np.float32]
    classes: NDArray[np.int64]


Head = Callable[[Sequence[Array]], Found]


def make_head(recipe: OutputRecipe, outputs: Sequence[TensorSpec], size: Size) -> Head:
    """Return what reads the outputs of this model.

    Args:
        recipe: The task file's.
        outputs: The model's outputs.
        size: Height and width of its input.

    Raises:
        DatasetError: The outputs are not of that kind.
    """
    make = {
        "ssd": _ssd,
        "boxes": _boxes,
        "rows": _rows,
        "yolo": _yolo,
        "yolox": _yolox,
        "fastestdet": _fastestdet,
    }
    return make[recipe.read](recipe, outputs, size)


def _real(values: Array, spec: TensorSpec) -> NDArray[np.float32]:
    """Return stored numbers as real ones."""
    if spec.quantisation is None:
        return values.astype(np.float32, copy=False)
    zero_point, scale = spec.quantisation.zero_point, spec.quantisation.scale
    real: NDArray[np.float32] = (values.astype(np.float32) - zero_point) * np.float32(scale)
    return real


def class_count(recipe: OutputRecipe, outputs: Sequence[TensorSpec]) -> int | None:
    """Return how many classes the model tells apart; None where its outputs do not show it."""
    if recipe.read in ("yolo", "yolox"):
        rows, columns = outputs[0].shape[1:]
        return min(rows, columns) - BOX - (recipe.read == "yolox" or rows > columns)
    if recipe.read == "fastestdet":
        return outputs[0].shape[1] - BOX - 1
    return None


def _unit(recipe: OutputRecipe, size: Size) -> NDArray[np.float32]:
    """Return by what corners are multiplied to become pixels."""
    sides = (*size, *size) if recipe.box_unit == "share" else (1, 1, 1, 1)
    return np.array(sides, np.float32)


_ROLE_WORDS = {
    "boxes": ("box",),
    "scores": ("score", "conf"),
    "classes": ("class", "label"),
    "count": ("num", "count"),
}


def _roles(recipe: OutputRecipe, outputs: Sequence[TensorSpec], needed: set[str]) -> dict[str, int]:
    """Return which output is which: as the task says, by name, else by shape and order.

    The order of TensorFlow's own operator is boxes, classes, scores, count.
    """
    names = [spec.name for spec in outputs]
    roles: dict[str, int] = {}
    for role, name in recipe.outputs.items():
        if name not in names:
            raise DatasetError(
                f"[output] outputs {role} = {name!r}: the model has {', '.join(map(repr, names))}"
            )
        roles[role] = names.index(name)
    if not roles:
        for known, words in _ROLE_WORDS.items():
            places = [
                place for place, name in enumerate(names) if any(w in name.lower() for w in words)
            ]
            if len(places) == 1:
                roles[known] = places[0]
    if not needed <= roles.keys() or len(set(roles.values())) < len(roles):
        roles = _roles_by_shape(outputs)
    if not needed <= roles.keys():
        raise DatasetError(
            f"[output] read = {recipe.read!r} needs {' and '.join(sorted(needed))}; the model has"
            f" {_described(outputs)}: name them, outputs = {{boxes = ..., scores = ...}}"
        )
    return roles


def _roles_by_shape(outputs: Sequence[TensorSpec]) -> dict[str, int]:
    if [len(spec.shape) for spec in outputs] == [3, 2, 2, 1]:
        return {"boxes": 0, "classes": 1, "scores": 2, "count": 3}
    boxes = [place for place, spec in enumerate(outputs) if spec.shape[-1:] == (BOX,)]
    flat = [
        place
        for place, spec in enumerate(outputs)
        if place not in boxes and [axis for axis in spec.shape if axis != 1]
    ]
    if len(boxes) != 1:
        return {}
    if len(flat) == 1:
        return {"boxes": boxes[0], "scores": flat[0]}
    if len(flat) != 2:  # noqa: PLR2004 - classes and scores
        return {}
    roles = {"boxes": boxes[0], "classes": flat[0], "scores": flat[1]}
    rest = set(range(len(outputs))) - set(roles.values())
    return roles | {"count": rest.pop()} if len(rest) == 1 else roles


def _described(outputs: Sequence[TensorSpec]) -> str:
    return ", ".join(f"{spec.name!r} {list(spec.shape)}" for spec in outputs)


def _ssd(recipe: OutputRecipe, outputs: Sequence[TensorSpec], size: Size) -> Head:
    """Boxes that went through the model's own NMS: one score and one class each."""
    roles = _roles(recipe, outputs, {"boxes", "scores", "classes"})
    unit, count_at = _unit(recipe, size), roles.get("count")
    at = [(roles[role], outputs[roles[role]]) for role in ("boxes", "scores", "classes")]

    def read(values: Sequence[Array]) -> Found:
        boxes, scores, classes = (_real(values[place], spec) for place, spec in at)
        boxes, scores = boxes.reshape(-1, BOX), scores.reshape(-1)
        count = len(scores) if count_at is None else int(values[count_at].reshape(-1)[0])
        corners = as_corners(boxes[:count], recipe.box_format) * unit
        return Found(corners, scores[:count], classes.reshape(-1)[:count].astype(np.int64))

    return read


def _boxes(recipe: OutputRecipe, outputs: Sequence[TensorSpec], size: Size) -> Head:
    """Decoded boxes and a row of class scores each, before NMS."""
    roles = _roles(recipe, outputs, {"boxes", "scores"})
    unit = _unit(recipe, size)
    box_at, score_at = roles["boxes"], roles["scores"]
    box_spec, score_spec = outputs[box_at], outputs[score_at]
    rows = box_spec.sample_size // BOX
    longer = [axis for axis in score_spec.shape if axis != 1]
    classes_first = longer[-1:] == [rows] and longer[:1] != [rows]

    def read(values: Sequence[Array]) -> Found:
        corners = as_corners(_real(values[box_at], box_spec).reshape(rows, BOX), recipe.box_format)
        scores = _real(values[score_at], score_spec)
        scores = scores.reshape(-1, rows).T if classes_first else scores.reshape(rows, -1)
        return _classed(recipe, corners * unit, scores[:, int(recipe.background) :])

    return read


def _classed(recipe: OutputRecipe, boxes: Boxes, scores: NDArray[np.float32]) -> Found:
    """Return each box with its best class, or with every class that is strong enough."""
    if recipe.multi_label:
        # What is no number stays, so that it is seen and refused. Equal scores of 8-bit models
        # are in order of their class, as the NMS inside of models has them.
        classes, rows = np.nonzero(~(max(recipe.score_at_least, _LEAST) > scores.T))
        return Found(boxes[rows], scores[rows, classes], classes)
    classes = scores.argmax(axis=1)
    return Found(boxes, scores[np.arange(len(boxes)), classes], classes)


def _only(recipe: OutputRecipe, outputs: Sequence[TensorSpec], axes: int) -> TensorSpec:
    """Return the one output, without its batch axis of so many axes."""
    if len(outputs) != 1 or len(outputs[0].shape) != axes + 1:
        raise DatasetError(
            f"[output] read = {recipe.read!r} takes one output of {axes + 1} axes; the model has"
            f" {_described(outputs)}"
        )
    return outputs[0]


def _rows(recipe: OutputRecipe, outputs: Sequence[TensorSpec], size: Size) -> Head:
    """Rows of a box, its score and its class, after NMS in the model: ``[1, n, 6]``."""
    spec, unit = _only(recipe, outputs, 2), _unit(recipe, size)
    if spec.shape[-1] != BOX + 2:
        raise DatasetError(
            f'[output] read = "rows" takes [1, n, {BOX + 2}]; the model has {_described(outputs)}'
        )

    def read(values: Sequence[Array]) -> Found:
        table = _real(values[0], spec).reshape(-1, BOX + 2)
        corners = as_corners(table[:, :BOX], recipe.box_format) * unit
        return Found(corners, table[:, BOX], table[:, BOX + 1].astype(np.int64))

    return read


def _yolo(recipe: OutputRecipe, outputs: Sequence[TensorSpec], size: Size) -> Head:
    """``[1, n, 5 + classes]`` with objectness, or ``[1, 4 + classes, n]`` without."""
    spec, unit = _only(recipe, outputs, 2), _unit(recipe, size)
    objectness = spec.shape[1] > spec.shape[2]

    def read(values: Sequence[Array]) -> Found:
        table = _real(values[0], spec)[0]
        if not objectness:
            table = table.T
        corners = as_corners(table[:, :BOX], recipe.box_format) * unit
        if objectness:
            return _classed(recipe, corners, table[:, BOX : BOX + 1] * table[:, BOX + 1 :])
        return _classed(recipe, corners, table[:, BOX:])

    return read


def _yolox(recipe: OutputRecipe, outputs: Sequence[TensorSpec], size: Size) -> Head:
    """YOLOX without its decoding: places relative to cells, sizes as logarithms.

    Source: Megvii YOLOX, ``demo_postprocess``: ``xy = (p + cell) * stride``,
    ``wh = exp(p) * stride``, ``score = objectness * class``.
    """
    spec = _only(recipe, outputs, 2)
    cells, strides = _grid(size)
    if spec.shape[1] != len(cells):
        raise DatasetError(
            f"[output] read = 'yolox' takes {len(cells)} rows for an input of {size[0]}x{size[1]};"
            f" the model has {_described(outputs)}"
        )

    def read(values: Sequence[Array]) -> Found:
        table = _real(values[0], spec)[0]
        centre = (table[:, :2] + cells) * strides
        with np.errstate(over="ignore"):
            boxes = np.concatenate([centre, np.exp(table[:, 2:BOX]) * strides], axis=1)
        found = _classed(recipe, boxes, table[:, BOX : BOX + 1] * table[:, BOX + 1 :])
        return Found(as_corners(found.boxes, "cxcywh"), found.scores, found.classes)

    return read


def _grid(size: Size) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return column and row of every cell, and the stride of its level."""
    cells, strides = [], []
    for stride in STRIDES:
        down, across = size[0] // stride, size[1] // stride
        row, column = np.mgrid[:down, :across]
        cells.append(np.stack([column.ravel(), row.ravel()], axis=1))
        strides.append(np.full((down * across, 1), stride))
    return np.concatenate(cells).astype(np.float32), np.concatenate(strides).astype(np.float32)


def _fastestdet(recipe: OutputRecipe, outputs: Sequence[TensorSpec], size: Size) -> Head:
    """FastestDet: one map of cells, each with objectness, a box and class scores.

    Source: dog-qiuqiu/FastestDet, ``handle_preds``: ``cx = (column + tanh(x)) / columns``,
    ``w = sigmoid(w)``, ``score = objectness ** 0.6 * class ** 0.4``.
    """
    spec = _only(recipe, outputs, 3)
    rows, columns = spec.shape[2:]
    row, column = np.mgrid[:rows, :columns].reshape(2, -1).astype(np.float32)
    sides = np.array([size[1], size[0], size[1], size[0]], np.float32)

    def read(values: Sequence[Array]) -> Found:
        table = _real(values[0], spec)[0].reshape(spec.shape[1], -1)
        x = (column + np.tanh(table[1])) / columns
        y = (row + np.tanh(table[2])) / rows
        with np.errstate(over="ignore"):
            width, height = 1 / (1 + np.exp(-table[3:5]))
        boxes = np.stack([x, y, width, height], axis=1).astype(np.float32) * sides
        classes = table[5:].argmax(axis=0)
        best = table[5:][classes, np.arange(classes.size)]
        with np.errstate(invalid="ignore"):
            scores = table[0].clip(0) ** np.float32(0.6) * best.clip(0) ** np.float32(0.4)
        return Found(as_corners(boxes, "cxcywh"), scores, classes)

    return read
