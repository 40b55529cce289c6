"""Building an ONNX Runtime session: options, providers, and what became of the model.

ONNX Runtime fuses and rewrites a model while it loads it; whether an int8 model really
computes in int8 is decided there. The rewritten graph is therefore written to memory and
read back.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from edgeperf import InputError
from edgeperf.backends.base import ModelError
from edgeperf.backends.onnx_graph import OnnxGraph, parse_onnx
from edgeperf.backends.options import Option
from edgeperf.backends.protobuf import DamagedError
from edgeperf.backends.quiet import quiet_stderr
from edgeperf.backends.runtimes import one_line

CPU = "CPUExecutionProvider"

OPTIONS = {
    "provider": Option(CPU),
    "graph_optimization": Option("all", ("all", "extended", "basic", "off")),
    "spinning": Option("on", ("on", "off")),
}

_LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "off": "ORT_DISABLE_ALL",
}

#: Above this size a model is not written to memory once more just to be looked at.
LARGEST_READ_BACK_BYTES = 64 << 20

Settings = Mapping[str, Mapping[str, str]]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a session shall be like.

    Attributes:
        model: The file.
        threads: Threads for one operator; operators run one after the other.
        options: Values of :data:`OPTIONS`.
        settings: Options of each provider.
        axes: Size of each free axis that has a name.
    """

    model: Path
    threads: int
    options: Mapping[str, str]
    settings: Settings
    axes: Mapping[str, int]

    @property
    def providers(self) -> list[str]:
        """Providers asked for, in order of preference."""
        names = (name.strip() for name in self.options["provider"].split(","))
        return [name for name in names if name]


def split_options(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Part the backend's own options from those of providers, ``CUDAExecutionProvider.key``."""
    own: dict[str, str] = {}
    settings: dict[str, dict[str, str]] = {}
    for name, value in given.items():
        provider, dot, key = name.partition(".")
        if dot and provider.endswith("ExecutionProvider"):
            settings.setdefault(provider, {})[key] = value
        else:
            own[name] = value
    return own, settings


def open_session(ort: Any, request: Request, *, read_back: bool) -> tuple[Any, OnnxGraph | None]:
    """Load a model; also return the graph that really runs, where it can be had.

    Args:
        ort: The module ``onnxruntime``.
        request: What the session shall be like.
        read_back: Whether to look at the rewritten graph.

    Raises:
        InputError: A provider is not in this build, or does not start.
        ModelError: The model is refused.
    """
    _check_providers(ort, request)
    if read_back and request.providers == [CPU]:
        sink = os.memfd_create("optimised")
        try:
            session = _create(ort, request, f"/proc/self/fd/{sink}")
            graph = parse_onnx(memoryview(os.pread(sink, os.fstat(sink).st_size, 0)))
        except (ModelError, DamagedError):  # perhaps it cannot be written; load it plainly
            pass
        else:
            return session, graph
        finally:
            os.close(sink)
    return _create(ort, request, ""), None


def _check_providers(ort: Any, request: Request) -> None:
    here = ort.get_available_providers()
    if not request.providers:
        raise InputError(f"option provider: names none; this onnxruntime has {', '.join(here)}")
    for name in request.providers:
        if name not in here:
            raise InputError(f"option provider={name}: this onnxruntime has {', '.join(here)}")
    for name in request.settings:
        if name not in request.providers:
            raise InputError(
                f"option {name}.…: that provider is not asked for; add it to provider="
            )


def _create(ort: Any, request: Request, sink: str) -> Any:
    setup = ort.SessionOptions()
    # Left at 0, the pool would pin its threads to cores of its own choice, outside ours.
    setup.intra_op_num_threads = request.threads
    setup.inter_op_num_threads = 1
    setup.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    setup.log_severity_level = 4
    level = _LEVELS[request.options["graph_optimization"]]
    setup.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    spin = "1" if request.options["spinning"] == "on" else "0"
    setup.add_session_config_entry("session.intra_op.allow_spinning", spin)
    setup.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if sink:
        setup.optimized_model_filepath = sink
    for name, size in request.axes.items():
        setup.add_free_dimension_override_by_name(name, size)
    providers = [(name, dict(request.settings.get(name, {}))) for name in request.providers]
    try:
        with quiet_stderr():
            return ort.InferenceSession(
                str(request.model), sess_options=setup, providers=providers, enable_fallback=0
            )
    except Exception as error:  # its exceptions share no base of their own
        raise _refusal(request, error) from error


def _refusal(request: Request, error: Exception) -> ModelError:
    text = one_line(error)
    for sign in ("Could not find an implementation for ", "No Op registered for ", "Fatal error: "):
        if sign in text:
            operator = text.partition(sign)[2].split()[0].partition("(")[0]
            return ModelError(f"{request.model}: onnxruntime has no operator {operator}")
    return ModelError(f"{request.model}: onnxruntime cannot load it: {text}")


def assigned_nodes(session: Any) -> dict[str, int]:
    """Return how many operators each provider was given; empty where the runtime cannot tell."""
    tell = getattr(session, "get_provider_graph_assignment_info", None)
    counts: dict[str, int] = {}
    for part in tell() if tell else ():
        counts[part.ep_name] = counts.get(part.ep_name, 0) + len(part.get_nodes())
    return counts
