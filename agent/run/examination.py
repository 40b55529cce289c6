"""Having a few samples answered, untimed: for ``edgeperf task``, and to find out what is wrong."""

from pathlib import Path

import msgspec

from edgeperf.agent.run.jobs import Examined, ExamineJob
from edgeperf.agent.run.plan import make_plan
from edgeperf.agent.run.preparation import ask
from edgeperf.agent.spec import RunSpec


def look_at(
    spec: RunSpec, *, log: Path, asks: bool, samples: int = 5, pictures: Path | None = None
) -> Examined:
    """Describe the model of *spec*, and answer a few samples of its task.

    Args:
        spec: Model, backend, task and samples; the rest does not matter here.
        log: What the process writes goes there.
        asks: Whether samples are answered; else the model is described only.
        samples: How many.
        pictures: Folder for the inputs as pictures; None draws none.

    Raises:
        EdgeperfError: The model cannot be loaded, or samples, task and model do not fit.
    """
    plan = make_plan(spec)
    data = plan.data
    if not asks:
        data = msgspec.structs.replace(data, task=None, data=None)
    job = ExamineJob(
        sut=plan.sut,
        data=data,
        cores=plan.layout.workers[0],
        samples=samples,
        details=True,
        pictures=None if pictures is None else str(pictures),
    )
    return ask(job, Examined, sut=plan.sut, log=log)
