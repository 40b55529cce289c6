"""The condition of the board at one moment: clocks, load, pressure, heat, frequency, throttling.

:class:`Sensors` looks once for what this board has and then only reads, so that a reading
costs a millisecond and can be taken once a second while a run lasts. Nothing runs in the
background: whoever wants a reading takes it.
"""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from edgeperf.agent.board.cgroups import quota_stall_ns
from edgeperf.agent.board.clocks import Clocks, read_clocks
from edgeperf.agent.board.cpufreq import policy_cores, policy_folders
from edgeperf.agent.board.kernel_files import numbered, read_int, read_text
from edgeperf.agent.board.throttle import ThrottleSensors, ThrottleState

_NS_PER_TICK: int = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: int = os.sysconf("SC_PAGE_SIZE")

#: Field of /proc/stat's core lines -> position, as in proc(5). User time contains that
#: of guests; counting those again would count them twice.
_STAT_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


class CoreTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Where one core's time went since boot, nanoseconds in steps of a tick (10 ms).

    Attributes:
        core: Number of the core.
        busy_ns: Anything that ran, interrupts included.
        idle_ns: Nothing ran, waiting for a disk included.
        steal_ns: A hypervisor gave the core to somebody else.
    """

    core: int
    busy_ns: int
    idle_ns: int
    steal_ns: int


class Pressure(msgspec.Struct, frozen=True, kw_only=True):
    """Stalls for want of one resource since boot (PSI).

    Attributes:
        some_ns: At least one task waited.
        full_ns: All of them waited; None for a resource that cannot stall all.
    """

    some_ns: int
    full_ns: int | None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The board at one moment. What the board cannot tell is None or empty.

    Attributes:
        clocks: When it was taken.
        cores: Where each core's time went.
        pressure: Stalls by resource: ``cpu``, ``memory``, ``io``, ``irq``.
        temperatures_c: Temperature by the name of its zone or sensor.
        frequencies_hz: Frequency by core.
        throttle: What holds the board back.
        memory_available_bytes: What new processes could have without swapping.
        swap_in_bytes: Read back from swap since boot.
        swap_out_bytes: Written to swap since boot.
        quota_stall_ns: For how long the CPU quota has stopped our control group.
    """

    clocks: Clocks
    cores: tuple[CoreTimes, ...]
    pressure: dict[str, Pressure]
    temperatures_c: dict[str, float]
    frequencies_hz: dict[int, int]
    throttle: ThrottleState
    memory_available_bytes: int | None
    swap_in_bytes: int | None
    swap_out_bytes: int | None
    quota_stall_ns: int | None


class Sensors:
    """What this board can tell about itself.

    Args:
        root: Root of the file tree.
        clocks: Reads the clocks; a test gives its own.
    """

    def __init__(
        self, root: Path = Path("/"), *, clocks: Callable[[], Clocks] = read_clocks
    ) -> None:
        self._root = root
        self._clocks = clocks
        self._temperatures = _temperature_files(root)
        self._frequencies = [
            (policy_cores(core, path), str(path / "scaling_cur_freq"))
            for core, path in policy_folders(root)
        ]
        self._throttle = ThrottleSensors(root)

    @property
    def temperature_names(self) -> tuple[str, ...]:
        """Names of the thermal zones and sensors found."""
        return tuple(self._temperatures)

    @property
    def throttle_names(self) -> tuple[str, ...]:
        """Names of the throttle flags, counters and cooling devices found."""
        return self._throttle.names

    def snapshot(self) -> Snapshot:
        """Read everything once."""
        clocks = self._clocks()
        vmstat = _pairs(read_text(self._root / "proc/vmstat"))
        meminfo = _pairs(read_text(self._root / "proc/meminfo"))
        return Snapshot(
            clocks=clocks,
            cores=_core_times(read_text(self._root / "proc/stat")),
            pressure=_pressures(self._root),
            temperatures_c=self._read_temperatures(),
            frequencies_hz=self._read_frequencies(),
            throttle=self._throttle.read(),
            memory_available_bytes=_scaled(meminfo.get("MemAvailable:"), 1024),
            swap_in_bytes=_scaled(vmstat.get("pswpin"), _PAGE_BYTES),
            swap_out_bytes=_scaled(vmstat.get("pswpout"), _PAGE_BYTES),
            quota_stall_ns=quota_stall_ns(self._root),
        )

    def _read_temperatures(self) -> dict[str, float]:
        readings = ((name, read_int(path)) for name, path in self._temperatures.items())
        return {name: value / 1000 for name, value in readings if value is not None}

    def _read_frequencies(self) -> dict[int, int]:
        frequencies: dict[int, int] = {}
        for cores, path in self._frequencies:
            khz = read_int(path)
            if khz is not None:
                frequencies |= dict.fromkeys(cores, khz * 1000)
        return frequencies


def take_snapshot(root: Path = Path("/")) -> Snapshot:
    """Look for the board's sensors and read them once."""
    return Sensors(root).snapshot()


def _core_times(stat: str | None) -> tuple[CoreTimes, ...]:
    times: list[CoreTimes] = []
    for line in (stat or "").splitlines():
        words = line.split()
        if not words or not words[0].startswith("cpu") or not words[0][3:].isdecimal():
            continue
        ticks = dict(zip(_STAT_FIELDS, map(int, words[1:]), strict=False))
        idle = ticks.get("idle", 0) + ticks.get("iowait", 0)
        steal = ticks.get("steal", 0)
        times.append(
            CoreTimes(
                core=int(words[0][3:]),
                busy_ns=(sum(ticks.values()) - idle - steal) * _NS_PER_TICK,
                idle_ns=idle * _NS_PER_TICK,
                steal_ns=steal * _NS_PER_TICK,
            )
        )
    return tuple(times)


def _pressures(root: Path) -> dict[str, Pressure]:
    found: dict[str, Pressure] = {}
    for name in ("cpu", "memory", "io", "irq"):
        totals: dict[str, int] = {}
        for line in (read_text(root / "proc/pressure" / name) or "").splitlines():
            total_us = line.rpartition("total=")[2]
            if total_us.isdecimal():
                totals[line.partition(" ")[0]] = int(total_us) * 1000
        if totals:
            found[name] = Pressure(some_ns=totals.get("some", 0), full_ns=totals.get("full"))
    return found


def _temperature_files(root: Path) -> dict[str, str]:
    """Return the file of each thermal zone, and of hwmon's sensors that are none."""
    files: dict[str, str] = {}
    for number, path in numbered(root / "sys/class/thermal", "thermal_zone"):
        kind = read_text(path / "type") or "zone"
        files[f"{kind} {number}" if kind in files else kind] = str(path / "temp")
    # The kernel shows each zone a second time as a sensor of the same name, "-" as "_".
    zones = {name.replace("-", "_") for name in files}
    for number, path in numbered(root / "sys/class/hwmon", "hwmon"):
        chip = read_text(path / "name") or f"hwmon{number}"
        if chip.replace("-", "_") in zones:
            continue
        for file in sorted(path.glob("temp*_input")):
            label = read_text(path / file.name.replace("_input", "_label"))
            name = f"{chip} {label or file.name.removesuffix('_input')}"
            files[f"{name} {number}" if name in files else name] = str(file)
    return files


def _pairs(text: str | None) -> dict[str, str]:
    words = (line.split() for line in (text or "").splitlines())
    return {pair[0]: pair[1] for pair in words if len(pair) > 1}


def _scaled(word: str | None, unit_bytes: int) -> int | None:
    return int(word) * unit_bytes if word and word.isdecimal() else None
