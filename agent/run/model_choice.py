"""Which file is measured, on which backend, and what it is compared with."""

from pathlib import Path

import msgspec

from edgeperf import InputError
from edgeperf.agent.spec import RunSpec
from edgeperf.backends import backend_for, open_backend
from edgeperf.datasets.assets import digest, resolve, resolve_sha256
from edgeperf.datasets.base import Task
from edgeperf.datasets.catalogue import (
    Asset,
    CatalogueModel,
    find_file,
    find_model,
    models,
    pick_file,
)
from edgeperf.datasets.catalogue import ModelFile as CatalogueFile

#: A model named by its content, as the fleet does.
_BY_CONTENT = "sha256:"


class ModelPart(msgspec.Struct, frozen=True, kw_only=True):
    """A further file of the model.

    Attributes:
        name: What it is: ``decoder``, ``tokenizer``.
        path: Where it is.
        sha256: What it is.
        size_bytes: How large.
    """

    name: str
    path: str
    sha256: str
    size_bytes: int


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file under test.

    Attributes:
        name: For people: the catalogue's name, or the file's.
        path: Where it is.
        sha256: What it is.
        size_bytes: How large.
        precision: ``float`` or ``int8`` where the catalogue knows.
        reference: FP32 value of the task's metric for this model.
        reference_source: Where that comes from.
        parts: Further files that belong to it.
    """

    name: str
    path: str
    sha256: str
    size_bytes: int
    precision: str | None
    reference: float | None
    reference_source: str | None
    parts: tuple[ModelPart, ...] = ()


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What a spec's model comes down to.

    Attributes:
        model: The file.
        backend: Name of the backend that runs it.
        task: Name of the catalogue model's own task; None for a file of the user's.
        reference_metrics: Other metrics of the catalogue model in FP32, on that task's samples.
    """

    model: ModelFile
    backend: str
    task: str | None
    reference_metrics: dict[str, float] = msgspec.field(default_factory=dict)


def choose_model(spec: RunSpec) -> Choice:
    """Find the model that *spec* names.

    Raises:
        InputError: There is none, or no backend for it; one line.
    """
    known, file = _known(spec)
    if known is None:
        model, backend = _own_model(spec)
        return Choice(model=model, backend=backend, task=None)
    model, backend = _catalogue_model(spec, known, file)
    return Choice(
        model=model,
        backend=backend,
        task=known.task,
        reference_metrics=dict(known.reference_metrics),
    )


def with_reference(choice: Choice, task: Task | None) -> ModelFile:
    """Return the model with the FP32 value that its answers are judged by.

    The catalogue's value of a model holds for the model's own task; an own model is
    judged by the task's.
    """
    if task is None:
        return choice.model
    if choice.task == task.name and choice.model.reference is not None:
        return choice.model
    source = None if task.reference is None else f"FP32 reference of the task {task.name!r}"
    return msgspec.structs.replace(choice.model, reference=task.reference, reference_source=source)


def _known(spec: RunSpec) -> tuple[CatalogueModel | None, CatalogueFile | None]:
    if spec.model.startswith(_BY_CONTENT):
        return find_file(spec.model.removeprefix(_BY_CONTENT)) or (None, None)
    return find_model(spec.model), None


def _catalogue_model(
    spec: RunSpec, known: CatalogueModel, file: CatalogueFile | None
) -> tuple[ModelFile, str]:
    if file is None:
        precision = None if spec.precision is None else spec.precision.value
        chosen = spec.backend and open_backend(spec.backend).formats
        file = pick_file(known, formats=chosen or (".tflite", ".onnx"), precision=precision)
    path = resolve(file.asset)
    backend = spec.backend or backend_for(path)
    model = ModelFile(
        name=known.name,
        path=str(path),
        sha256=file.asset.sha256,
        size_bytes=path.stat().st_size,
        precision=file.precision,
        reference=known.reference,
        reference_source=known.reference_source,
        parts=_parts(spec) or tuple(map(_known_part, file.parts.items())),
    )
    return model, backend


def _known_part(part: tuple[str, Asset]) -> ModelPart:
    name, asset = part
    path = resolve(asset)
    return ModelPart(name=name, path=str(path), sha256=asset.sha256, size_bytes=path.stat().st_size)


def _parts(spec: RunSpec) -> tuple[ModelPart, ...]:
    """Find the further files that *spec* names."""
    parts = []
    for name, given in sorted(spec.parts.items()):
        path = Path(given)
        if given.startswith(_BY_CONTENT):
            path = resolve_sha256(given.removeprefix(_BY_CONTENT))
        try:
            sha256, size_bytes = digest(path)
        except OSError as error:
            raise InputError(f"--part {name}={given}: {error.strerror}") from error
        parts.append(
            ModelPart(name=name, path=str(path.resolve()), sha256=sha256, size_bytes=size_bytes)
        )
    return tuple(parts)


def _own_model(spec: RunSpec) -> tuple[ModelFile, str]:
    path = Path(spec.model)
    if spec.model.startswith(_BY_CONTENT):
        path = resolve_sha256(spec.model.removeprefix(_BY_CONTENT))
    elif not path.is_file():
        names = ", ".join(model.name for model in models())
        raise InputError(
            f"model {spec.model!r}: no such file, and no such name in the catalogue ({names})"
        )
    if spec.precision is not None:
        raise InputError(
            f"--precision {spec.precision.value}: chooses among a catalogue model's files;"
            f" {spec.model} is one file"
        )
    try:
        sha256, size_bytes = digest(path)
    except OSError as error:
        raise InputError(f"model {spec.model}: {error.strerror}") from error
    backend = spec.backend or backend_for(path)
    model = ModelFile(
        name=path.name,
        path=str(path.resolve()),
        sha256=sha256,
        size_bytes=size_bytes,
        precision=None,
        reference=None,
        reference_source=None,
        parts=_parts(spec),
    )
    return model, backend
