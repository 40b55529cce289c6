"""What one line of a text-line meter says: a pure parser of four notations.

A :class:`Layout` says which column is which quantity. It comes from a header line, from
the names in the line itself (``key=value``, JSON) or from the number of columns, once, and
from then on a line that does not fit is refused: a lost comma must not become 50 A.
"""

import json
import math
import re
from typing import NamedTuple

#: SI value of one unit, and the quantity that it belongs to.
UNITS: dict[str, tuple[str, float]] = {
    "s": ("time", 1.0), "ms": ("time", 1e-3), "us": ("time", 1e-6), "ns": ("time", 1e-9),
    "v": ("voltage", 1.0), "mv": ("voltage", 1e-3), "uv": ("voltage", 1e-6),
    "a": ("current", 1.0), "ma": ("current", 1e-3), "ua": ("current", 1e-6),
    "w": ("power", 1.0), "mw": ("power", 1e-3), "uw": ("power", 1e-6),
    "j": ("energy", 1.0), "mj": ("energy", 1e-3), "uj": ("energy", 1e-6),
    "wh": ("energy", 3600.0), "mwh": ("energy", 3.6), "uwh": ("energy", 3.6e-3),
}  # fmt: skip
#: Names without a unit are SI. A time without a unit could be anything, so it is not used.
NAMES: dict[str, str] = {
    "voltage": "voltage", "volts": "voltage", "volt": "voltage", "bus": "voltage",
    "vbus": "voltage", "u": "voltage", "current": "current", "amps": "current", "i": "current",
    "ibus": "current", "power": "power", "watts": "power", "p": "power", "energy": "energy",
    "e": "energy",
}  # fmt: skip
#: The line that we suggest to whoever writes the firmware.
OURS = ("time_ms", "bus_mV", "current_mA", "power_mW", "energy_uJ")

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_NO_NUMBER = {"nan", "-nan", "+nan", "inf", "-inf", "+inf", "ovf", "over", "overflow", "error"}
_PAIR = re.compile(r"([A-Za-z_][\w .\[\]()/-]*?)\s*[=:]\s*(\S+)")
_UNITED = re.compile(
    r"([+-]?[\d.,]+(?:e[+-]?\d+)?|[+-]?[A-Za-z]+?)\s*([munµ]?(?:Wh|[sVAWJ]))?", re.IGNORECASE
)


class Column(NamedTuple):
    """One column: what it is and the SI value of one of its units."""

    quantity: str
    scale: float


class Layout(NamedTuple):
    """The columns of a line, None for one that we do not use."""

    columns: tuple[Column | None, ...]

    def usable(self) -> bool:
        """Say whether power follows from it, with no quantity given twice."""
        names = [column.quantity for column in self.columns if column]
        enough = "power" in names or {"voltage", "current"} <= set(names)
        return enough and len(names) == len(set(names))


def column_of(name: str) -> Column | None:
    """Say what a column of that name holds, None if it is not for us.

    ``bus_mV``, ``Current [mA]``, ``power(W)``, ``mW`` and ``voltage`` are understood; the
    voltage across a shunt is not the voltage of the load and never used.
    """
    words = re.split(r"[^a-z0-9]+", name.replace("µ", "u").strip().lower())
    words = [word for word in words if word]
    if not words or "shunt" in words:
        return None
    if words[-1] in UNITS:
        return Column(*UNITS[words[-1]])
    if words[-1] in ("millis", "millisec", "milliseconds"):
        return Column("time", 1e-3)
    for word in words:
        if word in NAMES:
            return Column(NAMES[word], 1.0)
    return None


def layout_of(names: list[str]) -> Layout:
    """Make the layout of a header line's names."""
    return Layout(tuple(column_of(name) for name in names))


def number_of(text: str, *, comma: bool) -> float:
    """Read a number whatever the writer's locale; NaN for the words that mean "none".

    Args:
        text: The field.
        comma: Whether a comma may be the decimal sign, that is, does not part fields.

    Raises:
        ValueError: It is no number.
    """
    text = text.strip()
    if text.lower() in _NO_NUMBER:
        return math.nan
    if comma and "," in text:
        decimal = "," if text.rfind(",") > text.rfind(".") else "."
        whole, _, part = text.rpartition(decimal)
        groups = re.split(r"[.,]", whole)
        if any(len(group) != len("000") for group in groups[1:]):
            raise ValueError(text)
        text = f"{''.join(groups)}.{part}"
    if not _NUMBER.fullmatch(text) or not text.isascii():
        raise ValueError(text)
    return float(text)


def strip_checksum(line: str) -> tuple[str, bool]:
    """Return the line without ``*XX``, and whether it had one.

    Raises:
        ValueError: The checksum, the XOR of the characters before ``*``, is wrong.
    """
    body, star, digits = line.rpartition("*")
    if not star:
        return line, False
    xor = 0
    for byte in body.encode("latin-1", "replace"):
        xor ^= byte
    if not re.fullmatch(r"[0-9A-Fa-f]{2}", digits.strip()) or int(digits, 16) != xor:
        raise ValueError(line)
    return body, True


def split_fields(line: str) -> tuple[list[str], bool]:
    """Cut a line into fields; also say whether a comma may be a decimal sign in them."""
    for separator in (";", "\t"):
        if separator in line:
            return line.split(separator), True
    if "," in line:
        return line.split(","), False
    return line.split(), True


def named_values(line: str) -> dict[str, float] | None:
    """Read ``key=value`` pairs or a JSON object into SI values by quantity; None if neither.

    Raises:
        ValueError: It begins like one but is not, or gives a quantity twice.
    """
    if line.lstrip().startswith("{"):
        pairs = _json_pairs(line)
    elif "=" in line:
        pairs = [(m.group(1), m.group(2).rstrip(",;")) for m in _PAIR.finditer(line)]
        if line.count("=") != len(pairs):
            raise ValueError(line)
    else:
        return None
    found: dict[str, float] = {}
    for name, text in pairs:
        column, value = _named_value(name, text)
        if column is not None:
            if column.quantity in found:
                raise ValueError(line)
            found[column.quantity] = value * column.scale
    return found


def _json_pairs(line: str) -> list[tuple[str, str]]:
    try:
        parsed = json.loads(line)
    except RecursionError:
        raise ValueError(line) from None
    return [(name, str(value)) for name, value in parsed.items() if not isinstance(value, bool)]


def _named_value(name: str, text: str) -> tuple[Column | None, float]:
    column = column_of(name)
    match = _UNITED.fullmatch(text)
    if match is None or (match.group(2) is None and column is None):
        return None, math.nan
    if unit := (match.group(2) or "").replace("µ", "u").lower():
        if "shunt" in name.lower():
            return None, math.nan
        column = Column(*UNITS[unit]) if unit in UNITS else column
    return column, number_of(match.group(1), comma=True)
