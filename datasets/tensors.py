"""How a model's inputs and outputs look: the words that backends and tasks share.

Plain data, no numpy: the agent service and the coordinator read it too.
"""

import math

import msgspec


class Quantisation(msgspec.Struct, frozen=True, kw_only=True):
    """Affine quantisation of a whole tensor: ``real = scale * (stored - zero_point)``.

    Source: TFLite "quantization spec", ONNX ``DequantizeLinear``.

    Attributes:
        scale: Step between two stored values, in real units; above 0.
        zero_point: The stored value that stands for 0.
    """

    scale: float
    zero_point: int


class TensorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One input or output of a model.

    Attributes:
        name: As the runtime names it.
        shape: With the batch axis; -1 where the model leaves an axis free.
        dtype: numpy's name: ``float32``, ``int8``, ``uint8``, ``int64``, ...
        quantisation: How stored values map to real ones; None for real values.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    quantisation: Quantisation | None = None

    @property
    def is_dynamic(self) -> bool:
        """Whether an axis other than the first (the batch) is free."""
        return any(axis < 0 for axis in self.shape[1:])

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample as the model takes it: a free batch axis is 1."""
        return tuple(
            1 if place == 0 and axis < 0 else axis for place, axis in enumerate(self.shape)
        )

    @property
    def sample_size(self) -> int:
        """Number of elements in one sample; every axis but the batch must be fixed."""
        return math.prod(self.sample_shape)
