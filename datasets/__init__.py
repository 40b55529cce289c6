"""Tasks: labelled samples, preprocessing, metrics and accuracy targets; and the assets behind them.

To add a task, write ``datasets/NAME.py`` with a class that fits
:class:`~edgeperf.datasets.base.Task` and add its line to :data:`TASKS`.
"""

from importlib import import_module
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
    "vww": "edgeperf.datasets.vww:VisualWakeWords",
}


def open_task(name: str) -> "Task":
    """Return the task called *name*.

    Raises:
        InputError: There is none; the message lists those there are.
    """
    if name not in TASKS:
        raise InputError(f"task {name!r} is unknown; expected one of {', '.join(sorted(TASKS))}")
    module, attribute = TASKS[name].split(":")
    return cast("Task", getattr(import_module(module), attribute)())
