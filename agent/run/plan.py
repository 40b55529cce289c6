"""From a spec to everything that is decided before a process starts.

A plan names files, cores, workers and settings; nothing in it is random, and nothing is
left to be chosen later but what calibration measures.
"""

import hashlib
import secrets
import time
from pathlib import Path

import msgspec

from edgeperf import InputError
from edgeperf.agent.board import check_cores, rank_cores, usable_cores
from edgeperf.agent.run.by_digest import cached_file, catalogue_entry, digest_in
from edgeperf.agent.run.jobs import DataPlan, LoadPlan, SutPlan
from edgeperf.agent.spec import Preset, RunSpec, Scenario
from edgeperf.backends import backend_for, open_backend
from edgeperf.datasets import open_task
from edgeperf.datasets.assets import resolve
from edgeperf.datasets.catalogue import CatalogueModel, find_model, models, pick_file

#: Minimum duration of each preset; None leaves MLPerf's 600 s.
DURATION_MS = {Preset.VALID: None, Preset.FAST: 60_000, Preset.SMOKE: 2_000}
#: LoadGen's Server needs 459 queries without one too late before its early stopping can
#: hold at the 99th percentile; a short preset must not end before.
SERVER_QUERIES = {Preset.VALID: None, Preset.FAST: 1_000, Preset.SMOKE: 600}
CALIBRATE_S = {Preset.VALID: 3.0, Preset.FAST: 1.0, Preset.SMOKE: 0.3}
#: MLPerf's bound for the Server scenario where a task names none.
SERVER_LATENCY_NS = 10_000_000
_READ_BYTES = 1 << 20


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file under test.

    Attributes:
        name: For people: the catalogue's name, or the file's.
        path: Where it is.
        sha256: What it is.
        size_bytes: How large.
        precision: ``float`` or ``int8`` where the catalogue knows.
        reference: FP32 value of the task's metric for this model.
        reference_source: Where that comes from.
    """

    name: str
    path: str
    sha256: str
    size_bytes: int
    precision: str | None
    reference: float | None
    reference_source: str | None


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Which process runs on which cores.

    Attributes:
        workers: Cores of each worker that infers.
        issuer: Cores of a leader that does not infer (Server with several workers).
        housekeeping: Cores for LoadGen's threads, the supervisor, the meter.
    """

    workers: tuple[tuple[int, ...], ...]
    issuer: tuple[int, ...] | None
    housekeeping: tuple[int, ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A run, decided.

    Attributes:
        id: Unique, sorts by time.
        spec: What was asked.
        model: The file under test.
        sut: How it is loaded.
        data: Where samples come from.
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
    digest = digest_in(spec.model)
    entry = None if digest is None else catalogue_entry(digest)
    known = find_model(spec.model) if entry is None else entry[0]
    model, backend = _catalogue_model(spec, known) if known else _own_model(spec)
    task_name = spec.task or (known.task if known else None)
    task = None if task_name is None else open_task(task_name)
    if task is None and spec.data is not None:
        raise InputError(f"--data {spec.data}: samples need a --task that says what they mean")
    if task is not None and spec.inputs_file is not None:
        raise InputError(
            f"--inputs {spec.inputs_file}: the task {task_name!r} makes the inputs; use --data for"
            " your own samples of it"
        )
    if model.reference is None and task is not None and task.reference is not None:
        source = f"FP32 reference of the task {task_name!r}"
        model = msgspec.structs.replace(model, reference=task.reference, reference_source=source)
    bound_ns = task.server_latency_ns if task else SERVER_LATENCY_NS
    if spec.target_latency_ms is not None:
        bound_ns = round(spec.target_latency_ms * 1e6)
    return Plan(
        id=_new_id(model.name, backend, spec),
        spec=spec,
        model=model,
        sut=SutPlan(
            model=model.path,
            backend=backend,
            threads=spec.threads,
            shapes=spec.shapes,
            options=spec.options,
        ),
        data=DataPlan(task=task_name, data=spec.data, inputs_file=spec.inputs_file, seed=spec.seed),
        layout=lay_out(spec),
        loadgen_model=task.loadgen_model if task else "edgeperf",
        target_latency_ns=bound_ns,
        timed=_timed(task.timed_postprocessing if task else False),
    )


def _timed(postprocessing: bool) -> tuple[str, ...]:  # noqa: FBT001 - private, one caller
    parts = ("input hand-over to the runtime", "inference")
    return (*parts, "postprocessing") if postprocessing else parts


def _catalogue_model(spec: RunSpec, known: CatalogueModel) -> tuple[ModelFile, str]:
    digest = digest_in(spec.model)
    precision = None if spec.precision is None else spec.precision.value
    formats = (".tflite", ".onnx") if spec.backend is None else open_backend(spec.backend).formats
    if digest is None:
        file = pick_file(known, formats=formats, precision=precision)
    else:
        file = next(file for file in known.files if file.asset.sha256 == digest)
    path = resolve(file.asset)
    backend = spec.backend or backend_for(path)
    model = ModelFile(
        name=known.name,
        path=str(path),
        sha256=file.asset.sha256,
        size_bytes=path.stat().st_size,
        precision=file.precision,
        reference=known.reference,
        reference_source=known.reference_source,
    )
    return model, backend


def _own_model(spec: RunSpec) -> tuple[ModelFile, str]:
    asked = digest_in(spec.model)
    path = Path(spec.model) if asked is None else cached_file(asked)
    if not path.is_file():
        names = ", ".join(model.name for model in models())
        raise InputError(
            f"model {spec.model!r}: no such file, and no such name in the catalogue ({names})"
        )
    if spec.precision is not None:
        raise InputError(
            f"--precision {spec.precision.value}: chooses among a catalogue model's files;"
            f" {spec.model} is one file"
        )
    try:
        digest, size = _sha256(path), path.stat().st_size
    except OSError as error:
        raise InputError(f"model {spec.model}: {error.strerror}") from error
    if asked not in (None, digest):
        raise InputError(f"{path}: not what its name says: its sha256 is {digest}; delete it")
    backend = spec.backend or backend_for(path)
    model = ModelFile(
        name=path.name,
        path=str(path.resolve()),
        sha256=digest,
        size_bytes=size,
        precision=None,
        reference=None,
        reference_source=None,
    )
    return model, backend


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def lay_out(spec: RunSpec) -> Layout:
    """Decide which process runs on which cores.

    Fast cores first; one worker per ``threads`` cores. SingleStream asks one sample at a
    time, so it has one worker. Server keeps a core for LoadGen where there is one to
    spare, since there an issue must never wait behind an inference.

    Raises:
        InputError: More is asked for than there are cores.
    """
    cores = usable_cores() if spec.cores is None else spec.cores
    check_cores(cores)
    ranked = rank_cores(cores)
    fits = len(ranked) // spec.threads
    workers = spec.workers or _default_workers(spec, len(ranked))
    if spec.scenario is Scenario.SINGLE_STREAM and workers > 1:
        raise InputError(
            f"--workers {workers}: SingleStream has one sample at a time and so one worker; use"
            " --threads, or another scenario"
        )
    if workers > fits:
        raise InputError(
            f"{workers} worker(s) with {spec.threads} thread(s) each need"
            f" {workers * spec.threads} cores; usable here: {len(ranked)}"
            f" ({', '.join(map(str, sorted(ranked)))})"
        )
    groups = tuple(
        tuple(sorted(ranked[place * spec.threads : (place + 1) * spec.threads]))
        for place in range(workers)
    )
    used = {core for group in groups for core in group}
    idle = tuple(sorted(set(usable_cores()) - used))
    housekeeping = idle or (ranked[-1],)
    issuer = housekeeping if spec.scenario is Scenario.SERVER and workers > 1 else None
    return Layout(workers=groups, issuer=issuer, housekeeping=housekeeping)


def _default_workers(spec: RunSpec, cores: int) -> int:
    if spec.scenario is Scenario.SINGLE_STREAM:
        return 1
    if spec.scenario is Scenario.SERVER:
        return max(1, (cores - 1) // spec.threads)
    fits = max(1, cores // spec.threads)
    if spec.scenario is Scenario.MULTI_STREAM:
        return min(fits, spec.samples_per_query)
    return fits


def _new_id(model: str, backend: str, spec: RunSpec) -> str:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    safe = "".join(letter if letter.isalnum() or letter in "._" else "_" for letter in model)
    return f"{stamp}-{safe}-{backend}-{spec.scenario.value}-{secrets.token_hex(3)}"
