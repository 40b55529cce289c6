"""Rails that the kernel's hwmon (and, on old Jetsons, iio) sensors measure.

A rail has a power, an energy counter, or a voltage with its current. It is named by its
label; a rail that reads both a power and its factors is listed once, as power.

The traps: ``in4`` to ``in7`` of an INA3221 are shunt voltages that have a ``currN`` beside
them by accident, a disabled channel fails with ENODATA, and a USB-C port shows the voltage and
current of its contract as if they were measured.
"""

import errno
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from edgeperf.power.base import NAN, Chunk, Reading, State
from edgeperf.power.samples import ReadingDecoder
from edgeperf.power.sysfs import number_lines, read_number, read_text, why_unreadable

HWMON = "sys/class/hwmon"
JETPACK4 = "sys/bus/i2c/drivers/ina3221x"
#: ``POWER_SUPPLY_TYPE`` of devices that hwmon mirrors; see the kind ``battery``.
_SUPPLIES = ("Battery", "USB", "Mains", "UPS", "Wireless")
INA3221_CHANNELS = 3


class Rail(NamedTuple):
    """One rail.

    Attributes:
        chip: Name of its chip, such as ``ina3221``.
        address: Where the chip sits, such as ``1-0040``.
        label: Name of the rail.
        files: Quantity (``power``, ``energy``, ``voltage``, ``current``) -> file and the SI
            value of one of its units.
        shunt_ohm: Its shunt, NaN if unknown.
        update_s: How often the chip has new values, NaN if unknown.
        problem: Why it cannot be read, such as a channel that is disabled; empty if it can.
    """

    chip: str
    address: str
    label: str
    files: Mapping[str, tuple[Path, float]]
    shunt_ohm: float = NAN
    update_s: float = NAN
    problem: str = ""

    @property
    def name(self) -> str:
        """Chip and label, as a meter spec takes them."""
        return f"{self.chip}/{self.label}"

    def called(self, name: str) -> bool:
        """Say whether *name* means this rail: its label, maybe with its chip or address."""
        return name in (self.label, self.name, f"{self.address}/{self.label}")


def hwmon_rails(root: Path) -> list[Rail]:
    """Return every rail that hwmon measures below *root*."""
    folders = sorted((root / HWMON).glob("*"))
    return [rail for folder in folders if not _mirrored(folder) for rail in _chip_rails(folder)]


def contract_names(root: Path) -> list[str]:
    """Return the names of hwmon chips that show a contract or a battery, not a rail."""
    folders = sorted((root / HWMON).glob("*"))
    return [read_text(folder / "name") for folder in folders if _mirrored(folder)]


def _mirrored(folder: Path) -> bool:
    contract = read_text(folder / "name").startswith("ucsi_source_psy")
    return contract or read_text(folder / "device" / "type") in _SUPPLIES


def _chip_rails(folder: Path) -> Iterator[Rail]:
    chip = read_text(folder / "name") or folder.name
    device = folder / "device"
    address = device.resolve().name if device.exists() else folder.name
    update_ms = read_number(folder / "update_interval")
    update_s = update_ms / 1000 if update_ms else NAN
    seen: set[str] = set()
    for label, files, index in _channels(folder, chip):
        if label not in seen:
            seen.add(label)
            shunt = read_number(folder / f"shunt{index}_resistor")
            shunt_ohm = shunt * 1e-6 if shunt else NAN
            yield Rail(chip, address, label, files, shunt_ohm, update_s, _problem(files))


def _problem(files: Mapping[str, tuple[Path, float]]) -> str:
    """Say why a rail cannot be read; a permission can be given, so that is no such reason."""
    problems = [why_unreadable(path) for path, _ in files.values()]
    return next((one for one in problems if one and one != os.strerror(errno.EACCES)), "")


def _channels(folder: Path, chip: str) -> Iterator[tuple[str, dict[str, tuple[Path, float]], int]]:
    """Yield label, files and index: powers, else voltages with currents; then counters."""
    powers = 0
    for index, path in _numbered(folder, "power", "_input", "_average"):
        powers += 1
        yield _label(folder, f"power{index}"), {"power": (path, 1e-6)}, index
    for index, path in _numbered(folder, "in", "_input") if not powers else ():
        current = folder / f"curr{index}_input"
        labels = [read_text(folder / f"{name}{index}_label") for name in ("in", "curr")]
        shunt = any("shunt" in label for label in labels)
        shunt = shunt or (chip == "ina3221" and index > INA3221_CHANNELS)
        if current.exists() and not shunt:
            label = labels[0] or labels[1] or f"in{index}"
            yield label, {"voltage": (path, 1e-3), "current": (current, 1e-3)}, index
    for index, path in _numbered(folder, "energy", "_input"):
        yield _label(folder, f"energy{index}"), {"energy": (path, 1e-6)}, index


def _label(folder: Path, name: str) -> str:
    return read_text(folder / f"{name}_label") or name


def _numbered(folder: Path, prefix: str, *endings: str) -> list[tuple[int, Path]]:
    """Return the files ``PREFIX<n>ENDING`` by number, the first ending that there is."""
    found: dict[int, Path] = {}
    for ending in endings:
        for path in folder.glob(f"{prefix}[0-9]*{ending}"):
            match = re.fullmatch(rf"{prefix}([0-9]{{1,4}}){ending}", path.name)
            if match:
                found.setdefault(int(match.group(1)), path)
    return sorted(found.items())


def jetpack4_rails(root: Path) -> list[Rail]:
    """Return the rails of a Jetson with JetPack 4, whose driver is of the iio kind."""
    rails = []
    for path in sorted((root / JETPACK4).glob("*/iio:device*/rail_name_[0-9]")):
        folder, index = path.parent, path.name[-1]
        files = {
            "voltage": (folder / f"in_voltage{index}_input", 1e-3),
            "current": (folder / f"in_current{index}_input", 1e-3),
        }
        rail = Rail("ina3221x", folder.parent.name, read_text(path), files)
        rails.append(rail._replace(problem=_problem(files)))
    return rails


def named_files(rails: list[Rail]) -> tuple[dict[str, Path], list[dict[str, list[Any]]]]:
    """Name every file of *rails* once.

    Returns:
        Name -> file, for the reading; and for each rail quantity -> name and unit, for the
        decoder.
    """
    several = len({rail.address for rail in rails}) > 1
    files: dict[str, Path] = {}
    header: list[dict[str, list[Any]]] = []
    for rail in rails:
        names: dict[str, list[Any]] = {}
        for quantity, (path, unit) in rail.files.items():
            name = f"{rail.address}/{path.name}" if several else path.name
            files[name] = path
            names[quantity] = [name, unit]
        header.append(names)
    return files, header


class RailDecoder(ReadingDecoder):
    """Readings of one or more rails to their sum.

    Args:
        rails: As :func:`named_files` made it.
    """

    def __init__(self, rails: list[dict[str, list[Any]]]) -> None:
        super().__init__()
        self._rails = rails
        self._names = {name for rail in rails for name, _ in rail.values()}

    def parse(self, chunk: Chunk) -> Iterator[Reading]:
        """Yield the sum over all rails; a file that is missing or no number spoils it."""
        if chunk.fault:
            return
        values = number_lines(chunk.data)
        if values is None or set(values) != self._names or not values:
            self.refuse("readings that are incomplete")
            return
        rails = [
            {quantity: values[name] * unit for quantity, (name, unit) in rail.items()}
            for rail in self._rails
        ]
        dead = all(rail.get("voltage") == 0 and rail.get("current") == 0 for rail in rails)
        only = rails[0] if len(rails) == 1 else {}
        yield Reading(
            chunk.middle_ns,
            sum(map(_power_w, rails)),
            only.get("voltage", NAN),
            only.get("current", NAN),
            sum(rail.get("energy", NAN) for rail in rails),
            state=State.INVALID if dead else State.OK,
        )


def _power_w(rail: Mapping[str, float]) -> float:
    return rail.get("power", rail.get("voltage", NAN) * rail.get("current", NAN))
