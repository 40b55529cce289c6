"""Several samples per inference: Offline, where the model leaves its first axis free.

Samples of a query lie anywhere in the input block, so a batch is gathered first; that is
timed, and said. Which size is best is a matter of the board: ``--batch auto`` tries.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeperf.agent.run.answer import Each, load_session
from edgeperf.agent.run.jobs import SutPlan
from edgeperf.backends.base import Array, ModelError, Session
from edgeperf.datasets.tensors import TensorSpec

#: Sizes that ``auto`` tries, in order.
SIZES = (2, 4, 8, 16, 32, 64)
#: The smallest size within this share of the best is taken: small ones need less memory.
_NEARLY = 0.98
_TRY_NS = 150_000_000
_FEWEST_TRIES = 3
#: How far answers of a batch may be from single ones, as a share of the largest value ...
_TOLERANCE = 0.02
#: ... and where they are stored in steps, as so many of these.
_STEPS = 2.0


class Batch:
    """A session that takes several samples at a time.

    Args:
        session: Loaded for that many.
        inputs: One block per input of the model, shape ``(slots, *sample_shape)``.
        size: How many.

    Attributes:
        size: How many.
        first: The first slots, as many as fit.
        results: For each place in the batch, what the model answered there: one array
            per output, batch of one.

    Raises:
        ModelError: An output has no place for each sample.
    """

    def __init__(self, session: Session, inputs: Sequence[NDArray[Any]], size: int) -> None:
        self.size = size
        self.first = np.arange(size, dtype=np.int32) % len(inputs[0])
        for spec, result in zip(session.outputs, session.results, strict=True):
            if result.shape[:1] != (size,):
                raise ModelError(
                    f"--batch {size}: output {spec.name!r} is {result.shape}: it has no answer"
                    " for each sample; leave the batch out"
                )
        stages = [np.zeros((1, *spec.shape), spec.dtype) for spec in session.inputs]
        session.bind(stages)
        self._infer = session.infer
        self._inputs = inputs
        # Blocks have a batch axis of one that the stages have not.
        self._stages = [
            stage.reshape(size, *block.shape[1:])
            for stage, block in zip(stages, inputs, strict=True)
        ]
        self.results = [
            tuple(result[place : place + 1] for result in session.results) for place in range(size)
        ]

    def infer(self, slots: NDArray[np.int32]) -> None:
        """Run the model on the samples in *slots*, at most :attr:`size`."""
        for block, stage in zip(self._inputs, self._stages, strict=True):
            np.take(block, slots, axis=0, out=stage[: slots.size], mode="clip")
        self._infer(0)


class ManyAnswers:
    """Answers many samples of the library, batch by batch.

    Args:
        batch: The session.
        slots: Slot of each sample of the library.
        each: What is done with each answer; None for nothing.
    """

    def __init__(self, batch: Batch, slots: NDArray[np.int32], each: Each | None) -> None:
        self._batch = batch
        self._slots = slots
        self._each = each

    def __call__(self, indices: NDArray[np.int32]) -> None:
        """Answer the samples *indices*."""
        size, each = self._batch.size, self._each
        for begin in range(0, len(indices), size):
            part = indices[begin : begin + size]
            self._batch.infer(self._slots[part])
            if each is not None:
                for index, results in zip(part.tolist(), self._batch.results, strict=False):
                    each(index, results)


def find_batch(
    sut: SutPlan, single: Session, inputs: Sequence[NDArray[Any]]
) -> tuple[int, str | None]:
    """Return how many samples go into one inference, and how that was found.

    Args:
        sut: What is loaded; its ``batch`` is a size, or 0 to find the best.
        single: The same, loaded for one sample and bound to *inputs*.
        inputs: Blocks of samples.

    Raises:
        ModelError: The model cannot take the size that was asked for.
    """
    if sut.batch != 0:
        if sut.batch > 1:
            _checked(sut, sut.batch, single, inputs)
        return sut.batch, None
    rates = {1: _rate(partial(single.infer, 0), 1)}
    for size in SIZES:
        try:
            batch = _checked(sut, size, single, inputs)
        except ModelError as error:
            if len(rates) == 1:
                return 1, f"Batch 1, since no other works: {error}"
            break
        rates[size] = _rate(partial(batch.infer, batch.first), size)
        if max(list(rates.values())[-2:]) < max(rates.values()):
            break  # twice in a row no better
    best = min(size for size, rate in rates.items() if rate >= _NEARLY * max(rates.values()))
    tried = ", ".join(f"{size}: {rate:,.0f}/s" for size, rate in rates.items())
    return best, f"Batch {best} was found best on one core ({tried})."


def _checked(sut: SutPlan, size: int, single: Session, inputs: Sequence[NDArray[Any]]) -> Batch:
    """Return a batch that answers like single inferences.

    Raises:
        ModelError: It does not, or it cannot be loaded.
    """
    batch = Batch(load_session(sut, batch=size), inputs, size)
    batch.infer(batch.first)
    for place in (0, size - 1):
        single.infer(int(batch.first[place]))
        if not all(map(alike, single.outputs, single.results, batch.results[place])):
            raise ModelError(
                f"--batch {size}: the model answers a sample otherwise than alone; its first axis"
                " is no batch"
            )
    return batch


def alike(spec: TensorSpec, alone: Array, among: Array) -> bool:
    """Return whether an answer among others is the one that was given alone.

    Real values, stored as such or quantised, may differ as rounding does; infinity and NaN
    must be where they were. Whole numbers that stand for nothing but themselves (classes,
    counts, masks) must be the same.

    Args:
        spec: The output.
        alone: Answer to one sample, batch of one.
        among: Answer to the same sample in a batch, likewise.
    """
    if alone.shape != among.shape:
        return False
    quantised = spec.quantisation is not None and alone.dtype in (np.int8, np.uint8)
    if alone.dtype.kind != "f" and not quantised:
        return np.array_equal(alone, among)
    one, other = alone.astype(np.float64), among.astype(np.float64)
    most = float(np.abs(one[np.isfinite(one)]).max(initial=0.0))
    most_off = max(_STEPS if quantised else 0.0, _TOLERANCE * most)
    return bool(np.allclose(one, other, rtol=0.0, atol=most_off, equal_nan=True))


def _rate(infer: Callable[[], None], size: int) -> float:
    """Return samples per second, by the median inference: others may work on this core too."""
    infer()
    times_ns: list[int] = []
    while sum(times_ns) < _TRY_NS or len(times_ns) < _FEWEST_TRIES:
        began = time.monotonic_ns()
        infer()
        times_ns.append(time.monotonic_ns() - began)
    return size * 1e9 / float(np.median(times_ns))
