"""The task file that a run went by, kept with its result: it is part of what was measured."""

from pathlib import Path

from edgeperf import EdgeperfError
from edgeperf.agent.result.files import TASK
from edgeperf.agent.run.jobs import Prepared
from edgeperf.agent.run.plan import Plan
from edgeperf.datasets import OWN_DATA, is_task_file
from edgeperf.datasets.own.guess import guess_task
from edgeperf.datasets.own.write import task_text


def keep_task(plan: Plan, prepared: Prepared, folder: Path) -> None:
    """Write the user's task file into *folder*, or what was guessed instead of one.

    Raises:
        EdgeperfError: The file has gone since it was read.
    """
    task = plan.data.task
    if task is None or not (task == OWN_DATA or is_task_file(task)):
        return
    if task == OWN_DATA:
        data = None if plan.data.data is None else Path(plan.data.data)
        guessed = guess_task(prepared.inputs, prepared.outputs, data)
        text = task_text(guessed, prepared.inputs, prepared.outputs, plan.model.name).encode()
    else:
        try:
            text = Path(task).read_bytes()
        except OSError as error:
            raise EdgeperfError(f"task file {task}: {error.strerror}") from error
    (folder / TASK).write_bytes(text)
