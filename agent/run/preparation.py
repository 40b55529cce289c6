"""Having the model looked at before anything else, by a process that may crash on it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from edgeperf import EdgeperfError, InputError
from edgeperf.agent.run.jobs import (
    Failure,
    Job,
    Message,
    Prepared,
    PrepareJob,
    Preparing,
    SutPlan,
)
from edgeperf.agent.run.plan import Plan
from edgeperf.agent.run.process import Child, ChildDiedError, Children, Deadline, child_environment

#: Loading a model and its samples may take minutes on a board with a slow card.
LOAD_S = 600.0
_POLL_S = 0.1
Answer = TypeVar("Answer", bound=Message)


class PrepareError(EdgeperfError):
    """The model could not even be looked at."""


def prepare(
    plan: Plan, log: Path, inputs: int, progressed: Callable[[float], None] | None = None
) -> Prepared:
    """Have the model described and the input block filled, by a process of its own.

    Args:
        plan: The run.
        log: What the process writes goes there.
        inputs: Descriptor of the input block.
        progressed: Told how far it is, percent, where that takes long.

    Raises:
        InputError: The model or the data cannot be used.
        PrepareError: The runtime crashed or did not come back.
    """

    def heard(message: Message) -> None:
        if progressed is not None and isinstance(message, Preparing):
            progressed(100 * message.done / message.total)

    cores = plan.layout.workers[0]
    every = {core for group in plan.layout.workers for core in group}
    job = PrepareJob(
        sut=plan.sut,
        data=plan.data,
        cores=cores,
        all_cores=tuple(sorted(every | set(plan.layout.housekeeping))),
        inputs_block=inputs,
    )
    return ask(job, Prepared, sut=plan.sut, log=log, descriptors=(inputs,), heard=heard)


def ask(
    job: Job,
    answer: type[Answer],
    *,
    sut: SutPlan,
    log: Path,
    descriptors: Sequence[int] = (),
    heard: Callable[[Message], None] | None = None,
) -> Answer:
    """Have a process of its own do *job* and return what it answers.

    Args:
        job: What to do.
        answer: The kind of message that ends it.
        sut: What is loaded.
        log: What the process writes goes there.
        descriptors: Handed down to it.
        heard: Told every other message; each gives the process its full time again.

    Raises:
        InputError: The model or the data cannot be used.
        PrepareError: The runtime crashed or did not come back.
    """
    environment = child_environment(sut.threads)
    deadline = Deadline(LOAD_S)
    with Children() as children:
        children.add(Child("prepare", job, descriptors=list(descriptors), log=log, env=environment))
        while not deadline.passed:
            try:
                messages = children.messages(_POLL_S)
            except ChildDiedError as error:
                raise PrepareError(
                    f"model {sut.model}: {sut.backend} crashed on it ({error})"
                ) from error
            for _, message in messages:
                if isinstance(message, answer):
                    return message
                if isinstance(message, Failure):
                    kind = InputError if message.exit_code == InputError.exit_code else PrepareError
                    raise kind(message.text)
                deadline = Deadline(LOAD_S)
                if heard is not None:
                    heard(message)
    raise PrepareError(f"model {sut.model}: not loaded after {LOAD_S:.0f} s")
