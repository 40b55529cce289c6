"""ONNX models in ONNX Runtime.

Inputs are bound once per slot to their address in the shared block, outputs to fixed
buffers, so that a query passes one pointer. That holds for providers that work in host
memory; for the others (CUDA) a binding would copy when it is made and later queries would
see stale samples, so they take the plain way and say ``input_copy: runtime``.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgeperf.backends.base import (
    Array,
    BackendError,
    ModelError,
    RuntimeInfo,
    SessionOptions,
)
from edgeperf.backends.model_file import check_format
from edgeperf.backends.onnx_binding import MOST_BINDINGS, Ends, bound, copying, rebinding
from edgeperf.backends.onnx_graph import OnnxGraph, read_onnx
from edgeperf.backends.onnx_session import (
    LARGEST_READ_BACK_BYTES,
    OPTIONS,
    Request,
    assigned_nodes,
    open_session,
    split_options,
)
from edgeperf.backends.options import read_options
from edgeperf.backends.precision import summarise
from edgeperf.backends.quiet import quiet_stderr
from edgeperf.backends.runtimes import (
    import_runtime,
    installed_version,
    is_present,
    missing,
    one_line,
)
from edgeperf.backends.shapes import (
    check_batch,
    check_blocks,
    really,
    settle_shapes,
    unbound,
)
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

#: Providers that read and write host memory, so that a binding holds no copy.
HOST_PROVIDERS = frozenset(
    f"{name}ExecutionProvider" for name in ("CPU", "Xnnpack", "ACL", "ArmNN", "Dnnl", "OpenVINO")
)


class OnnxRuntimeSession:
    """One ``InferenceSession``."""

    def __init__(self, model: Path, options: SessionOptions) -> None:
        own, settings = split_options(options.options)
        self._options = read_options("onnxruntime", OPTIONS, own)
        _check_here()
        check_format(model, "onnxruntime", (".onnx",))
        graph = read_onnx(model)
        check_batch(graph.inputs, graph.outputs, options.shapes)
        self.inputs: tuple[TensorSpec, ...] = settle_shapes(graph.inputs, options)
        self._request = Request(
            model=model,
            threads=options.threads,
            options=self._options,
            settings=settings,
            axes=_axes(graph, self.inputs),
        )
        self._ort = _import_onnxruntime()
        small = not graph.external_weights and model.stat().st_size < LARGEST_READ_BACK_BYTES
        self._session, rewritten = open_session(self._ort, self._request, read_back=small)
        self._graph, self._rewritten = graph, rewritten
        self._providers: tuple[str, ...] = tuple(self._session.get_providers())
        self._in_place = HOST_PROVIDERS.issuperset(self._providers)
        self._run: Callable[[int], object] = _unbound
        self._ends: Ends | None = None
        self._try(model)

    def _try(self, model: Path) -> None:
        """Run once on zeros: some output shapes are only known then."""
        feed = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in self.inputs}
        try:
            with quiet_stderr():
                found = self._session.run(None, feed)
        except Exception as error:  # its exceptions share no base of their own
            raise ModelError(f"{model}: onnxruntime cannot run it: {one_line(error)}") from error
        if not all(isinstance(value, np.ndarray) for value in found):
            raise ModelError(f"{model}: an output is no tensor; export it with tensors only")
        self.results: tuple[Array, ...] = tuple(np.ascontiguousarray(value) for value in found)
        self.outputs: tuple[TensorSpec, ...] = tuple(
            really(spec, value)
            for spec, value in zip(self._graph.outputs, self.results, strict=True)
        )

    def info(self) -> RuntimeInfo:
        """Say what really runs."""
        precision, notes = self._precision()
        counts = assigned_nodes(self._session)
        used = tuple(name for name in self._providers if counts.get(name)) or self._providers
        main = max(used, key=lambda name: counts.get(name, 0))
        return RuntimeInfo(
            backend="onnxruntime",
            runtime=OnnxRuntimeBackend().version()[0],
            version=str(self._ort.__version__),
            device="CPU" if main == "CPUExecutionProvider" else main,
            precision=precision,
            delegates=used,
            threads=self._request.threads,
            input_copy="none" if self._in_place else "runtime",
            options={**self._options, **self._provider_options()},
            notes=(*notes, *self._fallbacks(counts)),
        )

    def _precision(self) -> tuple[str, tuple[str, ...]]:
        if self._rewritten is not None:
            return summarise(self._rewritten.arithmetic)
        stored = "int8" if self._graph.quantised else summarise(self._graph.arithmetic)[0]
        if stored == "f32":
            return stored, ()
        return stored, ("Precision as stored in the file; the runtime may have changed it.",)

    def _provider_options(self) -> dict[str, str]:
        told = self._session.get_provider_options()
        return {f"{name}.{key}": str(v) for name, own in told.items() for key, v in own.items()}

    def _fallbacks(self, counts: dict[str, int]) -> list[str]:
        """Say which providers were asked for and do not run, or run in part."""
        notes = []
        for name in self._request.providers:
            if name not in self._providers:
                ran = ", ".join(self._providers)
                notes.append(f"{name} was asked for and did not start; {ran} runs instead.")
            elif counts and not counts.get(name):
                notes.append(f"{name} was asked for and runs no operator of this model.")
        if len(self._providers) > 1 and not counts:
            notes.append("This ONNX Runtime does not tell which provider runs what.")
        if len([count for count in counts.values() if count]) > 1:
            shares = ", ".join(f"{count} on {name}" for name, count in counts.items())
            notes.append(f"Operators: {shares}.")
        return notes

    def bind(self, blocks: Sequence[Array]) -> None:
        """Prepare to read samples from *blocks*.

        Raises:
            ModelError: A block does not fit the model.
        """
        slots = check_blocks(self.inputs, blocks)
        ends = Ends(self._session, self.inputs, tuple(blocks), self.outputs, self.results)
        if not self._in_place:
            self._run = copying(ends)
        elif slots > MOST_BINDINGS:
            self._run = rebinding(ends)
        else:
            self._run = bound(ends, self._ort.RunOptions())
        self._ends = ends

    def infer(self, slot: int) -> None:
        """Run the model on the sample in *slot*.

        Raises:
            BackendError: The runtime failed.
        """
        try:
            self._run(slot)
        except IndexError:
            raise unbound(slot) from None
        except Exception as error:  # its exceptions share no base of their own
            raise BackendError(f"onnxruntime: inference failed: {one_line(error)}") from error

    def close(self) -> None:
        """Release the session, bindings first."""
        self._run = _unbound
        self._ends = self._session = None


class OnnxRuntimeBackend:
    """ONNX Runtime with any of its execution providers."""

    name = "onnxruntime"
    formats: tuple[str, ...] = (".onnx",)

    def version(self) -> tuple[str, str]:
        """Return the package that would run, and its version.

        Raises:
            BackendMissingError: It is not installed.
        """
        _check_here()
        return installed_version(DISTRIBUTIONS) or ("onnxruntime", "unknown")

    def load(self, model: Path, options: SessionOptions) -> OnnxRuntimeSession:
        """Load *model*.

        Raises:
            BackendMissingError: The runtime is not installed.
            ModelError: The runtime cannot load this file.
            InputError: An option is unknown or has a value that it cannot take.
        """
        return OnnxRuntimeSession(model, options)


def _check_here() -> None:
    if not is_present("onnxruntime"):
        raise missing("onnxruntime", "onnxruntime")


def _import_onnxruntime() -> Any:
    """Import the runtime without its telemetry.

    Since 1.29 it reports every session (the model's name and hash, the machine) to
    Microsoft from threads of its own, in the middle of the process that measures, and keeps
    a database in the user's home. It reads this variable once, when it is imported.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    return import_runtime("onnxruntime", "onnxruntime", "onnxruntime")


def _axes(graph: OnnxGraph, inputs: Sequence[TensorSpec]) -> dict[str, int]:
    """Return the settled size of each free axis that has a name."""
    sizes = {spec.name: spec.shape for spec in inputs}
    return {axis: sizes[name][place] for (name, place), axis in graph.free_axes.items()}


def _unbound(slot: int) -> None:
    raise IndexError(slot)
