"""What a repeat needs: samples and weights by content, and the packages that a number rests on."""

import os
from importlib import metadata
from pathlib import Path

from edgeperf.agent.result import Data, ModelPart
from edgeperf.agent.run.plan import Plan
from edgeperf.datasets import open_task
from edgeperf.datasets.assets import Places, digest
from edgeperf.datasets.identity import DataIdentity, identify
from edgeperf.datasets.stored.build import store_folder

#: Distributions that make inputs, drive the runtime, or judge answers.
PACKAGES = (
    *("mlcommons-loadgen", "numpy", "pillow", "pycocotools", "sacrebleu", "sentencepiece"),
    *("jiwer", "soundfile"),
)
#: Endings of weights that lie beside the file that names them.
_BESIDE = {".xml": (".bin",), ".onnx": (".onnx.data", ".onnx_data", ".data")}


def packages() -> dict[str, str]:
    """Return the version of each package of :data:`PACKAGES` that is installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def companions(model: Path) -> tuple[ModelPart, ...]:
    """Return the files beside *model* that its runtime reads unasked."""
    return tuple(
        ModelPart(name="weights", file=path.name, sha256=sha256, size_bytes=size_bytes)
        for ending in _BESIDE.get(model.suffix.lower(), ())
        if (path := model.with_name(model.stem + ending)).is_file()
        for sha256, size_bytes in [digest(path)]
    )


def samples_of(
    task: str | None, data: str | None, inputs_file: str | None, *, trust: bool
) -> DataIdentity | None:
    """Return what the samples are; None where they are made from a seed.

    Args:
        task: Name or file of the task.
        data: The user's own samples.
        inputs_file: Inputs for a model without a task.
        trust: Whether a digest that is remembered of unchanged files will do.

    Raises:
        InputError: They cannot be read.
    """
    return identify(
        None if task is None else open_task(task),
        data=None if data is None else Path(data),
        inputs_file=None if inputs_file is None else Path(inputs_file),
        memory=store_folder(Places.from_environment(os.environ)) if trust else None,
    )


def data_of(plan: Plan, *, samples: int) -> Data:
    """Return the samples of *plan* for the record.

    Args:
        plan: The run.
        samples: How many there are in the library.

    Raises:
        InputError: They have gone since they were read.
    """
    given = plan.data
    found = samples_of(given.task, given.data, given.inputs_file, trust=True)
    return Data(
        sha256=None if found is None else found.sha256,
        size_bytes=0 if found is None else found.size_bytes,
        samples=samples,
    )
