"""The three ways into ONNX Runtime, fastest first: bound per slot, bound anew, copied.

A binding holds bare addresses: it does not keep the arrays behind them. Whoever holds a
run must hold its :class:`Ends` as well.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from edgeperf.backends.base import Array
from edgeperf.backends.shapes import copy_answer
from edgeperf.datasets.tensors import TensorSpec

#: A binding takes 1.5 kB and 10 µs to make. Above this many slots one binding is pointed
#: at another address in each query instead, which costs that query 2 µs.
MOST_BINDINGS = 8192

Run = Callable[[int], object]


class Ends(msgspec.Struct, frozen=True):
    """A session, where its samples lie and where its answers go.

    Attributes:
        session: An ``InferenceSession``.
        inputs: Its inputs.
        blocks: One block of samples per input, ``(slots, *sample_shape)``.
        outputs: Its outputs.
        results: One array per output.
    """

    session: Any
    inputs: Sequence[TensorSpec]
    blocks: Sequence[Array]
    outputs: Sequence[TensorSpec]
    results: Sequence[Array]


def bound(ends: Ends, options: Any) -> Run:
    """Return a run with one binding per slot.

    Args:
        ends: What to bind.
        options: An ``onnxruntime.RunOptions``, made once.
    """
    bindings = [_binding(ends, slot) for slot in range(len(ends.blocks[0]))]
    # The public call around the native one costs a microsecond.
    native = getattr(getattr(ends.session, "_sess", None), "run_with_iobinding", None)
    inner = [getattr(binding, "_iobinding", None) for binding in bindings]
    if native is None or None in inner:
        public = ends.session.run_with_iobinding
        return lambda slot: public(bindings[slot])
    return lambda slot: native(inner[slot], options)


def rebinding(ends: Ends) -> Run:
    """Return a run with one binding, pointed at the slot each time."""
    binding, run, slots = _binding(ends, 0), ends.session.run_with_iobinding, len(ends.blocks[0])
    places = [
        (spec.name, block.dtype.type, spec.shape, block.ctypes.data, block[0].nbytes)
        for spec, block in zip(ends.inputs, ends.blocks, strict=True)
    ]

    def infer(slot: int) -> None:
        if not 0 <= slot < slots:
            raise IndexError(slot)
        for name, dtype, shape, start, size in places:
            binding.bind_input(name, "cpu", 0, dtype, shape, start + slot * size)
        run(binding)

    return infer


def copying(ends: Ends) -> Run:
    """Return a run that lets the runtime fetch its inputs itself, for another device's memory."""
    run, names = ends.session.run, [spec.name for spec in ends.inputs]

    def infer(slot: int) -> None:
        feed = {name: block[slot] for name, block in zip(names, ends.blocks, strict=True)}
        for result, value in zip(ends.results, run(None, feed), strict=True):
            copy_answer(value, result)

    return infer


def _binding(ends: Ends, slot: int) -> Any:
    binding = ends.session.io_binding()
    for spec, block in zip(ends.inputs, ends.blocks, strict=True):
        row = block[slot]
        binding.bind_input(spec.name, "cpu", 0, row.dtype.type, spec.shape, row.ctypes.data)
    for spec, result in zip(ends.outputs, ends.results, strict=True):
        kind, place = result.dtype.type, result.ctypes.data
        binding.bind_output(spec.name, "cpu", 0, kind, spec.shape, place)
    return binding
