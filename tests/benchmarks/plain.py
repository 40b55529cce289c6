"""The everyday calls of each runtime, and a process that has nothing but them.

Nothing of edgeperf is imported here: the process is the zero from which the memory of
the harness is counted.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Blocks = Sequence[NDArray[Any]]


class Sut(Protocol):
    """What is loaded."""

    @property
    def model(self) -> str:
        """Path of the file."""
        ...

    @property
    def backend(self) -> str:
        """Name of the backend."""
        ...

    @property
    def threads(self) -> int:
        """Threads of the runtime."""
        ...


def plain_call(sut: Sut, blocks: Blocks) -> Callable[[int], object]:
    """Return the runtime's own everyday call on slot so-and-so."""
    return _PLAIN[sut.backend](sut, blocks)


def _tflite(sut: Sut, blocks: Blocks) -> Callable[[int], object]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=sut.model, num_threads=sut.threads)
    interpreter.allocate_tensors()
    places = [detail["index"] for detail in interpreter.get_input_details()]
    answers = [detail["index"] for detail in interpreter.get_output_details()]

    def call(slot: int) -> object:
        for place, block in zip(places, blocks, strict=True):
            interpreter.set_tensor(place, block[slot])
        interpreter.invoke()
        return [interpreter.get_tensor(place) for place in answers]

    return call


def _onnxruntime(sut: Sut, blocks: Blocks) -> Callable[[int], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = sut.threads
    session = onnxruntime.InferenceSession(sut.model, options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]

    def call(slot: int) -> object:
        feed = {name: block[slot] for name, block in zip(names, blocks, strict=True)}
        return session.run(None, feed)

    return call


def _openvino(sut: Sut, blocks: Blocks) -> Callable[[int], object]:
    import openvino

    core = openvino.Core()
    model = core.read_model(sut.model)
    model.reshape({place: list(block.shape[1:]) for place, block in enumerate(blocks)})
    compiled = core.compile_model(
        model,
        "CPU",
        {
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": sut.threads,
        },
    )

    def call(slot: int) -> object:
        return compiled([block[slot] for block in blocks])

    return call


_PLAIN: dict[str, Callable[[Sut, Blocks], Callable[[int], object]]] = {
    "tflite": _tflite,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}


class _Named:
    """A model on one thread."""

    threads = 1

    def __init__(self, backend: str, model: str) -> None:
        self.backend = backend
        self.model = model


def main() -> None:
    """Load the model named on the command line, use it a little, and wait to be looked at.

    Behind backend and file each argument is an input: ``DTYPE:1,224,224,3``.
    """
    backend, model, *inputs = sys.argv[1:]
    blocks = []
    for text in inputs:
        dtype, _, shape = text.partition(":")
        blocks.append(np.zeros((1, *map(int, shape.split(","))), dtype))
    call = plain_call(_Named(backend, model), blocks)
    for _ in range(20):
        call(0)
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
