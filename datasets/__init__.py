"""Tasks: labelled samples, preprocessing, metrics and accuracy targets; and the assets behind them.

The user's own task is a file: ``open_task("mine.toml")`` (:mod:`edgeperf.datasets.own`).

To add a task, write ``datasets/profiles/NAME.toml``; or, where a task file cannot say it,
``datasets/NAME.py`` with a class that fits :class:`~edgeperf.datasets.base.Task`, and add
its line to :data:`TASKS`. Its dataset goes into ``catalogue.json``. From another package,
name the class in the entry point group ``edgeperf.tasks``.
"""

from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, cast

from edgeperf import InputError

if TYPE_CHECKING:
    from edgeperf.datasets.base import Task

#: Name of a task -> where it is. Strings, so that listing them imports none.
TASKS: dict[str, str] = {
    "ai4i": "edgeperf.datasets.ai4i:MachineFailure",
    "cifar10": "edgeperf.datasets.cifar10:Cifar10",
    "digits": "edgeperf.datasets.digits:Digits",
    "imagenet": "edgeperf.datasets.imagenet:ImageNet",
    "kws": "edgeperf.datasets.kws:KeywordSpotting",
    "squad": "edgeperf.datasets.text.squad:Squad",
    "toycar": "edgeperf.datasets.toycar:ToyCar",
    "translation": "edgeperf.datasets.text.translation:Translation",
    "vww": "edgeperf.datasets.vww:VisualWakeWords",
}

ENTRY_POINTS = "edgeperf.tasks"
#: The task of samples that come without one.
OWN_DATA = "own"
_TASK_FILE = ".toml"
#: Tasks that are task files, one each.
PROFILES = Path(__file__).with_name("profiles")


def task_names() -> tuple[str, ...]:
    """Return the name of every task, our own first."""
    profiles = sorted(path.stem for path in PROFILES.glob(f"*{_TASK_FILE}"))
    ours = (*TASKS, *profiles)
    others = sorted({point.name for point in metadata.entry_points(group=ENTRY_POINTS)})
    return (*ours, *(name for name in others if name not in ours))


def is_task_file(name: str) -> bool:
    """Say whether *name* means a task file of the user's."""
    return name.endswith(_TASK_FILE)


def open_task(name: str) -> "Task":
    """Return the task called *name*, or that of the task file *name*.

    Raises:
        InputError: There is none (the message lists those there are), the file is no task
            file, or the task belongs to another package and that one is broken.
    """
    file = Path(name) if is_task_file(name) else PROFILES / f"{name}{_TASK_FILE}"
    is_profile = name not in TASKS and name in task_names() and file.is_file()
    if name == OWN_DATA or is_task_file(name) or is_profile:
        own = import_module("edgeperf.datasets.own.task")
        return cast("Task", own.GuessedTask() if name == OWN_DATA else own.FileTask(file))
    if name in TASKS:
        module, _, attribute = TASKS[name].partition(":")
        return cast("Task", getattr(import_module(module), attribute)())
    for point in metadata.entry_points(group=ENTRY_POINTS):
        if point.name == name:
            return _open_foreign(point)
    raise InputError(f"no task {name!r}; known: {', '.join(task_names())}")


def _open_foreign(point: metadata.EntryPoint) -> "Task":
    try:
        return cast("Task", point.load()())
    except Exception as error:  # whatever another package's import raises
        raise InputError(
            f"task {point.name!r}, from {point.value}, does not load: {error}"
        ) from error
