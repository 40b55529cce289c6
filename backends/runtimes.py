"""Finding and importing a runtime, and saying in one line why that did not work.

*Absent* and *broken* are told apart: an absent runtime wants an install line, a broken
one (another numpy, a missing system library) wants its own complaint.
"""

from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

from edgeperf.backends.base import BackendMissingError
from edgeperf.backends.quiet import quiet_stderr


def is_present(module: str) -> bool:
    """Whether the top-level *module* is installed, without importing it.

    A bare folder of that name on the path is not an installation.
    """
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def installed_version(distributions: tuple[str, ...]) -> tuple[str, str] | None:
    """Return name and version of the first of *distributions* that is installed."""
    here = (name for name in distributions if _is_installed(name))
    name = next(here, None)
    return (name, metadata.version(name)) if name else None


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
    """Import *module*, part of a *package* that is present.

    Raises:
        BackendMissingError: It is installed but does not load; the message has the reason.
    """
    try:
        with quiet_stderr():
            return import_module(module)
    except Exception as error:  # a broken binary package raises whatever it likes
        reason = one_line(error)
        raise BackendMissingError(
            f"backend {backend!r}: {package} is installed but does not load: {reason}; "
            f"{_cure(reason, package)}"
        ) from error


def one_line(error: BaseException) -> str:
    """Return what *error* says, without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__


def _is_installed(distribution: str) -> bool:
    return next(iter(metadata.Distribution.discover(name=distribution)), None) is not None


def _cure(reason: str, package: str) -> str:
    if any(sign in reason for sign in ("multiarray", "_ARRAY_API", "numpy.core")):
        have = metadata.version("numpy")
        return f"it was built for another numpy than {have}: pip install 'numpy<2'"
    return f"pip install --force-reinstall {package}"
