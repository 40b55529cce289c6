"""What happened to the board while the clock ran: one record for a whole window.

Built from snapshots at its start, at its end and about once a second between them. The
shares are of wall time: a foreign share of 0.02 on a core means that for 2 % of the
window the core worked for somebody else. /proc/stat counts in ticks of 10 ms, so in a
window of a second these shares are coarse; in one of a minute they are good to 0.1 %.
"""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from edgeperf.agent.board.clocks import rate_error_ppm, step_between_ns
from edgeperf.agent.board.conditions import CoreTimes, Pressure, Snapshot
from edgeperf.agent.board.throttle import (
    COOLING,
    OVER_TEMPERATURE,
    SOFT_TEMPERATURE_LIMIT,
    UNDER_VOLTAGE,
)

#: Jetson counts under-voltage as event 1 of its over-current monitor.
#: Source: Jetson Linux developer guide, "Over-Current Event Monitoring".
_UNDER_VOLTAGE_COUNTERS = ("oc1_event_cnt",)


class CoreWindow(msgspec.Struct, frozen=True, kw_only=True):
    """One measured core during a window; shares of wall time.

    Attributes:
        core: Number of the core.
        busy_share: It worked, for whomever.
        own_share: It worked for our processes.
        foreign_share: It worked for somebody else, the kernel's interrupts included.
        steal_share: A hypervisor gave it to somebody else.
        frequency_min_hz: Lowest frequency seen; None without cpufreq.
        frequency_max_hz: Highest frequency seen.
    """

    core: int
    busy_share: float
    own_share: float
    foreign_share: float
    steal_share: float
    frequency_min_hz: int | None
    frequency_max_hz: int | None


class PressureShare(msgspec.Struct, frozen=True, kw_only=True):
    """Share of a window in which some, or all, tasks waited for a resource."""

    some: float
    full: float | None


class WindowConditions(msgspec.Struct, frozen=True, kw_only=True):
    """The board during a window.

    Attributes:
        duration_ns: Length of the window on the monotonic clock.
        readings: Snapshots behind this record, first and last included.
        cores: The measured cores.
        foreign_share: Foreign share over all measured cores together. Sound also where
            our threads moved between those cores, which single shares are not.
        steal_share: Largest steal share of a measured core.
        pressure: Stalls by resource, of the whole board.
        temperatures_max_c: Highest temperature seen, by zone or sensor.
        throttled: Whether anything held the board back.
        throttle_reasons: What did, sorted.
        under_voltage: Whether the supply was too weak.
        over_temperature: Whether a temperature limit was reached.
        clock_step_ns: Largest step of the wall clock between two readings, with its sign.
        clock_rate_ppm: How much faster than the raw hardware clock the clocks ran.
        memory_available_min_bytes: Least memory that was left.
        swap_in_bytes: Read back from swap.
        swap_out_bytes: Written to swap.
        quota_stall_share: Share of the window in which the CPU quota stopped us.
        wait_share: Share of the window for which the unluckiest of our threads was ready
            but had no core; None where nobody counted.
        involuntary_switches: Times a core was taken from our threads; None as above.
    """

    duration_ns: int
    readings: int
    cores: tuple[CoreWindow, ...]
    foreign_share: float
    steal_share: float
    pressure: dict[str, PressureShare]
    temperatures_max_c: dict[str, float]
    throttled: bool
    throttle_reasons: tuple[str, ...]
    under_voltage: bool
    over_temperature: bool
    clock_step_ns: int
    clock_rate_ppm: float
    memory_available_min_bytes: int | None
    swap_in_bytes: int | None
    swap_out_bytes: int | None
    quota_stall_share: float | None
    wait_share: float | None = None
    involuntary_switches: int | None = None


class Extremes:
    """Folds snapshots into what :func:`compare` needs, so that they need not be kept."""

    def __init__(self, first: Snapshot) -> None:
        self.first = self.last = first
        self.readings = 0
        self.step_ns = 0
        self.temperatures_max_c: dict[str, float] = {}
        self.frequency_hz: dict[int, tuple[int, int]] = {}
        self.memory_min_bytes = first.memory_available_bytes
        self.reasons: set[str] = set()
        self.add(first)

    def add(self, snapshot: Snapshot) -> None:
        """Take the next snapshot in."""
        step_ns = step_between_ns(self.last.clocks, snapshot.clocks)
        self.step_ns = max(self.step_ns, step_ns, key=abs)
        for name, value in snapshot.temperatures_c.items():
            self.temperatures_max_c[name] = max(value, self.temperatures_max_c.get(name, value))
        for core, hz in snapshot.frequencies_hz.items():
            low, high = self.frequency_hz.get(core, (hz, hz))
            self.frequency_hz[core] = (min(low, hz), max(high, hz))
        if snapshot.memory_available_bytes is not None:
            known = self.memory_min_bytes or snapshot.memory_available_bytes
            self.memory_min_bytes = min(known, snapshot.memory_available_bytes)
        self.reasons.update(snapshot.throttle.active)
        self.reasons.update(set(snapshot.throttle.happened) - set(self.last.throttle.happened))
        for name, count in snapshot.throttle.counters.items():
            if count > self.last.throttle.counters.get(name, count):
                self.reasons.add(name)
        self.last = snapshot
        self.readings += 1


def compare(
    before: Snapshot,
    after: Snapshot,
    *,
    own_cpu_ns: Mapping[int, int],
    cores: Collection[int],
    between: Iterable[Snapshot] = (),
) -> WindowConditions:
    """Return what happened between two snapshots.

    Args:
        before: Start of the window.
        after: End of the window.
        own_cpu_ns: CPU time in nanoseconds that our processes had in the window, by core.
        cores: The measured cores.
        between: Snapshots taken meanwhile, in order: what only they saw counts as well.
    """
    extremes = Extremes(before)
    for snapshot in (*between, after):
        extremes.add(snapshot)
    return conclude(extremes, own_cpu_ns=own_cpu_ns, cores=cores)


def conclude(
    extremes: Extremes, *, own_cpu_ns: Mapping[int, int], cores: Collection[int]
) -> WindowConditions:
    """Return what happened between the first snapshot taken in and the last."""
    first, last = extremes.first, extremes.last
    wall_ns = max(1, last.clocks.mono_ns - first.clocks.mono_ns)
    spans = _spans(first, last, cores)
    busy_ns = sum(span.busy_ns for span in spans)
    own_ns = sum(own_cpu_ns.get(span.core, 0) for span in spans)
    windows = tuple(_core_window(span, own_cpu_ns, wall_ns, extremes) for span in spans)
    reasons = extremes.reasons
    stall_ns = _delta(first.quota_stall_ns, last.quota_stall_ns)
    return WindowConditions(
        duration_ns=wall_ns,
        readings=extremes.readings,
        cores=windows,
        foreign_share=max(0, busy_ns - own_ns) / (wall_ns * max(1, len(spans))),
        steal_share=max((window.steal_share for window in windows), default=0.0),
        pressure=_pressure(first.pressure, last.pressure, wall_ns),
        temperatures_max_c=dict(extremes.temperatures_max_c),
        throttled=bool(reasons),
        throttle_reasons=tuple(sorted(reasons)),
        under_voltage=any(r in (UNDER_VOLTAGE, *_UNDER_VOLTAGE_COUNTERS) for r in reasons),
        over_temperature=any(_is_heat(reason) for reason in reasons),
        clock_step_ns=extremes.step_ns,
        clock_rate_ppm=rate_error_ppm(first.clocks, last.clocks),
        memory_available_min_bytes=extremes.memory_min_bytes,
        swap_in_bytes=_delta(first.swap_in_bytes, last.swap_in_bytes),
        swap_out_bytes=_delta(first.swap_out_bytes, last.swap_out_bytes),
        quota_stall_share=None if stall_ns is None else stall_ns / wall_ns,
    )


def _spans(first: Snapshot, last: Snapshot, cores: Collection[int]) -> list[CoreTimes]:
    earlier = {times.core: times for times in first.cores}
    return [
        CoreTimes(
            core=times.core,
            busy_ns=max(0, times.busy_ns - earlier[times.core].busy_ns),
            idle_ns=max(0, times.idle_ns - earlier[times.core].idle_ns),
            steal_ns=max(0, times.steal_ns - earlier[times.core].steal_ns),
        )
        for times in last.cores
        if times.core in earlier and times.core in cores
    ]


def _core_window(
    span: CoreTimes, own_cpu_ns: Mapping[int, int], wall_ns: int, extremes: Extremes
) -> CoreWindow:
    own_ns = own_cpu_ns.get(span.core, 0)
    frequency_hz = extremes.frequency_hz.get(span.core)
    return CoreWindow(
        core=span.core,
        busy_share=span.busy_ns / wall_ns,
        own_share=own_ns / wall_ns,
        foreign_share=max(0, span.busy_ns - own_ns) / wall_ns,
        steal_share=span.steal_ns / wall_ns,
        frequency_min_hz=frequency_hz[0] if frequency_hz else None,
        frequency_max_hz=frequency_hz[1] if frequency_hz else None,
    )


def _pressure(
    first: Mapping[str, Pressure], last: Mapping[str, Pressure], wall_ns: int
) -> dict[str, PressureShare]:
    shares: dict[str, PressureShare] = {}
    for name, end in last.items():
        if (start := first.get(name)) is not None:
            full_ns = _delta(start.full_ns, end.full_ns)
            shares[name] = PressureShare(
                some=(end.some_ns - start.some_ns) / wall_ns,
                full=None if full_ns is None else full_ns / wall_ns,
            )
    return shares


def _delta(first: int | None, last: int | None) -> int | None:
    return None if first is None or last is None else last - first


def _is_heat(reason: str) -> bool:
    heat = (OVER_TEMPERATURE, SOFT_TEMPERATURE_LIMIT)
    return reason in heat or reason.startswith(COOLING) or reason.endswith("_throttle_count")
