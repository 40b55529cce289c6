"""ST X-NUCLEO-LPM01A (PowerShield): supplies a small board and measures its current.

1.8 to 3.3 V and up to 50 mA: for microcontrollers, the meter of MLPerf Tiny. It measures only
the current, so ``voltage=`` must be given, and is what the meter is set to. Up to 5000
samples a second come as text, more as binary.

The trap: the supply is switched on at the start and stays on at the end. Setting a voltage
runs a calibration of 1.5 s, so it is set only if it is not set already. All boards have the
same USB serial number; tell two apart by ``/dev/serial/by-path``.

Source:
    MLCommons tiny, ``power_manager_lpm.py`` (command list of UM2269); UM2243 section 9.
"""

import contextlib
import re
import time
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from edgeperf.power.base import (
    Boundary,
    Chunk,
    Identity,
    MeterError,
    MeterInputError,
    MeterReplyError,
    Method,
    Quantity,
    SourceInfo,
)
from edgeperf.power.lpm01a_format import MOST_A, LpmBinaryDecoder, LpmDecoder, LpmTextDecoder
from edgeperf.power.serial_meter import SerialMeter

#: Samples per second -> how the meter wants it said.
RATES = {
    1: "1", 2: "2", 5: "5", 10: "10", 20: "20", 50: "50", 100: "100", 200: "200", 500: "500",
    1000: "1k", 2000: "2k", 5000: "5k", 10_000: "10k", 20_000: "20k", 50_000: "50k",
    100_000: "100k",
}  # fmt: skip
#: Above this, text runs for a second at most.
FASTEST_TEXT_HZ = 5000
#: Energy output exists up to here.
FASTEST_ENERGY_HZ = 10_000
REPLY_S = 1.0
CALIBRATION_S = 1.5


class Lpm01a(SerialMeter):
    """The meter."""

    kind: ClassVar[str] = "lpm01a"
    baud = 3_686_400

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options.

        Attributes:
            voltage: Supply voltage, 1.8 to 3.3; must be given.
            voltage_tolerance: Relative limit of what the real supply may differ by.
            rate: Samples per second: 1, 2, 5, 10, ... 100000.
            output: ``current``, or ``energy`` for joules of each period.
            boundary: Where the meter sits.
        """

        voltage: float | None = None
        voltage_tolerance: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.01
        rate: int = 1000
        output: Annotated[str, msgspec.Meta(pattern="^(current|energy)$")] = "current"
        boundary: Boundary = Boundary.DC_INPUT

    def __init__(self, port: str, options: Options) -> None:
        super().__init__(port)
        self._options = options
        self._energy = options.output == "energy"
        voltage = options.voltage
        if voltage is not None and not 1.8 - 1e-6 <= voltage <= 3.3 + 1e-6:
            raise MeterInputError(f"meter lpm01a:{port}: voltage={voltage}: expected 1.8 to 3.3")
        fastest = FASTEST_ENERGY_HZ if self._energy else max(RATES)
        if options.rate not in RATES or options.rate > fastest:
            known = ", ".join(str(rate) for rate in RATES if rate <= fastest)
            raise MeterInputError(f"meter lpm01a:{port}: rate={options.rate}: not one of {known}")
        self._text = options.rate <= FASTEST_TEXT_HZ

    def info(self) -> SourceInfo:
        """Say what the numbers are worth: 2 %, and rounding to a 12-bit mantissa in binary."""
        options = self._options
        return SourceInfo(
            kind=self.kind,
            measures=Quantity.CURRENT,
            boundary=options.boundary,
            method=Method.MEAN if self._energy else Method.TRAPEZOID,
            rate_hz=options.rate,
            bandwidth_hz=options.rate / 2,
            gain=0.02 if self._text else 0.021,
            offset_a=1e-7,
            resolution_a=1e-7,
            voltage_v=options.voltage,
            voltage_gain=options.voltage_tolerance,
            max_power_w=MOST_A * (options.voltage or 3.3),
            silent_after_s=max(1.0, 5 / options.rate, 0 if self._text else 2000 / options.rate),
            notes=("The voltage is the one that was set, not measured.",),
        )

    def identify(self) -> Identity:
        """Ask for its firmware.

        Raises:
            MeterReplyError: Nobody, or another device; says what was seen.
        """
        self.line.write(b"\n")
        self.line.drain(0.1)
        said = " ".join(self._command("version")) + self.line.drain(0.1).decode("latin-1")
        found = re.search(r"\d+\.\d+(\.\d+)?", said, re.ASCII)
        return Identity(model="X-NUCLEO-LPM01A", firmware=found.group(0) if found else "")

    def start(self) -> None:
        """Take control, set the meter up, switch the supply on, begin.

        Raises:
            MeterInputError: No voltage was given.
            MeterReplyError: The meter refused a command; says which and why.
        """
        options = self._options
        if options.voltage is None:
            raise MeterInputError(
                f"meter lpm01a:{self.port}: voltage missing: it measures current only and "
                "supplies the board; add the board's supply voltage, such as voltage=3.3"
            )
        self._halt()
        try:
            self._command("htc")
        except MeterReplyError:  # the first one is often refused
            self.line.drain(0.2)
            self._command("htc")
        self._set_voltage(round(options.voltage * 1000))
        for command in (
            f"output {options.output}",
            f"format {'ascii_dec' if self._text else 'bin_hexa'}",
            f"freq {RATES[options.rate]}",
            "acqtime inf",
            "acqmode dyn",
            "trigsrc sw",
            "trigdelay 0",
            "pwr on nostatus",
            "start",
        ):
            self._command(command)

    def _set_voltage(self, millivolts: int) -> None:
        """Set the supply and read it back; leave it alone if it is right already."""
        if self._voltage_mv() == millivolts:
            return
        self._command(f"volt {millivolts}m")
        self.line.drain(0.2, limit_s=CALIBRATION_S)
        time.sleep(CALIBRATION_S)
        if (seen := self._voltage_mv()) != millivolts:
            raise MeterReplyError(self.port, f"is at {seen} mV after it was set to {millivolts} mV")

    def _voltage_mv(self) -> int | None:
        reply = " ".join(self._command("volt get"))
        found = re.search(r"volt get (\d{1,6})([+-]\d{1,2})", reply, re.ASCII)
        return round(int(found[1]) * 10.0 ** (int(found[2]) + 3)) if found else None

    def _command(self, command: str) -> list[str]:
        """Send a command and return the lines up to its acknowledgement.

        Raises:
            MeterReplyError: It was refused, or not acknowledged; says what came.
        """
        self.line.write(command.encode("ascii") + b"\n")
        deadline_s = time.monotonic() + REPLY_S
        seen = b""
        while (left_s := deadline_s - time.monotonic()) > 0 and len(seen) < 1 << 16:
            raw = self.line.read_until(b"\n", left_s)
            seen += raw
            line = raw.decode("latin-1").replace("PowerShield >", "").strip("\0\r\n ")
            if line.startswith(f"ack {command}"):
                return seen.decode("latin-1").splitlines()
            if line.startswith("error"):
                detail = self.line.read_until(b"\n", 0.2).decode("latin-1").strip()
                raise MeterReplyError(self.port, f"refused {command!r}: {line} {detail}".strip())
        what = f"(saw {seen[:40]!r})" if seen else "(saw nothing)"
        raise MeterReplyError(
            self.port, f"no PowerShield: did not acknowledge {command!r} {what}; choose its port"
        )

    def header(self) -> Mapping[str, Any]:
        """Return what the stream is made of."""
        options = self._options
        return {
            "text": self._text,
            "rate": options.rate,
            "voltage": options.voltage,
            "energy": self._energy,
        }

    @classmethod
    def decoder(cls, header: Mapping[str, Any]) -> LpmDecoder:
        """Make a decoder of the stream."""
        make = LpmTextDecoder if header.get("text", True) else LpmBinaryDecoder
        return make(
            float(header.get("rate", 1000)),
            float(header.get("voltage") or 3.3),
            energy=bool(header.get("energy", False)),
        )

    def read(self) -> list[Chunk]:
        """Return the bytes that came."""
        data = self.line.read_some(0.2)
        return [Chunk(time.monotonic_ns(), data)] if data else []

    def _halt(self) -> None:
        """End a measurement that may be running."""
        self.line.write(b"stop\n")
        self.line.drain(0.15)

    def stop(self) -> None:
        """End measuring and give control back; the supply stays on."""
        if self._line is not None:
            with contextlib.suppress(MeterError):
                self._halt()
                self.line.write(b"hrc\n")
                self.line.drain(0.1)
