"""Energy over exactly the performance test's window, with a marked rest before and after.

The meter is recorded by a process of its own on the housekeeping core; here is only what
the run does with it: start it early enough to fail before the clock starts, mark the
windows, look at it now and then, and lay its trace over the test.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from edgeperf.agent.events import Phase
from edgeperf.agent.result import Reason, Severity
from edgeperf.agent.run.jobs import Done
from edgeperf.agent.run.plan import Plan
from edgeperf.agent.spec import Preset
from edgeperf.power.base import MeterError, MeterInputError
from edgeperf.power.measure import measure
from edgeperf.power.recorder import Recorder, Recording
from edgeperf.power.result import PowerResult
from edgeperf.power.trace import PowerTrace

#: How long the board rests before and after the test, so that idle power is known.
IDLE_S = {Preset.VALID: 30.0, Preset.FAST: 5.0, Preset.SMOKE: 2.0}
_LOOK_S = 0.25

Progressed = Callable[[Phase, float], None]
Noticed = Callable[[str], None]


class Metering:
    """A meter that records while a run goes on.

    Args:
        plan: The run.
        recorder: The meter.
        noticed: Told what goes wrong with it, once each.
    """

    def __init__(self, plan: Plan, recorder: Recorder, noticed: Noticed) -> None:
        self._idle_s = IDLE_S[plan.spec.preset]
        self._recorder = recorder
        self._noticed = noticed
        self._told: set[str] = set()
        self._rests: list[tuple[int, int]] = []

    def look(self) -> None:
        """Notice what is wrong with the meter now."""
        live = self._recorder.poll()
        if live.problem and live.state not in self._told:
            self._told.add(live.state)
            self._noticed(f"meter: {live.problem}")

    def rest(self, phase: Phase, progressed: Progressed) -> None:
        """Let the board rest, so that its idle power is in the trace."""
        begin_ns = time.monotonic_ns()
        self._recorder.mark("idle_begin", begin_ns)
        while (passed_s := (time.monotonic_ns() - begin_ns) / 1e9) < self._idle_s:
            progressed(phase, 100 * passed_s / self._idle_s)
            self.look()
            time.sleep(_LOOK_S)
        end_ns = time.monotonic_ns()
        self._recorder.mark("idle_end", end_ns)
        self._rests.append((begin_ns, end_ns))

    def energy(self, done: Done) -> tuple[PowerResult | None, list[Reason]]:
        """Stop the meter; return the energy of the test and what speaks against it."""
        self._recorder.mark("power_begin", done.window_start_mono_ns)
        self._recorder.mark("power_end", done.window_end_mono_ns)
        try:
            recording: Recording = self._recorder.stop()
            result = measure(
                PowerTrace.load(recording.trace),
                done.window_start_mono_ns,
                done.window_end_mono_ns,
                samples=done.samples,
                queries=done.queries,
                idle=self._rests,
            )
        except (MeterError, MeterInputError) as error:
            return None, [_suspect(str(error))]
        reasons = [_suspect(f"meter: {problem}") for problem in result.problems]
        if result.is_simulated:
            text = "meter: a program plays it (pseudo-terminal): these joules are not measured"
            reasons.append(Reason(code="simulated-meter", severity=Severity.NOTE, text=text))
        return result, reasons

    def keep_trace(self) -> list[Reason]:
        """Stop the meter after a test that did not end; its trace stays with the result."""
        try:
            self._recorder.stop()
        except MeterError as error:
            return [_suspect(str(error))]
        return []


def _suspect(text: str) -> Reason:
    return Reason(code="meter", severity=Severity.SUSPECT, text=text)


@contextmanager
def metered(plan: Plan, directory: Path, noticed: Noticed) -> Iterator[Metering | None]:
    """Record the run's meter; yields None where the spec names none.

    Raises:
        MeterInputError: The spec, or what it names, cannot be used.
        MeterError: The meter does not answer.
    """
    if plan.spec.meter is None:
        yield None
        return
    core = plan.layout.housekeeping[0]
    with Recorder.start(plan.spec.meter, directory, core) as recorder:
        yield Metering(plan, recorder, noticed)
