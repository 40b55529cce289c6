"""What every meter can do, and what its readings mean.

A meter is read in two steps. The **source** owns the port: it asks or listens, stamps what
came with CLOCK_MONOTONIC and hands the bytes on unread. The **decoder** turns bytes into
samples and needs no port. So the recorder only appends bytes to a file while a model is
being timed, every number can be derived again from the raw bytes, and every parser is a
pure function that a test can feed.

Nothing here may import numpy: the light agent service reads this module. The trap is
:meth:`Source.read`: it raises nothing but :class:`MeterLostError`. A bad reply or a timeout
is a chunk with a ``fault``, because a run must survive it.
"""

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import msgspec

from edgeperf import EdgeperfError, InputError

if TYPE_CHECKING:  # numpy stays out at run time
    from edgeperf.power.samples import Samples


class MeterInputError(InputError):
    """What the user said about a meter cannot be used: kind, port, option, voltage."""


class MeterError(EdgeperfError):
    """A meter or its port failed.

    Attributes:
        port: Where the meter is attached, as the meter spec names it.
    """

    def __init__(self, port: str, problem: str) -> None:
        super().__init__(f"meter on {port}: {problem}")
        self.port = port


class MeterLostError(MeterError):
    """The meter was unplugged, or its connection closed; it may come back."""


class MeterReplyError(MeterError):
    """The meter answered nothing, or nothing that this driver can believe."""


class State(enum.IntEnum):
    """What may be done with a sample; only ``OK`` covers the time beside it."""

    OK = 0
    STALE = 1  # the meter repeats itself
    GAP = 2  # samples are missing before this moment, or time began anew
    LOST = 3  # the meter was gone
    INVALID = 4  # the meter itself said so: over range, no data


class Quantity(str, enum.Enum):
    """What a meter really measures."""

    POWER = "power"  # the meter multiplies, in step
    VOLTAGE_CURRENT = "voltage and current"  # we multiply
    CURRENT = "current only"  # the voltage is assumed
    ENERGY = "energy counter"
    CONTRACT = "contract"  # a negotiated value, no measurement


class Boundary(str, enum.Enum):
    """Where a meter sits, that is, what its joules include."""

    WALL = "wall"
    DC_INPUT = "dc-input"
    RAIL = "rail"
    PACKAGE = "package"
    PARTIAL = "partial"


class Method(str, enum.Enum):
    """How samples become energy."""

    TRAPEZOID = "trapezoid"  # power is linear between samples
    HOLD = "hold"  # the meter latches: a value counts until the next one
    MEAN = "mean"  # a value is the mean since the one before
    COUNTER = "counter"  # difference of the meter's own energy counter


class SourceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a meter's numbers are worth.

    Gains and offsets are limits as a data sheet prints them (taken as the half width of a
    rectangular distribution), resolutions are one step of the last digit.

    Attributes:
        kind: Name in :data:`edgeperf.power.METERS`.
        measures: What it measures.
        boundary: Where it sits.
        method: How its samples become energy.
        rate_hz: New values per second, not polls per second.
        bandwidth_hz: Faster changes are averaged away; None is unknown. A peak means
            nothing without it.
        gain: Relative limit of the power, 0.01 is 1 %.
        offset_w, offset_v, offset_a: Limit of a constant error of power, voltage, current.
        resolution_w, resolution_v, resolution_a, resolution_j: One step of power, voltage,
            current, energy counter.
        edge_s: How well the moment of a sample is known, standard deviation.
        voltage_v, voltage_gain: Assumed voltage of a current-only meter, and its relative
            limit.
        counter_wrap_j: Where the energy counter starts again at 0; None never.
        max_power_w: More than this is a fault of the meter, not a load.
        max_interval_s: Samples further apart leave a gap; 0 is 2.5 periods.
        tick_tolerance: How wrong the meter's own clock (``Reading.tick_ns``) may run.
        stale_after_s: Identical readings for longer mean a stuck meter; None for digits so
            coarse that a quiet load shows the same.
        silent_after_s: No reading for longer is flagged; 0 is 1.25 s or 1.75 periods.
        notes: Known biases, one sentence each, printed with the result.
    """

    kind: str
    measures: Quantity
    boundary: Boundary
    method: Method
    rate_hz: float
    bandwidth_hz: float | None
    gain: float
    offset_w: float = 0.0
    offset_v: float = 0.0
    offset_a: float = 0.0
    resolution_w: float = 0.0
    resolution_v: float = 0.0
    resolution_a: float = 0.0
    resolution_j: float = 0.0
    edge_s: float = 0.001
    voltage_v: float | None = None
    voltage_gain: float = 0.0
    counter_wrap_j: float | None = None
    max_power_w: float = 5000.0
    max_interval_s: float = 0.0
    tick_tolerance: float = 0.02
    stale_after_s: float | None = None
    silent_after_s: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def longest_interval_s(self) -> float:
        """Samples further apart than this leave a gap."""
        return self.max_interval_s or 2.5 / self.rate_hz

    @property
    def longest_silence_s(self) -> float:
        """No reading for longer than this is a fault worth telling at once."""
        return self.silent_after_s or max(1.25, 1.75 / self.rate_hz)


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Which instrument answered.

    Attributes:
        model: Maker's name of the instrument, as it says itself where it does.
        serial, firmware: Its serial number and firmware, empty where it does not say.
        details: Anything else it said.
    """

    model: str
    serial: str = ""
    firmware: str = ""
    details: Mapping[str, str] = msgspec.field(default_factory=dict)


class Chunk(NamedTuple):
    """What one read of a port gave.

    Attributes:
        t_ns: CLOCK_MONOTONIC when the last byte had been read.
        data: The bytes; empty when ``fault`` is set.
        sent_ns: CLOCK_MONOTONIC when the question was sent; 0 for a stream.
        fault: Why there are no usable bytes, as one short phrase; empty if there are.
    """

    t_ns: int
    data: bytes
    sent_ns: int = 0
    fault: str = ""

    @property
    def middle_ns(self) -> int:
        """Best guess of when the meter took the value: half a round trip ago."""
        return (self.sent_ns + self.t_ns) // 2 if self.sent_ns else self.t_ns


NAN = float("nan")


class Reading(NamedTuple):
    """One sample of a slow meter, in SI units; NaN is "the meter does not say".

    Attributes:
        t_ns: CLOCK_MONOTONIC, usually ``chunk.middle_ns``.
        power_w: Power, sign kept. NaN makes it ``voltage_v * current_a``.
        voltage_v, current_a: Voltage and current.
        energy_j: The meter's own energy counter.
        tick_ns: The meter's own clock, any origin, never repeated; -1 if it has none.
        state: What may be done with it.
    """

    t_ns: int
    power_w: float = NAN
    voltage_v: float = NAN
    current_a: float = NAN
    energy_j: float = NAN
    tick_ns: int = -1
    state: State = State.OK


class Decoder(Protocol):
    """Turns one meter's bytes into samples; pure, so it works on a file as well.

    Attributes:
        faults: What was refused so far: short phrase to count.
    """

    faults: dict[str, int]

    def feed(self, chunk: Chunk) -> "Samples":
        """Return the samples that *chunk* completes, oldest first; keep what is left over.

        Never raises, whatever the bytes are, and never invents a sample.
        """
        ...


class Source(Protocol):
    """A meter on its port.

    Life: construct (touches nothing), :meth:`open`, :meth:`identify`, :meth:`start`,
    :meth:`read` again and again, :meth:`stop`, :meth:`close`. After a :class:`MeterLostError`
    the recorder calls ``close`` and later ``open``, ``identify`` and ``start`` again. The
    class also has ``Options``, a frozen ``msgspec.Struct`` with ``forbid_unknown_fields``
    and a default for every field, and ``kind``, its name in :data:`edgeperf.power.METERS`.
    """

    kind: ClassVar[str]

    def __init__(self, port: str, options: Any) -> None: ...

    def info(self) -> SourceInfo:
        """Say what the numbers are worth; complete after :meth:`start`."""
        ...

    def open(self) -> None:
        """Claim the port, without disturbing what is behind it.

        Raises:
            MeterInputError: There is no such port.
            MeterError: It is busy (names the holder) or forbidden (says what to do).
        """
        ...

    def identify(self) -> Identity:
        """Ask who is there.

        Raises:
            MeterReplyError: Nobody, or another device; says what was seen.
        """
        ...

    def start(self) -> None:
        """Begin measuring.

        Raises:
            MeterInputError: What only the user knows is missing, such as a voltage.
            MeterReplyError: The meter refused.
        """
        ...

    def header(self) -> Mapping[str, Any]:
        """Return what :meth:`decoder` needs besides the bytes, as plain JSON data."""
        ...

    @classmethod
    def decoder(cls, header: Mapping[str, Any]) -> Decoder:
        """Make a decoder for the bytes of a source whose ``header()`` was *header*."""
        ...

    def read(self) -> list[Chunk]:
        """Wait for the next bytes, at most about 0.5 s, and return them, perhaps none.

        Raises:
            MeterLostError: The meter is gone.
        """
        ...

    def stop(self) -> None:
        """End measuring. Calling it twice, or on a lost meter, does no harm."""
        ...

    def close(self) -> None:
        """Let go of the port. Calling it twice does no harm."""
        ...
