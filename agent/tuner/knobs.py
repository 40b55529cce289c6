"""Which files a wish comes down to on this board, and with which values.

Reading needs no privilege, so a run asks this too: on a board without the knob, or where it
stands as wished already, nobody need be root. The order of the list is the order of
writing; its reverse restores, so that no lower limit is ever above an upper one.

Source: Linux Documentation/admin-guide/pm/cpufreq.rst, ABI/testing/sysfs-class-devfreq,
hwmon/sysfs-interface.rst. The tree of a Jetson with JetPack 4 has the fan elsewhere.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from edgeperf.agent.board.cpufreq import policy_cores, policy_folders
from edgeperf.agent.board.kernel_files import format_core_list, numbered, read_int, read_text
from edgeperf.agent.tuner.wire import Wish

_PWM_FULL = "255"
_PWM_MANUAL = "1"


class Knob(NamedTuple):
    """One file to write: which knob it belongs to, where that is, and the value."""

    knob: str
    where: str
    path: Path
    value: str


class Missing(NamedTuple):
    """A knob, or a value of it, that this board does not have."""

    text: str


def choose(root: Path, wish: Wish) -> tuple[list[Knob], list[str]]:
    """Return the files that *wish* comes down to, in order, and what is missing."""
    found: list[Knob | Missing] = []
    if wish.governor is not None:
        found += _governors(root, wish.governor)
    if wish.clock_hz is not None:
        found += _clocks(root, None if wish.clock_hz == "max" else wish.clock_hz // 1000)
        if wish.clock_hz == "max":
            found += _devices(root)
    if wish.fan is not None:
        found += list(_fans(root)) or [Missing("fan: none here that can be set")]
    knobs = [one for one in found if isinstance(one, Knob)]
    return knobs, [one.text for one in found if isinstance(one, Missing)]


def _governors(root: Path, name: str) -> Iterator[Knob | Missing]:
    folders = policy_folders(root)
    if not folders:
        yield Missing("governor: the kernel controls no frequency here")
    for core, folder in folders:
        where = _cores(core, folder)
        offered = (read_text(folder / "scaling_available_governors") or "").split()
        if name in offered:
            yield Knob("governor", where, folder / "scaling_governor", name)
        else:
            there = ", ".join(offered) or "none"
            yield Missing(f"governor: {where} have no {name}, only {there}")


def _clocks(root: Path, khz: int | None) -> Iterator[Knob | Missing]:
    folders = policy_folders(root)
    if not folders:
        yield Missing("clock: the kernel controls no frequency here")
    for core, folder in folders:
        yield from _clock(_cores(core, folder), folder, khz)


def _clock(where: str, folder: Path, khz: int | None) -> Iterator[Knob | Missing]:
    names = ("cpuinfo_min_freq", "cpuinfo_max_freq", "scaling_max_freq")
    limits = [read_int(folder / name) for name in names]
    lowest, highest, upper = limits
    if lowest is None or highest is None or upper is None:
        yield Missing(f"clock: {where} tell no limits")
        return
    if khz is None:
        # Not the hardware's: a Jetson's power mode sets this one, and that is the owner's.
        yield Knob("clock", where, folder / "scaling_min_freq", str(upper))
        return
    if not lowest <= khz <= highest:
        span = f"{lowest / 1e6:g} to {highest / 1e6:g} GHz"
        yield Missing(f"clock: {where} run at {span}, not at {khz / 1e6:g}")
        return
    steps = (read_text(folder / "scaling_available_frequencies") or "").split()
    at = max((int(s) for s in steps if s.isdecimal() and int(s) <= khz), default=khz)
    order = ("scaling_max_freq", "scaling_min_freq")
    for name in order if at >= upper else reversed(order):
        yield Knob("clock", where, folder / name, str(at))


def _devices(root: Path) -> Iterator[Knob]:
    """GPU, memory controller, NPU: whatever has a lower limit to raise."""
    for folder in sorted((root / "sys/class/devfreq").glob("*")):
        upper = read_int(folder / "max_freq")
        if upper and (folder / "min_freq").exists():
            yield Knob("clock", folder.name, folder / "min_freq", str(upper))


def _fans(root: Path) -> Iterator[Knob]:
    for _, folder in numbered(root / "sys/class/hwmon", "hwmon"):
        chip = read_text(folder / "name") or folder.name
        for number, pwm in numbered(folder, "pwm"):
            if "fan" not in chip and not (folder / f"fan{number}_input").exists():
                continue  # a back light, perhaps
            where = f"{chip} pwm{number}"
            if (folder / f"pwm{number}_enable").exists():
                yield Knob("fan", where, folder / f"pwm{number}_enable", _PWM_MANUAL)
            yield Knob("fan", where, pwm, _PWM_FULL)
    jetpack4 = root / "sys/devices/pwm-fan/target_pwm"
    if jetpack4.exists():
        yield Knob("fan", "pwm-fan", jetpack4, _PWM_FULL)


def _cores(core: int, folder: Path) -> str:
    return f"cores {format_core_list(policy_cores(core, folder))}"
