"""Any power, energy counter, or voltage with current that the kernel's hwmon shows.

``hwmon:VDD_CPU`` takes a rail by its label, ``hwmon:ina226/power1`` by chip and label,
``hwmon:A+B`` a sum. Nothing is summed that was not named, and a total is never added to its
parts. What the sensor is worth stands in no file, so its limits come from the user.
"""

import math
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from edgeperf.power.base import Boundary, MeterInputError, Method, Quantity, SourceInfo
from edgeperf.power.rail_meter import RailMeter, named_rails
from edgeperf.power.rails import Rail, contract_names, hwmon_rails


class Hwmon(RailMeter):
    """One rail, or a sum of named ones."""

    kind: ClassVar[str] = "hwmon"

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options.

        Attributes:
            rate: Readings per second.
            gain: Relative limit of error of the power, from the sensor's data sheet.
            offset_w: Limit of a constant error of the power.
            boundary: Where the sensor sits.
            root: Where ``sys`` is.
        """

        rate: Annotated[float, msgspec.Meta(gt=0, le=100)] = 10.0
        gain: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.02
        offset_w: Annotated[float, msgspec.Meta(ge=0)] = 0.02
        boundary: Boundary = Boundary.RAIL
        root: str = "/"

    def __init__(self, port: str, options: Options) -> None:
        super().__init__(port, options.root, options.rate)
        self._options = options

    @staticmethod
    def find(root: Path = Path("/")) -> list[str]:
        """Return the meter spec of every rail; those of an INA3221 have a kind of their own."""
        rails = hwmon_rails(root)
        return [
            f"hwmon:{rail.name}" for rail in rails if rail.chip != "ina3221" and not rail.problem
        ]

    def all_rails(self) -> list[Rail]:
        """Return every rail that hwmon shows."""
        return hwmon_rails(self.root)

    def choose(self, rails: list[Rail], wanted: str) -> list[Rail]:
        """Return the rails that were named; without a name, the only one there is.

        Raises:
            MeterInputError: None, or not clear which; lists what there is.
        """
        if not wanted and len(rails) == 1:
            return rails
        known = ", ".join(rail.name for rail in rails)
        if not wanted:
            what = (
                f"several rails; name one, such as hwmon:{rails[0].name}: {known}"
                if rails
                else (f"no sensor of power below {self.root / 'sys/class/hwmon'}")
            )
            raise MeterInputError(f"meter hwmon: {what}")
        if wanted.partition("/")[0] in contract_names(self.root):
            raise MeterInputError(
                f"meter hwmon:{wanted}: shows a negotiated contract or a battery, it measures no "
                f"rail; there is {known or 'no rail'}"
            )
        chosen = named_rails(rails, wanted, f"meter hwmon:{wanted}")
        if len({"energy" in rail.files for rail in chosen}) > 1:
            raise MeterInputError(f"meter hwmon:{wanted}: a counter cannot be added to a power")
        return chosen

    def info(self) -> SourceInfo:
        """Say what the numbers are worth; the limits are the user's."""
        counter = any("energy" in rail.files for rail in self.rails)
        power = all("power" in rail.files for rail in self.rails)
        updates = [rail.update_s for rail in self.rails if math.isfinite(rail.update_s)]
        period_s = max([self.period_s, *updates])
        averages = any(path.name.endswith("_average") for path in self.files.values())
        quantity = Quantity.POWER if power else Quantity.VOLTAGE_CURRENT
        notes = ["Limits of error are assumed unless gain= and offset_w= are given."]
        if not counter and not power:
            notes.append("Voltage and current are measured one after the other.")
        return SourceInfo(
            kind=self.kind,
            measures=Quantity.ENERGY if counter else quantity,
            boundary=self._options.boundary,
            method=Method.COUNTER if counter else Method.HOLD if averages else Method.TRAPEZOID,
            rate_hz=1 / period_s,
            bandwidth_hz=None,
            gain=self._options.gain,
            offset_w=self._options.offset_w,
            resolution_w=1e-6 if power else self.power_limit_w(1e-3, [1e-3] * len(self.rails)),
            resolution_j=1e-6,
            edge_s=period_s / 2 if averages else 0.005,
            max_power_w=2000.0,
            notes=tuple(notes),
        )
