"""ONNX models in ONNX Runtime.

Inputs are bound once per slot to their address in the shared block, outputs to fixed
buffers, so that a query passes one pointer. That holds for providers that work in host
memory; for the others (CUDA) a binding would copy at bind time and later queries would
see stale samples, so they take the plain way and say ``input_copy: runtime``.
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
from edgeperf.backends.onnx_graph import OnnxGraph, read_onnx
from edgeperf.backends.options import Option, read_options
from edgeperf.backends.quiet import quiet_stderr
from edgeperf.backends.runtimes import import_runtime, installed_version, is_present, missing
from edgeperf.backends.shapes import check_batch, check_blocks, settle_shapes
from edgeperf.datasets.tensors import TensorSpec

DISTRIBUTIONS = (
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-openvino",
    "onnxruntime-qnn",
    "onnxruntime-migraphx",
    "onnxruntime-rocm",
    "ort-nightly",
)

OPTIONS = {
    "provider": Option("CPUExecutionProvider"),
    "graph_optimization": Option("all", ("all", "extended", "basic", "off")),
    "spinning": Option("on", ("on", "off")),
}

_LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "off": "ORT_DISABLE_ALL",
}

#: Providers that read and write host memory, so that a binding holds no copy.
HOST_PROVIDERS = frozenset(
    f"{name}ExecutionProvider"
    for name in ("CPU", "Xnnpack", "XNNPACK", "ACL", "ArmNN", "Dnnl", "OpenVINO", "Azure")
)


class OnnxRuntimeSession:
    """One ``InferenceSession``."""

    def __init__(self, model: Path, options: SessionOptions) -> None:
        given = dict(options.options)
        providers = _split_providers(given)
        self._options = read_options("onnxruntime", OPTIONS, given)
        self._threads = options.threads
        if not is_present("onnxruntime"):
            raise missing("onnxruntime", "onnxruntime")
        check_format(model, "onnxruntime", (".onnx",))
        self._graph = read_onnx(model)
        check_batch(self._graph.inputs, self._graph.outputs, options.shapes)
        self.inputs: tuple[TensorSpec, ...] = settle_shapes(self._graph.inputs, options.shapes)
        self._ort = import_runtime("onnxruntime", "onnxruntime", "onnxruntime")
        self._asked = [
            name.strip() for name in self._options["provider"].split(",") if name.strip()
        ]
        self._session = self._open(model, providers)
        self._running: tuple[str, ...] = tuple(self._session.get_providers())
        self._find_outputs(model)
        self._bindings: list[Any] = []
        self._feeds: list[dict[str, Array]] = []

    def _open(self, model: Path, settings: dict[str, dict[str, str]]) -> Any:
        ort = self._ort
        here = ort.get_available_providers()
        for name in [*self._asked, *settings]:
            if name not in here:
                raise InputError(f"option provider={name}: this onnxruntime has {', '.join(here)}")
        setup = ort.SessionOptions()
        setup.intra_op_num_threads = self._threads
        setup.inter_op_num_threads = 1
        setup.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        setup.log_severity_level = 4
        setup.graph_optimization_level = getattr(
            ort.GraphOptimizationLevel, _LEVELS[self._options["graph_optimization"]]
        )
        spin = "1" if self._options["spinning"] == "on" else "0"
        setup.add_session_config_entry("session.intra_op.allow_spinning", spin)
        for spec in self.inputs:
            for place, size in enumerate(spec.shape):
                if name := self._graph.free_axes.get((spec.name, place)):
                    setup.add_free_dimension_override_by_name(name, size)
        try:
            with quiet_stderr():
                return ort.InferenceSession(
                    str(model),
                    sess_options=setup,
                    providers=[(name, settings.get(name, {})) for name in self._asked],
                )
        except Exception as error:  # ORT's own exceptions share no base but Exception
            raise ModelError(f"{model}: onnxruntime cannot load it: {_one_line(error)}") from error

    def _find_outputs(self, model: Path) -> None:
        """Run once on zeros: some output shapes are only known then."""
        feed = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in self.inputs}
        try:
            with quiet_stderr():
                found = self._session.run(None, feed)
        except Exception as error:
            raise ModelError(f"{model}: onnxruntime cannot run it: {_one_line(error)}") from error
        if not all(isinstance(value, np.ndarray) for value in found):
            raise ModelError(f"{model}: an output is not a tensor; expected tensors only")
        self.results: tuple[Array, ...] = tuple(np.ascontiguousarray(value) for value in found)
        self.outputs: tuple[TensorSpec, ...] = tuple(
            TensorSpec(
                name=spec.name,
                shape=value.shape,
                dtype=str(value.dtype),
                quantisation=spec.quantisation,
            )
            for spec, value in zip(self._graph.outputs, self.results, strict=True)
        )

    def info(self) -> RuntimeInfo:
        """Say what really runs."""
        notes = []
        dropped = [name for name in self._asked if name not in self._running]
        if dropped:
            notes.append(
                f"{', '.join(dropped)} was asked for and did not start; "
                f"{', '.join(self._running)} runs instead."
            )
        found = installed_version(DISTRIBUTIONS)
        return RuntimeInfo(
            backend="onnxruntime",
            runtime=found[0] if found else "onnxruntime",
            version=str(self._ort.__version__),
            device="CPU" if self._running[0].startswith("CPU") else self._running[0],
            precision=_precision(self._graph),
            delegates=self._running,
            threads=self._threads,
            input_copy="none" if self._in_place else "runtime",
            options=self._options,
            notes=tuple(notes),
        )

    @property
    def _in_place(self) -> bool:
        return HOST_PROVIDERS.issuperset(self._running)

    def bind(self, blocks: Sequence[Array]) -> None:
        """Prepare to read samples from *blocks*.

        Raises:
            ModelError: A block does not fit the model.
        """
        slots = check_blocks(self.inputs, blocks)
        self._run_options = self._ort.RunOptions()
        self._run = self._session._sess.run_with_iobinding
        self._bindings = [self._binding(blocks, slot) for slot in range(slots)]

    def _binding(self, blocks: Sequence[Array], slot: int) -> Any:
        binding = self._session.io_binding()
        for spec, block in zip(self.inputs, blocks, strict=True):
            binding.bind_input(
                spec.name, "cpu", 0, block.dtype.type, spec.shape, block[slot].ctypes.data
            )
        for spec, result in zip(self.outputs, self.results, strict=True):
            binding.bind_output(
                spec.name, "cpu", 0, result.dtype.type, spec.shape, result.ctypes.data
            )
        return binding._iobinding

    def infer(self, slot: int) -> None:
        """Run the model on the sample in *slot*.

        Raises:
            BackendError: The runtime failed.
        """
        try:
            self._run(self._bindings[slot], self._run_options)
        except Exception as error:
            raise BackendError(f"onnxruntime: inference failed: {_one_line(error)}") from error

    def close(self) -> None:
        """Release the session, bindings first."""
        self._bindings = []
        self._session = self._run = None


class OnnxRuntimeBackend:
    """ONNX Runtime with any of its execution providers."""

    name = "onnxruntime"
    formats: tuple[str, ...] = (".onnx",)

    def version(self) -> tuple[str, str]:
        """Return the package that would run, and its version.

        Raises:
            BackendMissingError: It is not installed.
        """
        if not is_present("onnxruntime"):
            raise missing("onnxruntime", "onnxruntime")
        return installed_version(DISTRIBUTIONS) or ("onnxruntime", "unknown")

    def load(self, model: Path, options: SessionOptions) -> OnnxRuntimeSession:
        """Load *model*.

        Raises:
            BackendMissingError: The runtime is not installed.
            ModelError: The runtime cannot load this file.
            InputError: An option is unknown or has a value that it cannot take.
        """
        return OnnxRuntimeSession(model, options)


def _split_providers(given: dict[str, str]) -> dict[str, dict[str, str]]:
    """Take ``NAMEExecutionProvider.key`` options out of *given*, by provider."""
    settings: dict[str, dict[str, str]] = {}
    for name in [name for name in given if "ExecutionProvider." in name]:
        provider, _, key = name.partition(".")
        settings.setdefault(provider, {})[key] = given.pop(name)
    return settings


def _precision(graph: OnnxGraph) -> str:
    if graph.operators & {"MatMulInteger", "ConvInteger", "DynamicQuantizeLinear"}:
        return "mixed"
    if "QuantizeLinear" in graph.operators or any(
        op.startswith("QLinear") for op in graph.operators
    ):
        return "int8"
    return "f16" if "float16" in graph.weights else "f32"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
