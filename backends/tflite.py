"""TensorFlow Lite models in LiteRT, or in one of its two older packages.

The timed call uses the interpreter's native wrapper and a persistent view of each output:
a microsecond less per query than the public methods. A view is only made after the last
``allocate_tensors`` (a later one would leave it dangling), and only of an output whose
shape the file fixes (others may move while they grow). Inputs are copied once, by the
runtime: it offers Python no way to read them where they are.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edgeperf.backends.base import (
    Array,
    BackendError,
    ModelError,
    RuntimeInfo,
    SessionOptions,
)
from edgeperf.backends.model_file import check_format
from edgeperf.backends.options import read_options
from edgeperf.backends.precision import summarise
from edgeperf.backends.quiet import quiet_stderr
from edgeperf.backends.runtimes import one_line
from edgeperf.backends.shapes import (
    check_batch,
    check_blocks,
    copy_answer,
    really,
    settle_shapes,
    unbound,
)
from edgeperf.backends.tflite_graph import TfliteGraph, read_tflite
from edgeperf.backends.tflite_runtimes import OPTIONS, PACKAGES, choose, open_interpreter
from edgeperf.datasets.tensors import TensorSpec


class Calls(msgspec.Struct, frozen=True):
    """The cheapest safe way in and out of an interpreter.

    Attributes:
        set: Copies an array into a tensor.
        invoke: Runs the model.
        get: Copies a tensor out.
        view: Returns a lasting view of a tensor; None where views are not safe, because
            the public ``invoke`` refuses to run while one exists.
        nodes: Names of the operators in the execution plan and outside it.
    """

    set: Callable[[int, Array], None]
    invoke: Callable[[], None]
    get: Callable[[int], Array]
    view: Callable[[int], Array] | None
    nodes: tuple[str, ...]


def find_calls(interpreter: Any) -> Calls:
    """Return the native wrapper's calls, or the public ones where it has changed."""
    native: Any = getattr(interpreter, "_interpreter", None)
    needed = ("SetTensor", "Invoke", "GetTensor", "NumNodes", "NodeName")
    if not all(hasattr(native, name) for name in needed):
        return Calls(interpreter.set_tensor, interpreter.invoke, interpreter.get_tensor, None, ())
    nodes = tuple(str(native.NodeName(place)) for place in range(native.NumNodes()))
    return Calls(
        native.SetTensor,
        native.Invoke,
        native.GetTensor,
        lambda index: interpreter.tensor(index)(),
        nodes,
    )


class TfliteSession:
    """One interpreter."""

    def __init__(self, model: Path, options: SessionOptions) -> None:
        self._options = read_options("tflite", OPTIONS, options.options)
        self._threads = options.threads
        self._package, self._version = choose(self._options["runtime"])
        check_format(model, "tflite", (".tflite",))
        self._graph = read_tflite(model)
        check_batch(self._graph.inputs, self._graph.outputs, options.shapes)
        self.inputs: tuple[TensorSpec, ...] = settle_shapes(self._graph.inputs, options)
        self._feeds: list[tuple[tuple[int, Array], ...]] = []
        try:
            self._start(model)
        except (ValueError, RuntimeError, TypeError) as error:
            raise _refusal(model, self._package, self._graph, error) from error

    def _start(self, model: Path) -> None:
        """Build the interpreter, run it once on zeros, and connect to it."""
        interpreter = open_interpreter(self._package, model, self._threads, self._options)
        # The user's delegate takes its parts at once, XNNPACK when tensors are allocated.
        self._taken = find_calls(interpreter).nodes.count("DELEGATE")
        details = interpreter.get_input_details()
        self._in = [int(detail["index"]) for detail in details]
        with quiet_stderr():
            for spec, detail in zip(self.inputs, details, strict=True):
                if tuple(detail["shape"]) != spec.shape:
                    interpreter.resize_tensor_input(detail["index"], spec.shape)
            interpreter.allocate_tensors()
            self._calls = find_calls(interpreter)
            for spec, index in zip(self.inputs, self._in, strict=True):
                self._calls.set(index, np.zeros(spec.shape, spec.dtype))
            self._calls.invoke()
        self._interpreter = interpreter
        self._connect([int(detail["index"]) for detail in interpreter.get_output_details()])

    def _connect(self, places: Sequence[int]) -> None:
        """Make ``results``: views where they are safe, buffers to copy into elsewhere."""
        results, outputs, copied = [], [], []
        for spec, index in zip(self._graph.outputs, places, strict=True):
            value = self._calls.get(index)
            if self._calls.view is not None and spec.sample_shape == value.shape:
                results.append(self._calls.view(index))
            else:
                results.append(value)
                copied.append((index, value))
            outputs.append(really(spec, value))
        self.results: tuple[Array, ...] = tuple(results)
        self.outputs: tuple[TensorSpec, ...] = tuple(outputs)
        self._copied = tuple(copied)

    def info(self) -> RuntimeInfo:
        """Say what really runs."""
        precision, notes = summarise(self._graph.arithmetic)
        asked = self._options["delegate"]
        xnnpack = self._calls.nodes.count("DELEGATE") > self._taken
        delegates = (*((asked,) if asked else ()), *(("XNNPACK",) if xnnpack else ()))
        if asked and not self._taken:
            notes = (*notes, f"Delegate {asked} took no part of the model.")
        if self._options["xnnpack"] == "on" and not xnnpack:
            notes = (*notes, "XNNPACK was asked for and took no part of the model.")
        if note := PACKAGES[self._package].note:
            notes = (*notes, note)
        return RuntimeInfo(
            backend="tflite",
            runtime=self._package,
            version=self._version,
            device=asked if self._taken else "CPU",
            precision=precision,
            delegates=delegates,
            threads=self._threads,
            input_copy="runtime",
            options={**self._options, "runtime": self._package},
            notes=notes,
        )

    def bind(self, blocks: Sequence[Array]) -> None:
        """Prepare to read samples from *blocks*.

        Raises:
            ModelError: A block does not fit the model.
        """
        check_blocks(self.inputs, blocks)
        self._feeds = [tuple(zip(self._in, row, strict=True)) for row in zip(*blocks, strict=True)]

    def infer(self, slot: int) -> None:
        """Run the model on the sample in *slot*.

        Raises:
            BackendError: The runtime failed.
        """
        calls = self._calls
        try:
            for index, value in self._feeds[slot]:
                calls.set(index, value)
            calls.invoke()
            for index, result in self._copied:
                copy_answer(calls.get(index), result)
        except IndexError:
            raise unbound(slot) from None
        except (ValueError, RuntimeError) as error:
            raise BackendError(f"{self._package}: inference failed: {one_line(error)}") from error

    def close(self) -> None:
        """Release the interpreter, the views of its outputs first."""
        self.results = ()
        self._feeds = []
        self._calls = self._interpreter = None  # type: ignore[assignment]


class TfliteBackend:
    """LiteRT, else tflite-runtime, else TensorFlow."""

    name = "tflite"
    formats: tuple[str, ...] = (".tflite",)

    def version(self) -> tuple[str, str]:
        """Return the package that would run, and its version.

        Raises:
            BackendMissingError: None of them is installed.
        """
        return choose("auto")

    def load(self, model: Path, options: SessionOptions) -> TfliteSession:
        """Load *model*.

        Raises:
            BackendMissingError: No runtime is installed.
            ModelError: The runtime cannot load this file.
            InputError: An option is unknown or has a value that it cannot take.
        """
        return TfliteSession(model, options)


def _refusal(model: Path, package: str, graph: TfliteGraph, error: Exception) -> ModelError:
    text = one_line(error)
    unknown = [name for name in graph.custom_operators if name in text]
    if unknown:
        return ModelError(
            f"{model}: {package} has no operator {', '.join(unknown)}; "
            "if a delegate has it: --option delegate=LIBRARY"
        )
    return ModelError(f"{model}: {package} cannot load it: {text}")
