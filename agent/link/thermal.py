"""How warm the board is, from the kernel's thermal zones: a few small reads."""

from pathlib import Path

_PLAUSIBLE_C = (-40.0, 150.0)


def hottest_c(root: Path = Path("/")) -> float | None:
    """Return the temperature of the hottest zone in degrees Celsius; None without any.

    A zone that cannot be read (a sleeping GPU's) is passed over.
    """
    found = [_zone_c(zone) for zone in (root / "sys/class/thermal").glob("thermal_zone*")]
    return max((c for c in found if c is not None), default=None)


def _zone_c(zone: Path) -> float | None:
    try:
        celsius = int((zone / "temp").read_text("ascii")) / 1000
    except (OSError, ValueError):
        return None
    low, high = _PLAUSIBLE_C
    return celsius if low < celsius < high else None
