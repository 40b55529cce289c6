"""Runtimes that can execute a model.

To add one, write ``backends/NAME.py`` with a class that fits
:class:`~edgeperf.backends.base.Backend` and add its line to :data:`BACKENDS`. From
another package, name the class in the entry point group ``edgeperf.backends``.
"""

from importlib import import_module, metadata
from pathlib import Path
from typing import cast

from edgeperf import InputError
from edgeperf.backends.base import Backend, BackendMissingError, ModelError
from edgeperf.backends.model_file import model_format

#: Name in a run spec -> where the class is. Strings, because a board has one or two
#: of these runtimes installed and must not import the others. Best first per format.
BACKENDS: dict[str, str] = {
    "tflite": "edgeperf.backends.tflite:TfliteBackend",
    "onnxruntime": "edgeperf.backends.onnxruntime:OnnxRuntimeBackend",
    "openvino": "edgeperf.backends.openvino:OpenVinoBackend",
    "null": "edgeperf.backends.null:NullBackend",
}

ENTRY_POINTS = "edgeperf.backends"


def backend_names() -> tuple[str, ...]:
    """Return every known backend, our own first, whether its runtime is here or not."""
    others = sorted({point.name for point in metadata.entry_points(group=ENTRY_POINTS)})
    return (*BACKENDS, *(name for name in others if name not in BACKENDS))


def open_backend(name: str) -> Backend:
    """Return the backend called *name*; loads no runtime.

    Raises:
        InputError: No such backend; the message lists the known ones.
        BackendMissingError: It belongs to another package and that one is broken.
    """
    if name in BACKENDS:
        module, _, attribute = BACKENDS[name].partition(":")
        return cast("Backend", getattr(import_module(module), attribute)())
    for point in metadata.entry_points(group=ENTRY_POINTS):
        if point.name == name:
            return _open_foreign(point)
    raise InputError(f"no backend {name!r}; known: {', '.join(backend_names())}")


def backend_for(model: Path) -> str:
    """Return the backend that fits *model* best.

    Raises:
        ModelError: The file is missing, or no backend takes it.
        BackendMissingError: The best backend's runtime is not installed; the message
            names the one that is. It is never chosen in silence: a number from another
            runtime is another number.
    """
    ending = _ending(model)
    takers = [name for name in backend_names() if ending in open_backend(name).formats]
    if not takers:
        raise ModelError(f"{model}: no backend takes {ending or 'a file without an ending'}")
    try:
        open_backend(takers[0]).version()
    except BackendMissingError as error:
        here = [name for name in takers[1:] if _is_here(name)]
        if not here:
            raise
        raise BackendMissingError(
            f"{error}; or run it on what is installed: --backend {here[0]}"
        ) from error
    return takers[0]


def _ending(model: Path) -> str:
    """Return the format by which to choose; a third party's own format goes by its ending."""
    own = {ending for name in BACKENDS for ending in open_backend(name).formats}
    ending = model.suffix.lower()
    foreign = {e for name in backend_names() for e in open_backend(name).formats} - own
    return ending if ending in foreign else model_format(model)


def _is_here(name: str) -> bool:
    try:
        open_backend(name).version()
    except BackendMissingError:
        return False
    return True


def _open_foreign(point: metadata.EntryPoint) -> Backend:
    try:
        return cast("Backend", point.load()())
    except Exception as error:  # whatever another package's import raises
        raise BackendMissingError(
            f"backend {point.name!r}, from {point.value}, does not load: {error}"
        ) from error
