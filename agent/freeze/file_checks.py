"""Laying a frozen spec beside the files of this machine: model, parts, task file, samples."""

from collections.abc import Iterator
from pathlib import Path

from edgeperf import InputError
from edgeperf.agent.freeze.document import FrozenSpec
from edgeperf.agent.freeze.findings import Finding
from edgeperf.agent.result import ModelPart
from edgeperf.agent.result.files import TASK
from edgeperf.agent.run.model_choice import ModelFile, choose_model
from edgeperf.agent.run.provenance import companions, samples_of
from edgeperf.agent.spec import RunSpec
from edgeperf.backends import backend_names
from edgeperf.datasets import OWN_DATA, is_task_file
from edgeperf.datasets.assets import digest
from edgeperf.datasets.catalogue import find_file, find_model

#: Digits of a digest that people see.
_SHOWN = 16


def file_findings(spec: FrozenSpec, run: RunSpec) -> Iterator[Finding]:
    """Compare the files.

    Args:
        spec: The frozen spec.
        run: Its run, with the places where this machine has the files.
    """
    if run.backend in backend_names():  # else the runtime's own finding tells
        yield from _chosen(spec, run)
    yield from _task_findings(spec, run)
    yield from _data_findings(spec, run)


def _chosen(spec: FrozenSpec, run: RunSpec) -> Iterator[Finding]:
    try:
        choice = choose_model(run)
    except InputError as error:
        name = "part" if str(error).startswith("--part") else "model"
        is_place = find_model(run.model) is None and not run.model.startswith("sha256:")
        gone = name == "model" and is_place and not Path(run.model).is_file()
        yield Finding(
            name,
            run.model,
            f"{spec.model.file}, sha256 {_short(spec.model.sha256)}",
            "no such file" if gone else f"none ({error})",
            _give(run, name),
            cannot=True,
        )
        return
    yield from _model_findings(spec, run, choice.model)


def _give(run: RunSpec, name: str) -> str:
    if name == "part":
        return "name the file with --part NAME=FILE"
    if find_model(run.model) is not None:
        return "put it into a folder that EDGEPERF_MIRROR names"
    return "name the file: edgeperf run --spec SPEC MODEL"


def _model_findings(spec: FrozenSpec, run: RunSpec, model: ModelFile) -> Iterator[Finding]:
    yield Finding(
        "model",
        model.path,
        f"sha256 {_short(spec.model.sha256)}",
        f"sha256 {_short(model.sha256)}",
        _give(run, "model"),
    )
    beside = companions(Path(model.path))
    yield from _parts(
        "weights", spec.model.companions, beside, "put the right file beside the model"
    )
    here = tuple(
        ModelPart(
            name=part.name,
            file=Path(part.path).name,
            sha256=part.sha256,
            size_bytes=part.size_bytes,
        )
        for part in model.parts
    )
    yield from _parts("part", spec.model.parts, here, _give(run, "part"))


def _parts(
    name: str, expected: tuple[ModelPart, ...], found: tuple[ModelPart, ...], advice: str
) -> Iterator[Finding]:
    """Compare further files of the model, by what they are; their names may differ."""
    here = {part.name: part for part in found}
    for part in expected:
        other = here.pop(part.name, None)
        yield Finding(
            name,
            f"{part.name} {part.file}",
            f"sha256 {_short(part.sha256)}",
            "none" if other is None else f"sha256 {_short(other.sha256)}",
            advice,
        )
    for other in here.values():
        yield Finding(name, f"{other.name} {other.file}", "none", other.file, "take it away")


def _task_findings(spec: FrozenSpec, run: RunSpec) -> Iterator[Finding]:
    expected, named = spec.task.file_sha256, run.task
    if expected is None or named is None or not is_task_file(named):
        return
    advice = f"name the file with --task; the result that was frozen has it as {TASK}"
    try:
        found = f"sha256 {_short(digest(Path(named))[0])}"
    except OSError as error:
        found = f"none ({error.strerror})"
    yield Finding(
        "task",
        named,
        f"sha256 {_short(expected)}",
        found,
        advice,
        cannot=found.startswith("none"),
    )


def _data_findings(spec: FrozenSpec, run: RunSpec) -> Iterator[Finding]:
    if run.task is not None and is_task_file(run.task) and not Path(run.task).is_file():
        return  # told already
    task = run.task or _own_task(spec, run)
    where = run.data or run.inputs_file or f"samples of the task {spec.task.name!r}"
    expected = "made from the seed" if spec.data.sha256 is None else _content(spec.data.sha256)
    advice = "name the samples with --data (or --inputs), or take the frozen ones again"
    try:
        identity = samples_of(task, run.data, run.inputs_file, trust=False)
    except InputError as error:
        yield Finding("data", where, expected, f"none ({error})", advice, cannot=True)
        return
    found = "made from the seed" if identity is None else _content(identity.sha256)
    yield Finding("data", where, expected, found, advice)


def _own_task(spec: FrozenSpec, run: RunSpec) -> str | None:
    """Return the task that the run will have of itself: the catalogue model's, or a guessed one."""
    by_content = run.model.removeprefix("sha256:")
    known = find_model(run.model)
    if known is None and by_content != run.model:
        known = (find_file(by_content) or (None, None))[0]
    if known is not None:
        return known.task
    return OWN_DATA if run.data is not None and spec.task.name is not None else None


def _content(sha256: str) -> str:
    return f"sha256 {_short(sha256)}"


def _short(sha256: str) -> str:
    return sha256[:_SHOWN]
