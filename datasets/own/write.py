"""Writing a task file: every setting that matters, with the words that explain it."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from edgeperf.datasets.own.recipes import InputRecipe, OutputRecipe
from edgeperf.datasets.own.taskfile import TaskFile
from edgeperf.datasets.tensors import TensorSpec

_ABOUT_RESIZE = "stretch, shorter_side, letterbox or none"


def task_text(
    task: TaskFile, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], model: str
) -> str:
    """Return *task* as the text of a task file.

    Args:
        task: What to write.
        inputs: The model's inputs.
        outputs: The model's outputs.
        model: Its name, for the first line.
    """
    lines = [
        f"# How {model} is asked, and what its answers must be worth.",
        "# Guessed from the model's description: look it over; edgeperf task check shows samples.",
        f"title = {_toml(task.title)}",
        *_classes(task),
        "",
        "[input]",
        *(f"# {_described(spec)}" for spec in inputs),
        *_input(task.input),
        "",
        "[output]",
        *(f"# {_described(spec)}" for spec in outputs),
        *_output(task.output),
        "",
        *_metric(task),
        "",
        *_data(task),
    ]
    return "\n".join(lines) + "\n"


def _described(spec: TensorSpec) -> str:
    text = f"{spec.name}: {spec.dtype} {list(spec.shape)}"
    if spec.quantisation is None:
        return text
    return f"{text}, scale {spec.quantisation.scale:.6g}, zero point {spec.quantisation.zero_point}"


def _classes(task: TaskFile) -> Iterator[str]:
    if task.classes:
        yield f"classes = {_toml(task.classes)}"
    else:
        yield "# In the order of the model's scores; without them, the folders' names, sorted."
        yield '# classes = ["...", "..."]'


def _input(recipe: InputRecipe) -> Iterator[str]:
    yield f"kind = {_toml(recipe.kind)}                # image, array or audio"
    if recipe.kind == "image":
        yield f"colour = {_toml(recipe.colour)}                # RGB, BGR or grey"
        yield f"resize = {_toml(recipe.resize)}            # {_ABOUT_RESIZE}"
        yield f"filter = {_toml(recipe.filter)}"
        if recipe.resize == "letterbox":
            yield f"pad_at = {_toml(recipe.pad_at)}              # centre or top-left; pad = 114"
        yield "# crop = 0.875                  # keep that share of the shorter side"
        if recipe.layout is not None:
            yield f"layout = {_toml(recipe.layout)}"
        if recipe.bytes == "pixels":
            yield 'bytes = "pixels"                # or "quantised": by the model\'s own scale'
            return
    if recipe.kind != "audio":
        yield "# The model gets (number - mean) / std, in the order of its channels."
        yield f"mean = {_toml(recipe.mean)}"
        yield f"std = {_toml(recipe.std)}"


def _output(recipe: OutputRecipe) -> Iterator[str]:
    yield f"read = {_toml(recipe.read)}"
    if recipe.read in ("argmax", "softmax"):
        yield '# "softmax" where scores are logits and probabilities are wanted'
        yield "# background = true              # class 0 of the model is nothing, ours begin at 1"
        yield '# positive = "..."               # the class to be told from the rest'
    for name in ("sigmoid", "threshold", "box_format", "box_unit", "score_at_least", "nms_iou"):
        value = getattr(recipe, name)
        if value != getattr(OutputRecipe(), name) or (
            recipe.read == "threshold" and name in ("sigmoid", "threshold")
        ):
            yield f"{name} = {_toml(value)}"
    if recipe.read in ("ssd", "boxes", "yolo"):
        yield "# class_offset = 1               # added to the model's class"
        yield '# class_is = "id"                # it is the category\'s number, not its place'


def _metric(task: TaskFile) -> Iterator[str]:
    yield "[metric]"
    yield f"gate = {_toml(task.gate)}                   # the metric that decides"
    yield "# at_least = 0.9                # your own floor; or, of the FP32 model here:"
    yield "# reference = 0.95"
    yield "# share = 0.99"
    if not task.detects:
        yield f"precisions = {_toml(task.metric.precisions)}              # recall at these"
        yield f"recalls = {_toml(task.metric.recalls)}                 # precision at these"
        yield "# costs = {miss = 10, false_alarm = 1}"


def _data(task: TaskFile) -> Iterator[str]:
    yield "[data]"
    if task.data.path is None:
        yield '# path = "..."                   # from this file on; --data goes before it'
    else:
        yield f"path = {_toml(task.data.path)}"


def _toml(value: Any) -> str:
    """Return a string, number, boolean or list as TOML, which is JSON for those."""
    return msgspec.json.encode(value).decode()
