"""What every backend can do: load one model, answer one sample at a time, say what really ran.

A session lives and dies inside one worker process. Before the clock starts it is given
the whole block of inputs (:meth:`Session.bind`), so that the timed call is nothing but
an index: ``infer(slot)``. Whatever a runtime needs to read inputs in place (bound
tensors, IO bindings, views) is made in ``bind``, never in ``infer``.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
from numpy.typing import NDArray

from edgeperf import EdgeperfError, InputError
from edgeperf.datasets.tensors import TensorSpec

Array = NDArray[Any]


class BackendError(EdgeperfError):
    """A runtime failed while it ran."""


class BackendMissingError(InputError):
    """The runtime is not installed here; the message says why and the install line."""


class ModelError(InputError):
    """The runtime cannot load the model: missing, corrupt, wrong format, unsupported operator."""


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a model shall be loaded.

    Attributes:
        threads: Threads that the runtime may use for one inference; always set.
        shapes: Shape for each input whose shape the model leaves free.
        batch: Samples per inference. Above 1 every input must leave its first axis free;
            inputs, outputs and blocks then have this batch for one sample.
        options: The backend's own options, as ``--option NAME=VALUE`` gave them; an
            unknown one is an error.
    """

    threads: int = 1
    shapes: Mapping[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    options: Mapping[str, str] = msgspec.field(default_factory=dict)
    batch: int = 1


class RuntimeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What really runs, as opposed to what was asked.

    Attributes:
        backend: Name in :data:`edgeperf.backends.BACKENDS`.
        runtime: Name of the runtime's package: ``ai-edge-litert``, ``onnxruntime``, ...
        version: Its version.
        device: Where it says it runs: ``CPU``, ``CUDAExecutionProvider``, ...
        precision: Precision of execution: ``f32``, ``bf16``, ``int8``, ``mixed``, ...
        delegates: Delegates or providers in use, in order of preference.
        threads: Threads asked of the runtime for one inference.
        input_copy: ``none`` when the runtime reads the bound inputs in place, ``runtime``
            when it copies them inside ``infer``.
        options: Every option in force, also those left at their default.
        notes: Anything a reader should know, one sentence each.
    """

    backend: str
    runtime: str
    version: str
    device: str
    precision: str
    delegates: tuple[str, ...]
    threads: int
    input_copy: str
    options: Mapping[str, str] = msgspec.field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Session(Protocol):
    """One model, loaded in one runtime, in the process that runs it.

    Attributes:
        inputs: The model's inputs, with the shapes that were asked for.
        outputs: The model's outputs.
        results: One array per output: what the last :meth:`infer` produced. The same
            objects for the session's life; the next call overwrites them.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    results: tuple[Array, ...]

    def info(self) -> RuntimeInfo:
        """Say what really runs."""
        ...

    def bind(self, blocks: Sequence[Array]) -> None:
        """Prepare to read samples from *blocks*; called once, before any :meth:`infer`.

        Args:
            blocks: One array per input, shape ``(slots, *sample_shape)``, C-contiguous,
                in the input's dtype. They outlive the session; their content may change
                between queries, their address does not.

        Raises:
            ModelError: A block does not fit the model.
        """
        ...

    def infer(self, slot: int) -> None:
        """Run the model on the sample in *slot*; the answer is in :attr:`results`.

        Allocates nothing it can avoid, logs nothing.

        Raises:
            BackendError: The runtime failed.
        """
        ...

    def close(self) -> None:
        """Release the runtime. Calling it twice does no harm."""
        ...


class Backend(Protocol):
    """A runtime: whether it is here, which files it takes, and how to load one.

    Attributes:
        name: As in ``--backend``.
        formats: File endings it takes, best first: ``(".tflite",)``.
    """

    name: str
    formats: tuple[str, ...]

    def version(self) -> tuple[str, str]:
        """Return package name and version of the runtime without loading it.

        Raises:
            BackendMissingError: It is not installed; says why and the install line.
        """
        ...

    def load(self, model: Path, options: SessionOptions) -> Session:
        """Load *model*.

        Raises:
            BackendMissingError: The runtime is not installed.
            ModelError: The runtime cannot load this file.
            InputError: An option is unknown or has a value that it cannot take.
        """
        ...
