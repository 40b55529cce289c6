"""Which conditions make a measurement doubtful, and from where on.

``invalid`` means that the times themselves are wrong, ``suspect`` that they are right but
not this board's best. Each limit says where it comes from. Pressure (PSI) is kept as
context and judged by nobody: it is the whole board's, not the core's.
"""

from collections.abc import Iterator, Sequence

import msgspec

from edgeperf.agent.board.window import WindowConditions
from edgeperf.agent.result import Reason, Severity

#: NTP slews both clocks alike, so they part only when the wall clock is set. Reading
#: them one after the other costs microseconds; a thousandth of a second is a step.
CLOCK_STEP_LIMIT_NS = 1_000_000

#: The kernel lets NTP correct a crystal by at most 500 ppm; faster than twice that is
#: chrony catching up (it may go to 8 %), and every latency is wrong by as much.
CLOCK_RATE_LIMIT_PPM = 1000.0

#: A percentile moves when a core works for others for about 1 % of the time: p99 is made
#: of exactly that hundredth. Twice that allows for ticks and the kernel's own interrupts.
FOREIGN_SHARE_LIMIT = 0.02

#: Time stolen by a hypervisor is lost whole, so one hundredth is p99 again.
STEAL_SHARE_LIMIT = 0.01

#: A thread ready to run that waits for its core more than 1 % of the time goes with bad
#: runs (found in a campaign of repeated runs on one machine).
WAIT_SHARE_LIMIT = 0.01

#: Shares from ticks of 10 ms mean little in a short window: so much CPU time must be
#: lost before a share is believed.
LEAST_LOST_NS = 50_000_000


def doubts(window: WindowConditions) -> tuple[Reason, ...]:
    """Return the reasons to doubt what was measured in *window*; the gravest first."""
    found = (*_clock(window), *_power_and_heat(window), *_load(window), *_memory(window))
    return tuple(sorted(found, key=lambda doubt: doubt.severity is not Severity.INVALID))


def doubts_together(windows: Sequence[WindowConditions]) -> tuple[Reason, ...]:
    """Return the reasons to doubt several short windows, each kind once.

    Ticks say little of a tenth of a second, so shares count over all windows together.
    """
    if not windows:
        return ()
    whole = msgspec.structs.replace(
        windows[0],
        duration_ns=sum(window.duration_ns for window in windows),
        foreign_share=_mean(windows, "foreign_share") or 0.0,
        steal_share=_mean(windows, "steal_share") or 0.0,
        wait_share=_mean(windows, "wait_share"),
        quota_stall_share=_mean(windows, "quota_stall_share"),
    )
    each = [doubt for window in (whole, *windows) for doubt in doubts(window)]
    return tuple({doubt.code: doubt for doubt in reversed(each)}.values())[::-1]


def _mean(windows: Sequence[WindowConditions], name: str) -> float | None:
    """Return a share over all windows that tell it, weighted by their length."""
    told = [window for window in windows if getattr(window, name) is not None]
    length_ns = sum(window.duration_ns for window in told)
    if not length_ns:
        return None
    return float(sum(getattr(one, name) * one.duration_ns for one in told) / length_ns)


def _clock(window: WindowConditions) -> Iterator[Reason]:
    step_ns = window.clock_step_ns
    if abs(step_ns) > CLOCK_STEP_LIMIT_NS:
        way = "forward" if step_ns > 0 else "back"
        yield Reason(
            code="clock-step",
            severity=Severity.INVALID,
            text=f"the clock was set {way} by {abs(step_ns) / 1e6:.1f} ms while it timed the run",
        )
    gained_ns = abs(window.clock_rate_ppm) * window.duration_ns / 1e6
    # In a short window the microseconds between two reads look like a rate.
    if abs(window.clock_rate_ppm) > CLOCK_RATE_LIMIT_PPM and gained_ns > CLOCK_STEP_LIMIT_NS:
        text = f"the clock ran {window.clock_rate_ppm / 1e4:+.2f} % off: time was being corrected"
        yield _suspect("clock-rate", text)


def _power_and_heat(window: WindowConditions) -> Iterator[Reason]:
    why = ", ".join(window.throttle_reasons)
    if window.under_voltage:
        text = f"the supply was too weak ({why}): use a stronger one or a shorter cable"
        yield _suspect("under-voltage", text)
    if window.over_temperature:
        text = f"a temperature limit was reached ({why}): cool the board"
        yield _suspect("over-temperature", text)
    if window.throttled and not (window.under_voltage or window.over_temperature):
        yield _suspect("throttled", f"the board held back: {why}")


def _load(window: WindowConditions) -> Iterator[Reason]:
    cores = max(1, len(window.cores))
    if _much(window.foreign_share, FOREIGN_SHARE_LIMIT, window.duration_ns * cores):
        text = f"other work took {window.foreign_share:.1%} of the measured cores"
        yield _suspect("foreign-load", text)
    if _much(window.steal_share, STEAL_SHARE_LIMIT, window.duration_ns):
        text = f"the hypervisor took {window.steal_share:.1%} of a measured core"
        yield _suspect("steal", text)
    if _much(window.wait_share, WAIT_SHARE_LIMIT, window.duration_ns):
        text = f"a worker was ready but without its core for {window.wait_share:.1%} of the time"
        yield _suspect("run-queue-wait", text)
    if _much(window.quota_stall_share, 0.0, window.duration_ns):
        text = f"the CPU quota stopped the run for {window.quota_stall_share:.1%} of the time"
        yield _suspect("cpu-quota", text)


def _memory(window: WindowConditions) -> Iterator[Reason]:
    if window.swap_in_bytes:
        text = f"{window.swap_in_bytes / 1e6:.1f} MB were read back from swap during the run"
        yield _suspect("swap", text)


def _suspect(code: str, text: str) -> Reason:
    return Reason(code=code, severity=Severity.SUSPECT, text=text)


def _much(share: float | None, limit: float, duration_ns: int) -> bool:
    return share is not None and share > limit and share * duration_ns > LEAST_LOST_NS
