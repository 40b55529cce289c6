"""Tasks whose samples fit into memory as they are: the samples, and the task around them.

:class:`ArrayTask` is the whole of a classification task whose data is one NPZ file: such
a task is a class with nothing but values (see ``datasets/cifar10.py``).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.assets import resolve
from edgeperf.datasets.base import Array, OneNumber, SampleLibrary
from edgeperf.datasets.catalogue import data_for, find_model
from edgeperf.datasets.classification import ScoreReader, require_finite
from edgeperf.datasets.encoding import Encoder, Meaning
from edgeperf.datasets.metrics.scoring import Extra, Question, score_classes
from edgeperf.datasets.npz import Layout, read_labelled
from edgeperf.datasets.score import Decoding, Gate, Score
from edgeperf.datasets.tensors import TensorSpec

Labels = NDArray[np.int64]
Predictions = NDArray[np.float32]

#: Samples held in memory in performance mode, at most; MLPerf's count for its smallest
#: inputs. LoadGen takes the whole library where that is smaller.
PERFORMANCE_COUNT = 1024
#: LoadGen's default bound for Server, 10 ms.
SERVER_LATENCY_NS = 10_000_000


class LabelledArrays(OneNumber):
    """Samples and labels in memory, encoded when written."""

    def __init__(
        self,
        samples: Array,
        encoder: Encoder,
        reader: ScoreReader,
        score: Callable[[Predictions], Score],
    ) -> None:
        """Join the parts; *samples* has one row each."""
        self._samples = samples
        self._encoder = encoder
        self._reader = reader
        self._score = score

    def __len__(self) -> int:
        """Return how many samples there are."""
        return len(self._samples)

    def write(self, index: int, out: Sequence[Array]) -> None:
        """Encode sample *index* into the model's one input."""
        self._encoder.write(self._samples[index], out[0])

    def predict(self, index: int, outputs: Sequence[Array], out: Array) -> None:
        """Read the scores out of the model's one output."""
        del index
        self._reader.read(outputs, out)

    @property
    def prediction_shape(self) -> tuple[int, ...]:
        """One number per score."""
        return (self._reader.count,)

    def score(self, predictions: Predictions) -> Score:
        """Score all answers.

        Raises:
            DatasetError: A prediction is not finite.
        """
        return self._score(predictions)


class LabelledTask(ABC):
    """A task on labelled samples in memory: a subclass gives the values and the metrics."""

    name: str
    title: str
    metric: str
    sample_shape: tuple[int, ...]
    score_count: int
    meaning: Meaning
    performance_count: int = PERFORMANCE_COUNT
    server_latency_ns: int = SERVER_LATENCY_NS
    timed_postprocessing: bool = False
    gate: Gate = Gate()
    decoding: Decoding | None = None
    question: Question

    def __init__(self) -> None:
        """Look up what is known of the FP32 model that has the task's own name."""
        model = find_model(self.name)
        self.reference: float | None = model.reference if model else None
        self.reference_metrics: dict[str, float] = dict(model.reference_metrics) if model else {}
        self.loadgen_model = self.name

    def ask_also(self, extra: Extra) -> None:
        """From now on answer these questions too."""
        self.question = extra.added_to(self.question)

    @abstractmethod
    def read(self, path: Path) -> tuple[Array, Labels]:
        """Read samples, shape ``(n, *sample_shape)``, and labels, shape ``(n,)``.

        Raises:
            DatasetError: The file does not hold the task's samples.
        """

    @abstractmethod
    def score(self, predictions: Predictions, labels: Labels) -> Score:
        """Return every metric, the gate's among them.

        Args:
            predictions: Finite, shape ``(n, score_count)``.
            labels: Shape ``(n,)``.
        """

    def open(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        *,
        data: Path | None = None,
    ) -> SampleLibrary:
        """Open the samples for a model that looks like this.

        Args:
            inputs: The model's inputs.
            outputs: The model's outputs.
            data: The user's own file, in the format of the catalogue's; None for that.

        Raises:
            DatasetError: The file is damaged or does not fit the model.
            AssetError: The catalogue's file is nowhere.
        """
        encoder = Encoder(self.name, inputs, self.sample_shape, self.meaning)
        reader = ScoreReader(self.name, outputs, (self.score_count,))
        samples, labels = self.read(data or resolve(data_for(self.name).asset))
        return LabelledArrays(samples, encoder, reader, lambda given: self._score(given, labels))

    def _score(self, predictions: Predictions, labels: Labels) -> Score:
        require_finite(self.name, predictions)
        return self.score(predictions, labels)


class ArrayTask(LabelledTask):
    """A classification task on one NPZ file: a subclass gives its layout."""

    layout: Layout
    metric = "top1"
    question = Question(gate="top1")

    def __init__(self) -> None:
        """Take the shapes from the layout."""
        super().__init__()
        self.sample_shape = self.layout.shape
        self.score_count = len(self.layout.classes)

    def read(self, path: Path) -> tuple[Array, Labels]:
        """Read the NPZ file."""
        return read_labelled(path, self.layout)

    def score(self, predictions: Predictions, labels: Labels) -> Score:
        """Return top-1 and all that goes with classes."""
        return score_classes(predictions, labels, self.layout.classes, self.question)
