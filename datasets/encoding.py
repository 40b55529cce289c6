"""How a sample of a task becomes the input of whatever model is at hand.

A task knows its samples as stored numbers with a meaning: ``real = (stored - offset) /
divisor``. A model says what it takes: float or 8-bit, its own scale and zero point,
channels last or first. :class:`Encoder` brings the two together, or says why not.

The trap: ONNX files (and OpenVINO) do not tell the scale of an 8-bit input. Then the
scale is the task's :class:`Meaning`, which is how the published 8-bit models of that
task were made.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.base import Array, DatasetError
from edgeperf.datasets.tensors import Quantisation, TensorSpec

#: From the zero point of int8 to that of uint8, for the same scale.
UNSIGNED = 128


class Meaning(msgspec.Struct, frozen=True, kw_only=True):
    """What a task's stored numbers stand for.

    Attributes:
        offset: The stored number that stands for 0, one for all channels or one each.
        divisor: How many stored steps make 1.0, likewise.
        int8: Scale and zero point of an int8 input that does not tell its own.
    """

    offset: tuple[float, ...] = (0.0,)
    divisor: tuple[float, ...] = (1.0,)
    int8: Quantisation | None = None


class Encoder:
    """Writes samples of one task as the one input of one model."""

    def __init__(
        self, task: str, inputs: Sequence[TensorSpec], shape: tuple[int, ...], meaning: Meaning
    ) -> None:
        """Check that they fit.

        Args:
            task: The task's name, for messages.
            inputs: The model's inputs.
            shape: Of one sample, channels last, without a batch axis.
            meaning: What the stored numbers stand for.

        Raises:
            DatasetError: The model takes something else.
        """
        spec = one_input(task, inputs)
        self._channels_first = _channels_first(task, spec, shape)
        self._dtype = np.dtype(spec.dtype)
        self._offset = np.asarray(meaning.offset, np.float64)
        self._divisor = np.asarray(meaning.divisor, np.float64)
        self._quantisation = input_quantisation(task, spec, meaning.int8)

    def write(self, sample: NDArray[Any], out: Array) -> None:
        """Encode *sample*, shape as given, into *out*, the model's own shape and dtype."""
        if self._channels_first:
            sample = np.moveaxis(self.encode(sample), -1, 0)
        else:
            sample = self.encode(sample)
        out[...] = sample.reshape(out.shape)

    def encode(self, sample: NDArray[Any]) -> Array:
        """Return *sample* as the model's numbers, in its own shape."""
        real: Array = (sample - self._offset) / self._divisor
        if self._quantisation is None:
            return real.astype(self._dtype)
        return quantise(real, self._quantisation, self._dtype)


def quantise(real: NDArray[Any], quantisation: Quantisation, dtype: np.dtype[Any]) -> Array:
    """Return the stored integers nearest to *real*, held within the range of *dtype*."""
    limits = np.iinfo(dtype)
    stored: Array = np.rint(real / quantisation.scale) + quantisation.zero_point
    return stored.clip(limits.min, limits.max).astype(dtype)


def one_input(task: str, inputs: Sequence[TensorSpec]) -> TensorSpec:
    """Return the only input.

    Raises:
        DatasetError: There are several, it has free axes, or it takes a batch.
    """
    if len(inputs) != 1:
        names = ", ".join(repr(spec.name) for spec in inputs) or "none"
        raise DatasetError(
            f"task {task} does not fit this model: it feeds one input, the model has "
            f"{len(inputs)} ({names})"
        )
    spec = inputs[0]
    if spec.is_dynamic:
        raise DatasetError(
            f"task {task}: input {spec.name!r} is {list(spec.shape)}, with axes left free; "
            f"give its shape, for instance --input {spec.name}=1,224,224,3"
        )
    if not spec.shape or spec.sample_shape[0] != 1:
        raise DatasetError(
            f"task {task} does not fit this model: input {spec.name!r} is {list(spec.shape)}; "
            "expected a first axis for the batch, of 1 or free"
        )
    return spec


def input_quantisation(
    task: str, spec: TensorSpec, int8: Quantisation | None
) -> Quantisation | None:
    """Return how a model's input stores numbers; None for floats.

    Raises:
        DatasetError: The input is of a type that the task cannot feed.
    """
    if spec.dtype in ("float32", "float16", "float64"):
        return None
    if spec.dtype in ("int8", "uint8"):
        if spec.quantisation is not None:
            return spec.quantisation
        if int8 is not None and spec.dtype == "uint8":
            return Quantisation(scale=int8.scale, zero_point=int8.zero_point + UNSIGNED)
        if int8 is not None:
            return int8
    expected = "float16, float32 or float64"
    if int8 is not None:
        expected += ", int8 or uint8"
    raise DatasetError(
        f"task {task} does not fit this model: input {spec.name!r} is {spec.dtype}; "
        f"expected {expected}"
    )


def _channels_first(task: str, spec: TensorSpec, shape: tuple[int, ...]) -> bool:
    """Say whether the model wants the last axis of *shape* first.

    Axes of 1 are not compared: one channel is the same number in either order.
    """
    taken = _longer_axes(spec.sample_shape)
    if taken == _longer_axes(shape):
        return False
    first = (shape[-1], *shape[:-1])
    if taken == _longer_axes(first):
        return True
    expected = " or ".join(str([1, *order]) for order in dict.fromkeys((shape, first)))
    raise DatasetError(
        f"task {task} does not fit this model: input {spec.name!r} is {list(spec.shape)}, "
        f"expected {expected}"
    )


def _longer_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis for axis in shape if axis != 1)
