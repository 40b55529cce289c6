"""The power sensors of a Jetson: its total, found by label.

``ina3221`` takes what is the module's input on this board: one rail, or the sum of those
inputs that have no common one. ``ina3221:VDD_CPU_GPU_CV`` takes one rail. A total is never
added to its parts, which would count them twice.

The trap: a module's input is not the board's. Fan, USB and the carrier board's regulators
are outside, and inside AGX Orin's sum is what its three inputs give, no more.

Source:
    Linux ``Documentation/hwmon/ina3221.rst``; TI SBOS576B: 80 uV and 16 mV offset, 0.25 %
    gain of either; the rails of each board: NVIDIA's developer guides.
"""

import math
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from edgeperf.power.base import Boundary, MeterInputError, Method, Quantity, SourceInfo
from edgeperf.power.rail_meter import RailMeter, named_rails
from edgeperf.power.rails import Rail, hwmon_rails, jetpack4_rails

#: Labels of the inputs of each family, the most telling first.
INPUTS: tuple[tuple[str, ...], ...] = (
    ("VDD_IN",),  # Xavier NX, Orin Nano, Orin NX
    ("POM_5V_IN",),  # Nano
    ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"),  # AGX Orin
    ("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"),  # AGX Xavier
    ("VIN",),  # Thor, an INA238
)
CHIPS = ("ina3221", "ina3221x", "ina238")
USUAL_SHUNT_OHM = 0.005
OFFSET_SHUNT_V, OFFSET_BUS_V = 80e-6, 16e-3
STEP_SHUNT_V, STEP_BUS_V = 40e-6, 8e-3


def _jetson_rails(root: Path) -> list[Rail]:
    return [rail for rail in hwmon_rails(root) if rail.chip in CHIPS] + jetpack4_rails(root)


def _inputs(rails: list[Rail]) -> list[Rail]:
    """Return the rails that are the module's inputs, empty if the family is not known."""
    for labels in INPUTS:
        found = [[rail for rail in rails if rail.label == label] for label in labels]
        if all(len(one) == 1 for one in found):
            return [one[0] for one in found]
    return []


class Ina3221(RailMeter):
    """A Jetson's total, or one rail of it."""

    kind: ClassVar[str] = "ina3221"

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options.

        Attributes:
            rate: Readings per second; each costs 1 to 7 ms.
            shunt_gain: Relative limit of error of the shunts.
            root: Where ``sys`` is.
        """

        rate: Annotated[float, msgspec.Meta(gt=0, le=50)] = 20.0
        shunt_gain: Annotated[float, msgspec.Meta(ge=0, le=0.2)] = 0.01
        root: str = "/"

    def __init__(self, port: str, options: Options) -> None:
        super().__init__(port, options.root, options.rate)
        self._options = options

    @staticmethod
    def find(root: Path = Path("/")) -> list[str]:
        """Return ``ina3221`` on a Jetson whose inputs are known, else a spec for each rail."""
        rails = [rail for rail in _jetson_rails(root) if not rail.problem]
        return ["ina3221"] if _inputs(rails) else [f"ina3221:{rail.label}" for rail in rails]

    def all_rails(self) -> list[Rail]:
        """Return every rail of a Jetson's sensors."""
        return _jetson_rails(self.root)

    def choose(self, rails: list[Rail], wanted: str) -> list[Rail]:
        """Return the rails that were named; without a name, the module's inputs.

        Raises:
            MeterInputError: None, or not clear which; lists what there is.
        """
        if not rails:
            raise MeterInputError(
                f"meter ina3221: no INA3221 below {self.root / 'sys'}; this is no Jetson, or its "
                "driver is not loaded"
            )
        if wanted:
            return named_rails(rails, wanted, f"meter ina3221:{wanted}")
        if not (found := _inputs(rails)):
            labels = ", ".join(rail.label for rail in rails)
            raise MeterInputError(
                f"meter ina3221: which of {labels} is the total of this board is not known; name "
                f"one, such as ina3221:{rails[0].label}"
            )
        return found

    def info(self) -> SourceInfo:
        """Say what the numbers are worth: the chip's limits at what was read, and its shunts'."""
        boundary, note = self._boundary()
        shunts = [
            rail.shunt_ohm if math.isfinite(rail.shunt_ohm) else USUAL_SHUNT_OHM
            for rail in self.rails
        ]
        chip = all("voltage" in rail.files for rail in self.rails)
        updates = [rail.update_s for rail in self.rails if math.isfinite(rail.update_s)]
        return SourceInfo(
            kind=self.kind,
            measures=Quantity.VOLTAGE_CURRENT if chip else Quantity.POWER,
            boundary=boundary,
            method=Method.TRAPEZOID,
            rate_hz=1 / max([self.period_s, *updates]),
            bandwidth_hz=0.5 / self.period_s,
            gain=0.005 + self._options.shunt_gain,
            offset_w=self.power_limit_w(OFFSET_BUS_V, [OFFSET_SHUNT_V / ohm for ohm in shunts]),
            resolution_w=self.power_limit_w(STEP_BUS_V, [STEP_SHUNT_V / ohm for ohm in shunts]),
            edge_s=0.005,
            max_power_w=200.0,
            notes=("Voltage and current are converted one after the other.", note),
        )

    def _boundary(self) -> tuple[Boundary, str]:
        labels = tuple(rail.label for rail in self.rails)
        if labels in INPUTS and len(labels) > 1:
            return Boundary.PARTIAL, "It is the sum of the module's inputs: " + " + ".join(labels)
        if labels in INPUTS:
            return Boundary.DC_INPUT, (
                f"{labels[0]} is the module's input: loads of the carrier board are outside."
            )
        return Boundary.RAIL, f"Only {' + '.join(labels)} is measured, a part of the board."
