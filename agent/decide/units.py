"""Kinds of figures, the units they may be written in, and how they are shown.

Every value is held in its kind's base unit: ns, J, W, bytes, a share from 0 to 1.
"""

import enum


class Kind(str, enum.Enum):
    """What a figure is; the value is its base unit."""

    TIME = "ns"
    ENERGY = "J"
    POWER = "W"
    MEMORY = "B"
    TEMPERATURE = "°C"
    RATE = "/s"
    SHARE = "share"
    NUMBER = ""


#: Unit -> what one of it is in the base unit, by kind.
UNITS: dict[Kind, dict[str, float]] = {
    Kind.TIME: {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9},
    Kind.ENERGY: {"J": 1, "mJ": 1e-3, "uJ": 1e-6, "µJ": 1e-6},
    Kind.POWER: {"W": 1, "mW": 1e-3},
    Kind.MEMORY: {
        "B": 1,
        "kB": 1e3,
        "MB": 1e6,
        "GB": 1e9,
        "KiB": 2**10,
        "MiB": 2**20,
        "GiB": 2**30,
    },
    Kind.TEMPERATURE: {"C": 1, "°C": 1},
    Kind.RATE: {"/s": 1},
    Kind.SHARE: {"%": 0.01},
    Kind.NUMBER: {},
}
#: A bare number means nothing there: 20 may be milliseconds or microseconds.
NEEDS_UNIT = (Kind.TIME, Kind.MEMORY)

#: What a value is divided by to be read, largest first.
_SHOWN: dict[Kind, tuple[tuple[str, float], ...]] = {
    Kind.TIME: (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1)),
    Kind.ENERGY: (("J", 1), ("mJ", 1e-3), ("µJ", 1e-6), ("nJ", 1e-9)),
    Kind.POWER: (("W", 1), ("mW", 1e-3)),
    Kind.MEMORY: (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1)),
}
_THOUSANDS = 10_000


def text_of(kind: Kind, value: float, *, digits: int = 4) -> str:
    """Return *value* with the unit that suits it, in *digits* significant digits."""
    if kind in _SHOWN:
        rounded = abs(float(f"{value:.{digits}g}"))  # 999.97 µs in three digits is 1 ms
        unit, size = next(
            ((unit, size) for unit, size in _SHOWN[kind] if rounded >= size), _SHOWN[kind][-1]
        )
        return f"{value / size:.{digits}g} {unit}"
    if kind is Kind.SHARE:
        return f"{value:.4f}"
    number = f"{value:,.0f}" if abs(value) >= _THOUSANDS else f"{value:.{digits}g}"
    unit = {Kind.RATE: "/s", Kind.TEMPERATURE: " °C"}.get(kind, "")
    return f"{number}{unit}"
