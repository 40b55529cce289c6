"""Yokogawa WT310, WT310E, WT332E and WT333E power analyzers: the class that MLPerf accepts.

Power is multiplied in the instrument and summed there to watt-hours, so energy is the
difference of its own integrator; no update is lost if we read late. ``energy=power`` reads
power instead, where a value is the mean of one update.

Over-range comes in two kinds. A value beyond the range is sent as INF; a peak beyond it is
only a bit of the condition register, and a plausible number that is too low. So the register
is read with every reading. The trap: an integration that somebody stops at the panel leaves a
counter that stands still, which looks like a board that needs nothing.

Source:
    IM WT310E-17EN chapters 6 and 7.4; IM WT310E-02EN 7.3.2 for the accuracy.
"""

import contextlib
import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from edgeperf.power.base import (
    NAN,
    Boundary,
    Chunk,
    Identity,
    MeterError,
    MeterInputError,
    MeterReplyError,
    Method,
    Quantity,
    Reading,
    SourceInfo,
    State,
)
from edgeperf.power.instrument import IDENTITY, Instrument
from edgeperf.power.samples import ReadingDecoder

_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]+)?(?:E[+-]?[0-9]+)?|NAN|INF)"
_VALUES = rf"{_NUMBER}(?:,{_NUMBER})*"
#: From here on a number means over-range (9.9E37) or no data (9.91E37).
SENTINEL = 9.8e37
INTEGRATING = 1 << 1
SUM_OVER = 1 << 3
#: Value, voltage peak and current peak over range, of element 1; each next one 3 bits up.
ELEMENT_OVER = 0b111 << 6
UPDATES_S = {"100MS": 0.1, "250MS": 0.25, "500MS": 0.5, "1S": 1.0, "2S": 2.0, "5S": 5.0}
#: Counted, not refused: the sign is kept, but a counter that falls gives no joules.
NEGATIVE = "negative power (leads reversed?)"
_MODELS = r"YOKOGAWA,(WT3[13][0-9]E?H?C?)\b.*"


def over_mask(element: str) -> int:
    """Return the condition bits that spoil a reading of *element* (``1``-``3``, ``SIGMA``)."""
    if element == "SIGMA":
        return SUM_OVER | sum(ELEMENT_OVER << 3 * n for n in range(3))
    return ELEMENT_OVER << 3 * (int(element) - 1)


class Wt310Decoder(ReadingDecoder):
    """Replies to readings; of a counter only the replies that are new.

    Args:
        counter: Whether a fourth value is watt-hours of a running integration.
        condition: Whether each reading is followed by the condition register.
        element: Whose over-range counts.
    """

    def __init__(self, *, counter: bool, condition: bool, element: str) -> None:
        super().__init__()
        self._counter = counter
        self._condition = condition
        self._over = over_mask(element)
        self._last = ("", False)

    def parse(self, chunk: Chunk) -> Iterator[Reading]:
        """Yield the reading of one reply."""
        lines = chunk.data.decode("latin-1").split()
        if chunk.fault or not lines:
            return
        count = 4 if self._counter else 3
        fields = lines[0].split(",")
        whole = re.fullmatch(_VALUES, lines[0]) and len(fields) == count
        if not whole or len(lines) != 1 + self._condition or not self._bits(lines[1:]):
            self.refuse("replies that are no reading")
            return
        volts, amps, watts, *wh = map(float, fields)
        bad = self._spoiled(lines[1:], [volts, amps, watts, *wh])
        last, self._last = self._last, (lines[0], bad)
        if self._counter and last == self._last:
            return  # no update yet: a counter that stood still would be a wrong power
        if watts < 0:
            self.refuse(NEGATIVE)
        energy_j = wh[0] * 3600 if wh else NAN
        state = State.INVALID if bad else State.OK
        yield Reading(chunk.middle_ns, watts, volts, amps, energy_j, state=state)

    @staticmethod
    def _bits(lines: list[str]) -> bool:
        return all(re.fullmatch(r"[0-9]{1,5}", line) and int(line) < 1 << 16 for line in lines)

    def _spoiled(self, lines: list[str], values: list[float]) -> bool:
        if not all(math.isfinite(value) and abs(value) < SENTINEL for value in values):
            self.refuse("over range or no data")
            return True
        bits = int(lines[0]) if lines else 0
        if bits & self._over:
            self.refuse("peak or value over range")
            return True
        if self._counter and lines and not bits & INTEGRATING:
            self.refuse("integration stopped")
            return True
        return False


class Wt310(Instrument):
    """The analyzer."""

    kind: ClassVar[str] = "wt310"
    terminator = b"\r\n"
    patience_s = 1.5

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options.

        Attributes:
            volts: Fixed voltage range, such as 300; 0 is auto.
            amps: Fixed current range, such as 0.5; 0 is auto.
            update: Update interval: 100MS, 250MS, 500MS, 1S, 2S or 5S.
            energy: ``counter`` takes the integrator's watt-hours, ``power`` the power.
            element: Input element of a WT33x, or SIGMA for their sum.
            supply: ``ac`` or ``dc``, for the accuracy.
            baud: As set on the meter's panel.
            boundary: Where the meter sits.
        """

        volts: Annotated[float, msgspec.Meta(ge=0, le=1000)] = 0.0
        amps: Annotated[float, msgspec.Meta(ge=0, le=50)] = 0.0
        update: Annotated[str, msgspec.Meta(pattern="^(100MS|250MS|500MS|1S|2S|5S)$")] = "250MS"
        energy: Annotated[str, msgspec.Meta(pattern="^(counter|power)$")] = "counter"
        element: Annotated[str, msgspec.Meta(pattern="^([123]|SIGMA)$")] = "1"
        supply: Annotated[str, msgspec.Meta(pattern="^(ac|dc)$")] = "ac"
        baud: Annotated[int, msgspec.Meta(ge=1200, le=57600)] = 9600
        boundary: Boundary = Boundary.WALL

    def __init__(self, port: str, options: Options) -> None:
        if port and "/" not in port:
            raise MeterInputError(
                f"meter wt310:{port}: expected a serial port or /dev/usbtmcN; its LAN option "
                "speaks VXI-11, which is not supported"
            )
        super().__init__(port, options.baud)
        self._options = options
        self._counter = options.energy == "counter"
        self._update_s = UPDATES_S[options.update]
        self.period_s = self._update_s / 2
        self._model = ""
        self._range_w = (options.volts or 600.0) * (options.amps or 20.0)

    def info(self) -> SourceInfo:
        """Say what the numbers are worth; the ranges are known after :meth:`start`."""
        auto = not (self._options.volts and self._options.amps)
        share = 0.002 if self._options.supply == "dc" else 0.001
        if self._options.supply == "ac" and "E" in self._model:
            share = 0.0005
        return SourceInfo(
            kind=self.kind,
            measures=Quantity.ENERGY if self._counter else Quantity.POWER,
            boundary=self._options.boundary,
            method=Method.COUNTER if self._counter else Method.HOLD,
            rate_hz=1 / self._update_s,
            bandwidth_hz=0.5 / self._update_s,
            gain=0.001,
            offset_w=share * self._range_w,
            resolution_w=self._range_w * 1e-5,
            resolution_j=0.036,
            edge_s=self._update_s / 2,
            max_power_w=20_000.0,
            stale_after_s=max(1.5, 10 * self._update_s),
            notes=("In auto range a change of range loses readings; fix it with volts= and amps=.",)
            if auto
            else (),
        )

    def identify(self) -> Identity:
        """Ask who is there.

        Raises:
            MeterReplyError: Nobody, or another device; says what was seen.
        """
        text = self.query("*IDN?", IDENTITY)
        if not re.fullmatch(_MODELS, text):
            raise MeterReplyError(self.port, f"not a WT310 or WT33x (saw {text[:60]!r})")
        _, self._model, serial, firmware = text.split(",", 3)
        return Identity(model=f"Yokogawa {self._model}", serial=serial, firmware=firmware)

    def complaint(self, command: str, seen: bytes) -> str:
        """Add what is special about its RS-232."""
        said = super().complaint(command, seen)
        hint = "RS-232 needs a null-modem cable and 8N1, CR+LF, no handshake set on its panel"
        return f"{said}; {hint}" if not self.port.startswith("/dev/usbtmc") else said

    def start(self) -> None:
        """Set up what is sent, the ranges and the integration.

        Raises:
            MeterReplyError: The meter refused; says with which error.
        """
        if not self._model:
            self.identify()
        for command in ("*CLS", ":COMM:HEAD OFF", ":COMM:VERB ON", ":STAT:QMES ON"):
            self.tell(command)
        self.tell(":SYST:COMM:COMM WT300")  # unknown to some models, which is fine
        self._error()
        self._stop_integration()
        for command in self._setup():
            self.tell(command)
        if (error := self._error()) != "0":
            hint = "check volts=, amps= and update="
            if self._counter:
                hint += ", or use energy=power"
            raise MeterReplyError(self.port, f"refused its settings (error {error}); {hint}")
        volts, amps = (
            float(self.query(f":INP:{name}:RANG?", _NUMBER)) for name in ("VOLT", "CURR")
        )
        self._range_w = volts * amps

    def _setup(self) -> Iterator[str]:
        options = self._options
        items = ("U", "I", "P", "WH") if self._counter else ("U", "I", "P")
        yield from (":NUM:FORM ASCII", f":NUM:NORM:NUM {len(items)}")
        for number, item in enumerate(items, 1):
            yield f":NUM:NORM:ITEM{number} {item},{options.element}"
        for name, unit, fixed in (("VOLT", "V", options.volts), ("CURR", "A", options.amps)):
            yield f":INP:{name}:AUTO {'OFF' if fixed else 'ON'}"
            if fixed:
                yield f":INP:{name}:RANG {fixed:g}{unit}"
        yield f":RATE {options.update}"
        if self._counter:
            yield from (":INTEG:MODE NORM", ":INTEG:TIM 0,0,0", ":INTEG:STAR")

    def _error(self) -> str:
        """Return the number of the oldest error, ``0`` for none."""
        return self.query(":STAT:ERR?", r"-?[0-9]{1,5}(,.*)?").partition(",")[0]

    def _stop_integration(self) -> None:
        state = self.query(":INTEG:STAT?", r"[A-Za-z]+").upper()
        if state.startswith("STAR"):
            self.tell(":INTEG:STOP")
        if not state.startswith("RES"):
            self.tell(":INTEG:RES")

    def ask(self) -> bytes:
        """Read the values, then the condition register."""
        values = self.query(":NUM:NORM:VAL?", _VALUES)
        return f"{values}\n{self.query(':STAT:COND?', r'[0-9]{1,5}')}\n".encode("ascii")

    def stop(self) -> None:
        """End the integration, on a meter that is still there."""
        if self._line is None or not self._counter:
            return
        with contextlib.suppress(MeterError):
            self._stop_integration()

    def header(self) -> Mapping[str, Any]:
        """Return what the replies hold."""
        return {"counter": self._counter, "condition": True, "element": self._options.element}

    @classmethod
    def decoder(cls, header: Mapping[str, Any]) -> Wt310Decoder:
        """Make a decoder of replies."""
        return Wt310Decoder(
            counter=bool(header.get("counter", False)),
            condition=bool(header.get("condition", False)),
            element=str(header.get("element", "1")),
        )
