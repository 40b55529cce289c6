"""RDTech TC66 and TC66C: a USB meter that answers ``getva`` with 192 encrypted bytes.

The three blocks of the answer carry magic words and checksums, and all of them are
checked: after the cipher a shifted or damaged answer is noise, and noise has numbers too.
The meter takes a new value about ten times a second whatever it is asked, so a value
counts until the next one.

Its resistance field is scaled differently by every tool that reads it, so it is not used;
its current has no sign.

Source:
    libsigrok ``rdtech-tc`` and the sigrok wiki, read as facts.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

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
from edgeperf.power.crc import crc16_modbus
from edgeperf.power.polled import Polled
from edgeperf.power.samples import ReadingDecoder
from edgeperf.power.serial_meter import SerialMeter

REPLY_BYTES = 192
BLOCK_BYTES = 64
#: The key is the same in every meter and public; it hides nothing.
KEY = bytes.fromhex("5821fa5601b2f02687ff1204622a4fb086f40260816f9a0ba7f106619ab87288")
TIMEOUT_S = 0.3
#: The meter's limits; beyond them a value is damage that the checksums missed.
MOST_V, MOST_A = 35.0, 7.0


class Tc66Reply(NamedTuple):
    """What an answer says.

    Attributes:
        model: ``TC66``.
        version: Its firmware.
        serial: Its serial number.
        voltage_v: Voltage.
        current_a: Current, without sign.
        power_w: Power, as the meter multiplied it.
        temperature_c: Its own temperature.
        group_mah: Charge counters of its two groups.
        group_mwh: Energy counters of its two groups.
    """

    model: str
    version: str
    serial: int
    voltage_v: float
    current_a: float
    power_w: float
    temperature_c: int
    group_mah: tuple[int, int]
    group_mwh: tuple[int, int]


def cipher() -> Cipher[modes.ECB]:
    """Return the meter's cipher, AES-256-ECB; that is its choice, not ours."""
    return Cipher(algorithms.AES(KEY), modes.ECB())  # noqa: S305  # the meter's protocol


def parse_reply(raw: bytes) -> Tc66Reply:
    """Decrypt and check an answer.

    Raises:
        ValueError: A length, magic word, checksum or limit is wrong; says which.
    """
    if len(raw) != REPLY_BYTES:
        raise ValueError(f"{len(raw)} bytes instead of {REPLY_BYTES}")
    decryptor = cipher().decryptor()
    plain = decryptor.update(raw) + decryptor.finalize()
    blocks = [plain[i : i + BLOCK_BYTES] for i in range(0, REPLY_BYTES, BLOCK_BYTES)]
    for number, block in enumerate(blocks, 1):
        if block[:4] != b"pac%d" % number:
            raise ValueError("it is no answer of a TC66")
        if struct.unpack_from("<I", block, 60)[0] != crc16_modbus(block[:60]):
            raise ValueError(f"the checksum of block {number} is wrong")
    return _reply(blocks[0], blocks[1])


def _reply(first: bytes, second: bytes) -> Tc66Reply:
    serial, voltage, current, power = struct.unpack_from("<I32x3I", first, 12)
    mah0, mwh0, mah1, mwh1, negative, degrees = struct.unpack_from("<6I", second, 8)
    reply = Tc66Reply(
        model=first[4:8].decode("latin-1").strip("\0 "),
        version=first[8:12].decode("latin-1").strip("\0 "),
        serial=serial,
        voltage_v=round(voltage * 1e-4, 4),
        current_a=round(current * 1e-5, 5),
        power_w=round(power * 1e-4, 4),
        temperature_c=-degrees if negative else degrees,
        group_mah=(mah0, mah1),
        group_mwh=(mwh0, mwh1),
    )
    if reply.voltage_v > MOST_V or reply.current_a > MOST_A:
        raise ValueError(f"{reply.voltage_v:g} V, {reply.current_a:g} A is beyond the meter")
    return reply


class Tc66Decoder(ReadingDecoder):
    """Answers to readings."""

    def parse(self, chunk: Chunk) -> Iterator[Reading]:
        """Yield the reading of an answer that passes every check."""
        if chunk.fault:
            return
        try:
            reply = parse_reply(chunk.data)
        except ValueError:
            self.refuse("answers that fail their checks")
            return
        yield Reading(chunk.middle_ns, reply.power_w, reply.voltage_v, reply.current_a)


class Tc66(Polled, SerialMeter):
    """A TC66 or TC66C on USB."""

    kind: ClassVar[str] = "tc66"
    baud = 115_200
    period_s = 0.05

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of a TC66.

        Attributes:
            gain: Relative limit of error of the power.
            boundary: Where the meter sits.
        """

        gain: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.002
        boundary: Boundary = Boundary.DC_INPUT

    def __init__(self, port: str, options: Options) -> None:
        super().__init__(port)
        self._options = options

    def info(self) -> SourceInfo:
        """Say what the numbers are worth."""
        return SourceInfo(
            kind=self.kind,
            measures=Quantity.POWER,
            boundary=self._options.boundary,
            method=Method.HOLD,
            rate_hz=10.0,
            bandwidth_hz=5.0,
            gain=self._options.gain,
            offset_v=0.0005,
            offset_a=0.0003,
            resolution_w=0.0001,
            edge_s=0.06,
            max_power_w=MOST_V * MOST_A,
            stale_after_s=1.0,
            notes=("The current has no sign.",),
        )

    def identify(self) -> Identity:
        """Ask for one answer.

        Raises:
            MeterReplyError: None came, or of another device.
        """
        self.line.drain(0.05)
        try:
            raw = self.ask()
        except MeterReplyError:
            self.flush()
            raw = self.ask()
        reply = parse_reply(raw)
        return Identity(
            model=reply.model,
            serial=str(reply.serial),
            firmware=reply.version,
            details={"temperature_c": str(reply.temperature_c)},
        )

    def header(self) -> Mapping[str, Any]:
        """Return nothing: the answers say all."""
        return {}

    @classmethod
    def decoder(cls, header: Mapping[str, Any]) -> Tc66Decoder:
        """Make a decoder of answers."""
        del header
        return Tc66Decoder()

    def ask(self) -> bytes:
        """Make one exchange."""
        self.line.write(b"getva")
        raw = self.line.read_exactly(REPLY_BYTES, TIMEOUT_S)
        if not raw:
            raise MeterReplyError(self.port, f"no answer to getva within {TIMEOUT_S:g} s")
        try:
            parse_reply(raw)
        except ValueError as error:
            raise MeterReplyError(self.port, f"{error} (saw {raw[:16]!r})") from error
        return raw

    def flush(self) -> None:
        """Throw away what a bad exchange left."""
        self.line.drain(0.05)
