"""Jobs of a team as tests give them: a model that does nothing, and a test of no length."""

from typing import Any

from edgeperf.agent.run.answer import load_session
from edgeperf.agent.run.jobs import DataPlan, LoadPlan, Prepared, SutPlan, WorkerJob
from edgeperf.agent.run.memory import Field
from edgeperf.agent.run.wiring import Wiring

SUT = SutPlan(model="none", backend="null", threads=1, shapes={}, options={})


def load_plan(**changes: Any) -> LoadPlan:
    """Return a test by LoadGen, changed as told."""
    fields: dict[str, Any] = {
        "scenario": "SingleStream",
        "accuracy": False,
        "loadgen_model": "none",
        "min_duration_ms": None,
        "min_query_count": None,
        "samples_per_query": 8,
        "target_qps": None,
        "target_latency_ns": 1,
        "calibrate_s": 0.0,
        "directory": "unused",
    }
    return LoadPlan(**(fields | changes))


def worker_job(
    *,
    wiring: Wiring,
    load: LoadPlan,
    library_size: int = 1,
    fields: tuple[Field, ...] = (),
    **changes: Any,
) -> WorkerJob:
    """Return the job of a lone worker on core 0, changed as told."""
    given: dict[str, Any] = {
        "index": 0,
        "workers": 1,
        "cores": (0,),
        "issuing": (0,),
        "housekeeping": (0,),
        "realtime": False,
    }
    prepared = Prepared(
        inputs=(),
        outputs=(),
        info=load_session(SUT).info(),
        library_size=library_size,
        slots=1,
        prediction_shape=None,
        payload_bytes=0,
        fields=fields,
        first_answer_finite=True,
    )
    return WorkerJob(
        sut=SUT,
        data=DataPlan(task=None, data=None, inputs_file=None, seed=0),
        load=load,
        prepared=prepared,
        wiring=wiring,
        **(given | changes),
    )
