"""TFLite, ONNX and IR models in OpenVINO.

Precision is always stated: left alone, OpenVINO computes float models in bf16 on CPUs
that have it, with other outputs and another latency. Inputs are tensors over the shared
block, made once; outputs are bound to fixed arrays.
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
from edgeperf.backends.onnx_graph import read_onnx
from edgeperf.backends.options import Option, read_options
from edgeperf.backends.quiet import quiet_stderr
from edgeperf.backends.runtimes import import_runtime, installed_version, is_present, missing
from edgeperf.backends.shapes import check_batch, check_blocks, settle_shapes
from edgeperf.backends.tflite_graph import read_tflite
from edgeperf.datasets.tensors import TensorSpec

FORMATS = (".xml", ".onnx", ".tflite")

OPTIONS = {
    "inference_precision": Option("f32", ("f32", "bf16", "f16")),
    "device": Option("CPU"),
}


class OpenVinoSession:
    """One compiled model with one infer request."""

    def __init__(self, model: Path, options: SessionOptions) -> None:
        self._options = read_options("openvino", OPTIONS, options.options)
        self._threads = options.threads
        if not is_present("openvino"):
            raise missing("openvino", "openvino")
        form = check_format(model, "openvino", FORMATS)
        said_in, said_out = _described(model, form)
        self._ov = import_runtime("openvino", "openvino", "openvino")
        self._core = self._ov.Core()
        graph = self._read(model)
        free_in = _merge(graph.inputs, said_in)
        check_batch(free_in, _merge(graph.outputs, said_out), options.shapes)
        self.inputs: tuple[TensorSpec, ...] = settle_shapes(free_in, options.shapes)
        self._compiled = self._compile(model, graph)
        self._request = self._compiled.create_infer_request()
        self._infer = super(type(self._request), self._request).infer
        self._find_outputs(model, said_out)
        self._tensors: list[Any] = []

    def _read(self, model: Path) -> Any:
        try:
            with quiet_stderr():
                return self._core.read_model(str(model))
        except RuntimeError as error:
            raise _refusal(model, error) from error

    def _compile(self, model: Path, graph: Any) -> Any:
        device = self._options["device"]
        here = self._core.available_devices
        if device.partition(".")[0] not in {name.partition(".")[0] for name in here}:
            raise InputError(
                f"option device={device}: OpenVINO sees {', '.join(here) or 'none'} here"
            )
        config: dict[str, Any] = {
            "INFERENCE_PRECISION_HINT": self._options["inference_precision"],
            "NUM_STREAMS": 1,
        }
        if device == "CPU":
            config |= {"INFERENCE_NUM_THREADS": self._threads, "ENABLE_CPU_PINNING": False}
        try:
            with quiet_stderr():
                graph.reshape({place: spec.shape for place, spec in enumerate(self.inputs)})
                return self._core.compile_model(graph, device, config)
        except RuntimeError as error:
            raise _refusal(model, error) from error

    def _find_outputs(self, model: Path, said: Sequence[TensorSpec]) -> None:
        """Run once on zeros: some output shapes are only known then."""
        ov = self._ov
        for place, spec in enumerate(self.inputs):
            self._request.set_input_tensor(place, ov.Tensor(np.zeros(spec.shape, spec.dtype)))
        try:
            with quiet_stderr():
                self._request.infer()
        except RuntimeError as error:
            raise _refusal(model, error) from error
        found = [np.array(tensor.data) for tensor in self._request.output_tensors]
        self.results: tuple[Array, ...] = tuple(found)
        self.outputs: tuple[TensorSpec, ...] = tuple(
            msgspec_replace(spec, value)
            for spec, value in zip(_merge(self._compiled.outputs, said), found, strict=True)
        )
        for place, result in enumerate(self.results):
            self._request.set_output_tensor(place, ov.Tensor(result, shared_memory=True))

    def info(self) -> RuntimeInfo:
        """Say what really runs."""
        found = installed_version(("openvino", "openvino-nightly"))
        return RuntimeInfo(
            backend="openvino",
            runtime="openvino",
            version=found[1] if found else str(self._ov.__version__),
            device=", ".join(self._compiled.get_property("EXECUTION_DEVICES")),
            precision=self._precision(),
            delegates=(),
            threads=self._threads,
            input_copy="none",
            options=self._options,
        )

    def _precision(self) -> str:
        hint = str(self._compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
        return hint

    def bind(self, blocks: Sequence[Array]) -> None:
        """Prepare to read samples from *blocks*.

        Raises:
            ModelError: A block does not fit the model.
        """
        slots = check_blocks(self.inputs, blocks)
        self._tensors = [
            {
                place: self._ov.Tensor(block[slot], shared_memory=True)
                for place, block in enumerate(blocks)
            }
            for slot in range(slots)
        ]

    def infer(self, slot: int) -> None:
        """Run the model on the sample in *slot*.

        Raises:
            BackendError: The runtime failed.
        """
        try:
            self._infer(self._tensors[slot], share_outputs=True, decode_strings=False)
        except RuntimeError as error:
            raise BackendError(f"openvino: inference failed: {_one_line(error)}") from error

    def close(self) -> None:
        """Release the request, then the model."""
        self._tensors = []
        self._infer = self._request = self._compiled = self._core = None


class OpenVinoBackend:
    """OpenVINO on CPU, GPU or NPU."""

    name = "openvino"
    formats: tuple[str, ...] = FORMATS

    def version(self) -> tuple[str, str]:
        """Return package name and version.

        Raises:
            BackendMissingError: It is not installed.
        """
        if not is_present("openvino"):
            raise missing("openvino", "openvino")
        return installed_version(("openvino", "openvino-nightly")) or ("openvino", "unknown")

    def load(self, model: Path, options: SessionOptions) -> OpenVinoSession:
        """Load *model*.

        Raises:
            BackendMissingError: The runtime is not installed.
            ModelError: The runtime cannot load this file.
            InputError: An option is unknown or has a value that it cannot take.
        """
        return OpenVinoSession(model, options)


def msgspec_replace(spec: TensorSpec, value: Array) -> TensorSpec:
    """Return *spec* as *value* really looks."""
    return TensorSpec(
        name=spec.name, shape=value.shape, dtype=str(value.dtype), quantisation=spec.quantisation
    )


def _described(model: Path, form: str) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return inputs and outputs as the file describes them: OpenVINO loses their quantisation."""
    if form == ".xml":
        return (), ()
    graph = read_tflite(model) if form == ".tflite" else read_onnx(model)
    return graph.inputs, graph.outputs


def _merge(ports: Sequence[Any], said: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    known = {spec.name: spec for spec in said}
    merged = []
    for place, port in enumerate(ports):
        names = port.get_names()
        file = next((known[name] for name in names if name in known), None)
        merged.append(
            TensorSpec(
                name=file.name if file else min(names, default=f"tensor_{place}"),
                shape=tuple(
                    axis.get_length() if axis.is_static else -1 for axis in port.get_partial_shape()
                ),
                dtype=str(np.dtype(port.get_element_type().to_dtype())),
                quantisation=file.quantisation if file else None,
            )
        )
    return tuple(merged)


def _refusal(model: Path, error: Exception) -> ModelError:
    text = _one_line(error)
    marker = "No translator found for "
    if marker in text:
        operator = text.partition(marker)[2].split()[0]
        return ModelError(f"{model}: OpenVINO has no operator {operator}")
    return ModelError(f"{model}: OpenVINO cannot load it: {text[:400]}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
