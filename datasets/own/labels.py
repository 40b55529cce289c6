"""What labels mean to a model: names and numbers become places among its scores."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.base import DatasetError
from edgeperf.datasets.own.source import Source

_SHOWN = 8


class Classes(msgspec.Struct, frozen=True, kw_only=True):
    """Labels as a model's scores have them.

    Attributes:
        labels: Place of each sample's class, shape ``(n,)``.
        names: Of all classes, in order.
    """

    labels: NDArray[np.int64]
    names: tuple[str, ...]


def settle(source: Source, names: Sequence[str], scores: int, offset: int) -> Classes:
    """Return labels as places among *scores* classes.

    Args:
        source: The samples.
        names: Of the classes as the task file gives them; empty where it gives none.
        scores: How many classes the model tells apart (2 for a model with one score).
        offset: Added to labels that are numbers.

    Raises:
        DatasetError: A label is none of the classes, or their count is not the model's.
    """
    if names and len(names) != scores:
        raise DatasetError(
            f"{source.where}: the task has {len(names)} classes ({_some(names)}), the model gives"
            f" {scores} scores: name a class for each score, in their order"
        )
    if not source.labels:
        raise DatasetError(f"{source.where}: has texts and no labels, which this task needs")
    numbers = all(isinstance(label, int) for label in source.labels) or (
        not names and all(str(label).isdecimal() for label in source.labels)
    )
    if numbers:
        places = [int(label) + offset for label in source.labels]
        known = tuple(names) or tuple(map(str, range(scores)))
    else:
        known = tuple(names) or _sorted_names(source, scores)
        order = {name: place for place, name in enumerate(known)}
        places = [order.get(str(label), -1) for label in source.labels]
    for index, place in enumerate(places):
        if not 0 <= place < scores:
            raise DatasetError(_stray(source, index, known, numbers=numbers, offset=offset))
    return Classes(labels=np.array(places, np.int64), names=known)


def _sorted_names(source: Source, scores: int) -> tuple[str, ...]:
    found = tuple(sorted({str(label) for label in source.labels}))
    if len(found) != scores:
        raise DatasetError(
            f"{source.where}: {len(found)} classes ({_some(found)}), but the model gives {scores}"
            " scores: name all classes in the order of the scores, classes = [...] in a task file"
            " (edgeperf task new)"
        )
    return found


def _stray(source: Source, index: int, names: Sequence[str], *, numbers: bool, offset: int) -> str:
    label = source.labels[index]
    if not numbers:
        return f"{source.name(index)}: label {label!r} is none of the classes {_some(names)}"
    allowed = f"{-offset} to {len(names) - 1 - offset}"
    hint = "; where labels count from 1: label_offset = -1" if label == len(names) else ""
    return (
        f"{source.name(index)}: label {label} is out of range; expected {allowed}, as the model"
        f" gives {len(names)} scores{hint}"
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
