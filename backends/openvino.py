"""TFLite, ONNX and IR models in OpenVINO.

Precision is always stated: left alone, OpenVINO computes float models in bf16 on CPUs
that have it, with other outputs and another latency. Inputs are tensors over the shared
block, made once per slot; outputs are bound to fixed arrays. One request serves them all:
a request per slot is no faster and costs memory for each.
"""

from collections import Counter
from collections.abc import Callable, Sequence
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
from edgeperf.backends.precision import summarise
from edgeperf.backends.quiet import quiet_stderr
from edgeperf.backends.runtimes import (
    import_runtime,
    installed_version,
    is_present,
    missing,
    one_line,
)
from edgeperf.backends.shapes import check_batch, check_blocks, really, settle_shapes
from edgeperf.backends.tflite_graph import read_tflite
from edgeperf.datasets.tensors import TensorSpec

FORMATS = (".xml", ".onnx", ".tflite")

OPTIONS = {
    "inference_precision": Option("f32", ("f32", "bf16", "f16")),
    "device": Option("CPU"),
}

#: Properties read back after compilation, whatever was asked.
READ_BACK = (
    "INFERENCE_PRECISION_HINT",
    "INFERENCE_NUM_THREADS",
    "NUM_STREAMS",
    "PERFORMANCE_HINT",
    "EXECUTION_MODE_HINT",
    "ENABLE_CPU_PINNING",
    "ENABLE_HYPER_THREADING",
    "SCHEDULING_CORE_TYPE",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE",
)

#: Layers of a compiled model that do the arithmetic, and how OpenVINO's types are called here.
_ARITHMETIC = frozenset({
    "Convolution", "Deconvolution", "FullyConnected", "MatMul", "RNNCell", "RNNSeq",
    "LSTMCell", "LSTMSequence", "GRUCell", "GRUSequence", "ScaledDotProductAttention",
})  # fmt: skip
_PRECISIONS = {"i8": "int8", "u8": "int8", "f32": "f32", "f16": "f16", "bf16": "bf16"}

_DTYPES = {
    "f32": "float32", "f16": "float16", "f64": "float64", "bf16": "bfloat16", "boolean": "bool",
    "i8": "int8", "u8": "uint8", "i16": "int16", "u16": "uint16", "i32": "int32",
    "u32": "uint32", "i64": "int64", "u64": "uint64",
}  # fmt: skip


class OpenVinoSession:
    """One compiled model with one infer request."""

    def __init__(self, model: Path, options: SessionOptions) -> None:
        self._options = read_options("openvino", OPTIONS, options.options)
        self._threads = options.threads
        _check_here()
        form = check_format(model, "openvino", FORMATS)
        said_in, said_out = _described(model, form)
        self._ov = import_runtime("openvino", "openvino", "openvino")
        self._core = self._ov.Core()
        _check_device(self._core, self._options["device"])
        self._tensors: list[Any] = []
        try:
            with quiet_stderr():
                graph = self._core.read_model(str(model))
                free = _specs(graph.inputs, said_in)
                check_batch(free, _specs(graph.outputs, said_out), options.shapes)
                self.inputs: tuple[TensorSpec, ...] = settle_shapes(free, options.shapes)
                self._start(graph, said_out)
        except RuntimeError as error:
            raise _refusal(model, error) from error

    def _start(self, graph: Any, said: Sequence[TensorSpec]) -> None:
        """Compile, and run once on zeros: some output shapes are only known then."""
        graph.reshape({place: list(spec.shape) for place, spec in enumerate(self.inputs)})
        config: dict[str, Any] = {
            "INFERENCE_PRECISION_HINT": self._options["inference_precision"],
            "NUM_STREAMS": 1,
        }
        if self._options["device"] == "CPU":
            # Pinning is ours; both kinds of core and both threads of a core may be used,
            # because which ones there are was decided by whoever pinned this process.
            config |= {
                "INFERENCE_NUM_THREADS": self._threads,
                "ENABLE_CPU_PINNING": False,
                "ENABLE_HYPER_THREADING": True,
                "SCHEDULING_CORE_TYPE": "ANY_CORE",
            }
        self._compiled = self._core.compile_model(graph, self._options["device"], config)
        self._request = self._compiled.create_infer_request()
        self._infer = _find_infer(self._request)
        zeros = [self._ov.Tensor(np.zeros(spec.shape, spec.dtype)) for spec in self.inputs]
        self._infer(dict(enumerate(zeros)))
        found = [np.array(tensor.data) for tensor in self._request.output_tensors]
        self.results: tuple[Array, ...] = tuple(found)
        self.outputs: tuple[TensorSpec, ...] = tuple(
            really(spec, value)
            for spec, value in zip(_specs(self._compiled.outputs, said), found, strict=True)
        )
        for place, result in enumerate(self.results):
            self._request.set_output_tensor(place, self._ov.Tensor(result, shared_memory=True))

    def info(self) -> RuntimeInfo:
        """Say what really runs."""
        told = {name: value for name in READ_BACK if (value := self._property(name))}
        precision, notes = summarise(self._arithmetic())
        got = told.get("INFERENCE_PRECISION_HINT", "")
        if got and got != self._options["inference_precision"]:
            asked = self._options["inference_precision"]
            notes = (*notes, f"Precision {asked} was asked for; this device computes in {got}.")
        if (threads := told.get("INFERENCE_NUM_THREADS", "")) not in {"", str(self._threads)}:
            notes = (*notes, f"{self._threads} threads were asked for; OpenVINO uses {threads}.")
        device = self._property("EXECUTION_DEVICES") or self._options["device"]
        return RuntimeInfo(
            backend="openvino",
            runtime="openvino",
            version=OpenVinoBackend().version()[1],
            device=device,
            precision=precision,
            delegates=(),
            threads=self._threads,
            input_copy="none" if device == "CPU" else "runtime",
            options={**self._options, **told},
            notes=notes,
        )

    def _property(self, name: str) -> str:
        """Return a property of the compiled model as text; empty where it has none."""
        try:
            value = self._compiled.get_property(name)
        except RuntimeError:
            return ""
        if hasattr(value, "get_type_name"):
            return str(value.get_type_name())
        if isinstance(value, list):
            return ", ".join(map(str, value))
        return str(getattr(value, "name", value))

    def _arithmetic(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for layer in self._compiled.get_runtime_model().get_ops():
            facts = layer.get_rt_info()
            if "layerType" in facts and facts["layerType"].astype(str) in _ARITHMETIC:
                counts[_precision(facts)] += 1
        return counts

    def bind(self, blocks: Sequence[Array]) -> None:
        """Prepare to read samples from *blocks*.

        Raises:
            ModelError: A block does not fit the model.
        """
        check_blocks(self.inputs, blocks)
        columns = [[self._ov.Tensor(row, shared_memory=True) for row in block] for block in blocks]
        single = len(columns) == 1  # a bare tensor spares the runtime a dictionary
        self._tensors = (
            columns[0] if single else [dict(enumerate(r)) for r in zip(*columns, strict=True)]
        )

    def infer(self, slot: int) -> None:
        """Run the model on the sample in *slot*.

        Raises:
            BackendError: The runtime failed.
        """
        try:
            self._infer(self._tensors[slot])
        except RuntimeError as error:
            raise BackendError(f"openvino: inference failed: {one_line(error)}") from error

    def close(self) -> None:
        """Release the request, then the model."""
        self._tensors = []
        self._infer = self._request = self._compiled = self._core = None  # type: ignore[assignment]


class OpenVinoBackend:
    """OpenVINO on CPU, GPU or NPU."""

    name = "openvino"
    formats: tuple[str, ...] = FORMATS

    def version(self) -> tuple[str, str]:
        """Return package name and version.

        Raises:
            BackendMissingError: It is not installed.
        """
        _check_here()
        found = installed_version(("openvino", "openvino-nightly"))
        return "openvino", found[1] if found else "unknown"

    def load(self, model: Path, options: SessionOptions) -> OpenVinoSession:
        """Load *model*.

        Raises:
            BackendMissingError: The runtime is not installed.
            ModelError: The runtime cannot load this file.
            InputError: An option is unknown or has a value that it cannot take.
        """
        return OpenVinoSession(model, options)


def _check_here() -> None:
    if not is_present("openvino"):
        raise missing("openvino", "openvino")


def _check_device(core: Any, device: str) -> None:
    with quiet_stderr():
        here = core.available_devices
    if device.partition(".")[0] not in {name.partition(".")[0] for name in here}:
        raise InputError(f"option device={device}: OpenVINO sees {', '.join(here) or 'none'} here")


def _find_infer(request: Any) -> Callable[[Any], object]:
    """Return the native call under ``request.infer``, which copies neither way."""
    native = super(type(request), request).infer
    return lambda tensors: native(tensors, share_outputs=True, decode_strings=False)


def _precision(layer: Any) -> str:
    """Return how a layer computes: the end of its kernel's name (``brgconv_avx512_1x1_I8``).

    ``runtimePrecision`` will not do: it is that of the weights where these are narrower.
    """
    kind = layer["primitiveType"].astype(str).rpartition("_")[2].lower()
    kind = kind if kind in _PRECISIONS else layer["runtimePrecision"].astype(str)
    return _PRECISIONS.get(kind, kind)


def _described(model: Path, form: str) -> tuple[Sequence[TensorSpec], Sequence[TensorSpec]]:
    """Return inputs and outputs as the file has them: OpenVINO drops their quantisation."""
    if form == ".xml":
        return (), ()
    graph = read_tflite(model) if form == ".tflite" else read_onnx(model)
    return graph.inputs, graph.outputs


def _specs(ports: Sequence[Any], said: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Return how OpenVINO sees the model's ends, under the names that the file gives them."""
    known = {spec.name: spec for spec in said}
    specs = []
    for place, port in enumerate(ports):
        names = sorted(port.get_names())
        own = next((known[name] for name in names if name in known), None)
        kind = port.get_element_type().get_type_name()
        axes = port.get_partial_shape()
        specs.append(
            TensorSpec(
                name=own.name if own else next(iter(names), f"tensor_{place}"),
                shape=tuple(axis.get_length() if axis.is_static else -1 for axis in axes),
                dtype=_DTYPES.get(kind, kind),
                quantisation=own.quantisation if own else None,
            )
        )
    return tuple(specs)


def _refusal(model: Path, error: Exception) -> ModelError:
    text = one_line(error)
    marker = "No translator found for "
    if marker in text:
        operator = text.partition(marker)[2].split()[0]
        return ModelError(f"{model}: OpenVINO has no operator {operator}; use another backend")
    return ModelError(f"{model}: OpenVINO cannot load it: {text}")
