"""From a result to the spec that repeats it: what was left open is chosen as it was then."""

import msgspec

from edgeperf.agent.board import BoardInfo
from edgeperf.agent.freeze.document import (
    Clock,
    Execution,
    FrozenModel,
    FrozenSpec,
    FrozenTask,
    Machine,
    Origin,
    Software,
    sealed,
)
from edgeperf.agent.result import Result, ResultError, Sut
from edgeperf.agent.result.files import TASK
from edgeperf.agent.spec import Precision, RunSpec, Scenario, SpecError, spec_from_mapping
from edgeperf.datasets import is_task_file


def freeze(result: Result, *, where: str) -> FrozenSpec:
    """Return the spec that repeats *result*.

    Args:
        result: Of a run that got as far as a test.
        where: For messages.

    Raises:
        ResultError: It does not say what a repeat must hold.
    """
    sut, data = result.sut, result.data
    if data is None:
        raise ResultError(
            f"{where}: written by an edgeperf that did not record samples and packages; run it"
            " again, and freeze that result"
        )
    if sut is None or not sut.workers:
        raise ResultError(
            f"{where}: no test ran, so nothing says on which cores; freeze a run that measured"
        )
    try:
        asked = spec_from_mapping(result.spec)
        board = msgspec.convert(result.board, BoardInfo)
    except (SpecError, msgspec.ValidationError) as error:
        raise ResultError(
            f"{where}: not of this version of edgeperf ({result.edgeperf}): {error}"
        ) from error
    run = _settled(asked, result, sut)
    return sealed(
        FrozenSpec(
            origin=Origin(
                result=result.id,
                created=result.created,
                status=result.verdict.status.value,
                hostname=board.hostname,
            ),
            run=run,
            model=_model(result),
            task=_task(result, asked),
            data=data,
            software=software_of(board, sut, result.edgeperf, result.packages),
            execution=execution_of(sut, timed=result.performance is not None),
            workers=tuple(worker.cores for worker in sut.workers),
            machine=machine_of(board),
            clocks=clocks_of(board, run),
        )
    )


def _settled(asked: RunSpec, result: Result, sut: Sut) -> RunSpec:
    """Return *asked* with everything chosen that was left open."""
    used = sorted({core for worker in sut.workers for core in worker.cores})
    found_qps = result.performance.target_qps if result.performance else None
    server = asked.scenario is Scenario.SERVER
    return msgspec.structs.replace(
        asked,
        backend=sut.backend,
        precision=None if result.model.precision is None else Precision(result.model.precision),
        cores=asked.cores or tuple(used),
        workers=len(sut.workers),
        batch=sut.batch if asked.batch == "auto" else asked.batch,
        target_qps=(asked.target_qps or found_qps) if server else None,
    )


def _model(result: Result) -> FrozenModel:
    model = result.model
    return FrozenModel(
        name=model.name,
        file=model.file,
        sha256=model.sha256,
        size_bytes=model.size_bytes,
        parts=model.parts,
        companions=model.companions,
    )


def _task(result: Result, asked: RunSpec) -> FrozenTask:
    """Return the task; a guessed one follows from model and samples, so its file is not held."""
    own = asked.task is not None and is_task_file(asked.task)
    copy = result.files.get(TASK) if own else None
    return FrozenTask(name=result.task, file_sha256=None if copy is None else copy.sha256)


def software_of(board: BoardInfo, sut: Sut, edgeperf: str, packages: dict[str, str]) -> Software:
    """Return the versions that took part in a run."""
    return Software(
        edgeperf=edgeperf,
        runtime=sut.runtime,
        runtime_version=sut.version,
        python=board.python,
        packages=packages,
        os=board.os_release,
        kernel=board.kernel,
        kernel_build=board.kernel_version,
        libc=board.libc,
    )


def execution_of(sut: Sut, *, timed: bool) -> Execution:
    """Return what really ran.

    Args:
        sut: What ran.
        timed: Whether its workers are those of a performance test; only these take priority
            and lock memory.
    """
    recorded = timed and all(worker.policy for worker in sut.workers)
    return Execution(
        device=sut.device,
        precision=sut.precision,
        delegates=sut.delegates,
        options=sut.options,
        input_copy=sut.input_copy,
        batch=sut.batch,
        scheduling=tuple(worker.policy for worker in sut.workers) if recorded else None,
        memory_locked=tuple(worker.memory_locked for worker in sut.workers) if recorded else None,
    )


def machine_of(board: BoardInfo) -> Machine:
    """Return what a repeat asks of the board."""
    return Machine(
        model=board.model,
        revision=board.pi_revision,
        cpu=board.cpu_model,
        cores=sum(core.online for core in board.cores),
        arch=board.arch,
        pointer_bits=board.pointer_bits,
        memory_bytes=board.memory_bytes,
        microcode=board.microcode,
        l4t=board.l4t,
        jetpack=board.jetpack,
        power_mode=board.power_mode,
        boost=board.boost,
        virtualisation=board.virtualisation,
    )


def clocks_of(board: BoardInfo, run: RunSpec) -> tuple[Clock, ...]:
    """Return the clocks as they were while it ran: what the tuner held goes before the rest.

    The result describes the board after the tuner let go of it.
    """
    clocks = []
    for policy in board.frequency:
        lower, upper = policy.min_hz, policy.max_hz
        if run.clock_hz == "max":
            lower = upper
        elif run.clock_hz is not None:
            lower = upper = run.clock_hz
        clocks.append(
            Clock(
                cores=policy.cores,
                governor=run.governor or policy.governor,
                min_hz=lower,
                max_hz=upper,
                hardware_max_hz=policy.hardware_max_hz,
            )
        )
    return tuple(clocks)
