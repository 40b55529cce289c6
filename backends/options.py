"""Reading a backend's own options, ``--option NAME=VALUE``.

Every backend declares a table of what it understands, so that a misspelt option is an
error that lists the right ones instead of a run that quietly did something else.
"""

from collections.abc import Mapping

import msgspec

from edgeperf import InputError


class Option(msgspec.Struct, frozen=True):
    """What one option may be.

    Attributes:
        default: Its value when it is not given; empty for "not set".
        choices: The values it can take; empty when any text will do.
    """

    default: str = ""
    choices: tuple[str, ...] = ()


def read_options(
    backend: str, known: Mapping[str, Option], given: Mapping[str, str]
) -> dict[str, str]:
    """Return every option in force, also those left at their default.

    Raises:
        InputError: An option is unknown or has a value that it cannot take.
    """
    for name, value in given.items():
        if name not in known:
            has = ", ".join(known) or "none"
            raise InputError(
                f"option {name!r}: backend {backend!r} has no such option; it has: {has}"
            )
        choices = known[name].choices
        if choices and value not in choices:
            raise InputError(f"option {name}={value}: expected one of {', '.join(choices)}")
    return {name: given.get(name, option.default) for name, option in known.items()}


def read_pairs(option: str, text: str, between: str = ":") -> dict[str, str]:
    """Split ``k:v;k:v`` into a mapping.

    Raises:
        InputError: A part is not a pair.
    """
    pairs: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        key, found, value = part.partition(between)
        if not found or not key.strip():
            raise InputError(f"option {option}: {part!r} is not KEY{between}VALUE")
        pairs[key.strip()] = value.strip()
    return pairs
