"""Which process runs on which cores."""

import msgspec

from edgeperf import InputError
from edgeperf.agent.board import check_cores, rank_cores, usable_cores
from edgeperf.agent.spec import RunSpec, Scenario


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Which process runs on which cores.

    Attributes:
        workers: Cores of each worker; the first leads.
        issuing: Cores of the thread that LoadGen issues from.
        housekeeping: Cores for LoadGen's threads, the supervisor, the meter.
    """

    workers: tuple[tuple[int, ...], ...]
    issuing: tuple[int, ...]
    housekeeping: tuple[int, ...]


def lay_out(spec: RunSpec) -> Layout:
    """Decide which process runs on which cores.

    Fast cores first; one worker per ``threads`` cores. SingleStream asks one sample at a
    time, so it has one worker.

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
            f"{workers} worker{'s'[: workers - 1]} with {spec.threads}"
            f" thread{'s'[: spec.threads - 1]} each need"
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
    issuing = groups[0]
    if spec.scenario is Scenario.SERVER and workers > 1:
        # An issue must not wait behind an inference: where no core is left for it, the
        # thread goes wherever a worker is idle.
        issuing = idle or tuple(sorted(used))
    return Layout(workers=groups, issuing=issuing, housekeeping=housekeeping)


def _default_workers(spec: RunSpec, cores: int) -> int:
    if spec.scenario is Scenario.SINGLE_STREAM:
        return 1
    fits = max(1, cores // spec.threads)
    if spec.scenario is Scenario.MULTI_STREAM:
        return min(fits, spec.samples_per_query)
    return fits
