"""RDTech UM24C, UM25C and UM34C: USB meters that answer ``F0`` with 130 bytes, over Bluetooth.

``rfcomm bind`` makes a serial port of one. The answer has no length and only one of the
three models has a checksum; late bytes of an old answer shift the new one, and another tool
read 4 megawatts that way. So an answer counts only where the model number stands, the
trailer fits, the power is the product of voltage and current and both thermometers agree.
The same digits mean ten times more on a UM24C than on a UM25C; the model number decides.

Source:
    libsigrok ``rdtech-um``, read as facts.
"""

import struct
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec

from edgeperf.power.base import (
    Boundary,
    Chunk,
    Identity,
    MeterReplyError,
    Method,
    Quantity,
    Reading,
    SourceInfo,
)
from edgeperf.power.polled import Polled
from edgeperf.power.samples import ReadingDecoder
from edgeperf.power.serial_meter import SerialMeter

FRAME_BYTES = 130
ASK = b"\xf0"
TRAILER = b"\xff\xf1"
TIMEOUT_S = 0.8


class Model(NamedTuple):
    """One of the family.

    Attributes:
        name: Printed on it.
        volt: Volts per digit.
        ampere: Amperes per digit.
        most_a: Its current limit.
    """

    name: str
    volt: float
    ampere: float
    most_a: float


MODELS: dict[int, Model] = {
    0x0963: Model("UM24C", 0.01, 0.001, 3.5),
    0x09C9: Model("UM25C", 0.001, 0.0001, 5.5),
    0x0D4C: Model("UM34C", 0.01, 0.001, 4.5),
}
#: Bytes of a UM34C answer whose XOR is its last byte.
XOR_BYTES = (
    1, 3, 7, 9, 15, 17, 19, 23, 31, 39, 41, 45, 49, 53, 55, 57,
    59, 63, 67, 69, 73, 79, 83, 89, 97, 99, 109, 111, 113, 119, 121, 127,
)  # fmt: skip


class UmReply(NamedTuple):
    """What an answer says.

    Attributes:
        model: Which of the family it is.
        voltage_v: Voltage.
        current_a: Current, without sign.
        power_w: Power, as the meter multiplied it.
        temperature_c: Its own temperature.
        group_mwh: Energy counter of the selected group.
        recorded_s: How long it has recorded.
    """

    model: Model
    voltage_v: float
    current_a: float
    power_w: float
    temperature_c: int
    group_mwh: int
    recorded_s: int


def parse_frame(frame: bytes) -> UmReply:
    """Check an answer and read it.

    Raises:
        ValueError: It fails a check; says which.
    """
    if len(frame) != FRAME_BYTES:
        raise ValueError(f"{len(frame)} bytes instead of {FRAME_BYTES}")
    number, volts, amps, milliwatts, celsius, fahrenheit, group = struct.unpack_from(
        ">HHHIHHH", frame
    )
    model = MODELS.get(number)
    if model is None:
        raise ValueError("it is no answer of a UM24C, UM25C or UM34C")
    _check_end(frame, model)
    mwh = struct.unpack_from(">I", frame, 20 + 8 * group)[0] if group < 10 else 0  # noqa: PLR2004
    reply = UmReply(
        model=model,
        voltage_v=round(volts * model.volt, 4),
        current_a=round(amps * model.ampere, 5),
        power_w=round(milliwatts * 1e-3, 3),
        temperature_c=celsius,
        group_mwh=mwh,
        recorded_s=struct.unpack_from(">I", frame, 112)[0],
    )
    _check_sense(reply, fahrenheit)
    return reply


def _check_end(frame: bytes, model: Model) -> None:
    if model.name != "UM34C":
        good = frame.endswith(TRAILER)
    else:
        xor = 0
        for at in XOR_BYTES:
            xor ^= frame[at]
        good = frame[-1] == xor
    if not good:
        raise ValueError("its end does not fit")


def _check_sense(reply: UmReply, fahrenheit: int) -> None:
    """Refuse an answer that contradicts itself: there is hardly a checksum."""
    model = reply.model
    product_w = reply.voltage_v * reply.current_a
    digits_w = reply.voltage_v * model.ampere + reply.current_a * model.volt + 0.002
    if abs(product_w - reply.power_w) > 2 * digits_w:
        raise ValueError("its power is not voltage times current")
    if abs(reply.temperature_c * 1.8 + 32 - fahrenheit) > 2:  # noqa: PLR2004  # rounding
        raise ValueError("its two temperatures differ")
    if reply.current_a > model.most_a:
        raise ValueError(f"{reply.current_a:g} A is beyond the meter")


def find_frame(data: bytes) -> bytes:
    """Return the newest whole answer in *data*, whatever bytes stand around it.

    Raises:
        ValueError: There is none; says why the last candidate is none.
    """
    problem = f"no whole answer in {len(data)} bytes"
    for at in range(len(data) - FRAME_BYTES, -1, -1):
        if int.from_bytes(data[at : at + 2], "big") in MODELS:
            frame = data[at : at + FRAME_BYTES]
            try:
                parse_frame(frame)
            except ValueError as error:
                problem = str(error)
            else:
                return frame
    raise ValueError(problem)


class UmDecoder(ReadingDecoder):
    """Answers to readings."""

    def parse(self, chunk: Chunk) -> Iterator[Reading]:
        """Yield the reading of the newest answer that passes every check."""
        if chunk.fault:
            return
        try:
            reply = parse_frame(find_frame(chunk.data))
        except ValueError:
            self.refuse("answers that fail their checks")
            return
        yield Reading(chunk.middle_ns, reply.power_w, reply.voltage_v, reply.current_a)


class Um25c(Polled, SerialMeter):
    """A UM24C, UM25C or UM34C behind ``/dev/rfcommN``."""

    kind: ClassVar[str] = "um25c"
    baud = 9600
    period_s = 0.25

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of a UM meter.

        Attributes:
            gain: Relative limit of error of the power.
            boundary: Where the meter sits.
        """

        gain: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01
        boundary: Boundary = Boundary.DC_INPUT

    def __init__(self, port: str, options: Options) -> None:
        super().__init__(port)
        self._options = options
        self._model = MODELS[0x09C9]

    def info(self) -> SourceInfo:
        """Say what the numbers are worth."""
        return SourceInfo(
            kind=self.kind,
            measures=Quantity.POWER,
            boundary=self._options.boundary,
            method=Method.HOLD,
            rate_hz=2.0,
            bandwidth_hz=1.0,
            gain=self._options.gain,
            offset_v=2 * self._model.volt,
            offset_a=2 * self._model.ampere,
            resolution_w=0.001,
            resolution_v=self._model.volt,
            resolution_a=self._model.ampere,
            edge_s=0.3,
            max_power_w=150.0,
            stale_after_s=5.0,
            notes=("The current has no sign.",),
        )

    def identify(self) -> Identity:
        """Ask for one answer, twice if need be.

        Raises:
            MeterReplyError: None came, or of another device.
        """
        self.line.drain(0.05)
        try:
            frame = self.ask()
        except MeterReplyError:
            self.flush()
            frame = self.ask()
        reply = parse_frame(frame)
        self._model = reply.model
        return Identity(model=reply.model.name, details={"temperature_c": str(reply.temperature_c)})

    def header(self) -> Mapping[str, Any]:
        """Return nothing: the answers say all."""
        return {}

    @classmethod
    def decoder(cls, header: Mapping[str, Any]) -> UmDecoder:
        """Make a decoder of answers."""
        del header
        return UmDecoder()

    def ask(self) -> bytes:
        """Make one exchange, stepping over late bytes of an old answer."""
        self.line.write(ASK)
        data, problem = b"", ""
        deadline_s = time.monotonic() + TIMEOUT_S
        while (left_s := deadline_s - time.monotonic()) > 0:
            data += self.line.read_some(left_s)
            try:
                return find_frame(data)
            except ValueError as error:
                problem = str(error)
        if not data:
            raise MeterReplyError(self.port, f"no answer to F0 within {TIMEOUT_S:g} s")
        raise MeterReplyError(self.port, f"{problem} (saw {data[:16]!r})")

    def flush(self) -> None:
        """Throw away what a bad exchange left."""
        self.line.drain(0.1)
