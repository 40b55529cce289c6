"""Simulated sensors of a board: trees of files as the kernel's drivers show them."""

from collections.abc import Mapping
from typing import ClassVar

from edgeperf.power.base import MeterInputError
from edgeperf.power.simulate.bench import Bench
from edgeperf.power.simulate.tree import TreeServer

#: Board -> chip addresses -> labels with their share of the power; None is a part of another.
JETSONS: dict[str, dict[str, dict[str, float | None]]] = {
    "orin-nx": {"1-0040": {"VDD_IN": 1.0, "VDD_CPU_GPU_CV": None, "VDD_SOC": None}},
    "agx-orin": {
        "1-0040": {"VDD_GPU_SOC": 0.5, "VDD_CPU_CV": 0.3, "VIN_SYS_5V0": 0.2},
        "1-0041": {"VDDQ_VDD2_1V8AO": None},
    },
    "nano": {"6-0040": {"POM_5V_IN": 1.0, "POM_5V_GPU": None, "POM_5V_CPU": None}},
}
PART = 0.3


class FileDevice:
    """What all of them share: they neither take nor send bytes.

    Attributes:
        spec: What a meter spec says after the colon; ``{}`` is the folder.
    """

    server = TreeServer
    tick_s = 0.0
    queue_bytes = 0
    spec: ClassVar[str] = ",root={}"

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def answer(self, data: bytes, now_s: float) -> bytes:
        """Take nothing."""
        del data, now_s
        return b""

    def stream(self, now_s: float) -> list[bytes]:
        """Send nothing."""
        del now_s
        return []


class HwmonDevice(FileDevice):
    """An INA226 with its power register, beside a sensor of temperature."""

    def files(self, now_s: float) -> Mapping[str, str]:
        """Return the tree of files."""
        power_w, volts = float(self._bench.power_w(now_s)), self._bench.voltage_v
        temperature, chip = "sys/class/hwmon/hwmon0/", "sys/class/hwmon/hwmon1/"
        return {
            f"{temperature}name": "cpu_thermal\n",
            f"{temperature}temp1_input": "45000\n",
            f"{chip}name": "ina226\n",
            f"{chip}in0_input": "3\n",
            f"{chip}in1_input": f"{round(volts * 1e3)}\n",
            f"{chip}curr1_input": f"{round(power_w / volts * 1e3)}\n",
            f"{chip}power1_input": f"{round(power_w * 1e6)}\n",
        }


class Ina3221Device(FileDevice):
    """The INA3221 of a Jetson; the bench is the total.

    Args:
        bench: The load.
        board: One of :data:`JETSONS`; ``nano`` has the driver of JetPack 4.
    """

    def __init__(self, bench: Bench, *, board: str = "orin-nx") -> None:
        super().__init__(bench)
        if board not in JETSONS:
            raise MeterInputError(f"ina3221: board {board!r}: not one of {', '.join(JETSONS)}")
        self._chips = JETSONS[board]
        self._iio = board == "nano"

    def files(self, now_s: float) -> Mapping[str, str]:
        """Return the tree of files."""
        power_w = float(self._bench.power_w(now_s))
        found: dict[str, str] = {}
        for number, (address, rails) in enumerate(self._chips.items()):
            values = [
                (label, power_w * (PART if share is None else share))
                for label, share in rails.items()
            ]
            folder = f"sys/bus/i2c/drivers/ina3221x/{address}/iio:device{number}/"
            if self._iio:
                found |= self._old(folder, values)
            else:
                found |= self._new(f"sys/class/hwmon/hwmon{number + 2}/", values)
        return found

    def _steps(self, power_w: float) -> tuple[int, int]:
        """Return millivolts in steps of 8 and milliamperes in steps of 8 (40 uV at 5 mOhm)."""
        volts = self._bench.voltage_v
        return 8 * round(volts * 1e3 / 8), 8 * round(power_w / volts * 1e3 / 8)

    def _old(self, folder: str, values: list[tuple[str, float]]) -> dict[str, str]:
        found = {}
        for n, (label, power_w) in enumerate(values):
            millivolts, milliamperes = self._steps(power_w)
            found[f"{folder}rail_name_{n}"] = f"{label}\n"
            found[f"{folder}in_voltage{n}_input"] = f"{millivolts}\n"
            found[f"{folder}in_current{n}_input"] = f"{milliamperes}\n"
        return found

    def _new(self, folder: str, values: list[tuple[str, float]]) -> dict[str, str]:
        found = {f"{folder}name": "ina3221\n", f"{folder}update_interval": "7\n"}
        for n, (label, power_w) in enumerate(values, 1):
            millivolts, milliamperes = self._steps(power_w)
            found[f"{folder}in{n}_label"] = f"{label}\n"
            found[f"{folder}in{n}_input"] = f"{millivolts}\n"
            found[f"{folder}curr{n}_input"] = f"{milliamperes}\n"
            found[f"{folder}shunt{n}_resistor"] = "5000\n"
            found[f"{folder}in{n + 3}_input"] = f"{milliamperes * 5 // 1000}\n"
        found[f"{folder}in7_label"] = "sum of shunt voltages\n"
        found[f"{folder}in7_input"] = "12\n"
        found[f"{folder}curr4_input"] = "900\n"
        return found


class RaplDevice(FileDevice):
    """RAPL counters of one or more sockets, the load split between them.

    Args:
        bench: The load of all packages together.
        sockets: How many packages.
        range_j: Where the counters wrap.
        start_j: Where they start.
    """

    def __init__(
        self, bench: Bench, *, sockets: int = 1, range_j: float = 262_143.328_85, start_j: float = 0
    ) -> None:
        super().__init__(bench)
        self._sockets = sockets
        self._range_uj = round(range_j * 1e6)
        self._start_j = start_j
        self._origin_s: float | None = None

    def files(self, now_s: float) -> Mapping[str, str]:
        """Return the tree of files."""
        if self._origin_s is None:
            self._origin_s = now_s
        spent_j = self._bench.waveform.energy_j(self._origin_s, now_s) / self._sockets
        total_uj = round((self._start_j + spent_j) * 1e6 / 61) * 61
        found: dict[str, str] = {}
        for n in range(self._sockets):
            folder = f"sys/class/powercap/intel-rapl:{n}"
            found |= self._domain(folder, f"package-{n}", total_uj)
            found |= self._domain(f"{folder}:0", "core", total_uj // 2)
        return found

    def _domain(self, folder: str, name: str, energy_uj: int) -> dict[str, str]:
        return {
            f"{folder}/name": f"{name}\n",
            f"{folder}/energy_uj": f"{energy_uj % self._range_uj}\n",
            f"{folder}/max_energy_range_uj": f"{self._range_uj}\n",
        }


class BatteryDevice(FileDevice):
    """A laptop's battery, a mouse's, and a USB-C port with a contract.

    Args:
        bench: The load.
        status: What the battery does.
        sign: Sign of the current while discharging.
        power: Whether the gauge shows a power.
    """

    def __init__(
        self, bench: Bench, *, status: str = "Discharging", sign: int = -1, power: bool = False
    ) -> None:
        super().__init__(bench)
        self._status = status
        self._sign = sign
        self._power = power

    def files(self, now_s: float) -> Mapping[str, str]:
        """Return the tree of files."""
        power_w, volts = float(self._bench.power_w(now_s)), self._bench.voltage_v
        folder = "sys/class/power_supply/"
        found = {
            f"{folder}BAT0/type": "Battery\n",
            f"{folder}BAT0/status": f"{self._status}\n",
            f"{folder}BAT0/model_name": "DELL 5T0HX\n",
            f"{folder}BAT0/voltage_now": f"{round(volts * 1e6)}\n",
            f"{folder}BAT0/current_now": f"{self._sign * round(power_w / volts * 1e6)}\n",
            f"{folder}hidpp_battery_0/type": "Battery\n",
            f"{folder}hidpp_battery_0/scope": "Device\n",
            f"{folder}ucsi-source-psy-USBC000:001/type": "USB\n",
            f"{folder}ucsi-source-psy-USBC000:001/voltage_now": "20000000\n",
            f"{folder}ucsi-source-psy-USBC000:001/current_now": "3250000\n",
        }
        if self._power:
            found[f"{folder}BAT0/power_now"] = f"{round(power_w * 1e6)}\n"
        return found


class PmicDevice(FileDevice):
    """A Raspberry Pi 5's chip behind a program that prints what it measured."""

    spec: ClassVar[str] = ",command={}/vcgencmd"

    def files(self, now_s: float) -> Mapping[str, str]:
        """Return the program, and what it prints."""
        power_w = float(self._bench.power_w(now_s))
        rails = (("VDD_CORE", 0.75, 0.6), ("3V3_SYS", 3.31, 0.3), ("DDR_VDDQ", 0.61, 0.1))
        lines = [f"{name}_A current(7)={power_w * share / v:.8f}A" for name, v, share in rails]
        lines += [f"{name}_V volt(15)={v:.8f}V" for name, v, _ in rails]
        lines.append("EXT5V_V volt(24)=5.08530000V")
        lines.append("BATT_V volt(25)=0.00000000V")
        return {
            "adc": "".join(f"     {line}\n" for line in lines),
            "vcgencmd": '#!/bin/sh\nexec cat "${0%/*}/adc"\n',
        }
