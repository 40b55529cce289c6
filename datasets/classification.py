"""Classification: reading class scores out of a model and counting right answers.

A prediction is the row of class scores as real numbers, whatever the model stores them
in. Nothing is turned into probabilities: the metrics need only the order.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.base import Array, DatasetError
from edgeperf.datasets.tensors import Quantisation, TensorSpec

#: An 8-bit output that does not tell its scale holds probabilities, as TFLite's softmax
#: does by its specification. Only the size of scores depends on this, not their order.
SOFTMAX = {
    "int8": Quantisation(scale=1 / 256, zero_point=-128),
    "uint8": Quantisation(scale=1 / 256, zero_point=0),
}

Scores = NDArray[np.float32]


class ScoreReader:
    """Reads the scores out of the one output of one model.

    Attributes:
        count: How many scores the model gives.
    """

    def __init__(self, task: str, outputs: Sequence[TensorSpec], counts: Sequence[int]) -> None:
        """Check that the output is what the task can score.

        Args:
            task: The task's name, for messages.
            outputs: The model's outputs.
            counts: How many scores there may be.

        Raises:
            DatasetError: The model gives something else.
        """
        if len(outputs) != 1:
            names = ", ".join(repr(spec.name) for spec in outputs) or "none"
            raise DatasetError(
                f"task {task} does not fit this model: it reads one output, the model has "
                f"{len(outputs)} ({names})"
            )
        spec = outputs[0]
        if spec.is_dynamic or spec.sample_size not in counts:
            raise DatasetError(
                f"task {task} does not fit this model: output {spec.name!r} is "
                f"{list(spec.shape)}, expected {' or '.join(map(str, counts))} scores"
            )
        self.count = spec.sample_size
        self._quantisation = spec.quantisation or SOFTMAX.get(spec.dtype)
        if self._quantisation is None and not spec.dtype.startswith("float"):
            raise DatasetError(
                f"task {task} does not fit this model: output {spec.name!r} is {spec.dtype}, "
                "expected scores (float, int8 or uint8)"
            )

    def read(self, outputs: Sequence[Array], out: Scores) -> None:
        """Write the scores of one sample into *out*, shape ``(count,)``, as real numbers."""
        stored = outputs[0].reshape(-1)
        with np.errstate(over="ignore"):  # too large for float32 becomes inf, which is refused
            if self._quantisation is None:
                out[...] = stored
            else:
                zero_point, scale = self._quantisation.zero_point, self._quantisation.scale
                out[...] = (stored.astype(np.float32) - zero_point) * scale


def require_finite(task: str, predictions: Scores) -> None:
    """Refuse answers that are no numbers.

    Raises:
        DatasetError: Some are not; the message says how many.
    """
    finite = np.isfinite(predictions).reshape(len(predictions), -1).all(axis=1)
    if not finite.all():
        bad = int((~finite).sum())
        raise DatasetError(f"task {task}: {bad} of {len(predictions)} answers are not finite")


def best_classes(scores: Scores, count: int) -> NDArray[np.intp]:
    """Return the *count* best classes of one row of scores, best first, ties by class."""
    return np.argsort(-scores, kind="stable")[:count]
