"""The power management chip of a Raspberry Pi 5, asked through ``vcgencmd``.

Twelve rails have a voltage and a current; their products are summed. What the chip does not
measure is left out: its own losses, everything on 5 V and USB. So this is a part of the
board's power and is labelled so; a community fit puts the whole at about 1.15 times the sum
plus 0.6 W, which nobody should apply unseen.

The traps: ``EXT5V_V`` and ``BATT_V`` have no current, which is not 0 A; and an older board
answers with an error and exit status 0.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec

from edgeperf.power.base import (
    NAN,
    Boundary,
    Chunk,
    Identity,
    MeterInputError,
    MeterLostError,
    MeterReplyError,
    Method,
    Quantity,
    Reading,
    SourceInfo,
    State,
)
from edgeperf.power.polled import Polled
from edgeperf.power.samples import ReadingDecoder

PATIENCE_S = 2.0
_LINE = re.compile(
    rb"\s*(\w{1,40})_([AV])\s+(current|volt)\([0-9]{1,3}\)=([0-9]{1,6}\.[0-9]{1,12})([AV])\s*"
)


def rails_of(data: bytes) -> dict[str, dict[str, float]] | None:
    """Read the lines of ``pmic_read_adc``.

    Returns:
        Rail -> ``A`` and ``V``, as far as it has them; None unless every line is a reading.
    """
    rails: dict[str, dict[str, float]] = {}
    for line in data.splitlines():
        if not line.strip():
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            return None
        name, half, kind, number, unit = (part.decode("ascii") for part in match.groups())
        rail = rails.setdefault(name, {})
        if unit != half or kind != {"A": "current", "V": "volt"}[half] or half in rail:
            return None
        rail[half] = float(number)
    return rails


def measured(rails: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the rails that have both halves."""
    return sorted(name for name, rail in rails.items() if len(rail) == len("AV"))


class PmicDecoder(ReadingDecoder):
    """Answers to the sum of the rails.

    Args:
        rails: Which rails are summed; empty for whatever has both halves.
    """

    def __init__(self, rails: tuple[str, ...]) -> None:
        super().__init__()
        self._rails = rails

    def parse(self, chunk: Chunk) -> Iterator[Reading]:
        """Yield the sum; an answer in which a rail or a half of it is missing is none."""
        if chunk.fault:
            return
        rails = rails_of(chunk.data) or {}
        names = measured(rails)
        if not names or (self._rails and names != list(self._rails)):
            self.refuse("answers that are incomplete")
            return
        power_w = sum(rails[name]["A"] * rails[name]["V"] for name in names)
        input_v = rails.get("EXT5V", {}).get("V", NAN)
        state = State.OK if power_w > 0 else State.INVALID
        yield Reading(chunk.middle_ns, power_w, input_v, state=state)


class Rpi5Pmic(Polled):
    """The chip."""

    kind: ClassVar[str] = "rpi5-pmic"

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options.

        Attributes:
            rate: Readings per second; each starts a process, 5 to 10 ms.
            command: The program that asks the chip.
        """

        rate: Annotated[float, msgspec.Meta(gt=0, le=20)] = 10.0
        command: str = "vcgencmd"

    def __init__(self, port: str, options: Options) -> None:
        self.port = port or self.kind
        self.period_s = 1 / options.rate
        self._command = options.command
        self._rails: tuple[str, ...] = ()

    @staticmethod
    def find(root: Path = Path("/")) -> list[str]:
        """Return the meter spec on a board with this chip."""
        try:
            model = (root / "proc/device-tree/model").read_bytes()
        except OSError:
            return []
        return ["rpi5-pmic"] if re.search(rb"Raspberry Pi (5|500|Compute Module 5)", model) else []

    def info(self) -> SourceInfo:
        """Say what the numbers are worth."""
        return SourceInfo(
            kind=self.kind,
            measures=Quantity.VOLTAGE_CURRENT,
            boundary=Boundary.PARTIAL,
            method=Method.TRAPEZOID,
            rate_hz=1 / self.period_s,
            bandwidth_hz=None,
            gain=0.05,
            offset_w=0.05,
            resolution_w=0.001,
            edge_s=0.01,
            max_power_w=30.0,
            stale_after_s=max(1.0, 10 * self.period_s),
            notes=(
                "It is the sum of the chip's rails: its losses, 5 V and USB loads are outside.",
                "Its limits of error are not published; 5 % is assumed.",
            ),
        )

    def open(self) -> None:
        """See whether the program is there; every reading starts it anew.

        Raises:
            MeterInputError: It is not, or may not be run.
        """
        if shutil.which(self._command) is None:
            raise MeterInputError(
                f"meter {self.port}: no program {self._command} that may be run; is this a "
                "Raspberry Pi, and is the package raspi-utils-core installed?"
            )

    def identify(self) -> Identity:
        """Ask once, and keep which rails it has.

        Raises:
            MeterReplyError: It is not this chip; says what was answered.
        """
        data = self.ask()
        self._rails = tuple(measured(rails_of(data) or {}))
        if not self._rails:
            raise MeterReplyError(self.port, self._complaint(data))
        return Identity(model="Raspberry Pi 5 PMIC", details={"rails": "+".join(self._rails)})

    def _complaint(self, data: bytes) -> str:
        text = data.decode("latin-1").strip()[:80]
        if re.search(r"VCHI|vchiq|vcio|[Pp]ermission", text):
            return f"permission denied (saw {text!r}); run `sudo usermod -a -G video $USER`"
        return f"no PMIC readings (saw {text!r}); only a Raspberry Pi 5 has them"

    def start(self) -> None:
        """Do nothing: the chip measures all the time."""

    def ask(self) -> bytes:
        """Run the program once and return what it printed."""
        try:
            done = subprocess.run(
                [self._command, "pmic_read_adc"],
                capture_output=True,
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise MeterReplyError(self.port, f"no answer within {PATIENCE_S:g} s") from error
        except OSError as error:
            raise MeterLostError(self.port, f"{self._command} does not run ({error})") from error
        return done.stdout or done.stderr

    def header(self) -> Mapping[str, Any]:
        """Return the rails that are summed."""
        return {"rails": list(self._rails)}

    @classmethod
    def decoder(cls, header: Mapping[str, Any]) -> PmicDecoder:
        """Make a decoder of answers."""
        return PmicDecoder(tuple(header.get("rails", ())))

    def stop(self) -> None:
        """Do nothing: no program is left running."""

    def close(self) -> None:
        """Do nothing: nothing is open."""
