"""Other ways in which a model may have been trained to see samples: the usual mistakes.

When answers are no better than guessing, one of these is mostly the cause: channels in
another order, another scale, labels that count from elsewhere, classes in another order.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from edgeperf.datasets.own.guess import IMAGENET_MEAN, IMAGENET_STD
from edgeperf.datasets.own.recipes import InputRecipe
from edgeperf.datasets.own.taskfile import TaskFile

#: What floats are mostly made of pixels, in words and numbers.
SCALES = {
    "mean = [0], std = [1]": ((0.0,), (1.0,)),
    "mean = [0], std = [255]": ((0.0,), (255.0,)),
    "mean = [127.5], std = [127.5]": ((127.5,), (127.5,)),
    f"mean = {list(IMAGENET_MEAN)}, std = {list(IMAGENET_STD)}": (IMAGENET_MEAN, IMAGENET_STD),
}
#: What numbers that were pixels are mostly made of or into, the same for every channel.
ARRAY_SCALES = {
    "mean = [0], std = [1]": ((0.0,), (1.0,)),
    "mean = [0], std = [255]": ((0.0,), (255.0,)),
    "mean = [127.5], std = [127.5]": ((127.5,), (127.5,)),
    "mean = [0.5], std = [0.5]": ((0.5,), (0.5,)),
    "mean = [0], std = [0.00392157]": ((0.0,), (0.00392157,)),
}
#: Of the answers to one class, how many must be the same for its place to be another.
_PURE = 0.6
_FEWEST_OF_A_CLASS = 4


class Alternative(msgspec.Struct, frozen=True):
    """A task file that differs in one table, and how, as its settings say it."""

    said: str
    task: TaskFile
    table: str = "[input]"


def alternatives(task: TaskFile, dtype: str) -> tuple[Alternative, ...]:
    """Return what else might be meant: one change each first, then two.

    Args:
        task: The task file that was used.
        dtype: Of the model's input.
    """
    if task.input.kind == "array":
        return tuple(_rescaled(task, dtype))
    if task.input.kind != "image":
        return ()
    scales = list(_scales(task.input, dtype))
    swapped = [("", task.input)]
    if task.input.channels == 3:  # noqa: PLR2004 - red, green, blue
        other = "RGB" if task.input.colour == "BGR" else "BGR"
        reversed_order = msgspec.structs.replace(
            task.input, colour=other, mean=task.input.mean[::-1], std=task.input.std[::-1]
        )
        swapped.append((f'colour = "{other}"', reversed_order))
    found = []
    for colour, recipe in swapped:
        for scale, changes in [("", {}), *scales]:
            said = " and ".join(filter(None, (colour, scale)))
            if said:
                changed = msgspec.structs.replace(recipe, **changes)
                found.append(Alternative(said, msgspec.structs.replace(task, input=changed)))
    if task.detects:
        found = [*_other_classes(task), *found]
    return tuple(sorted(found, key=lambda alternative: " and " in alternative.said))


def _other_classes(task: TaskFile) -> Iterator[Alternative]:
    """Yield *task* with other meanings of the class that a detector gives with a box."""
    output = task.output
    places: tuple[Literal["position", "id"], ...] = ("position", "id")
    for class_is in places if not task.classes else ("position",):
        for offset in (-1, 0, 1):
            if (output.class_is, output.class_offset) != (class_is, offset):
                changed = msgspec.structs.replace(output, class_is=class_is, class_offset=offset)
                yield Alternative(
                    f'class_offset = {offset}, class_is = "{class_is}"',
                    msgspec.structs.replace(task, output=changed),
                    table="[output]",
                )


def _rescaled(task: TaskFile, dtype: str) -> Iterator[Alternative]:
    """Yield *task* with other scales for numbers that are fed as they are."""
    if dtype not in ("float16", "float32", "float64", "int8", "uint8"):
        return
    for said, (mean, std) in ARRAY_SCALES.items():
        if (task.input.mean, task.input.std) != (mean, std):
            changed = msgspec.structs.replace(task.input, mean=mean, std=std)
            yield Alternative(said, msgspec.structs.replace(task, input=changed))


def _scales(recipe: InputRecipe, dtype: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield other scales than the recipe's own."""
    eight_bit = dtype in ("int8", "uint8")
    if eight_bit and recipe.bytes == "quantised":
        yield 'bytes = "pixels"', {"bytes": "pixels"}
    grey = recipe.channels == 1
    for said, (mean, std) in SCALES.items():
        same = (recipe.mean, recipe.std) == (mean, std) and recipe.bytes == "quantised"
        if same or (grey and len(mean) > 1):
            continue
        if eight_bit and recipe.bytes == "pixels":
            yield f'bytes = "quantised", {said}', {"bytes": "quantised", "mean": mean, "std": std}
        else:
            yield said, {"mean": mean, "std": std}


def label_trouble(
    labels: Sequence[int], answers: Sequence[int], names: Sequence[str]
) -> str | None:
    """Say what is wrong with the labels, if the answers show it; None if they do not.

    Args:
        labels: Right classes.
        answers: Classes that the model gave.
        names: Of the classes; fewer than there are do no harm.
    """
    pairs = list(zip(labels, answers, strict=True))
    right = sum(label == answer for label, answer in pairs)
    for shift in (1, -1) if len(set(labels)) > 2 else ():  # noqa: PLR2004 - of two, all is swapped
        shifted = sum(label == answer + shift for label, answer in pairs)
        if shifted - right > 3 * (shifted + right + 1) ** 0.5:
            return _shift_text(shift, shifted, len(pairs))
    moved = {
        label: most
        for label in sorted(set(labels))
        if (most := _place_of([answer for own, answer in pairs if own == label])) is not None
    }
    wrong = {label: answer for label, answer in moved.items() if label != answer}
    if len(wrong) < 2 or len(set(moved.values())) < len(moved):  # noqa: PLR2004 - two changed places
        return None
    some = ", ".join(f"{_name(a, names)} as {_name(b, names)}" for a, b in list(wrong.items())[:3])
    return (
        f"the classes seem to be in another order: the model answers {some}; give their names in"
        " the order of its scores, classes = [...]"
    )


def _shift_text(shift: int, shifted: int, count: int) -> str:
    setting = "background = true" if shift < 0 else "label_offset = -1"
    return (
        f"answers are one class too {'high' if shift < 0 else 'low'}: shifted, {shifted} of {count}"
        f" are right; set {setting}"
    )


def _place_of(answers: Sequence[int]) -> int | None:
    """Return the answer that one class mostly gets; None where there is no such."""
    answer, count = Counter(answers).most_common(1)[0]
    enough = len(answers) >= _FEWEST_OF_A_CLASS and count >= _PURE * len(answers)
    return answer if enough else None


def _name(place: int, names: Sequence[str]) -> str:
    return repr(names[place]) if place < len(names) else str(place)
