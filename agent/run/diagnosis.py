"""Why answers may be no better than guessing: other ways to read the samples, tried untimed."""

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec

from edgeperf import EdgeperfError
from edgeperf.agent.result import Reason, Severity
from edgeperf.agent.run.jobs import Examined, ExamineJob, Prepared
from edgeperf.agent.run.plan import Plan
from edgeperf.agent.run.preparation import ask
from edgeperf.agent.run.seen import Seen
from edgeperf.datasets import OWN_DATA, open_task
from edgeperf.datasets.own.alternatives import Alternative, alternatives, label_trouble
from edgeperf.datasets.own.guess import guess_task
from edgeperf.datasets.own.task import FileTask
from edgeperf.datasets.own.taskfile import TaskFile

#: Code of the remark that answers are no better than guessing.
CHANCE = "chance"
SAMPLES = 200
MOST_S = 20.0
#: How many standard deviations better another way must be.
_CLEARLY = 3.0


def likely_cause(
    plan: Plan, prepared: Prepared, reasons: Sequence[Reason], log: Path
) -> list[Reason]:
    """Try the usual mistakes on a few samples and name the one that helps.

    Asked where answers are no better than guessing, and where the task was guessed from
    the model's description.

    Args:
        plan: The run.
        prepared: What the model looks like.
        reasons: What is known against the run so far.
        log: What the process that tries writes goes there.
    """
    guessed = plan.data.task == OWN_DATA
    if not guessed and not any(reason.code == CHANCE for reason in reasons):
        return []
    task = None if plan.data.task is None else open_task(plan.data.task)
    if not isinstance(task, FileTask):
        return []
    data = plan.data.data or str(task.data())
    file = guess_task(prepared.inputs, prepared.outputs, Path(data)) if guessed else task.file
    others = alternatives(file, prepared.inputs[0].dtype)
    job = ExamineJob(
        sut=plan.sut,
        data=msgspec.structs.replace(plan.data, data=data),
        cores=plan.layout.workers[0],
        tasks=(file, *(other.task for other in others)),
        samples=SAMPLES,
        most_s=MOST_S,
    )
    try:
        found = ask(job, Examined, sut=plan.sut, log=log)
    except EdgeperfError:  # the run has its own result; a hint is no reason to lose it
        return []
    reason = _reason(file, others, found.seen)
    return [] if reason is None else [reason]


def _reason(file: TaskFile, tried: Sequence[Alternative], seen: Sequence[Seen]) -> Reason | None:
    base, others = seen[0], list(zip(tried, seen[1:], strict=False))
    text = label_trouble(base.labels, base.answers, file.classes)
    if text is None and others:
        better, best = max(others, key=lambda other: other[1].right)
        if _is_clearly_better(best, base):
            text = (
                f"with {better.said} the model gets {best.right} of {best.asked} samples right,"
                f" instead of {base.right}: set that under {better.table} in a task file (edgeperf"
                " task new)"
            )
    if text is None:
        return None
    return Reason(code="likely-cause", severity=Severity.SUSPECT, text=f"accuracy: {text}")


def _is_clearly_better(one: Seen, other: Seen) -> bool:
    """Compare by the samples on which they differ (McNemar's test)."""
    gained = lost = 0
    for label, first, second in zip(one.labels, one.answers, other.answers, strict=False):
        gained += first == label != second
        lost += second == label != first
    return gained - lost > _CLEARLY * math.sqrt(gained + lost)
