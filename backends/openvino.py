"""TFLite, ONNX and IR models in OpenVINO.

Precision is always stated: left alone, OpenVINO computes float models in bf16 on CPUs
that have it, with other outputs and another latency. Inputs are tensors over the shared
block, made once per slot; outputs are bound to fixed arrays. One request serves them all:
a request per slot is no faster and costs memory for each.
"""

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np

from edgeperf import InputError
from edgeperf.backends.base import (
    Array,
    BackendError,
    ModelError,
    RuntimeInfo,
    SessionOptions,
)
from edgeperf.backends.model_file import check_format, with_ending
from edgeperf.backends.openvino_graph import (
    READ_BACK,
    arithmetic,
    described,
    port_specs,
    property_text,
)
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
from edgeperf.backends.shapes import (
    check_batch,
    check_blocks,
    copy_answer,
    really,
    settle_shapes,
    unbound,
)
from edgeperf.datasets.tensors import TensorSpec

FORMATS = (".xml", ".onnx", ".tflite")

OPTIONS = {
    "inference_precision": Option("f32", ("f32", "bf16", "f16")),
    "device": Option("CPU"),
}

#: Source files and conditions of OpenVINO's own, in front of what it has to say.
_NOISE = re.compile(r"Exception from \S+:\s*|Check '.*?' failed at \S+:\s*")
_NO_OPERATOR = re.compile(
    r"(?:No translator found for"
    r"|No conversion rule found for operations:"
    r"|does not support the following ONNX operations:) ([^\s,]+)"
)


class OpenVinoSession:
    """One compiled model with one infer request."""

    def __init__(self, model: Path, options: SessionOptions) -> None:
        self._options = read_options("openvino", OPTIONS, options.options)
        self._threads = options.threads
        _check_here()
        form = check_format(model, "openvino", FORMATS)
        said_in, said_out = described(model, form)
        self._ov = _import_openvino()
        self._core = self._ov.Core()
        _check_device(self._core, self._options["device"])
        self._tensors: list[Any] = []
        try:
            with quiet_stderr(), with_ending(model, form) as named:
                graph = self._core.read_model(str(named))
                free = port_specs(graph.inputs, said_in)
                check_batch(free, port_specs(graph.outputs, said_out), options.shapes)
                self.inputs: tuple[TensorSpec, ...] = settle_shapes(free, options)
                self._start(graph, said_out)
        except (RuntimeError, ValueError, TypeError) as error:
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
            for spec, value in zip(port_specs(self._compiled.outputs, said), found, strict=True)
        )
        self._copied: list[tuple[int, Array]] = []
        for place, (port, result) in enumerate(zip(self._compiled.outputs, found, strict=True)):
            if port.get_partial_shape().is_dynamic:
                self._copied.append((place, result))
            else:
                bound = self._ov.Tensor(result, shared_memory=True)
                self._request.set_output_tensor(place, bound)

    def info(self) -> RuntimeInfo:
        """Say what really runs."""
        told = {name: text for name in READ_BACK if (text := property_text(self._compiled, name))}
        precision, notes = summarise(arithmetic(self._compiled))
        got = told.get("INFERENCE_PRECISION_HINT", "")
        if got and got != self._options["inference_precision"]:
            asked = self._options["inference_precision"]
            notes = (*notes, f"Precision {asked} was asked for; this device computes in {got}.")
        if (threads := told.get("INFERENCE_NUM_THREADS", "")) not in {"", str(self._threads)}:
            notes = (*notes, f"{self._threads} threads were asked for; OpenVINO uses {threads}.")
        device = property_text(self._compiled, "EXECUTION_DEVICES") or self._options["device"]
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
            for place, result in self._copied:
                copy_answer(self._request.get_output_tensor(place).data, result)
        except IndexError:
            raise unbound(slot) from None
        except (RuntimeError, ValueError) as error:
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


def _import_openvino() -> Any:
    """Import the runtime without its telemetry.

    Left alone, every ``read_model`` reports to Google Analytics from a Python thread of its
    own, in the middle of the process that measures, and writes to the user's home. A ``None``
    among the loaded modules is Python's way of saying that a module cannot be imported;
    OpenVINO then falls back on its own stub.
    """
    sys.modules.setdefault("openvino_telemetry", cast("ModuleType", None))
    return import_runtime("openvino", "openvino", "openvino")


def _check_device(core: Any, device: str) -> None:
    with quiet_stderr():
        here = core.available_devices
    if device.partition(".")[0] not in {name.partition(".")[0] for name in here}:
        raise InputError(f"option device={device}: OpenVINO sees {', '.join(here) or 'none'} here")


def _find_infer(request: Any) -> Callable[[Any], object]:
    """Return the native call under ``request.infer``, which copies neither way."""
    native = super(type(request), request).infer
    return lambda tensors: native(tensors, share_outputs=True, decode_strings=False)


def _refusal(model: Path, error: Exception) -> ModelError:
    text = _NOISE.sub("", one_line(error)).strip()
    if found := _NO_OPERATOR.search(text):
        return ModelError(f"{model}: OpenVINO has no operator {found[1]}; use another backend")
    return ModelError(f"{model}: OpenVINO cannot load it: {text}")
