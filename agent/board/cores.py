"""Which cores this process may use, and what each of them is.

``os.cpu_count`` counts what the board has, not what we may use (cpython#80235): here the
affinity mask, the cpuset and the CPU quota are joined. The trap: cores kept back by
``isolcpus=`` are missing from every inherited mask, although a process may pin itself to
them, and they are exactly the cores a careful user wants. They are never used unasked.
"""

import os
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from edgeperf import InputError
from edgeperf.agent.board.cgroups import cpuset_cores, quota_cores
from edgeperf.agent.board.kernel_files import (
    format_core_list,
    numbered,
    parse_core_list,
    read_int,
    read_text,
)


class CoreError(InputError):
    """The cores asked for cannot be used; the message says which can."""


class Core(msgspec.Struct, frozen=True, kw_only=True):
    """One core (logical CPU).

    Attributes:
        core: Number, as in ``--cores``.
        online: Whether the kernel runs on it.
        max_frequency_hz: Highest frequency of the hardware; None where nothing says.
        capacity: Speed relative to the board's fastest core, which is 1024; None where
            the kernel does not say. Tells big cores from little ones.
        siblings: Logical CPUs of the same physical core, itself among them.
        isolated: Kept free of other work by ``isolcpus=`` or a cpuset partition.
        nohz_full: Runs without the timer tick while one task runs.
    """

    core: int
    online: bool
    max_frequency_hz: int | None
    capacity: int | None
    siblings: tuple[int, ...]
    isolated: bool
    nohz_full: bool


class CoreLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds the choice of cores.

    Attributes:
        present: Cores that are online.
        affinity: Cores in this process's affinity mask.
        cpuset: Cores that its control group allows; None where nothing limits them.
        quota_cores: Cores' worth of CPU time that its quota allows; None for no quota.
        isolated: Online cores that the kernel keeps free of other work.
    """

    present: tuple[int, ...]
    affinity: tuple[int, ...]
    cpuset: tuple[int, ...] | None
    quota_cores: float | None
    isolated: tuple[int, ...]

    def allowed(self) -> tuple[int, ...]:
        """Return the cores in the mask, in the cpuset and online."""
        return self._inside(self.affinity)

    def pinnable(self) -> tuple[int, ...]:
        """Return the allowed cores and the isolated ones one may pin to on request."""
        return self._inside({*self.affinity, *self.isolated})

    def count(self) -> int:
        """Return how many cores can be busy at once without being stopped by the quota."""
        allowed = len(self.allowed())
        return allowed if self.quota_cores is None else min(allowed, max(1, int(self.quota_cores)))

    def _inside(self, cores: Collection[int]) -> tuple[int, ...]:
        inside = set(cores) & set(self.present)
        if self.cpuset is not None:
            inside &= set(self.cpuset)
        return tuple(sorted(inside))


def core_limits(root: Path = Path("/"), *, affinity: Collection[int] | None = None) -> CoreLimits:
    """Return what bounds the choice of cores.

    Args:
        root: Root of the file tree.
        affinity: Affinity mask; None asks the kernel for this process's.
    """
    mask = os.sched_getaffinity(0) if affinity is None else affinity
    present = parse_core_list(read_text(_cpus(root) / "online")) or tuple(sorted(mask))
    isolated = set(parse_core_list(read_text(_cpus(root) / "isolated"))) & set(present)
    return CoreLimits(
        present=present,
        affinity=tuple(sorted(mask)),
        cpuset=cpuset_cores(root),
        quota_cores=quota_cores(root),
        isolated=tuple(sorted(isolated)),
    )


def usable_cores(
    root: Path = Path("/"), *, affinity: Collection[int] | None = None
) -> tuple[int, ...]:
    """Return the cores that a run may use when the user named none.

    Where a quota allows fewer cores than the mask has, the best are taken.
    """
    limits = core_limits(root, affinity=affinity)
    allowed = limits.allowed()
    if limits.count() == len(allowed):
        return allowed
    return tuple(sorted(rank_cores(allowed, root)[: limits.count()]))


def rank_cores(asked: Collection[int], root: Path = Path("/")) -> tuple[int, ...]:
    """Return the cores *asked*, best for measuring first.

    Isolated cores come first; then one logical CPU of each physical core before the
    siblings that would share it; then the fast ones; core 0, which most boards give
    every interrupt, after its equals.
    """
    known = {core.core: core for core in cores(root)}

    def rank(number: int) -> tuple[bool, int, int, bool, int]:
        core = known.get(number)
        if core is None:
            return (True, 0, 0, number == 0, number)
        sharers = [sibling for sibling in core.siblings if sibling in asked]
        speed = core.capacity or core.max_frequency_hz or 0
        return (not core.isolated, sharers.index(number), -speed, number == 0, number)

    return tuple(sorted(set(asked), key=rank))


def check_cores(
    asked: Sequence[int],
    root: Path = Path("/"),
    *,
    affinity: Collection[int] | None = None,
) -> None:
    """Refuse cores that cannot be used.

    Raises:
        CoreError: A core is named twice, does not exist, is offline, lies outside the
            affinity mask or cpuset, or there are more than the CPU quota lets run.
    """
    limits = core_limits(root, affinity=affinity)
    usable = format_core_list(limits.pinnable())
    if not asked:
        raise CoreError(f"cores: none given; usable here: {usable}")
    if twice := sorted({core for core in asked if list(asked).count(core) > 1}):
        raise CoreError(f"cores: {format_core_list(twice)} named twice; name each core once")
    if missing := set(asked) - set(limits.present):
        raise CoreError(
            f"cores: no core {format_core_list(missing)} online on this board;"
            f" online: {format_core_list(limits.present)}, usable here: {usable}"
        )
    if outside := set(asked) - set(limits.pinnable()):
        raise CoreError(
            f"cores: {format_core_list(outside)} outside this process's affinity mask or"
            f" cpuset; usable here: {usable}"
        )
    if limits.quota_cores is not None and len(asked) > max(1, limits.quota_cores):
        raise CoreError(
            f"cores: {len(asked)} asked, but the CPU quota of this control group allows"
            f" {limits.quota_cores:g}; ask for fewer or raise the quota"
        )


def cores(root: Path = Path("/")) -> tuple[Core, ...]:
    """Return every core the board has, offline ones too."""
    folder = _cpus(root)
    online = parse_core_list(read_text(folder / "online"))
    isolated = parse_core_list(read_text(folder / "isolated"))
    nohz_full = parse_core_list(read_text(folder / "nohz_full"))
    return tuple(
        Core(
            core=core,
            online=core in online or not online,
            max_frequency_hz=_max_frequency_hz(path),
            capacity=read_int(path / "cpu_capacity"),
            siblings=parse_core_list(read_text(path / "topology/thread_siblings_list")) or (core,),
            isolated=core in isolated,
            nohz_full=core in nohz_full,
        )
        for core, path in numbered(folder, "cpu")
    )


def _cpus(root: Path) -> Path:
    return root / "sys/devices/system/cpu"


def _max_frequency_hz(core: Path) -> int | None:
    khz = read_int(core / "cpufreq/cpuinfo_max_freq")
    return None if khz is None else khz * 1000
