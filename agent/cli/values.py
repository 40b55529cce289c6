"""Values on the command line that click has no type for."""

import math
import re
from collections.abc import Sequence

import click

from edgeperf.agent.spec import SpecError

#: More than any kernel is built for (CONFIG_NR_CPUS).
_MOST_CORES = 8192


class BatchSize(click.ParamType[int | str]):
    """A number of samples, or ``auto``."""

    name = "N|auto"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        """Return the number, or ``auto``."""
        if value != "auto" and not value.isdecimal():
            self.fail(f"{value!r} is neither a number nor auto", param, ctx)
        return int(value) if value.isdecimal() else value


def milliseconds(option: str, seconds: float) -> int:
    """Return *seconds* in whole milliseconds.

    Raises:
        SpecError: It is no number.
    """
    if not math.isfinite(seconds):
        raise SpecError(f"{option} {seconds}: expected a number of seconds")
    return round(seconds * 1000)


def hertz(text: str) -> int | str:
    """Return the frequency that *text* names, or ``max``.

    Raises:
        SpecError: It names none.
    """
    if text == "max":
        return text
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([MG])Hz", text, re.IGNORECASE)
    if found is None:
        raise SpecError(f"--clock {text}: expected max, or a frequency such as 1.5GHz or 1500MHz")
    return round(float(found[1]) * (1e9 if found[2] in "Gg" else 1e6))


def pair(option: str, text: str) -> tuple[str, str]:
    """Split ``NAME=VALUE``.

    Raises:
        SpecError: It is not that.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise SpecError(f"{option} {text}: expected NAME=VALUE")
    return name, value


def shapes_of(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Read ``--input NAME=SHAPE``, as often as it was given.

    Raises:
        SpecError: One is not that.
    """
    return {name: _shape(name, text) for name, text in (pair("--input", text) for text in texts)}


def _shape(name: str, text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(axis) for axis in text.split(","))
    except ValueError:
        shape = ()
    if not shape or any(axis < 1 for axis in shape):
        raise SpecError(f"--input {name}={text}: expected sizes such as 1,224,224,3")
    return shape


def cores_of(text: str) -> tuple[int, ...]:
    """Return the cores that *text* names: ``2,3`` or ``0-3``.

    Raises:
        SpecError: It names none that way.
    """
    cores: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        known = all(word.isdecimal() and int(word) < _MOST_CORES for word in (first, last or first))
        if not known or int(last or first) < int(first):
            raise SpecError(f"--cores {text}: expected numbers such as 2,3 or 0-3")
        cores += range(int(first), int(last or first) + 1)
    return tuple(cores)
