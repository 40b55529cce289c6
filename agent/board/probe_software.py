"""Probes of the software that measures: LoadGen and the runtimes.

Each is imported in a child process: a wheel built for another processor dies of an
illegal instruction, and that must not take the doctor with it. And the doctor stays as
light as it was.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata

from edgeperf import EdgeperfError
from edgeperf.agent.board.findings import Area, Board, Finding

_AREA = Area("software")

#: Distribution -> the module whose import loads its native part.
_MODULES = {
    "ai-edge-litert": "ai_edge_litert.interpreter",
    "ai-edge-litert-nightly": "ai_edge_litert.interpreter",
    "tflite-runtime": "tflite_runtime.interpreter",
    "tflite-runtime-nightly": "tflite_runtime.interpreter",
    "tensorflow": "tensorflow.lite",
    "onnxruntime": "onnxruntime",
    "onnxruntime-gpu": "onnxruntime",
    "openvino": "openvino",
}

#: A cold import of a large runtime from an SD card takes tens of seconds.
_IMPORT_TIMEOUT_S = 120.0


def probe_software(board: Board) -> Iterator[Finding]:
    """LoadGen, then each runtime, then whether there is any runtime at all."""
    del board  # software is this Python's, whatever tree the board is read from
    yield _loadgen()
    yield from _runtimes()


def _loadgen() -> Finding:
    try:
        version = metadata.version("mlcommons-loadgen")
    except metadata.PackageNotFoundError:
        return _AREA.fail(
            "LoadGen",
            "mlcommons-loadgen is not installed",
            "pip install mlcommons-loadgen (on Arm it compiles: apt install g++ python3-dev first)",
        )
    if problem := import_problem("mlperf_loadgen"):
        text = "pip install --force-reinstall --no-binary :all: mlcommons-loadgen"
        return _AREA.fail("LoadGen", f"{version} does not load: {problem}", text)
    return _AREA.ok("LoadGen", version)


def _runtimes() -> Iterator[Finding]:
    # Here, because this loads numpy, which the agent's own process must not hold.
    from edgeperf.backends import backend_names, open_backend  # noqa: PLC0415

    usable = 0
    for name in backend_names():
        if name == "null":  # the harness's own floor, no runtime
            continue
        try:
            package, version = open_backend(name).version()
        except EdgeperfError as error:
            yield _AREA.missing(f"backend {name}", *_split(str(error)))
            continue
        module = _MODULES.get(package)
        if module is not None and (problem := import_problem(module)):
            value = f"{package} {version} does not load: {problem}"
            text = f"reinstall it, or another version: pip install --force-reinstall {package}"
            yield _AREA.warn(f"backend {name}", value, text)
            continue
        usable += 1
        yield _AREA.ok(f"backend {name}", f"{package} {version}")
    if not usable:
        text = "install one: pip install 'edgeperf[tflite]' or 'edgeperf[onnxruntime]'"
        yield _AREA.fail("backends", "no runtime works here", text)


def import_problem(module: str) -> str | None:
    """Return why *module* does not import in a fresh process, None when it does."""
    # Importing a runtime must tell its vendor nothing: both ways to say so, as in a run.
    code = f"import sys; sys.modules['openvino_telemetry'] = None; import {module}"
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "1"}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            check=False,
            text=True,
            timeout=_IMPORT_TIMEOUT_S,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return f"importing it took more than {_IMPORT_TIMEOUT_S:.0f} s"
    if done.returncode == 0:
        return None
    if done.returncode < 0:
        died_of = signal.Signals(-done.returncode).name
        hint = ": made for another processor" if died_of == "SIGILL" else ""
        return f"it died of {died_of}{hint}"
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit status {done.returncode}"


def _split(message: str) -> tuple[str, str]:
    """Return what is wrong and, behind the semicolon, what to do."""
    value, _, what_to_do = message.partition("; ")
    return value, what_to_do
