"""The watchdog of a test: the counter of answers must move, and whoever infers must end."""

import time
from collections.abc import Sequence

from edgeperf import EdgeperfError, InputError
from edgeperf.agent.run.jobs import Calibrated, Failure, Message
from edgeperf.agent.run.preparation import LOAD_S

#: However slow a model is, so many of its inferences without an answer are a hang.
_INFERENCES = 20
#: How long answers may be scored, when nothing is answered any more.
SCORE_S = 3600.0


class StartError(EdgeperfError):
    """A test could not start: a process died or gave up before the clock ran."""


def raise_failure(message: Message) -> None:
    """Raise what a child gave up for, if *message* says that it did.

    Raises:
        InputError: The user gave something that cannot be used.
        StartError: Something failed.
    """
    if isinstance(message, Failure):
        kind = InputError if message.exit_code == InputError.exit_code else StartError
        raise kind(message.text)


class HungError(Exception):
    """Nothing was answered for too long."""


class Watchdog:
    """Looks at the counters whenever the supervisor does.

    The counter of answers alone would not show one worker of several that hangs in Server:
    the others go on.

    Args:
        limit_s: Longest time without an answer.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._count = -1
        self._since = time.monotonic()
        self._busy: dict[int, tuple[int, float]] = {}

    def look(self, count: int, calibrated: Calibrated | None, served: Sequence[int] = ()) -> None:
        """Look at the counters.

        Args:
            count: Queries that are answered.
            calibrated: What calibration found; None before.
            served: Server queries that each worker began and ended: odd while it infers.

        Raises:
            StartError: Nothing was heard of calibration for too long.
            HungError: No answer for too long.
        """
        now = time.monotonic()
        if calibrated is None:
            if now - self._since > LOAD_S:
                raise StartError(f"calibration did not end in {LOAD_S:.0f} s")
            return
        limit_s = max(self._limit_s, _INFERENCES * calibrated.latency_ns / 1e9)
        if count != self._count:
            self._count, self._since = count, now
        elif now - self._since > limit_s:
            raise HungError(
                f"no answer for {now - self._since:.0f} s (after {count} queries): a worker"
                " hangs, and was killed"
            )
        for worker, number in enumerate(served):
            before, since = self._busy.get(worker, (-1, now))
            if number != before:
                self._busy[worker] = number, now
            elif number % 2 and now - since > limit_s:
                raise HungError(
                    f"worker {worker} has not answered its query for {now - since:.0f} s, while"
                    f" {count} were answered: it hangs, and was killed"
                )
