"""Reading a classifier's output as a task file says: scores, probabilities, or yes and no.

A prediction is the whole row of scores where classes are few. Of many classes the best
five and their scores are kept: 50,000 rows of 1000 would fill a board's memory.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.base import Array, DatasetError
from edgeperf.datasets.classification import ScoreReader, best_classes
from edgeperf.datasets.own.recipes import OutputRecipe
from edgeperf.datasets.tensors import TensorSpec

#: The most classes whose scores are all kept.
MOST_KEPT_WHOLE = 64
KEPT = 5

Scores = NDArray[np.float32]


class ClassReader:
    """Reads one output of one model.

    Attributes:
        classes: How many classes the scores tell apart; one score tells two.
        keeps_best: Whether only the best few are kept.
    """

    def __init__(self, recipe: OutputRecipe, outputs: Sequence[TensorSpec]) -> None:
        """Choose the output.

        Raises:
            DatasetError: The model has no such output, or gives no scores there.
        """
        self._place, spec = _chosen(recipe, outputs)
        yes_no = recipe.read == "threshold"
        if yes_no and spec.sample_size != 1:
            raise DatasetError(
                f'output {spec.name!r} is {list(spec.shape)}: [output] read = "threshold" takes one'
                ' score; set "argmax" or "softmax"'
            )
        if not yes_no and spec.sample_size - recipe.background < 2:  # noqa: PLR2004 - a choice
            raise DatasetError(
                f"output {spec.name!r} is {list(spec.shape)}: [output] read = {recipe.read!r} takes"
                ' scores of two classes or more; set "threshold"'
            )
        self._reader = ScoreReader("of your own", [spec], (spec.sample_size,))
        self._recipe = recipe
        self._skipped = int(recipe.background)
        self.classes = 2 if yes_no else spec.sample_size - self._skipped
        self.keeps_best = self.classes > MOST_KEPT_WHOLE
        self._row = np.empty(spec.sample_size, np.float32)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one prediction: a row of scores, or best classes and their scores."""
        if self._recipe.read == "threshold":
            return (1,)
        return (2, KEPT) if self.keeps_best else (self.classes,)

    def read(self, outputs: Sequence[Array], out: Array) -> None:
        """Write the prediction of one sample; what is not finite stays so."""
        self._reader.read([outputs[self._place]], self._row)
        scores = self._row[self._skipped :]
        if self._recipe.read == "softmax":
            scores = _softmax(scores)
        elif self._recipe.sigmoid:
            scores = _sigmoid(scores)
        if not self.keeps_best:
            out[...] = scores
        elif np.isfinite(scores).all():
            out[0] = best_classes(scores, KEPT)
            out[1] = scores[out[0].astype(np.intp)]
        else:
            out[...] = np.nan


def _chosen(recipe: OutputRecipe, outputs: Sequence[TensorSpec]) -> tuple[int, TensorSpec]:
    names = [spec.name for spec in outputs]
    if recipe.name is not None:
        if recipe.name not in names:
            raise DatasetError(
                f"[output] name {recipe.name!r}: the model has {', '.join(map(repr, names))}"
            )
        place = names.index(recipe.name)
    elif len(outputs) == 1:
        place = 0
    else:
        raise DatasetError(
            f"the model has {len(outputs)} outputs ({', '.join(map(repr, names))}): set [output]"
            " name to the one with the scores"
        )
    return place, outputs[place]


def _softmax(scores: Scores) -> Scores:
    with np.errstate(invalid="ignore"):  # infinities become NaN, which is refused later
        grown = np.exp(scores - scores.max())
        share: Scores = grown / grown.sum()
    return share


def _sigmoid(scores: Scores) -> Scores:
    with np.errstate(over="ignore"):
        share: Scores = np.float32(1) / (np.float32(1) + np.exp(-scores))
    return share
