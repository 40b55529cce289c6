"""The catalogue: which models and datasets edgeperf knows, and where each file comes from.

The entries are data (``catalogue.json``), so that reading them runs nothing; every file
has its sha256, and nothing is used whose sha256 differs. Plain data, no numpy: the
agent service and the command line list it without loading anything heavy.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import msgspec

from edgeperf import InputError

Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
HttpsUrl = Annotated[str, msgspec.Meta(pattern="^https://")]
Above0 = Annotated[float, msgspec.Meta(gt=0)]


class CatalogueError(InputError):
    """The catalogue has no such thing; the message says what it has."""


class Asset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file, or a folder of files, named by its content.

    Attributes:
        path: Where it lies in a mirror folder, ``/`` between the parts.
        sha256: Of the file; of a folder, see :func:`edgeperf.datasets.assets.digest`.
        size_bytes: Of the file; of a folder, the sum over its files.
        licence: SPDX name, or several.
        source: Where it comes from and what was done to it.
        url: Where the very same file is public; None when no such place is known.
        folder: Whether it is a folder.
    """

    path: str
    sha256: Sha256
    size_bytes: Annotated[int, msgspec.Meta(gt=0)]
    licence: str
    source: str
    url: HttpsUrl | None = None
    folder: bool = False

    @property
    def name(self) -> str:
        """The last part of its path."""
        return PurePosixPath(self.path).name


class ModelFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the files that hold a model.

    Attributes:
        format: File ending, which says what runtimes take it.
        precision: ``float`` or ``int8`` (also for unsigned 8-bit).
        asset: The file.
        parts: Further files that belong to it, by what they are: ``decoder``, ``tokenizer``.
        weights: ``int8`` in a ``float`` file that stores them so; None where they are as
            ``precision`` says.
    """

    format: Literal[".tflite", ".onnx"]
    precision: Literal["float", "int8"]
    asset: Asset
    parts: dict[str, Asset] = msgspec.field(default_factory=dict)
    weights: Literal["int8"] | None = None

    @property
    def label(self) -> str:
        """What it is, for people."""
        stored = "" if self.weights is None else f" ({self.weights} weights)"
        return f"{self.precision} {self.format}{stored}"


class CatalogueModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model that can be named instead of a file.

    Attributes:
        name: As in ``edgeperf run NAME``.
        title: One line for people.
        task: Name in :data:`edgeperf.datasets.TASKS`.
        files: Best known first.
        reference: The FP32 value of the task's metric on the catalogue's own dataset. It
            says nothing about any other dataset.
        reference_source: How that value was found.
        reference_metrics: Other metrics of the FP32 model there.
        aliases: Other names that mean this model.
    """

    name: str
    title: str
    task: str
    files: Annotated[tuple[ModelFile, ...], msgspec.Meta(min_length=1)]
    reference: Above0
    reference_source: str
    reference_metrics: dict[str, float] = msgspec.field(default_factory=dict)
    aliases: tuple[str, ...] = ()


class TaskData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The labelled samples of a task.

    Attributes:
        task: Name in :data:`edgeperf.datasets.TASKS`.
        title: What the samples are, one line.
        asset: The file or folder.
    """

    task: str
    title: str
    asset: Asset


class _Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: tuple[CatalogueModel, ...]
    data: tuple[TaskData, ...]


@cache
def _read() -> _Catalogue:
    raw = Path(__file__).with_name("catalogue.json").read_bytes()
    return msgspec.json.decode(raw, type=_Catalogue)


def models() -> tuple[CatalogueModel, ...]:
    """Return every model of the catalogue."""
    return _read().models


def task_data() -> tuple[TaskData, ...]:
    """Return the dataset of every task."""
    return _read().data


def find_model(name: str) -> CatalogueModel | None:
    """Return the model called *name*, None if there is none."""
    for model in models():
        if name == model.name or name in model.aliases:
            return model
    return None


def find_file(sha256: str) -> tuple[CatalogueModel, ModelFile] | None:
    """Return the model file with that content and its model, None if there is none."""
    for model in models():
        for file in model.files:
            if file.asset.sha256 == sha256:
                return model, file
    return None


def data_for(task: str) -> TaskData:
    """Return the dataset of *task*.

    Raises:
        CatalogueError: The catalogue has none for it.
    """
    for data in task_data():
        if data.task == task:
            return data
    known = ", ".join(data.task for data in task_data())
    raise CatalogueError(
        f"task {task!r}: the catalogue has no dataset for it, only for {known}; "
        "name your own with --data"
    )


def pick_file(
    model: CatalogueModel, *, formats: Sequence[str], precision: str | None = None
) -> ModelFile:
    """Choose the file that a backend likes best.

    Args:
        model: The model.
        formats: File endings that the backend takes, best first.
        precision: ``float`` or ``int8``; None takes the model's own first choice, whose
            files are listed first.

    Raises:
        CatalogueError: No file fits; the message lists those that exist.
    """
    fitting = [file for file in model.files if precision in (None, file.precision)]
    precisions = dict.fromkeys(file.precision for file in fitting)
    for wanted in precisions:
        for ending in formats:
            for file in fitting:
                if (file.precision, file.format) == (wanted, ending):
                    return file
    have = ", ".join(file.label for file in model.files)
    asked = " ".join(filter(None, (precision, " or ".join(formats))))
    raise CatalogueError(f"model {model.name!r}: no {asked} file; the catalogue has {have}")
