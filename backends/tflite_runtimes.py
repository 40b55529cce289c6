"""Which of the three TFLite packages runs a model, and how its interpreter is built.

One engine was published under three names. They differ in speed and in what they accept,
so the choice is fixed (newest first), recorded, and can be forced by an option.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from edgeperf import InputError
from edgeperf.backends.options import Option, read_pairs
from edgeperf.backends.quiet import quiet_stderr
from edgeperf.backends.runtimes import (
    import_runtime,
    installed_version,
    is_present,
    missing,
    one_line,
)


class Package(msgspec.Struct, frozen=True):
    """One package that holds an interpreter.

    Attributes:
        module: Where its interpreter is.
        distributions: Names under which it is installed.
        note: What a reader of its numbers should know.
    """

    module: str
    distributions: tuple[str, ...]
    note: str = ""


#: Best first.
PACKAGES: dict[str, Package] = {
    "ai-edge-litert": Package(
        "ai_edge_litert.interpreter", ("ai-edge-litert", "ai-edge-litert-nightly")
    ),
    "tflite-runtime": Package(
        "tflite_runtime.interpreter",
        ("tflite-runtime", "tflite-runtime-nightly"),
        "tflite-runtime is 8 to 14 times slower than ai-edge-litert on int8 models; "
        "pip install ai-edge-litert where its wheels run.",
    ),
    "tensorflow": Package(
        "tensorflow.lite.python.interpreter",
        ("tensorflow", "tensorflow-cpu", "tensorflow-aarch64"),
        "TensorFlow's own interpreter is no longer developed; pip install ai-edge-litert.",
    ),
}

OPTIONS = {
    "runtime": Option("auto", ("auto", *PACKAGES)),
    "xnnpack": Option("auto", ("auto", "on", "off")),
    "delegate": Option(),
    "delegate_options": Option(),
}

#: What the option ``xnnpack`` means to the interpreter's constructor.
_RESOLVERS = {"auto": "AUTO", "on": "BUILTIN", "off": "BUILTIN_WITHOUT_DEFAULT_DELEGATES"}


def choose(asked: str) -> tuple[str, str]:
    """Return the package that runs, and its version, without loading it.

    Args:
        asked: A name in :data:`PACKAGES`, or ``auto`` for the first that is installed.

    Raises:
        BackendMissingError: It is not installed.
    """
    for name in PACKAGES if asked == "auto" else (asked,):
        package = PACKAGES[name]
        if is_present(package.module.partition(".")[0]):
            found = installed_version(package.distributions)
            return name, found[1] if found else "unknown"
    if asked == "auto":
        raise missing("tflite", "none of ai-edge-litert, tflite-runtime and tensorflow")
    raise missing("tflite", asked)


def open_interpreter(package: str, model: Path, threads: int, options: Mapping[str, str]) -> Any:
    """Build an interpreter; its tensors are not allocated yet.

    Raises:
        BackendMissingError: *package* is broken.
        InputError: The delegate does not load.
        ValueError: The model is refused. RuntimeError likewise.
    """
    module = import_runtime("tflite", PACKAGES[package].module, package)
    delegates = _load_delegates(module, options["delegate"], options["delegate_options"])
    resolver = getattr(module.OpResolverType, _RESOLVERS[options["xnnpack"]])
    with quiet_stderr(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorFlow announces the end of its interpreter
        return module.Interpreter(
            model_path=str(model),
            num_threads=threads,
            experimental_delegates=delegates,
            experimental_op_resolver_type=resolver,
        )


def _load_delegates(module: Any, library: str, settings: str) -> list[Any]:
    if not library:
        if settings:
            raise InputError("option delegate_options: means nothing without delegate=LIBRARY")
        return []
    pairs = read_pairs("delegate_options", settings)
    try:
        with quiet_stderr() as heard:
            return [module.load_delegate(library, pairs)]
    except (ValueError, OSError, RuntimeError, AttributeError) as error:
        said = " ".join(heard.text.split())
        raise InputError(
            f"option delegate={library}: does not load: {said or one_line(error)}"
        ) from error
