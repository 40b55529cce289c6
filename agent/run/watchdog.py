"""The watchdog of a test: the counter of answers must move."""

import time

from edgeperf import EdgeperfError
from edgeperf.agent.run.jobs import Calibrated
from edgeperf.agent.run.preparation import LOAD_S

#: However slow a model is, so many of its inferences without an answer are a hang.
_INFERENCES = 20


class StartError(EdgeperfError):
    """A test could not start: a process died or gave up before the clock ran."""


class HungError(Exception):
    """Nothing was answered for too long."""


class Watchdog:
    """Looks at the counter whenever the supervisor does.

    Args:
        limit_s: Longest time without an answer.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._count = -1
        self._since = time.monotonic()

    def look(self, count: int, calibrated: Calibrated | None) -> None:
        """Look at the counter.

        Raises:
            StartError: Nothing was heard of calibration for too long.
            HungError: No answer for too long.
        """
        now = time.monotonic()
        if calibrated is None:
            if now - self._since > LOAD_S:
                raise StartError(f"calibration did not end in {LOAD_S:.0f} s")
            return
        if count != self._count:
            self._count, self._since = count, now
        elif now - self._since > max(self._limit_s, _INFERENCES * calibrated.latency_ns / 1e9):
            raise HungError(
                f"no answer for {now - self._since:.0f} s (after {count} queries): a worker"
                " hangs, and was killed"
            )
