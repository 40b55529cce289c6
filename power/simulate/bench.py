"""What a simulated meter is connected to, and what can go wrong with it.

A :class:`Bench` is the load under the meter; a :class:`Fault` is a stretch of time in which
something breaks. ``stall``, ``drop``, ``crc`` and ``unplug`` act on the bytes and are done by
the server; ``freeze`` and ``over`` act on the value and are done here.
"""

import enum
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from edgeperf.power.base import MeterInputError
from edgeperf.power.simulate.waveform import Floats, Waveform


class FaultKind(str, enum.Enum):
    """What breaks."""

    DROP = "drop"  # one byte of a message is lost
    CRC = "crc"  # one bit of a message flips
    STALL = "stall"  # the meter takes and sends nothing
    FREEZE = "freeze"  # the meter repeats its last value
    OVER = "over"  # the meter says that it is over range, if it can
    UNPLUG = "unplug"  # the port vanishes, and comes back afterwards


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that breaks for a while.

    Attributes:
        kind: What breaks.
        start_s: Since the simulator was started.
        length_s: How long.
        share: Share of the messages that a ``drop`` or ``crc`` hits.
    """

    kind: FaultKind
    start_s: float
    length_s: float
    share: float = 1.0

    def active(self, since_start_s: float) -> bool:
        """Say whether it acts at that moment."""
        return self.start_s <= since_start_s < self.start_s + self.length_s


def parse_fault(text: str) -> Fault:
    """Make a fault of ``KIND@START+LENGTH`` or ``KIND@START+LENGTH:SHARE``, in seconds.

    Raises:
        MeterInputError: It is not that.
    """
    head, _, share = text.partition(":")
    name, _, when = head.partition("@")
    start, _, length = when.partition("+")
    try:
        return Fault(FaultKind(name), float(start), float(length), float(share or 1))
    except ValueError:
        kinds = ", ".join(kind.value for kind in FaultKind)
        raise MeterInputError(
            f"fault {text!r}: expected KIND@START_S+LENGTH_S[:SHARE], KIND one of {kinds}"
        ) from None


class Bench:
    """The load that a simulated meter sees.

    Args:
        waveform: Its power.
        voltage_v: Its supply voltage, constant.
        noise: Standard deviation of the meter's own noise, relative to the value. Real
            meters have some; a meter without any looks frozen on a constant load.
        faults: What goes wrong, and when.
        start_s: CLOCK_MONOTONIC at which the faults' own time begins.
        seed: Of the noise.
    """

    def __init__(
        self,
        waveform: Waveform,
        *,
        voltage_v: float = 5.0,
        noise: float = 2e-4,
        faults: Sequence[Fault] = (),
        start_s: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.waveform = waveform
        self.voltage_v = voltage_v
        self.faults = tuple(faults)
        self.start_s = start_s
        self.random = random.Random(seed)  # noqa: S311  # noise, not secrets
        self._noise = noise
        self._generator = np.random.default_rng(seed)

    def fault(self, kind: FaultKind, t_s: float) -> Fault | None:
        """Return the fault of *kind* that acts at *t_s*, if any."""
        for fault in self.faults:
            if fault.kind is kind and fault.active(t_s - self.start_s):
                return fault
        return None

    def damage(self, message: bytes, t_s: float) -> bytes:
        """Return what is left of a message after the faults that act on bytes."""
        if (drop := self.fault(FaultKind.DROP, t_s)) and self.random.random() < drop.share:
            at = self.random.randrange(len(message))
            message = message[:at] + message[at + 1 :]
        flip = self.fault(FaultKind.CRC, t_s)
        if flip and message and self.random.random() < flip.share:
            at = self.random.randrange(len(message))
            message = message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]
        return message

    def power_w(self, t_s: Any) -> Floats:
        """Return what the meter sees at *t_s* (a number or an array), noise included."""
        watts = self.waveform.power_w(t_s)
        newest_s = float(np.max(t_s)) if np.size(t_s) else 0.0
        if frozen := self.fault(FaultKind.FREEZE, newest_s):
            at_s = self.start_s + frozen.start_s
            return np.full_like(watts, float(self.waveform.power_w(at_s)))
        return np.asarray(watts * (1 + self._noise * self._generator.standard_normal(watts.shape)))

    def jitter(self, t_s: float, shape: tuple[int, ...]) -> Floats:
        """Return noise of one digit, as a converter has it; none while it is frozen."""
        if self.fault(FaultKind.FREEZE, t_s):
            return np.zeros(shape)
        return self._generator.standard_normal(shape)

    def current_a(self, t_s: Any) -> Floats:
        """Return the current at *t_s*."""
        return self.power_w(t_s) / self.voltage_v

    def over(self, t_s: float) -> bool:
        """Say whether the meter shall report over-range at *t_s*."""
        return self.fault(FaultKind.OVER, t_s) is not None


class Device(Protocol):
    """The inside of a simulated meter; it does no input or output of its own.

    Attributes:
        tick_s: How often :meth:`stream` wants to be called; 0 for a meter that only
            answers.
        queue_bytes: Bytes that the device can hold while the host does not read.
    """

    tick_s: float
    queue_bytes: int

    def answer(self, data: bytes, now_s: float) -> bytes:
        """Take bytes from the host and return what the meter sends back at once."""
        ...

    def stream(self, now_s: float) -> list[bytes]:
        """Return the messages that the meter sends unasked, up to now, one by one."""
        ...


MakeDevice = Callable[..., Device]
