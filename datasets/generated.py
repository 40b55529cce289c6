"""Inputs for a model without a dataset: made from its own description, or read from a file.

They make a model run; they do not make it right. There are no labels, so accuracy is
"not measured". Sample *i* is the same whoever asks and in whatever order, because it
depends on nothing but the seed and *i*.

The trap: integers that are no quantised numbers are mostly indices, token types or
masks, and 0 and 1 are the only values that all of those allow.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.base import Array, DatasetError
from edgeperf.datasets.npz import read_rows
from edgeperf.datasets.npz_rows import Rows
from edgeperf.datasets.tensors import TensorSpec


class GeneratedInputs:
    """A library of inputs without labels."""

    def __init__(
        self,
        inputs: Sequence[TensorSpec],
        *,
        seed: int = 0,
        count: int = 1024,
        file: Path | None = None,
    ) -> None:
        """Check that inputs for this model can be made, or read those of *file*.

        Args:
            inputs: The model's inputs.
            seed: Of the random numbers; means nothing with *file*.
            count: How many samples there shall be; with *file*, it says how many.
            file: NPZ with one array per input, named like it, samples along the first
                axis; None makes random numbers.

        Raises:
            DatasetError: An input has free axes or a type that cannot be made, or the
                file does not fit the model.
        """
        for spec in inputs:
            _require_makeable(spec)
        self._inputs = tuple(inputs)
        self._seed = seed
        self._given = None if file is None else _read(file, inputs)
        self._count = len(self._given[0]) if self._given else count

    def __len__(self) -> int:
        """Return how many samples there are."""
        return self._count

    def write(self, index: int, out: Sequence[Array]) -> None:
        """Write sample *index*, one array per input."""
        for place, (spec, target) in enumerate(zip(self._inputs, out, strict=True)):
            if self._given is not None:
                target[...] = self._given[place][index].reshape(target.shape)
            else:
                random = np.random.default_rng((self._seed, index, place))
                target[...] = _random(spec, random)


def _require_makeable(spec: TensorSpec) -> None:
    if spec.is_dynamic:
        raise DatasetError(
            f"input {spec.name!r} is {list(spec.shape)}, with axes left free; give its shape, "
            f"for instance --input {spec.name}=1,224,224,3"
        )
    if _kind(spec) not in "fiub":
        raise DatasetError(
            f"input {spec.name!r} is {spec.dtype}; inputs can be made and read for floats, "
            "integers and bool only"
        )


def _kind(spec: TensorSpec) -> str:
    try:
        return np.dtype(spec.dtype).kind
    except TypeError:  # a type that numpy does not have, such as bfloat16
        return "?"


def _random(spec: TensorSpec, random: np.random.Generator) -> NDArray[Any]:
    """Return one sample: floats in [0, 1), stored numbers of any value, else 0 or 1."""
    dtype = np.dtype(spec.dtype)
    if dtype.kind == "f":
        return random.random(spec.sample_shape, np.float32)
    if dtype.kind != "b" and (dtype.itemsize == 1 or spec.quantisation is not None):
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max, spec.sample_shape, dtype, endpoint=True)
    return random.integers(0, 2, spec.sample_shape)


def _read(file: Path, inputs: Sequence[TensorSpec]) -> list[Rows | Array]:
    """Open one array per input, in the model's order."""
    expected = "one array per input: " + ", ".join(map(_wanted, inputs))
    arrays = read_rows(file, expected)
    names = [spec.name for spec in inputs]
    if set(arrays) != set(names):
        raise DatasetError(f"{file}: holds {sorted(arrays)}; expected {expected}")
    for spec in inputs:
        _require_fitting(file, spec, arrays[spec.name])
    counts = {name: len(arrays[name]) for name in names}
    if len(set(counts.values())) != 1 or not counts[names[0]]:
        listed = ", ".join(f"{name!r} has {count}" for name, count in counts.items())
        raise DatasetError(f"{file}: expected the same number of samples in each, got {listed}")
    return [arrays[name] for name in names]


def _wanted(spec: TensorSpec) -> str:
    axes = ", ".join(map(str, _per_sample(spec)))
    return f"{spec.name!r} (n, {axes}) {spec.dtype}" if axes else f"{spec.name!r} (n,) {spec.dtype}"


def _per_sample(spec: TensorSpec) -> tuple[int, ...]:
    """Return the shape of one sample, without a batch axis of 1."""
    shape = spec.sample_shape
    return shape[1:] if shape[:1] == (1,) else shape


def _require_fitting(file: Path, spec: TensorSpec, array: Rows | Array) -> None:
    shapes = (_per_sample(spec), spec.sample_shape)
    if not array.ndim or array.shape[1:] not in shapes or array.dtype != spec.dtype:
        raise DatasetError(
            f"{file}: array {spec.name!r} is {list(array.shape)} {array.dtype}; "
            f"expected {_wanted(spec)}"
        )
