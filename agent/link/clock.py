"""Time on a board that may have no clock battery.

Durations are monotonic. The wall clock labels events, and is believed for a deadline
only when the kernel calls it synchronised; better is the coordinator's own time,
which comes with every signed acknowledgement and is carried on by the monotonic clock.
"""

import ctypes
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

from edgeperf.agent.messages import Clock

#: ``struct timex`` has 208 bytes on 64-bit Linux; ``modes`` nought only reads.
_TIMEX_BYTES = 512
_TIME_ERROR = 5


def utc_now() -> datetime:
    """Return the wall clock, UTC."""
    return datetime.now(timezone.utc)


def boot_id() -> str:
    """Return the kernel's id of this boot, "" where it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def kernel_synchronised() -> bool | None:
    """Tell whether the kernel calls the wall clock synchronised; None when it cannot tell.

    Source: adjtimex(2): TIME_ERROR means that the clock is not synchronised.
    """
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR


class BoardClock:
    """The clocks of this process."""

    def __init__(self) -> None:
        self._boot = boot_id()
        self._epoch: datetime | None = None

    def stamp(self) -> Clock:
        """Return the clocks as an event carries them."""
        return Clock(mono_ns=time.monotonic_ns(), boot=self._boot, synced=kernel_synchronised())

    def learn(self, coordinator_time: datetime) -> None:
        """Take the time from a signed message.

        It is late by the way it came, and an old one may be played back: only what moves
        the estimate forward counts.
        """
        epoch = coordinator_time - timedelta(seconds=time.monotonic())
        if self._epoch is None or epoch > self._epoch:
            self._epoch = epoch

    def trusted_now(self) -> datetime | None:
        """Return the best known time, None when there is none to trust."""
        if self._epoch is not None:
            return self._epoch + timedelta(seconds=time.monotonic())
        return utc_now() if kernel_synchronised() else None
