"""What a task is: samples, how they become a model's input, and how answers are scored.

A task never sees a runtime. It is told what the model's inputs and outputs look like
(:class:`~edgeperf.datasets.tensors.TensorSpec`), writes samples in exactly that type,
and turns raw outputs into a small *prediction* that goes into LoadGen's accuracy log.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgeperf import InputError
from edgeperf.datasets.score import Decoding, Gate, Score
from edgeperf.datasets.tensors import TensorSpec

Array = NDArray[Any]


class DatasetError(InputError):
    """A dataset cannot be used: the message names the file, what it is and what was expected."""


class InputLibrary(Protocol):
    """A fixed, indexable set of model inputs, labelled or not (MLPerf: QSL)."""

    def __len__(self) -> int:
        """Return how many samples there are."""
        ...

    def write(self, index: int, out: Sequence[Array]) -> None:
        """Preprocess sample *index* into *out*, in the model's own input types.

        Args:
            index: Position in the library.
            out: One array per model input, of that input's ``sample_shape`` and dtype;
                overwritten whole. No copy is kept.

        Raises:
            DatasetError: The sample is damaged.
        """
        ...


class SampleLibrary(InputLibrary, Protocol):
    """Labelled samples: what a model answers can be scored.

    A library, or its task, may have ``ask_also(extra)``, which adds the questions of an
    :class:`~edgeperf.datasets.metrics.scoring.Extra` to those that ``score`` answers.
    """

    def predict(self, index: int, outputs: Sequence[Array], out: Array) -> None:
        """Turn the raw outputs for one sample into its prediction.

        Args:
            index: The sample's position in the library.
            outputs: One array per model output, batch of one, the model's own dtype.
            out: The prediction, overwritten: shape and dtype are ``prediction_shape``
                and ``float32``.
        """
        ...

    def payload(self, index: int, prediction: Array, out: NDArray[np.uint8]) -> int:
        """Write what LoadGen's accuracy log keeps of *prediction*: what MLPerf's scripts read.

        Args:
            index: The sample's position in the library.
            prediction: From :meth:`predict`.
            out: Room for ``payload_bytes``.

        Returns:
            How many bytes were written.
        """
        ...

    @property
    def payload_bytes(self) -> int:
        """The most bytes that :meth:`payload` writes."""
        ...

    @property
    def prediction_shape(self) -> tuple[int, ...]:
        """Shape of one prediction, for instance ``(10,)`` for ten class scores."""
        ...

    def score(self, predictions: NDArray[np.float32]) -> Score:
        """Score all answers.

        Args:
            predictions: Shape ``(len(self), *prediction_shape)``, in library order.

        Raises:
            DatasetError: A prediction is not finite; the message says how many.
        """
        ...


class OneNumber:
    """The payload of answers that one number stands for: a class, or a score."""

    payload_bytes = 4

    def payload(self, index: int, prediction: Array, out: NDArray[np.uint8]) -> int:
        """Write the number as float32, which ``accuracy-imagenet.py`` reads."""
        del index
        out[:4].view(np.float32)[0] = self.logged(prediction)
        return 4

    def logged(self, prediction: Array) -> float:
        """Return the score where there is only one, else the best class."""
        return float(prediction[0]) if prediction.size == 1 else float(np.argmax(prediction))


class Task(Protocol):
    """A question asked of a model: dataset, pre- and postprocessing, metric and target.

    Attributes:
        name: As in ``--task``.
        title: One line for people.
        metric: Name of the gate's metric.
        performance_count: How many samples performance mode holds in memory (MLPerf's
            ``performance_sample_count``).
        server_latency_ns: MLPerf's bound for the Server scenario, nanoseconds.
        reference: FP32 value of the metric, None when only a model's own entry has one.
        timed_postprocessing: Whether :meth:`SampleLibrary.predict` belongs to the timed
            path (NMS does, argmax does not).
        loadgen_model: The key by which LoadGen's mlperf.conf knows the benchmark.
        gate: What a model must reach.
        reference_metrics: Other metrics of the FP32 model on the same samples, as far as
            they are known: what a change of precision may lose unseen.
        decoding: How the model's decoder is driven; None where one inference is all.
    """

    name: str
    title: str
    metric: str
    performance_count: int
    server_latency_ns: int
    reference: float | None
    timed_postprocessing: bool
    loadgen_model: str
    gate: Gate
    reference_metrics: dict[str, float]
    decoding: Decoding | None

    def open(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        *,
        data: Path | None = None,
    ) -> SampleLibrary:
        """Open the task's samples for a model that looks like this.

        Args:
            inputs: The model's inputs.
            outputs: The model's outputs.
            data: The user's own samples in the task's format; None for the catalogue's.

        Raises:
            DatasetError: The data is missing, damaged, or does not fit the model.
        """
        ...
