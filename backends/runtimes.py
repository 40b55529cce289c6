"""Finding and importing a runtime, and saying in one line why that did not work.

*Absent* and *broken* are told apart: an absent runtime wants an install line, a broken
one (wrong numpy, missing system library) wants its own complaint.
"""

from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

from edgeperf.backends.base import BackendMissingError
from edgeperf.backends.quiet import quiet_stderr


def is_present(module: str) -> bool:
    """Whether *module* can be found, without importing it."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def installed_version(distributions: tuple[str, ...]) -> tuple[str, str] | None:
    """Return name and version of the first of *distributions* that is installed."""
    for name in distributions:
        try:
            return name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def missing(backend: str, runtimes: str) -> BackendMissingError:
    """Return the error for a runtime that is not installed.

    Args:
        backend: The backend, which is also the name of the extra that installs it.
        runtimes: The packages looked for, in words.
    """
    return BackendMissingError(
        f"backend {backend!r}: {runtimes} is not installed here; pip install 'edgeperf[{backend}]'"
    )


def import_runtime(backend: str, module: str, package: str) -> Any:
    """Import *module*, part of a runtime that is present.

    Raises:
        BackendMissingError: It is installed but does not load; the message has the reason.
    """
    try:
        with quiet_stderr():
            return import_module(module)
    except Exception as error:  # a broken binary package raises whatever it likes
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BackendMissingError(
            f"backend {backend!r}: {package} is installed but does not load: {reason}{_hint(reason)}"
        ) from error


def _hint(reason: str) -> str:
    if "multiarray" in reason or "_ARRAY_API" in reason or "numpy.core" in reason:
        return f" (it was built for numpy 1, here is numpy {metadata.version('numpy')}: pip install 'numpy<2')"
    return ""
