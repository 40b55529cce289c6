"""The battery's own gauge, while it discharges: a whole device without any meter.

While the board runs on its battery, what the gauge says leaves the battery is what the device
takes, screen and radio included. On the charger it says nothing of the device, so a battery
that is not discharging is refused, and one that is plugged in during a run spoils it.

The traps: the sign of the current differs between drivers, so its sign while discharging is
learnt at the start and counts as positive; and a gauge is renewed only every 1 to 60 s.

Source:
    Linux ``Documentation/ABI/testing/sysfs-class-power``.
"""

import re
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
    MeterReplyError,
    Method,
    Quantity,
    Reading,
    SourceInfo,
    State,
)
from edgeperf.power.samples import ReadingDecoder
from edgeperf.power.sysfs import FileMeter, number_lines, read_text

SUPPLIES = "sys/class/power_supply"
DISCHARGING = b"Discharging"
_STATUS = re.compile(rb"status ([A-Za-z ]{1,40})\n(.*)", re.DOTALL)


class BatteryDecoder(ReadingDecoder):
    """Readings of the gauge to watts.

    Args:
        sign: What the driver's sign must be multiplied by so that discharging is positive.
    """

    def __init__(self, sign: int) -> None:
        super().__init__()
        self._sign = sign

    def parse(self, chunk: Chunk) -> Iterator[Reading]:
        """Yield the power; a battery that is not discharging is an invalid reading."""
        if chunk.fault:
            return
        match = _STATUS.fullmatch(chunk.data)
        values = number_lines(match.group(2)) if match else None
        if match is None or not values or not _enough(values):
            self.refuse("readings that are incomplete")
            return
        power_w, volts, amps = _quantities(values)
        state = State.OK
        if match.group(1) != DISCHARGING:
            self.refuse("not discharging")
            state = State.INVALID
        yield Reading(chunk.middle_ns, self._sign * power_w, volts, self._sign * amps, state=state)


def _enough(values: Mapping[str, int]) -> bool:
    return "power_now" in values or {"voltage_now", "current_now"} <= set(values)


def _quantities(values: Mapping[str, int]) -> tuple[float, float, float]:
    """Return watts, volts and amperes of a reading in millionths, with the driver's sign."""
    volts = values["voltage_now"] * 1e-6 if "voltage_now" in values else NAN
    amps = values["current_now"] * 1e-6 if "current_now" in values else NAN
    power_w = values["power_now"] * 1e-6 if "power_now" in values else volts * amps
    return power_w, volts, amps


class Battery(FileMeter):
    """One battery."""

    kind: ClassVar[str] = "battery"
    period_s = 1.0

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options.

        Attributes:
            refresh: Seconds between new values of the gauge, 1 to 60.
            gain: Relative limit of error of the gauge.
            root: Where ``sys`` is.
        """

        refresh: Annotated[float, msgspec.Meta(gt=0, le=120)] = 30.0
        gain: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.05
        root: str = "/"

    def __init__(self, port: str, options: Options) -> None:
        super().__init__(port, options.root)
        self._wanted = port
        self._options = options
        self._sign = 1

    @staticmethod
    def find(root: Path = Path("/")) -> list[str]:
        """Return a meter spec for each battery of the system."""
        return [f"battery:{folder.name}" for folder in _batteries(root)]

    def open(self) -> None:
        """Find the battery and what its gauge shows.

        Raises:
            MeterInputError: There is none, or it is not clear which.
            MeterError: Its files may not be read.
        """
        found = _batteries(self.root)
        chosen = [one for one in found if self._wanted in ("", one.name)]
        if len(chosen) != 1:
            known = ", ".join(one.name for one in found) or "no battery"
            raise MeterInputError(
                f"meter battery: {self._wanted or 'which one'}: below {self.root / SUPPLIES} "
                f"there is {known}; name one, such as battery:BAT0"
            )
        names = ("power_now", "voltage_now", "current_now")
        shown = {name: chosen[0] / name for name in names if (chosen[0] / name).exists()}
        if not _enough(dict.fromkeys(shown, 0)):
            raise MeterInputError(f"meter battery:{chosen[0].name}: its gauge shows no power")
        self.files = {"status": chosen[0] / "status", **shown}
        self.check_permission()

    def identify(self) -> Identity:
        """Read once.

        Raises:
            MeterReplyError: The gauge does not read as it should, or is not discharging.
        """
        data = self.ask()
        decoder = BatteryDecoder(1)
        samples = decoder.feed(Chunk(1, data))
        if len(samples) != 1:
            raise MeterReplyError(self.port, f"reads no power (saw {data[:60]!r})")
        if samples.state[0] != State.OK:
            status = data.partition(b"\n")[0].decode("latin-1")
            raise MeterReplyError(
                self.port, f"is not discharging (saw {status!r}); unplug the charger"
            )
        self._sign = -1 if samples.power_w[0] < 0 else 1
        folder = self.files["status"].parent
        texts = {name: read_text(folder / name) for name in ("manufacturer", "model_name")}
        return Identity(model=" ".join(texts.values()).strip() or folder.name)

    def info(self) -> SourceInfo:
        """Say what the numbers are worth."""
        refresh_s = self._options.refresh
        return SourceInfo(
            kind=self.kind,
            measures=Quantity.POWER if "power_now" in self.files else Quantity.VOLTAGE_CURRENT,
            boundary=Boundary.DC_INPUT,
            method=Method.HOLD,
            rate_hz=1 / refresh_s,
            bandwidth_hz=0.5 / refresh_s,
            gain=self._options.gain,
            offset_w=0.05,
            resolution_w=0.001,
            edge_s=refresh_s / 2,
            max_power_w=300.0,
            max_interval_s=3.5,
            silent_after_s=4.0,
            notes=(
                f"A gauge is renewed every 1 to 60 s (taken as {refresh_s:g} s): measure for long.",
                "The whole device is measured, its display included.",
            ),
        )

    def header(self) -> Mapping[str, Any]:
        """Return the driver's sign."""
        return {"sign": self._sign}

    @classmethod
    def decoder(cls, header: Mapping[str, Any]) -> BatteryDecoder:
        """Make a decoder of readings."""
        return BatteryDecoder(-1 if header.get("sign") == -1 else 1)


def _batteries(root: Path) -> list[Path]:
    """Return the system's own batteries; a mouse has one too, and a USB port is a contract."""
    return [
        folder
        for folder in sorted((root / SUPPLIES).glob("*"))
        if read_text(folder / "type") == "Battery" and read_text(folder / "scope") != "Device"
    ]
