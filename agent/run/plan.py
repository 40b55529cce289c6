"""From a spec to everything that is decided before a process starts.

A plan names files, cores, workers and settings; nothing in it is random, and nothing is
left to be chosen later but what calibration measures.
"""

import os
import secrets
import time
from pathlib import Path

import msgspec

from edgeperf import InputError
from edgeperf.agent.run.decoding import decoding_of, timed_generation
from edgeperf.agent.run.jobs import DataPlan, LoadPlan, SutPlan
from edgeperf.agent.run.layout import Layout, lay_out
from edgeperf.agent.run.model_choice import Choice, ModelFile, choose_model, with_reference
from edgeperf.agent.spec import Preset, RunSpec, Scenario
from edgeperf.datasets import OWN_DATA, open_task
from edgeperf.datasets.assets import Places
from edgeperf.datasets.base import Task
from edgeperf.datasets.score import Decoding, Gate
from edgeperf.datasets.stored.build import store_folder
from edgeperf.power import make_source, parse_meter_spec
from edgeperf.power.base import MeterInputError

#: Minimum duration of each preset; None leaves MLPerf's 600 s.
DURATION_MS = {Preset.VALID: None, Preset.FAST: 60_000, Preset.SMOKE: 2_000}
#: LoadGen's Server needs 459 queries without one too late before its early stopping can
#: hold at the 99th percentile; a short preset must not end before.
SERVER_QUERIES = {Preset.VALID: None, Preset.FAST: 1_000, Preset.SMOKE: 600}
CALIBRATE_S = {Preset.VALID: 3.0, Preset.FAST: 1.0, Preset.SMOKE: 0.3}
#: Share of the FP32 reference that MLPerf asks of most benchmarks.
SHARE = 0.99
TIMED = ("input hand-over to the runtime", "inference")
#: MLPerf's bound for the Server scenario where a task names none.
SERVER_LATENCY_NS = 10_000_000


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A run, decided.

    Attributes:
        id: Unique, sorts by time.
        spec: What was asked.
        model: The file under test.
        sut: How it is loaded.
        data: Where samples come from.
        task: Name of the task, None without one.
        gate: What the model must reach.
        reference_metrics: Other metrics of the FP32 model on the same samples.
        layout: Which process runs on which cores.
        loadgen_model: Key in mlperf.conf.
        target_latency_ns: Server's bound.
        timed: What the latency contains, in words.
    """

    id: str
    spec: RunSpec
    model: ModelFile
    sut: SutPlan
    data: DataPlan
    task: str | None
    gate: Gate
    reference_metrics: dict[str, float]
    layout: Layout
    loadgen_model: str
    target_latency_ns: int
    timed: tuple[str, ...]

    def load_plan(self, directory: Path, *, accuracy: bool) -> LoadPlan:
        """Return what LoadGen is told in the accuracy or the performance test."""
        spec, preset = self.spec, self.spec.preset
        count = spec.min_query_count
        if count is None and spec.scenario is Scenario.SERVER:
            count = SERVER_QUERIES[preset]
        return LoadPlan(
            scenario=spec.scenario.value,
            accuracy=accuracy,
            loadgen_model=self.loadgen_model,
            min_duration_ms=spec.min_duration_ms or DURATION_MS[preset],
            min_query_count=count,
            samples_per_query=spec.samples_per_query,
            target_qps=spec.target_qps,
            target_latency_ns=self.target_latency_ns,
            calibrate_s=CALIBRATE_S[Preset.SMOKE if accuracy else preset],
            directory=str(directory),
        )


def make_plan(spec: RunSpec) -> Plan:
    """Decide everything about *spec*.

    Raises:
        InputError: The model, the task, the backend or the cores cannot be had; one line.
    """
    _check_meter(spec)
    choice = choose_model(spec)
    task_name = spec.task or choice.task or (OWN_DATA if spec.data else None)
    task = None if task_name is None else open_task(task_name)
    if task is not None and spec.inputs_file is not None:
        raise InputError(
            f"--inputs {spec.inputs_file}: the task {task_name!r} makes the inputs; use --data for"
            " your own samples of it"
        )
    model = with_reference(choice, task)
    _require_parts(model, task)
    bound_ns = task.server_latency_ns if task else SERVER_LATENCY_NS
    if spec.target_latency_ms is not None:
        bound_ns = round(spec.target_latency_ms * 1e6)
    timed = task is not None and task.timed_postprocessing
    decoding, options = decoding_of(spec, task)
    store = store_folder(Places.from_environment(os.environ))
    return Plan(
        id=_new_id(model.name, choice.backend, spec),
        spec=spec,
        model=model,
        sut=SutPlan(
            model=model.path,
            backend=choice.backend,
            threads=spec.threads,
            shapes=spec.shapes,
            options=options,
            batch=0 if spec.batch == "auto" else spec.batch,
            parts={part.name: part.path for part in model.parts},
            decoding=decoding,
        ),
        data=DataPlan(
            task=task_name,
            data=spec.data,
            inputs_file=spec.inputs_file,
            seed=spec.seed,
            timed_postprocessing=timed,
            store=None if store is None else str(store),
        ),
        task=task.name if task else None,
        gate=_gate(spec, task, model.reference),
        reference_metrics=_reference_metrics(choice, task),
        layout=lay_out(spec),
        loadgen_model=_benchmark(spec, task),
        target_latency_ns=bound_ns,
        timed=_timed(spec, task, decoding),
    )


def _check_meter(spec: RunSpec) -> None:
    """Refuse a meter that cannot be there, before minutes are spent on the accuracy test."""
    if spec.meter is None:
        return
    make_source(spec.meter)
    port = parse_meter_spec(spec.meter).port
    if port.startswith("/") and not Path(port).exists():
        raise MeterInputError(
            f"meter on {port}: no such port; plug it in, or see `edgeperf meter ls`"
        )


def _timed(spec: RunSpec, task: Task | None, decoding: Decoding | None) -> tuple[str, ...]:
    """Say in words what a latency contains."""
    if decoding is not None:
        if spec.batch != 1:
            raise InputError(f"--batch {spec.batch}: a text is made token by token, one at a time")
        return timed_generation(decoding)
    if task is not None and task.timed_postprocessing:
        return (*TIMED, "postprocessing (boxes or text out of the outputs, NMS)")
    return TIMED


def _require_parts(model: ModelFile, task: Task | None) -> None:
    """Refuse a model that lacks a part, or has one that nothing asks for."""
    have = {part.name for part in model.parts}
    needed = {"decoder", "tokenizer"} if task is not None and task.decoding is not None else set()
    for name in sorted(needed - have):
        raise InputError(f"model {model.name}: the task needs its {name} too; --part {name}=FILE")
    for name in sorted(have - needed):
        raise InputError(f"--part {name}: the task has no use for it")


def _gate(spec: RunSpec, task: Task | None, reference: float | None) -> Gate:
    """Return the gate in force: the share asked of this run, and the task's own floor."""
    own = task.gate if task else Gate()
    if spec.gate is not None:
        if reference is None:
            raise InputError(f"--gate {spec.gate:g}: {_no_reference(task, own)}")
        return Gate(share=spec.gate, floor=own.floor)
    if own.floor is None and own.share is None:
        return Gate(share=SHARE)
    return own


def _no_reference(task: Task | None, own: Gate) -> str:
    """Say that there is nothing to take a share of, and what to do."""
    if task is None:
        return "there is no task, so no accuracy to take a share of; give --task or --data"
    text = f"no FP32 reference for {task.metric} to take a share of"
    if own.floor is not None:
        text += f" (the task's own bound is {own.floor:g})"
    return f"{text}; leave it out, or give the task file a [reference] (edgeperf task reference)"


def _reference_metrics(choice: Choice, task: Task | None) -> dict[str, float]:
    """Return what else is known of the FP32 model, on the samples that will be answered."""
    if task is None:
        return {}
    own = choice.task == task.name and choice.reference_metrics
    return dict(own or task.reference_metrics)


def _benchmark(spec: RunSpec, task: Task | None) -> str:
    """Return the key in mlperf.conf: short presets keep no benchmark's own counts."""
    if task is None or spec.preset is not Preset.VALID:
        return "edgeperf"
    return task.loadgen_model


def _new_id(model: str, backend: str, spec: RunSpec) -> str:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    safe = "".join(letter if letter.isalnum() or letter in "._" else "_" for letter in model)
    return f"{stamp}-{safe}-{backend}-{spec.scenario.value}-{secrets.token_hex(3)}"
