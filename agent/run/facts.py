"""What ran, for the record: the model, the runtime, the processes and their threads."""

from pathlib import Path

from edgeperf.agent.result import Model, ModelPart, Sut, Tensor, Thread, Worker
from edgeperf.agent.run.jobs import Prepared
from edgeperf.agent.run.layout import Layout
from edgeperf.agent.run.measure import Measurement
from edgeperf.agent.run.plan import Plan
from edgeperf.agent.run.provenance import companions
from edgeperf.datasets.tensors import TensorSpec


def model_of(plan: Plan, prepared: Prepared) -> Model:
    """Return the file under test as the runtime describes it."""
    path = Path(plan.model.path)
    return Model(
        name=plan.model.name,
        file=path.name,
        format=path.suffix,
        sha256=plan.model.sha256,
        size_bytes=plan.model.size_bytes,
        precision=plan.model.precision,
        inputs=tuple(map(_tensor, prepared.inputs)),
        outputs=tuple(map(_tensor, prepared.outputs)),
        parts=tuple(
            ModelPart(
                name=part.name,
                file=Path(part.path).name,
                sha256=part.sha256,
                size_bytes=part.size_bytes,
            )
            for part in plan.model.parts
        ),
        companions=companions(path),
    )


def _tensor(spec: TensorSpec) -> Tensor:
    quantisation = spec.quantisation
    return Tensor(
        name=spec.name,
        shape=spec.shape,
        dtype=spec.dtype,
        scale=quantisation.scale if quantisation else None,
        zero_point=quantisation.zero_point if quantisation else None,
    )


def sut_of(plan: Plan, prepared: Prepared, test: Measurement) -> Sut:
    """Return what really ran in *test*."""
    info = test.info or prepared.info
    return Sut(
        backend=info.backend,
        runtime=info.runtime,
        version=info.version,
        device=info.device,
        precision=info.precision,
        delegates=info.delegates,
        threads_per_worker=info.threads,
        input_copy=info.input_copy,
        batch=prepared.batch,
        timed=("gathering a batch", *plan.timed) if prepared.batch > 1 else plan.timed,
        options=dict(info.options),
        notes=(*info.notes, *([prepared.batch_note] if prepared.batch_note else [])),
        workers=test.workers,
    )


def escaped_threads(layout: Layout, test: Measurement) -> list[str] | None:
    """Return the threads that may run where neither their worker nor LoadGen's own may.

    Only those that issue and complete may be where queries are issued from: in Server that
    may be every core, and a thread that its runtime let loose would pass for one of them.

    Returns:
        Each in words; None where the test was too short to look at them.
    """
    if not test.workers:
        return None

    def may(worker: Worker, thread: Thread) -> set[int]:
        """Return where a thread may be besides the cores of its worker."""
        if worker.index:
            return set()
        issuer = thread.tid in test.issuers
        return {*layout.housekeeping, *(layout.issuing if issuer else ())}

    return [
        f"{thread.name} ({thread.tid}) of {worker.role} {worker.index} on"
        f" {','.join(map(str, thread.cores))}"
        for worker in test.workers
        for thread in worker.threads
        if not set(thread.cores) <= set(worker.cores)
        and not set(thread.cores) <= may(worker, thread)
    ]
