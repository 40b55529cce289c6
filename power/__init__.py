"""Meters that read the power of the board, and what their readings mean.

Importing this package loads no driver, no pyserial and no numpy; the light agent service
uses it to check meter specs.
"""

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from edgeperf.power.base import MeterInputError, Source
from edgeperf.power.spec import MeterSpec, parse_meter_spec, parse_options

__all__ = [
    "METERS",
    "SIMULATORS",
    "MeterSpec",
    "make_source",
    "meter_class",
    "meter_names",
    "parse_meter_spec",
    "simulator_class",
]

#: Name in a meter spec -> where the class is. Strings, because a board must not import
#: the drivers of meters it does not have.
METERS: dict[str, str] = {
    "textline": "edgeperf.power.textline:TextLine",
    "ppk2": "edgeperf.power.ppk2:Ppk2",
    "tc66": "edgeperf.power.tc66:Tc66",
    "um25c": "edgeperf.power.um25c:Um25c",
    "pzem004t": "edgeperf.power.pzem004t:Pzem004t",
    "pzem017": "edgeperf.power.pzem017:Pzem017",
    "wt310": "edgeperf.power.wt310:Wt310",
    "lpm01a": "edgeperf.power.lpm01a:Lpm01a",
    "scpi": "edgeperf.power.scpi:Scpi",
    "korad": "edgeperf.power.korad:Korad",
    "hwmon": "edgeperf.power.hwmon:Hwmon",
    "ina3221": "edgeperf.power.ina3221:Ina3221",
    "rpi5-pmic": "edgeperf.power.rpi5pmic:Rpi5Pmic",
    "rapl": "edgeperf.power.rapl:Rapl",
    "nvml": "edgeperf.power.nvml:Nvml",
    "battery": "edgeperf.power.battery:Battery",
    "ptdaemon": "edgeperf.power.ptdaemon:PtDaemon",
}

#: Name of a meter -> the device that ``edgeperf simulate-meter`` plays for it.
SIMULATORS: dict[str, str] = {
    "textline": "edgeperf.power.simulate.textline:TextLineDevice",
    "ppk2": "edgeperf.power.simulate.ppk2:Ppk2Device",
    "tc66": "edgeperf.power.simulate.tc66:Tc66Device",
    "um25c": "edgeperf.power.simulate.um25c:Um25cDevice",
    "pzem004t": "edgeperf.power.simulate.pzem004t:Pzem004tDevice",
    "pzem017": "edgeperf.power.simulate.pzem017:Pzem017Device",
    "wt310": "edgeperf.power.simulate.wt310:Wt310Device",
    "lpm01a": "edgeperf.power.simulate.lpm01a:Lpm01aDevice",
    "scpi": "edgeperf.power.simulate.scpi:ScpiDevice",
    "korad": "edgeperf.power.simulate.korad:KoradDevice",
    "hwmon": "edgeperf.power.simulate.board:HwmonDevice",
    "ina3221": "edgeperf.power.simulate.board:Ina3221Device",
    "rpi5-pmic": "edgeperf.power.simulate.board:PmicDevice",
    "rapl": "edgeperf.power.simulate.board:RaplDevice",
    "battery": "edgeperf.power.simulate.board:BatteryDevice",
    "ptdaemon": "edgeperf.power.simulate.ptdaemon:PtdDevice",
}

#: Third parties add a meter with an entry point of this group; its name is the kind.
ENTRY_POINT_GROUP = "edgeperf.meters"


def meter_names() -> list[str]:
    """Return every kind of meter there is, ours first."""
    others = sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)})
    return [*METERS, *(name for name in others if name not in METERS)]


def meter_class(kind: str) -> type[Source]:
    """Return the driver of a kind of meter.

    Raises:
        MeterInputError: There is no such kind, or its driver needs a package that is not
            installed; says which.
    """
    where = METERS.get(kind)
    if where is None:
        found = [entry.value for entry in entry_points(group=ENTRY_POINT_GROUP, name=kind)]
        if not found:
            raise MeterInputError(
                f"meter {kind!r}: no such kind; known: {', '.join(meter_names())}"
            )
        where = found[0]
    source: type[Source] = _load(kind, where)
    return source


def simulator_class(kind: str) -> type:
    """Return the simulated device of a kind of meter.

    Raises:
        MeterInputError: There is none.
    """
    if kind not in SIMULATORS:
        raise MeterInputError(
            f"meter {kind!r}: no simulator for it; there is one for {', '.join(SIMULATORS)}"
        )
    return _load(kind, SIMULATORS[kind])


def make_source(spec: MeterSpec | str) -> Source:
    """Make the source that a meter spec names; touches no port yet.

    Raises:
        MeterInputError: Kind, port or options cannot be used; one line says which.
    """
    if isinstance(spec, str):
        spec = parse_meter_spec(spec)
    driver: Any = meter_class(spec.kind)
    source: Source = driver(spec.port, parse_options(spec, driver.Options))
    return source


def _load(kind: str, where: str) -> type:
    module, _, attribute = where.partition(":")
    try:
        loaded: type = getattr(import_module(module), attribute)
    except ImportError as error:
        if (error.name or "").startswith("edgeperf"):  # our own mistake: keep the traceback
            raise
        raise MeterInputError(f"meter {kind!r} needs a package that is missing: {error}") from error
    return loaded
