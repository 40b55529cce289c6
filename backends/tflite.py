"""TensorFlow Lite models in LiteRT, or in one of its two older packages.

The timed call uses the interpreter's native wrapper and a persistent view of each output,
which costs about a microsecond less per tensor than the public methods. A view is only
made after the last ``allocate_tensors``: a later allocation would leave it dangling.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgeperf import InputError
from edgeperf.backends.base import (
    Array,
    BackendError,
    ModelError,
    RuntimeInfo,
    SessionOptions,
)
from edgeperf.backends.model_file import check_format
from edgeperf.backends.options import Option, read_options, read_pairs
from edgeperf.backends.quiet import quiet_stderr
from edgeperf.backends.runtimes import import_runtime, installed_version, is_present, missing
from edgeperf.backends.shapes import check_batch, check_blocks, settle_shapes
from edgeperf.backends.tflite_graph import TfliteGraph, read_tflite
from edgeperf.datasets.tensors import TensorSpec

#: Package -> module that holds its interpreter, and distributions that install it; best first.
RUNTIMES: dict[str, tuple[str, tuple[str, ...]]] = {
    "ai-edge-litert": ("ai_edge_litert.interpreter", ("ai-edge-litert", "ai-edge-litert-nightly")),
    "tflite-runtime": ("tflite_runtime.interpreter", ("tflite-runtime", "tflite-runtime-nightly")),
    "tensorflow": ("tensorflow.lite", ("tensorflow", "tensorflow-cpu", "tensorflow-aarch64")),
}

OPTIONS = {
    "runtime": Option("auto", ("auto", *RUNTIMES)),
    "xnnpack": Option("auto", ("auto", "on", "off")),
    "delegate": Option(),
    "delegate_options": Option(),
}

#: What XNNPACK's switch means to the interpreter's constructor.
_RESOLVERS = {"auto": "AUTO", "on": "BUILTIN", "off": "BUILTIN_WITHOUT_DEFAULT_DELEGATES"}


class TfliteSession:
    """One interpreter."""

    def __init__(self, model: Path, options: SessionOptions) -> None:
        self._options = read_options("tflite", OPTIONS, options.options)
        self._threads = options.threads
        self._runtime, self._version = _choose(self._options["runtime"])
        check_format(model, "tflite", (".tflite",))
        self._graph = read_tflite(model)
        check_batch(self._graph.inputs, self._graph.outputs, options.shapes)
        self.inputs: tuple[TensorSpec, ...] = settle_shapes(self._graph.inputs, options.shapes)
        self._interpreter = self._open(model)
        self._blocks: list[Array] = []
        self._settle(model)
        self._connect(model)

    def _open(self, model: Path) -> Any:
        """Build the interpreter, delegates and all."""
        module = import_runtime("tflite", RUNTIMES[self._runtime][0], self._runtime)
        resolver = _resolver_type(module)
        delegates = self._load_delegates(module)
        with quiet_stderr():
            try:
                return module.Interpreter(
                    model_path=str(model),
                    num_threads=self._threads,
                    experimental_delegates=delegates,
                    experimental_op_resolver_type=getattr(
                        resolver, _RESOLVERS[self._options["xnnpack"]]
                    ),
                )
            except (ValueError, RuntimeError, TypeError) as error:
                raise _refusal(model, self._runtime, self._graph, error) from error

    def _load_delegates(self, module: Any) -> list[Any]:
        library = self._options["delegate"]
        settings = read_pairs("delegate_options", self._options["delegate_options"])
        if not library:
            if settings:
                raise InputError("option delegate_options: means nothing without delegate=LIBRARY")
            return []
        loader = (
            import_runtime("tflite", "tensorflow", "tensorflow").lite.experimental
            if (self._runtime == "tensorflow")
            else module
        )
        try:
            with quiet_stderr():
                return [loader.load_delegate(library, settings)]
        except (ValueError, OSError, RuntimeError) as error:
            raise InputError(
                f"option delegate={library}: does not load: {_one_line(error)}"
            ) from error

    def _settle(self, model: Path) -> None:
        """Give every input its shape and allocate: the last time, see the module's trap."""
        details = self._interpreter.get_input_details()
        try:
            with quiet_stderr():
                for spec, detail in zip(self.inputs, details, strict=True):
                    if tuple(detail["shape"]) != spec.shape:
                        self._interpreter.resize_tensor_input(detail["index"], spec.shape)
                self._interpreter.allocate_tensors()
                # Some shapes (detections) are only known after a first run.
                for spec, detail in zip(self.inputs, details, strict=True):
                    self._interpreter.set_tensor(detail["index"], np.zeros(spec.shape, spec.dtype))
                self._interpreter.invoke()
        except (ValueError, RuntimeError) as error:
            raise _refusal(model, self._runtime, self._graph, error) from error

    def _connect(self, model: Path) -> None:
        """Find the cheapest safe way in and out of the interpreter."""
        self._in = [int(detail["index"]) for detail in self._interpreter.get_input_details()]
        details = self._interpreter.get_output_details()
        self._out = [int(detail["index"]) for detail in details]
        native = getattr(self._interpreter, "_interpreter", None)
        names = ("SetTensor", "Invoke", "GetTensor")
        fast = native is not None and all(hasattr(native, name) for name in names)
        self._set = native.SetTensor if fast else self._interpreter.set_tensor
        self._invoke = native.Invoke if fast else self._interpreter.invoke
        self._get = native.GetTensor if fast else self._interpreter.get_tensor
        self._native = native if fast else None
        found = [self._get(index) for index in self._out]
        self.outputs: tuple[TensorSpec, ...] = tuple(
            TensorSpec(
                name=spec.name,
                shape=value.shape,
                dtype=str(value.dtype),
                quantisation=spec.quantisation,
            )
            for spec, value in zip(self._graph.outputs, found, strict=True)
        )
        static = [
            spec.sample_shape == value.shape
            for spec, value in zip(self._graph.outputs, found, strict=True)
        ]
        self._copied: list[tuple[int, Array]] = []
        results = []
        for index, value, fixed in zip(self._out, found, static, strict=True):
            if fast and fixed:
                results.append(self._interpreter.tensor(index)())
            else:
                self._copied.append((index, value))
                results.append(value)
        self.results: tuple[Array, ...] = tuple(results)
        del model

    def info(self) -> RuntimeInfo:
        """Say what really runs."""
        notes = []
        if self._runtime == "tflite-runtime":
            notes.append(
                "tflite-runtime is 8 to 14 times slower than ai-edge-litert on int8 models; "
                "pip install ai-edge-litert where its wheels run."
            )
        delegates = []
        parts = self._delegated_parts()
        if self._options["delegate"]:
            delegates.append(self._options["delegate"])
        if parts and not self._options["delegate"]:
            delegates.append("XNNPACK")
        return RuntimeInfo(
            backend="tflite",
            runtime=self._runtime,
            version=self._version,
            device="CPU",
            precision=_precision(self._graph),
            delegates=tuple(delegates),
            threads=self._threads,
            input_copy="runtime",
            options=self._options,
            notes=tuple(notes),
        )

    def _delegated_parts(self) -> int:
        native = self._native
        if native is None or not hasattr(native, "NodeName"):
            return 0
        return sum(native.NodeName(node) == "DELEGATE" for node in range(native.NumNodes()))

    def bind(self, blocks: Sequence[Array]) -> None:
        """Prepare to read samples from *blocks*.

        Raises:
            ModelError: A block does not fit the model.
        """
        check_blocks(self.inputs, blocks)
        slots = len(blocks[0])
        self._feeds = [
            tuple((index, block[slot]) for index, block in zip(self._in, blocks, strict=True))
            for slot in range(slots)
        ]

    def infer(self, slot: int) -> None:
        """Run the model on the sample in *slot*.

        Raises:
            BackendError: The runtime failed.
        """
        try:
            for index, value in self._feeds[slot]:
                self._set(index, value)
            self._invoke()
            for index, result in self._copied:
                np.copyto(result, self._get(index))
        except (ValueError, RuntimeError) as error:
            raise BackendError(f"{self._runtime}: inference failed: {_one_line(error)}") from error

    def close(self) -> None:
        """Release the interpreter; the views of its outputs go first."""
        self.results = ()
        self._native = None
        self._interpreter = self._set = self._invoke = self._get = None


class TfliteBackend:
    """LiteRT, else tflite-runtime, else TensorFlow."""

    name = "tflite"
    formats: tuple[str, ...] = (".tflite",)

    def version(self) -> tuple[str, str]:
        """Return the package that would run, and its version.

        Raises:
            BackendMissingError: None of them is installed.
        """
        return _choose("auto")

    def load(self, model: Path, options: SessionOptions) -> TfliteSession:
        """Load *model*.

        Raises:
            BackendMissingError: No runtime is installed.
            ModelError: The runtime cannot load this file.
            InputError: An option is unknown or has a value that it cannot take.
        """
        return TfliteSession(model, options)


def _choose(asked: str) -> tuple[str, str]:
    for package in RUNTIMES if asked == "auto" else (asked,):
        module, distributions = RUNTIMES[package]
        if is_present(module.partition(".")[0]):
            return installed_version(distributions) or (package, "unknown")
    raise missing(
        "tflite", "ai-edge-litert, tflite-runtime or tensorflow" if asked == "auto" else asked
    )


def _resolver_type(module: Any) -> Any:
    found = getattr(module, "OpResolverType", None)
    return found or module.experimental.OpResolverType


def _refusal(model: Path, runtime: str, graph: TfliteGraph, error: Exception) -> ModelError:
    text = _one_line(error)
    unknown = [name for name in graph.custom_operators if name in text]
    if unknown:
        return ModelError(f"{model}: {runtime} has no operator {', '.join(unknown)}")
    return ModelError(f"{model}: {runtime} cannot load it: {text}")


def _precision(graph: TfliteGraph) -> str:
    whole = {"int8", "uint8"}
    flowing = graph.activations & {"float32", "float16", *whole, "int16"}
    if "float32" not in flowing:
        return "int16" if "int16" in flowing else "int8"
    return "mixed" if flowing & whole or graph.weights & whole else "f32"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
