"""What is asked of a configuration: ``p99<20ms``, ``recall@precision=0.9 >= 0.8``.

Read in two steps. :func:`parse` knows the syntax only; :func:`settle` knows which figure is
meant, and so which units make sense. A figure's own name may hold ``=``, and a class's name
in brackets anything.
"""

import enum
import itertools
import math
import re
from collections.abc import Sequence

import msgspec

from edgeperf.agent.decide.errors import DecideError
from edgeperf.agent.decide.names import Asked
from edgeperf.agent.decide.units import NEEDS_UNIT, UNITS, Kind, text_of

_SIGNS = {"≤": "<=", "≥": ">="}
_WHOLE = re.compile(
    r"\s*(?P<name>[^<>≤≥\[]*?(?:\[.*\])?)\s*(?P<op><=|>=|<|>|≤|≥)\s*(?P<rest>[^<>≤≥]*?)\s*"
)
_VALUE = re.compile(r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(?P<unit>[^\d\s.]*)")
_MICRO = {"\N{GREEK SMALL LETTER MU}s": "µs", "\N{GREEK SMALL LETTER MU}J": "µJ"}
_NEVER_NEGATIVE = (Kind.TIME, Kind.MEMORY, Kind.RATE)
_FORM = "expected NAME<VALUE, such as p99<20ms or 'accuracy>=0.9'"


class Op(str, enum.Enum):
    """How a figure is compared with its limit."""

    BELOW = "<"
    AT_MOST = "<="
    ABOVE = ">"
    AT_LEAST = ">="

    def holds(self, value: float, limit: float) -> bool:
        """Say whether *value* keeps *limit*."""
        if self is Op.BELOW:
            return value < limit
        if self is Op.AT_MOST:
            return value <= limit
        return value > limit if self is Op.ABOVE else value >= limit

    @property
    def is_ceiling(self) -> bool:
        """Whether lower values keep the limit."""
        return self in (Op.BELOW, Op.AT_MOST)


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """A constraint as it was written.

    Attributes:
        text: The whole of it.
        name: The figure's name as written.
        op: The comparison.
        number: The limit in *unit*.
        unit: As written; empty without one.
    """

    text: str
    name: str
    op: Op
    number: float
    unit: str


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """A constraint on a figure that is known.

    Attributes:
        asked: The figure.
        op: The comparison.
        value: The limit in the base unit of the figure's kind.
    """

    asked: Asked
    op: Op
    value: float

    def __str__(self) -> str:
        """As people read it: ``p99 < 20 ms``."""
        kind = self.asked.kind
        shown = f"{self.value:g}" if kind is Kind.SHARE else text_of(kind, self.value)
        return f"{self.asked.name} {self.op.value} {shown}"


def looks_like_one(text: str) -> bool:
    """Say whether *text* is meant as a constraint and not as a path."""
    return any(sign in text for sign in "<>≤≥")


def parse(text: str) -> Constraint:
    """Read ``NAME OP VALUE[UNIT]``.

    Raises:
        DecideError: It is not that; the message says what is wrong.
    """
    found = _WHOLE.fullmatch(text)
    if found is None:
        raise DecideError(f"constraint {text!r}: {_FORM}")
    name, rest = found["name"], found["rest"]
    if name.endswith("="):
        raise DecideError(f"constraint {text!r}: ={found['op']} is no comparison; {_FORM}")
    if not name:
        raise DecideError(f"constraint {text!r}: no figure before {found['op']}; {_FORM}")
    value = _VALUE.fullmatch(rest)
    if value is None:
        raise DecideError(f"constraint {text!r}: {rest!r} is no number with a unit; {_FORM}")
    number = float(value["number"])
    if not math.isfinite(number):
        raise DecideError(f"constraint {text!r}: {rest!r} is too large a number")
    op = Op(_SIGNS.get(found["op"], found["op"]))
    unit = _MICRO.get(value["unit"], value["unit"])
    return Constraint(text=text, name=name, op=op, number=number, unit=unit)


def settle(constraint: Constraint, asked: Asked) -> Limit:
    """Turn a constraint's number into the base unit of its figure.

    Raises:
        DecideError: The unit is not one of the figure's, or is missing where none can be
            guessed; or a share is written as if it were percent.
    """
    units, where = UNITS[asked.kind], f"constraint {constraint.text!r}"
    known = ", ".join(units)
    if constraint.unit and constraint.unit not in units:
        expected = f"expected {known}" if units else "it has no unit"
        raise DecideError(f"{where}: unit {constraint.unit!r} of {asked.name}: {expected}")
    if not constraint.unit and asked.kind in NEEDS_UNIT:
        raise DecideError(f"{where}: {asked.name} needs a unit: {known}")
    value = constraint.number * units.get(constraint.unit, 1)
    if asked.kind is Kind.SHARE and not constraint.unit and asked.most_1 and value > 1:
        raise DecideError(
            f"{where}: {asked.name} is a share from 0 to 1; write {value / 100:g} or {value:g}%"
        )
    if not math.isfinite(value):
        raise DecideError(f"{where}: too large a number")
    below_nought = value < 0 or (value == 0 and constraint.op is Op.BELOW)
    if below_nought and asked.kind in _NEVER_NEGATIVE:
        raise DecideError(f"{where}: {asked.name} is never below 0; give a limit that can be met")
    return Limit(asked=asked, op=constraint.op, value=value)


def require_possible(limits: Sequence[Limit]) -> None:
    """Refuse limits of one figure of which no value keeps both.

    Raises:
        DecideError: Two of them contradict.
    """
    ceilings = [limit for limit in limits if limit.op.is_ceiling]
    floors = [limit for limit in limits if not limit.op.is_ceiling]
    for low, high in itertools.product(floors, ceilings):
        both_open = low.op is Op.AT_LEAST and high.op is Op.AT_MOST
        empty = low.value > high.value or (low.value == high.value and not both_open)
        if low.asked.name == high.asked.name and empty:
            raise DecideError(f"constraints {low} and {high}: no value keeps both; leave one out")
