"""What the harness adds on this very board, scenario by scenario: ``edgeperf overhead``.

The null backend runs through exactly what a run goes through, so LoadGen's own latencies
of it are what is added to a model's. A bare loop of the same session shows that the
session itself is next to nothing. A model is judged by what its own short test finds, as
in a run: what is added to a model that keeps all cores awake is less than to one that
does nothing.
"""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from edgeperf import EdgeperfError
from edgeperf.agent.board import WindowConditions, doubts_together
from edgeperf.agent.result import Reason
from edgeperf.agent.run.answer import load_session
from edgeperf.agent.run.figures import due_ns, performance
from edgeperf.agent.run.harness import HONEST, empty_ns
from edgeperf.agent.run.loadgen_log import DetailLog
from edgeperf.agent.run.measure import Measurement, measure
from edgeperf.agent.run.memory import Field, map_fields, new_block
from edgeperf.agent.run.plan import Plan, make_plan
from edgeperf.agent.run.preparation import prepare
from edgeperf.agent.run.wakeups import WakeUp, wakeups
from edgeperf.agent.spec import Preset, RunSpec, Scenario
from edgeperf.datasets.assets import BUNDLED

#: Any file will do: the null backend does not look at it.
_ANY_MODEL = BUNDLED / "digits_f32.tflite"
#: Enough for stable medians; LoadGen makes 330 bytes per query ahead.
_DURATION_MS = 100
_SERVER_QPS = 1_000.0
_MODEL_DURATION_MS = 300

Told = Callable[[str], None]


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """What the harness adds in one scenario.

    Attributes:
        scenario: MLPerf's name.
        workers: How many answered.
        per: ``query`` or ``sample``.
        p50_ns: What it adds, in the median.
        p90_ns: At the 90th percentile; None for Offline.
        honest_ns: What a query (Offline: a sample on one worker) must take at the least
            to be measured honestly: twenty times as long.
    """

    scenario: str
    workers: int
    per: str
    p50_ns: float
    p90_ns: float | None
    honest_ns: float


class ModelShare(msgspec.Struct, frozen=True, kw_only=True):
    """A model beside what is added to it.

    Attributes:
        scenario: MLPerf's name.
        model_ns: What a query (Offline, Server: a sample on one worker) takes.
        added_ns: What the harness adds to it, found as in a run.
        share: That as a share of what the model takes.
        honest: Whether the share is small enough, as the verdict of a run has it.
    """

    scenario: str
    model_ns: float
    added_ns: float
    share: float
    honest: bool


class Overhead(msgspec.Struct, frozen=True, kw_only=True):
    """What was found.

    Attributes:
        clock_ns: What one look at the clock takes.
        bare_ns: What one call of the null session takes in a bare loop.
        added: By scenario.
        wakeups: What it costs to wake another process.
        model: Name of the model that was asked about; None without one.
        shares: The model beside what is added.
        doubts: What the board did meanwhile that speaks against it, as in a run's verdict.
    """

    clock_ns: float
    bare_ns: float
    added: tuple[Added, ...]
    wakeups: tuple[WakeUp, ...]
    model: str | None = None
    shares: tuple[ModelShare, ...] = ()
    doubts: tuple[Reason, ...] = ()


def overhead(asked: RunSpec | None, cores: tuple[int, ...] | None, told: Told) -> Overhead:
    """Find out what the harness adds here, in some ten seconds.

    Args:
        asked: A model to lay beside it: of its spec the model and how it is loaded count.
        cores: Cores to use; None for all.
        told: Told what is being done.

    Raises:
        InputError: The model cannot be had, or the cores cannot be used.
        EdgeperfError: A test did not end in order.
    """
    told("bare loops and wake-ups")
    any_model = RunSpec(model=str(_ANY_MODEL), backend="null", cores=cores)
    null = _spec(any_model, Scenario.SINGLE_STREAM)
    layout = make_plan(null).layout
    core, house = layout.workers[0][0], layout.housekeeping[0]
    clock_ns, bare_ns = _bare(make_plan(null))
    found_wakeups = wakeups(core, house if house != core else None)
    windows: list[WindowConditions] = []
    added = []
    for scenario in Scenario:
        told(f"{scenario.value} on the null backend")
        added.append(_added(_spec(null, scenario), windows))
    shares = []
    if asked is not None:
        for each in added:
            told(f"{asked.model}: {each.scenario}")
            shares.append(_share(_spec(asked, Scenario(each.scenario)), windows))
    return Overhead(
        clock_ns=clock_ns,
        bare_ns=bare_ns,
        added=tuple(added),
        wakeups=found_wakeups,
        model=None if asked is None else asked.model,
        shares=tuple(shares),
        doubts=doubts_together(windows),
    )


def _spec(base: RunSpec, scenario: Scenario) -> RunSpec:
    server = scenario is Scenario.SERVER
    return msgspec.structs.replace(
        base,
        scenario=scenario,
        preset=Preset.SMOKE,
        min_duration_ms=_DURATION_MS if base.backend == "null" else _MODEL_DURATION_MS,
        min_query_count=None,
        target_qps=_SERVER_QPS if server and base.backend == "null" else None,
        accuracy=False,
    )


def _bare(plan: Plan) -> tuple[float, float]:
    """Return what a look at the clock and a bare call of the null session take."""
    before, block = os.sched_getaffinity(0), new_block("overhead")
    try:
        os.sched_setaffinity(0, plan.layout.workers[0])
        session = load_session(plan.sut)
        fields = [
            Field(name=spec.name, shape=(1, *spec.sample_shape), dtype=spec.dtype)
            for spec in session.inputs
        ]
        session.bind(list(map_fields(block, fields).values()))
        clock_ns = empty_ns(lambda: None, 2_000)
        bare_ns = empty_ns(lambda: session.infer(0), 2_000)
    finally:
        os.close(block)
        os.sched_setaffinity(0, before)
    return clock_ns, max(0.0, bare_ns - clock_ns)


def _added(spec: RunSpec, windows: list[WindowConditions]) -> Added:
    with _tested(spec, windows) as (plan, test):
        log = DetailLog(test.directory / "mlperf_log_detail.txt", "performance")
        latency = log.loadgen().latency_ns
        workers = len(plan.layout.workers)
        if spec.scenario is Scenario.OFFLINE:
            rate = log.number("result_samples_per_second") or 0.0
            p50_ns, p90_ns = workers * 1e9 / rate if rate else 0.0, None
        else:
            p50_ns, p90_ns = latency.get("p50", 0.0), latency.get("p90", 0.0)
    return Added(
        scenario=spec.scenario.value,
        workers=workers,
        per="sample" if spec.scenario is Scenario.OFFLINE else "query",
        p50_ns=p50_ns,
        p90_ns=p90_ns,
        honest_ns=HONEST * p50_ns,
    )


def _share(spec: RunSpec, windows: list[WindowConditions]) -> ModelShare:
    """Return the model's own time beside what is added to it."""
    with _tested(spec, windows) as (plan, test):
        if test.calibrated is None or test.done is None:
            raise EdgeperfError(f"{spec.scenario.value} of {spec.model}: it did not end")
        log = DetailLog(test.directory / "mlperf_log_detail.txt", "performance")
        start_ns = due_ns(spec.scenario.value, test.start_ns, test.calibrated, log)
        found = performance(
            plan, test.calibrated, test.done, start_ns=start_ns, end_ns=test.end_ns, log=log
        )
        model_ns, added_ns = test.calibrated.latency_ns, found.harness_ns or 0.0
    return ModelShare(
        scenario=spec.scenario.value,
        model_ns=model_ns,
        added_ns=added_ns,
        share=added_ns / model_ns if model_ns else 0.0,
        honest=model_ns >= HONEST * added_ns,
    )


@contextlib.contextmanager
def _tested(spec: RunSpec, windows: list[WindowConditions]) -> Iterator[tuple[Plan, Measurement]]:
    """Run one performance test and yield what it left, while its logs are there.

    Args:
        spec: The run.
        windows: Takes how the board was meanwhile.
    """
    plan = make_plan(spec)
    inputs = new_block("inputs")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, plan.layout.housekeeping)
    try:
        with tempfile.TemporaryDirectory(prefix="edgeperf-") as folder:
            path = Path(folder)
            prepared = prepare(plan, path / "prepare.log", inputs)
            load = plan.load_plan(path / "performance", accuracy=False)
            test = measure(plan, prepared, load, inputs=inputs, progressed=_ignore)
            if test.problem is not None or test.done is None:
                why = test.problem.text if test.problem else "it did not end"
                raise EdgeperfError(f"{spec.scenario.value} of {spec.model}: {why}")
            if test.conditions is not None:
                windows.append(test.conditions)
            yield plan, test
    finally:
        os.sched_setaffinity(0, before)
        os.close(inputs)


def _ignore(percent: float, left_s: float | None, temperature_c: float | None) -> None:
    del percent, left_s, temperature_c
