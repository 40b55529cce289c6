"""Having the model looked at before anything else, by a process that may crash on it."""

from pathlib import Path

from edgeperf import EdgeperfError, InputError
from edgeperf.agent.run.jobs import Failure, Prepared, PrepareJob
from edgeperf.agent.run.plan import Plan
from edgeperf.agent.run.process import Child, ChildDiedError, Children, Deadline, child_environment

#: Loading a model and its samples may take minutes on a board with a slow card.
LOAD_S = 600.0
_POLL_S = 0.1


class PrepareError(EdgeperfError):
    """The model could not even be looked at."""


def prepare(plan: Plan, log: Path, inputs: int) -> Prepared:
    """Have the model described and the input block filled, by a process of its own.

    Raises:
        InputError: The model or the data cannot be used.
        PrepareError: The runtime crashed or did not come back.
    """
    cores = plan.layout.workers[0]
    job = PrepareJob(sut=plan.sut, data=plan.data, cores=cores, inputs_block=inputs)
    environment = child_environment(plan.sut.threads)
    deadline = Deadline(LOAD_S)
    with Children() as children:
        children.add(Child("prepare", job, descriptors=[inputs], log=log, env=environment))
        while not deadline.passed:
            try:
                messages = children.messages(_POLL_S)
            except ChildDiedError as error:
                raise PrepareError(
                    f"model {plan.model.path}: {plan.sut.backend} crashed on it ({error})"
                ) from error
            for _, message in messages:
                if isinstance(message, Prepared):
                    return message
                if isinstance(message, Failure):
                    kind = InputError if message.exit_code == InputError.exit_code else PrepareError
                    raise kind(message.text)
    raise PrepareError(f"model {plan.model.path}: not loaded after {LOAD_S:.0f} s")
