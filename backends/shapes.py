"""Settling what a model leaves open: free axes, and the batch of one.

A run feeds one sample per inference, so a free first axis becomes 1. Every other free
axis needs a size from the user, because it changes what is measured.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from edgeperf import InputError
from edgeperf.backends.base import Array, BackendError, ModelError, SessionOptions
from edgeperf.datasets.tensors import TensorSpec

Shapes = Mapping[str, tuple[int, ...]]

#: Types that a sample can have.
NUMBERS = (
    "float32", "float16", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32",
    "int64", "uint64", "bool",
)  # fmt: skip


def settle_shapes(inputs: Sequence[TensorSpec], options: SessionOptions) -> tuple[TensorSpec, ...]:
    """Return *inputs* with every axis fixed, the first at the batch where it is free.

    Raises:
        InputError: A shape is given for an input that the model has not, or does not fit.
        ModelError: An axis is free and its shape is not given; or the batch is above 1
            and an input's first axis is fixed.
    """
    asked, batch = options.shapes, options.batch
    if not inputs:
        raise ModelError("the model has no input: there is nothing to measure")
    names = [spec.name for spec in inputs]
    for name in asked:
        if name not in names:
            raise InputError(
                f"--input {name}: the model has no such input; it has: {', '.join(names)}"
            )
    settled = tuple(_settle(spec, asked.get(spec.name)) for spec in inputs)
    if batch == 1:
        return settled
    for spec in inputs:
        if spec.shape[:1] != (-1,):
            raise ModelError(
                f"--batch {batch}: the first axis of input {spec.name!r} is fixed,"
                f" {_text(spec.shape)}; export the model with a free batch axis"
            )
    return tuple(msgspec.structs.replace(spec, shape=(batch, *spec.shape[1:])) for spec in settled)


def _settle(spec: TensorSpec, asked: tuple[int, ...] | None) -> TensorSpec:
    if spec.dtype not in NUMBERS:
        raise ModelError(f"input {spec.name!r} is {spec.dtype}: expected {', '.join(NUMBERS)}")
    if asked is not None:
        fits = len(asked) == len(spec.shape) and all(
            given >= 1 and free in {-1, given}
            for free, given in zip(spec.shape, asked, strict=True)
        )
        if not fits:
            raise InputError(
                f"--input {spec.name}={_text(asked)}: does not fit the model's {_text(spec.shape)}"
            )
        if spec.shape[:1] == (-1,) and asked[0] != 1:
            raise InputError(
                f"--input {spec.name}={_text(asked)}: the first axis is the batch and must be 1"
            )
        return msgspec.structs.replace(spec, shape=asked)
    if spec.is_dynamic:
        example = _text(tuple(axis if axis > 0 else 64 for axis in spec.sample_shape))
        raise ModelError(
            f"input {spec.name!r} has free axes, {_text(spec.shape)}: give its shape, "
            f"for instance --input {spec.name}={example}"
        )
    return msgspec.structs.replace(spec, shape=spec.sample_shape)


def check_batch(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], asked: Shapes) -> None:
    """Refuse a model built for several samples at once.

    A first axis is taken for a batch when all inputs and outputs share it; an input
    whose shape the user gave is one sample by definition.

    Raises:
        ModelError: The batch is fixed and above 1.
    """
    if any(spec.name in asked for spec in inputs):
        return
    first = {spec.shape[0] for spec in (*inputs, *outputs) if spec.shape}
    flat = any(len(spec.shape) < 2 for spec in inputs)  # noqa: PLR2004 - no axis beside the batch
    if len(first) == 1 and not flat and (batch := first.pop()) > 1:
        spec = inputs[0]
        raise ModelError(
            f"input {spec.name!r} has a fixed batch of {batch}, {_text(spec.shape)}: expected a "
            "batch of 1 or a free one; export it so, or if that is one sample say "
            f"--input {spec.name}={_text(spec.shape)}"
        )


def really(spec: TensorSpec, value: Array) -> TensorSpec:
    """Return *spec* with the shape and type that *value* turned out to have."""
    return msgspec.structs.replace(spec, shape=value.shape, dtype=str(value.dtype))


def copy_answer(value: Array, result: Array) -> None:
    """Copy an answer into its place, of a shape that was found when the model was loaded.

    Raises:
        ValueError: It has another shape now.
    """
    if result.shape != value.shape:
        raise ValueError(f"an output changed its shape from {result.shape} to {value.shape}")
    np.copyto(result, value)


def check_blocks(inputs: Sequence[TensorSpec], blocks: Sequence[Array]) -> int:
    """Return how many slots *blocks* have.

    Raises:
        ModelError: A block does not fit the model.
    """
    if len(blocks) != len(inputs):
        raise ModelError(f"the model has {len(inputs)} inputs, got {len(blocks)} blocks")
    for spec, block in zip(inputs, blocks, strict=True):
        if block.shape[1:] != spec.sample_shape or block.dtype != np.dtype(spec.dtype):
            raise ModelError(
                f"input {spec.name!r} takes {spec.dtype} {_text(spec.sample_shape)}, "
                f"got {block.dtype} {_text(block.shape[1:])}"
            )
        if not block.flags.c_contiguous or block.shape[0] != blocks[0].shape[0]:
            raise ModelError(
                f"input {spec.name!r}: its block is not contiguous or has another slot count"
            )
    return int(blocks[0].shape[0])


def unbound(slot: int) -> BackendError:
    """Return the error for a slot that no block reaches."""
    return BackendError(f"slot {slot}: no samples are bound there")


def _text(shape: tuple[int, ...]) -> str:
    return ",".join("?" if axis < 0 else str(axis) for axis in shape)
