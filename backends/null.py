"""A backend that does no work, so that a run measures the harness alone.

Report its latency next to a real one: it is the floor below which this board and this
version of edgeperf cannot see.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgeperf import InputError, __version__
from edgeperf.backends.base import Array, RuntimeInfo, SessionOptions
from edgeperf.backends.options import Option, read_options
from edgeperf.backends.shapes import check_blocks
from edgeperf.datasets.tensors import TensorSpec

OPTIONS = {
    "input_shape": Option("1,1"),
    "dtype": Option("float32", ("float32", "int8", "uint8", "int32", "int64")),
}


class NullSession:
    """One input, one output of the same shape, nothing between them."""

    def __init__(self, options: SessionOptions) -> None:
        self._options = read_options("null", OPTIONS, options.options)
        self._threads = options.threads
        _, *rest = _shape(self._options["input_shape"])
        shape = (options.batch, *rest)
        dtype = self._options["dtype"]
        self.inputs: tuple[TensorSpec, ...] = (TensorSpec(name="input", shape=shape, dtype=dtype),)
        self.outputs: tuple[TensorSpec, ...] = (
            TensorSpec(name="output", shape=shape, dtype=dtype),
        )
        self.results: tuple[Array, ...] = (np.zeros(shape, dtype),)

    def info(self) -> RuntimeInfo:
        """Say that nothing runs."""
        return RuntimeInfo(
            backend="null",
            runtime="edgeperf",
            version=__version__,
            device="none",
            precision="none",
            delegates=(),
            threads=self._threads,
            input_copy="none",
            options=self._options,
            notes=("The null backend runs no model: this is the cost of the harness itself.",),
        )

    def bind(self, blocks: Sequence[Array]) -> None:
        """Check *blocks* and forget them.

        Raises:
            ModelError: A block does not fit.
        """
        check_blocks(self.inputs, blocks)

    def infer(self, slot: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class NullBackend:
    """Takes any path, existing or not; chosen only by name."""

    name = "null"
    formats: tuple[str, ...] = ()

    def version(self) -> tuple[str, str]:
        """Return our own version."""
        return "edgeperf", __version__

    def load(self, model: Path, options: SessionOptions) -> NullSession:
        """Load nothing.

        Raises:
            InputError: An option is unknown or has a value that it cannot take.
        """
        del model
        return NullSession(options)


def _shape(text: str) -> tuple[int, ...]:
    sizes = text.split(",")
    if not all(size.strip().isdecimal() and int(size) > 0 for size in sizes):
        raise InputError(f"option input_shape={text}: expected sizes, for instance 1,224,224,3")
    return tuple(int(size) for size in sizes)
