"""Laying a frozen spec beside the software that is installed here."""

from collections.abc import Iterator

from edgeperf import InputError, __version__
from edgeperf.agent.board import BoardInfo
from edgeperf.agent.freeze.document import FrozenSpec
from edgeperf.agent.freeze.findings import Finding
from edgeperf.agent.run.provenance import packages
from edgeperf.agent.spec import RunSpec
from edgeperf.backends import open_backend

#: Packages whose version makes other numbers, or other answers: name in ``--allow``.
_MATTERING = {"mlcommons-loadgen": "loadgen-version", "numpy": "numpy-version"}


def software_findings(spec: FrozenSpec, run: RunSpec, board: BoardInfo) -> Iterator[Finding]:
    """Compare versions."""
    asked = spec.software
    yield Finding(
        "edgeperf-version",
        "edgeperf",
        asked.edgeperf,
        __version__,
        f"pip install edgeperf=={asked.edgeperf}",
    )
    yield from _runtime(spec, run)
    here = packages()
    for package, name in _MATTERING.items():
        if (version := asked.packages.get(package)) is not None:
            found = here.get(package, "none")
            yield Finding(name, package, version, found, f"pip install {package}=={version}")
    yield from _python(asked.python, board.python)
    for package, version in sorted(asked.packages.items()):
        if package not in _MATTERING:
            yield Finding("packages", package, version, here.get(package, "none"))
    yield from _system(spec, board)


def _runtime(spec: FrozenSpec, run: RunSpec) -> Iterator[Finding]:
    asked = spec.software
    install = f"pip install {asked.runtime}=={asked.runtime_version}"
    where = f"backend {run.backend}"
    try:
        runtime, version = open_backend(run.backend or "").version()
    except InputError as error:
        yield Finding("runtime", where, asked.runtime, f"none ({error})", install, cannot=True)
        return
    yield Finding("runtime", where, asked.runtime, runtime, install)
    yield Finding("runtime-version", asked.runtime, asked.runtime_version, version, install)


def _python(asked: str, here: str) -> Iterator[Finding]:
    """Compare X.Y, whose interpreter is another one, apart from patches of it."""
    line, own_line = (".".join(version.split(".")[:2]) for version in (asked, here))
    yield Finding("python-version", "Python", line, own_line, f"use Python {line}")
    if line == own_line:
        yield Finding("python-patch", "Python", asked, here)


def _system(spec: FrozenSpec, board: BoardInfo) -> Iterator[Finding]:
    asked, machine = spec.software, spec.machine
    pairs = (
        ("kernel", "release", asked.kernel, board.kernel),
        ("kernel", "build", asked.kernel_build, board.kernel_version),
        ("os", "distribution", asked.os, board.os_release),
        ("libc", "C library", asked.libc, board.libc),
        ("microcode", "version", machine.microcode, board.microcode),
        ("l4t", "Jetson Linux", machine.l4t, board.l4t),
        ("jetpack", "JetPack", machine.jetpack, board.jetpack),
        ("hostname", "host name", spec.origin.hostname, board.hostname),
        ("virtualisation", "container or virtual machine", *(
            "; ".join(hints) or "none" for hints in (machine.virtualisation, board.virtualisation)
        )),
    )  # fmt: skip
    for name, where, expected, found in pairs:
        if expected is not None:
            yield Finding(name, where, expected, found or "unknown")
