"""Your own samples for a classifier: the library that a run asks for."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgeperf.datasets.base import Array, DatasetError, OneNumber
from edgeperf.datasets.classification import require_finite
from edgeperf.datasets.metrics.scoring import (
    Extra,
    Question,
    Scores,
    are_probabilities,
    score_best,
    score_classes,
    score_yes_no,
)
from edgeperf.datasets.own.images import recipe_of
from edgeperf.datasets.own.inputs import Writer, writer_for
from edgeperf.datasets.own.labels import Classes, settle
from edgeperf.datasets.own.reading import ClassReader
from edgeperf.datasets.own.source import Source
from edgeperf.datasets.own.taskfile import TaskFile
from edgeperf.datasets.score import Score, Shown
from edgeperf.datasets.tensors import TensorSpec


class OwnClassification(OneNumber):
    """Labelled samples of the user's.

    Attributes:
        source: The samples.
        truth: What is right, as places among the model's scores.
    """

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
        self.source = source
        self._name = name
        self._task = task
        self._inputs = tuple(inputs)
        self._reader = ClassReader(task.output, outputs)
        self.truth: Classes = settle(
            source, task.classes, self._reader.classes, task.data.label_offset
        )
        self._positive = _positive(task, self.truth.names)
        self._extra = Extra()
        self._write: Writer = writer_for(task.input, source, inputs)

    def __len__(self) -> int:
        """Return how many samples there are."""
        return len(self.source)

    def ask_also(self, extra: Extra) -> None:
        """From now on answer these questions too."""
        self._extra = extra

    def write(self, index: int, out: Sequence[Array]) -> None:
        """Make the model's input of sample *index*."""
        self._write(index, out)

    def predict(self, index: int, outputs: Sequence[Array], out: Array) -> None:
        """Read the model's scores."""
        del index
        self._reader.read(outputs, out)

    def logged(self, prediction: Array) -> float:
        """Return the best class, or the only score."""
        if self._reader.keeps_best:
            return float(prediction[0, 0])
        return super().logged(prediction)

    def shown(self, index: int, prediction: Array) -> Shown:
        """Put sample *index* and its answer into words."""
        names, label = self.truth.names, int(self.truth.labels[index])
        if self._task.output.read == "threshold":
            yes = float(prediction[0]) >= self._task.output.threshold
            positive = 1 if self._positive is None else self._positive
            given, score = positive if yes else 1 - positive, float(prediction[0])
        else:
            given = int(self.logged(prediction))
            score = float(prediction[1, 0] if self._reader.keeps_best else prediction[given])
        return Shown(
            name=self.source.name(index),
            truth=names[label],
            answer=f"{names[given]} ({score:.3g})",
            right=given == label,
            label=label,
            given=given,
        )

    def files(self, index: int) -> tuple[Path, ...]:
        """Return the file of sample *index*; none where samples are in memory."""
        return self.source.paths[index : index + 1]

    @property
    def recipe(self) -> bytes:
        """Return what decides how a file becomes an input."""
        return recipe_of(self._task.input, self._inputs)

    @property
    def prediction_shape(self) -> tuple[int, ...]:
        """As the reader keeps it."""
        return self._reader.shape

    def score(self, predictions: Scores) -> Score:
        """Score all answers.

        Raises:
            DatasetError: An answer is not finite, or has no such metric as decides.
        """
        require_finite(self._name, predictions)
        metric, output, labels = self._task.metric, self._task.output, self.truth.labels
        question = Question(
            gate=self._task.gate,
            positive=self._positive,
            threshold=output.threshold,
            precisions=self._task.precisions,
            recalls=self._task.recalls,
            costs=metric.costs,
        )
        question = self._extra.added_to(question)
        if output.read == "threshold":
            return score_yes_no(
                predictions[:, 0], labels == self._positive, question, self.truth.names
            )
        if not self._reader.keeps_best:
            return score_classes(predictions, labels, self.truth.names, question)
        best = predictions[:, 0].astype(np.int64)
        top = predictions[:, 1, 0]
        probable = output.read == "softmax" or are_probabilities(predictions[:, 1].clip(0))
        return score_best(
            best,
            best == labels[:, None],
            gate=question.gate,
            confidence=top if probable else None,
            truth=(labels, self.truth.names),
        )


def _positive(task: TaskFile, names: Sequence[str]) -> int | None:
    """Return the place of the positive class; of yes and no it is the second."""
    wanted = task.output.positive
    if wanted is None:
        return 1 if task.output.read == "threshold" else None
    place = names.index(wanted) if wanted in names else wanted
    if not isinstance(place, int) or not 0 <= place < len(names):
        raise DatasetError(
            f"[output] positive = {wanted!r}: none of the classes {', '.join(names[:8])}"
        )
    return place
