"""Look at the model and lay out the samples, in a process that is gone before the test.

A corrupt model may crash a runtime, and reading a dataset takes memory; both happen
here, so that neither touches the supervisor nor the measured processes.
"""

import os
from collections.abc import Callable

import numpy as np

from edgeperf.agent.run.answer import fill, load_session, open_samples, stored_inputs
from edgeperf.agent.run.batch import find_batch
from edgeperf.agent.run.jobs import Prepared, PrepareJob, Preparing
from edgeperf.agent.run.memory import Field, map_fields
from edgeperf.backends.base import Session


def prepare(job: PrepareJob, say: Callable[[Preparing], None] | None = None) -> Prepared:
    """Describe the model, fill the input block and try the first sample.

    Args:
        job: What to do.
        say: Told how far it is with samples that take long.

    Raises:
        EdgeperfError: The model cannot be loaded, or the samples do not fit it.
    """
    os.sched_setaffinity(0, job.cores)
    session = load_session(job.sut)
    specs = session.inputs, session.outputs
    library, labelled, slots = open_samples(job.data, *specs)

    def progress(done: int, total: int) -> None:
        if say is not None:
            say(Preparing(done=done, total=total))

    library, why_not = stored_inputs(
        job.data, library, specs, cores=job.all_cores, progress=progress
    )
    fields = tuple(
        Field(name=f"input{place}", shape=(slots, *spec.sample_shape), dtype=spec.dtype)
        for place, spec in enumerate(session.inputs)
    )
    blocks = list(map_fields(job.inputs_block, fields).values())
    fill(library, blocks, range(slots))
    session.bind(blocks)
    session.infer(0)
    finite = _finite(session)
    batch, batch_note = find_batch(job.sut, session, blocks)
    return Prepared(
        inputs=session.inputs,
        outputs=session.outputs,
        info=session.info(),
        library_size=len(library),
        slots=slots,
        prediction_shape=None if labelled is None else labelled.prediction_shape,
        payload_bytes=0 if labelled is None else labelled.payload_bytes,
        fields=fields,
        first_answer_finite=finite,
        notes=() if why_not is None else (why_not,),
        batch=batch,
        batch_note=batch_note,
    )


def _finite(session: Session) -> bool:
    return all(
        bool(np.isfinite(result).all())
        for result in session.results
        if np.issubdtype(result.dtype, np.floating)
    )
