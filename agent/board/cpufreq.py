"""Frequency scaling: who decides the clock, and between which limits.

A board without cpufreq (most virtual machines) has no policies, and that is recorded.
Only ``scaling_cur_freq`` is read while a run lasts: ``cpuinfo_cur_freq`` asks the
hardware and needs root.
"""

from pathlib import Path

import msgspec

from edgeperf.agent.board.kernel_files import numbered, read_int, read_text


class FrequencyPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Cores that share one clock, and its limits.

    Attributes:
        cores: The cores.
        driver: Scaling driver: ``cpufreq-dt``, ``intel_pstate``, ...
        governor: Governor in force.
        governors: Governors to choose from.
        min_hz: Lower limit in force.
        max_hz: Upper limit in force.
        hardware_max_hz: What the hardware could do.
    """

    cores: tuple[int, ...]
    driver: str | None
    governor: str | None
    governors: tuple[str, ...]
    min_hz: int | None
    max_hz: int | None
    hardware_max_hz: int | None


def frequency_policies(root: Path = Path("/")) -> tuple[FrequencyPolicy, ...]:
    """Return the frequency policies of the board, by their lowest core."""
    return tuple(_policy(core, path) for core, path in policy_folders(root))


def policy_folders(root: Path) -> list[tuple[int, Path]]:
    """Return the folder of each policy, by its lowest core."""
    cpus = root / "sys/devices/system/cpu"
    policies = numbered(cpus / "cpufreq", "policy")
    if policies:
        return policies
    # Kernels before 4.3 have one folder per core and no policies.
    folders = [(core, path / "cpufreq") for core, path in numbered(cpus, "cpu")]
    return [(core, path) for core, path in folders if path.is_dir()]


def policy_cores(core: int, folder: Path) -> tuple[int, ...]:
    """Return the cores of one policy; *core* alone where the kernel does not say."""
    words = (read_text(folder / "affected_cpus") or "").split()
    return tuple(int(word) for word in words if word.isdecimal()) or (core,)


def boost_enabled(root: Path = Path("/")) -> bool | None:
    """Return whether clocks above the nominal one are allowed, None where nothing says."""
    cpus = root / "sys/devices/system/cpu"
    no_turbo = read_int(cpus / "intel_pstate/no_turbo")
    if no_turbo is not None:
        return no_turbo == 0
    boost = read_int(cpus / "cpufreq/boost")
    return None if boost is None else boost != 0


def _policy(core: int, folder: Path) -> FrequencyPolicy:
    return FrequencyPolicy(
        cores=policy_cores(core, folder),
        driver=read_text(folder / "scaling_driver"),
        governor=read_text(folder / "scaling_governor"),
        governors=tuple((read_text(folder / "scaling_available_governors") or "").split()),
        min_hz=_hz(folder / "scaling_min_freq"),
        max_hz=_hz(folder / "scaling_max_freq"),
        hardware_max_hz=_hz(folder / "cpuinfo_max_freq"),
    )


def _hz(path: Path) -> int | None:
    khz = read_int(path)
    return None if khz is None else khz * 1000
