"""What a model's description suggests about how its input is made and its output read.

A guess, to start from: the description has shapes and types, not the colours, scales and
classes that the model was trained with. What is guessed is what most models of that look
have; a run that comes out at chance says which other choice does better.
"""

from collections.abc import Sequence
from math import prod
from pathlib import Path

import msgspec

from edgeperf.datasets.own.recipes import Colour, DataRecipe, InputRecipe, Layout, OutputRecipe
from edgeperf.datasets.own.taskfile import TaskFile
from edgeperf.datasets.tensors import TensorSpec

#: Mean and standard deviation of ImageNet's pixels: models trained with PyTorch.
IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)
_CHANNELS = (1, 3)
#: How the inputs of well-known detectors are made.
_DETECTORS = {
    "yolo": InputRecipe(resize="letterbox", filter="linear", std=(255.0,)),
    "yolox": InputRecipe(colour="BGR", resize="letterbox", pad_at="top-left"),
    "fastestdet": InputRecipe(colour="BGR", std=(255.0,)),
}
#: A cell of a YOLO, in pixels, on each of its maps.
_STRIDES = (8, 16, 32)
#: Fewer rows than this are classes, more are boxes.
_FEWEST_BOXES = 100
_BOX = 4


def guess_task(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], data: Path | None = None
) -> TaskFile:
    """Return a task file for a model that looks like this.

    Args:
        inputs: The model's inputs.
        outputs: The model's outputs.
        data: The user's samples; None leaves them out.
    """
    output = guess_output(outputs)
    recipe = guess_input(inputs)
    if output.read == "yolo" and _has_one_box_a_cell(inputs, outputs):
        output = msgspec.structs.replace(output, read="yolox", box_unit="share", box_format="xyxy")
    if output.read in _DETECTORS and recipe.kind == "image" and recipe.bytes == "quantised":
        recipe = msgspec.structs.replace(_DETECTORS[output.read], layout=recipe.layout)
    if data is not None and data.suffix.lower() in (".npz", ".npy") and recipe.kind == "image":
        recipe = InputRecipe(kind="array")
    return TaskFile(
        title=f"samples of {data.name}" if data else "own task",
        input=recipe,
        output=output,
        data=DataRecipe(path=str(data)) if data else DataRecipe(),
    )


def _has_one_box_a_cell(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> bool:
    """Say whether there are as many rows as cells: YOLOX, whose rows are not decoded yet.

    YOLO v5 has three boxes a cell; later ones have columns.
    """
    sides = sorted(inputs[0].shape)[-2:] if len(inputs) == 1 else []
    cells = sum(prod(side // stride for side in sides) for stride in _STRIDES)
    return tuple(axis for axis in outputs[0].shape if axis != 1)[:1] == (cells,)


def guess_input(inputs: Sequence[TensorSpec]) -> InputRecipe:
    """Return how inputs of these shapes are mostly made."""
    if len(inputs) != 1 or len(inputs[0].shape) != 4:  # noqa: PLR2004 - a batch of images
        return InputRecipe(kind="array")
    spec = inputs[0]
    last, first = spec.shape[3], spec.shape[1]
    if last not in _CHANNELS and first not in _CHANNELS:
        return InputRecipe(kind="array")
    channels_last = last in _CHANNELS
    grey = (last if channels_last else first) == 1
    layout: Layout = "NHWC" if channels_last else "NCHW"
    colour: Colour = "grey" if grey else "RGB"
    if spec.dtype in ("int8", "uint8"):
        return InputRecipe(colour=colour, layout=layout, bytes="pixels")
    if grey:
        return InputRecipe(colour=colour, layout=layout, std=(255.0,))
    if channels_last:  # TensorFlow's models mostly take -1 to 1
        return InputRecipe(colour=colour, layout=layout, mean=(127.5,), std=(127.5,))
    return InputRecipe(colour=colour, layout=layout, mean=IMAGENET_MEAN, std=IMAGENET_STD)


def guess_output(outputs: Sequence[TensorSpec]) -> OutputRecipe:
    """Return how outputs of these shapes are mostly read."""
    shapes = [spec.shape for spec in outputs]
    if len(outputs) >= 3 and any(shape[-1:] == (_BOX,) for shape in shapes):  # noqa: PLR2004
        return OutputRecipe(read="ssd", box_format="yxyx")
    if len(outputs) != 1:
        return OutputRecipe()
    return _guess_only_output(shapes[0])


def _guess_only_output(shape: tuple[int, ...]) -> OutputRecipe:
    longer = [axis for axis in shape[1:] if axis != 1]
    if len(longer) == 3:  # noqa: PLR2004 - a map of cells
        return OutputRecipe(read="fastestdet", score_at_least=0.01, nms_iou=0.45)
    if len(longer) == 2 and max(longer) >= _FEWEST_BOXES and min(longer) > _BOX:  # noqa: PLR2004
        return OutputRecipe(
            read="yolo", box_format="cxcywh", box_unit="pixels", score_at_least=0.01, nms_iou=0.65
        )
    if not longer:
        return OutputRecipe(read="threshold")
    return OutputRecipe(read="argmax")
