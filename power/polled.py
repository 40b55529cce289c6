"""Base of meters that answer when asked: timing, one retry, faults instead of exceptions.

A driver implements :meth:`Polled.ask`, which makes one exchange and returns the reply if
it can be believed. Everything else (when to ask, what to do about a bad reply, how to
stamp) is the same for all of them and lives here.
"""

import time
from abc import ABC, abstractmethod

from edgeperf.power.base import Chunk, MeterReplyError

#: A slow meter must not keep the recorder from hearing "stop".
LONGEST_NAP_S = 0.5


class Polled(ABC):
    """Asks at a fixed period that does not drift.

    Attributes:
        period_s: Time between questions.
    """

    period_s: float = 0.1
    _due_s: float = 0.0

    @abstractmethod
    def ask(self) -> bytes:
        """Ask once and return the whole reply.

        Raises:
            MeterReplyError: No reply, or one that fails its checks.
            MeterLostError: The port is gone.
        """

    def flush(self) -> None:  # noqa: B027  # optional: not every link has buffers
        """Throw away what a bad exchange left on the line; called before the retry."""

    def read(self) -> list[Chunk]:
        """Wait until the next question is due (at most 0.5 s), ask it, return the reply."""
        wait_s = self._due_s - time.monotonic()
        if wait_s > 0:
            time.sleep(min(wait_s, LONGEST_NAP_S))
            if wait_s > LONGEST_NAP_S:
                return []
        now_s = time.monotonic()
        self._due_s = max(self._due_s + self.period_s, now_s)  # late: skip, do not catch up
        return [self._exchange()]

    def _exchange(self) -> Chunk:
        sent_ns = time.monotonic_ns()
        try:
            return Chunk(data=self.ask(), t_ns=time.monotonic_ns(), sent_ns=sent_ns)
        except MeterReplyError:
            self.flush()
        sent_ns = time.monotonic_ns()
        try:
            return Chunk(data=self.ask(), t_ns=time.monotonic_ns(), sent_ns=sent_ns)
        except MeterReplyError as error:
            self.flush()
            fault = str(error).removeprefix(f"meter on {error.port}: ").partition(" (saw")[0]
            return Chunk(t_ns=time.monotonic_ns(), data=b"", fault=fault)
