"""Your own images or volumes with a class for each place, for a model that segments.

A prediction is what the metric needs: for each class, how many places were found, are
there, and both. The places themselves would not fit a board's memory.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.base import Array, DatasetError, OneNumber
from edgeperf.datasets.classification import require_finite
from edgeperf.datasets.metrics.scoring import gated
from edgeperf.datasets.metrics.volumes import COLUMNS, dice, overlaps
from edgeperf.datasets.own.inputs import writer_for
from edgeperf.datasets.own.source import Source
from edgeperf.datasets.own.taskfile import TaskFile
from edgeperf.datasets.score import Score
from edgeperf.datasets.tensors import TensorSpec


class OwnSegments(OneNumber):
    """Samples and the class of each of their places."""

    def __init__(
        self,
        name: str,
        task: TaskFile,
        source: Source,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
    ) -> None:
        """Check that samples, task and model fit.

        Raises:
            DatasetError: They do not.
        """
        if source.maps is None:
            raise DatasetError(
                f"{source.where}: has no class for each place; expected an NPZ with 'labels'"
                " (n, ...) as the output has places"
            )
        if len(outputs) != 1:
            raise DatasetError(
                f'[output] read = "segments" takes one output, the model has {len(outputs)}'
            )
        self.source = source
        self._name = name
        self._task = task
        self._maps = source.maps
        self._axis = task.output.class_axis
        self._shape = outputs[0].sample_shape
        self._names = self._classes(task, outputs[0])
        places = np.prod(self._shape) // (len(self._names) if self._axis else 1)
        if self._maps[0].size != places:
            raise DatasetError(
                f"{source.where}: its labels have {list(self._maps.shape[1:])} places, the output"
                f" {outputs[0].name!r} is {list(outputs[0].shape)}"
            )
        if int(self._maps.min()) < 0 or int(self._maps.max()) >= len(self._names):
            raise DatasetError(
                f"{source.where}: labels from {self._maps.min()} to {self._maps.max()}; expected 0"
                f" to {len(self._names) - 1}"
            )
        self._write = writer_for(task.input, source, inputs)

    def _classes(self, task: TaskFile, output: TensorSpec) -> tuple[str, ...]:
        """Return the names of the classes, the background first."""
        count = len(task.classes) or int(self._maps.max()) + 1
        if self._axis:
            count = output.sample_shape[self._axis]
        if task.classes and len(task.classes) != count:
            raise DatasetError(
                f"the task has {len(task.classes)} classes, the output {output.name!r} {count}"
            )
        return task.classes or tuple(map(str, range(max(count, 2))))

    def __len__(self) -> int:
        """Return how many samples there are."""
        return len(self._maps)

    def write(self, index: int, out: Sequence[Array]) -> None:
        """Make the model's input of sample *index*."""
        self._write(index, out)

    @property
    def prediction_shape(self) -> tuple[int, ...]:
        """Three counts for each class."""
        return (len(self._names), COLUMNS)

    def predict(self, index: int, outputs: Sequence[Array], out: Array) -> None:
        """Compare what was found at each place with what is there; NaN where scores are."""
        found = outputs[0].reshape(self._shape)
        if self._axis:
            if not np.isfinite(found).all():
                out[...] = np.nan
                return
            found = found.argmax(axis=self._axis)
        found = np.clip(found, 0, len(self._names) - 1)
        out[...] = overlaps(found, self._maps[index], len(self._names))

    def logged(self, prediction: Array) -> float:
        """Return the mean DICE of one sample."""
        return dice(prediction[None], self._names)[0]["dice"]

    def score(self, predictions: NDArray[np.float32]) -> Score:
        """Return the mean DICE.

        Raises:
            DatasetError: An answer is not finite.
        """
        require_finite(self._name, predictions)
        return gated(self._task.gate, *dice(predictions, self._names), len(predictions))
