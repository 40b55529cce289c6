"""Probes of the cores and their clocks."""

from collections.abc import Iterator

from edgeperf.agent.board.cores import Core, CoreLimits, core_limits, cores, usable_cores
from edgeperf.agent.board.cpufreq import FrequencyPolicy, boost_enabled, frequency_policies
from edgeperf.agent.board.findings import Area, Board, Finding
from edgeperf.agent.board.kernel_files import format_core_list
from edgeperf.agent.board.machine import cpu_model, l4t_release, nvpmodel_mode

_AREA = Area("cores")

#: Governors that hold a clock; the others follow the load while the run lasts. The
#: ``powersave`` of intel_pstate and amd-pstate is a load follower too.
_STEADY = ("performance", "userspace")

#: Firmware rounds frequencies; a limit this close to the hardware's is no limit.
_SLACK = 0.01


def probe_cores(board: Board) -> Iterator[Finding]:
    """Cores, isolation, governor and limits, boost, a Jetson's power mode."""
    limits = core_limits(board.root, affinity=board.affinity)
    seen = cores(board.root)
    usable = usable_cores(board.root, affinity=board.affinity)
    yield _cores(limits, usable, cpu_model(board.root))
    yield from _siblings(seen, usable)
    isolated = format_core_list(limits.isolated)
    yield _AREA.ok("isolated cores", isolated)
    policies = frequency_policies(board.root)
    if not policies:
        value = "the kernel controls no frequency here (usual in a virtual machine)"
        yield _AREA.missing("governor", value)
    for policy in policies:
        yield _governor(policy)
        yield _limits(policy)
    boost = boost_enabled(board.root)
    if boost is not None:
        yield _AREA.ok("boost", "on" if boost else "off")
    if l4t_release(board.root):
        yield _power_mode(nvpmodel_mode(board.root))


def _cores(limits: CoreLimits, usable: tuple[int, ...], model: str | None) -> Finding:
    value = f"{len(usable)} usable of {len(limits.present)}: {format_core_list(usable)}"
    if model:
        value = f"{value} ({model})"
    if not usable:
        text = "the affinity mask and the cpuset have no core in common; start it without taskset"
        return _AREA.fail("cores", value, text)
    if limits.quota_cores is not None and limits.quota_cores < len(limits.allowed()):
        text = f"a CPU quota of {limits.quota_cores:g} cores stops runs; raise it (cpu.max)"
        return _AREA.warn("cores", value, text)
    if len(usable) == 1:
        text = "nothing is left for other work beside the measured core; give it a second one"
        return _AREA.warn("cores", value, text)
    return _AREA.ok("cores", value)


def _siblings(seen: tuple[Core, ...], usable: tuple[int, ...]) -> Iterator[Finding]:
    shared = [core.core for core in seen if len(set(core.siblings) & set(usable)) > 1]
    if shared:
        value = f"{format_core_list(shared)} share physical cores"
        text = "measure on one of each (edgeperf does), or switch SMT off"
        yield _AREA.ok("SMT", value, text)


def _governor(policy: FrequencyPolicy) -> Finding:
    name = f"governor, cores {format_core_list(policy.cores)}"
    value = f"{policy.governor or 'unknown'} ({policy.driver or 'unknown driver'})"
    if policy.governor in _STEADY or (policy.governors and "performance" not in policy.governors):
        return _AREA.ok(name, value)
    text = "the clock follows the load; hold it while a run lasts: --governor performance"
    return _AREA.warn(name, value, text)


def _limits(policy: FrequencyPolicy) -> Finding:
    name = f"frequency, cores {format_core_list(policy.cores)}"
    limits = f"{_ghz(policy.min_hz)} to {_ghz(policy.max_hz)} GHz"
    value = f"{limits}, hardware {_ghz(policy.hardware_max_hz)} GHz"
    top_hz, hardware_hz = policy.max_hz, policy.hardware_max_hz
    if top_hz and hardware_hz and top_hz < hardware_hz * (1 - _SLACK):
        text = "the clock is capped below what the hardware can do; raise scaling_max_freq"
        return _AREA.warn(name, value, text)
    return _AREA.ok(name, value)


def _power_mode(mode: str | None) -> Finding:
    if mode is None:
        text = "see sudo nvpmodel -q; it caps clocks and switches cores off"
        return _AREA.missing("power mode", "nvpmodel has left no status", text)
    return _AREA.ok("power mode", mode)


def _ghz(hz: int | None) -> str:
    return "?" if hz is None else f"{hz / 1e9:g}"
