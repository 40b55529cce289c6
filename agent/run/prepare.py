"""Look at the model and lay out the samples, in a process that is gone before the test.

A corrupt model may crash a runtime, and reading a dataset takes memory; both happen
here, so that neither touches the supervisor nor the measured processes.
"""

import os

import numpy as np

from edgeperf.agent.run.answer import fill, load_session, open_samples
from edgeperf.agent.run.jobs import Prepared, PrepareJob
from edgeperf.agent.run.memory import Field, map_fields
from edgeperf.backends.base import Session


def prepare(job: PrepareJob) -> Prepared:
    """Describe the model, fill the input block and try the first sample.

    Raises:
        EdgeperfError: The model cannot be loaded, or the samples do not fit it.
    """
    os.sched_setaffinity(0, job.cores)
    session = load_session(job.sut)
    library, labelled, slots = open_samples(job.data, session.inputs, session.outputs)
    fields = tuple(
        Field(name=f"input{place}", shape=(slots, *spec.sample_shape), dtype=spec.dtype)
        for place, spec in enumerate(session.inputs)
    )
    blocks = list(map_fields(job.inputs_block, fields).values())
    fill(library, blocks, range(slots))
    session.bind(blocks)
    session.infer(0)
    return Prepared(
        inputs=session.inputs,
        outputs=session.outputs,
        info=session.info(),
        library_size=len(library),
        slots=slots,
        prediction_shape=None if labelled is None else labelled.prediction_shape,
        payload_bytes=0 if labelled is None else labelled.payload_bytes,
        fields=fields,
        first_answer_finite=_finite(session),
    )


def _finite(session: Session) -> bool:
    return all(
        bool(np.isfinite(result).all())
        for result in session.results
        if np.issubdtype(result.dtype, np.floating)
    )
