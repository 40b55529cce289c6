"""The values that a field takes, for the messages of msgspec, which names only the wrong one.

No numpy: spec, campaign and task files are read with it alike. The path in a message is
followed through the type; where that leads nowhere, the message stays as it is.
"""

import enum
import re
from collections.abc import Iterator

from msgspec import inspect

_WRONG = re.compile(r"(Invalid enum value .*?)( - at `(?:key` in `)?\$(.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(\w+)|\[(?:\d+|\.\.\.)\]")


def with_choices(message: str, kind: type) -> str:
    """Return *message* with what was expected in place of an enum value that there is not.

    Args:
        message: Of an ``msgspec.ValidationError``.
        kind: The type that was read.
    """
    found = _WRONG.fullmatch(message)
    if found is None:
        return message
    types: list[inspect.Type] = [inspect.type_info(kind)]
    for step in _STEP.finditer(found[3] or ""):
        types = [inner for one in types for inner in _inner(one, step[1])]
    if " - at `key` in " in message:
        types = [one.key_type for one in types if isinstance(one, inspect.DictType)]
    values = sorted({value for one in types for value in _values(one)})
    if not values:
        return message
    listed = " or ".join(filter(None, (", ".join(values[:-1]), values[-1])))
    return f"{found[1]}; expected {listed}{found[2] or ''}"


def _bare(one: inspect.Type) -> Iterator[inspect.Type]:
    """Yield what a type may be, without the wrapping of its limits and its None."""
    if isinstance(one, inspect.Metadata):
        yield from _bare(one.type)
    elif isinstance(one, inspect.UnionType):
        for inner in one.types:
            yield from _bare(inner)
    else:
        yield one


def _inner(one: inspect.Type, field: str | None) -> Iterator[inspect.Type]:
    """Yield the types of a field of *one*, or of its items."""
    for bare in _bare(one):
        if isinstance(bare, inspect.StructType):
            yield from (known.type for known in bare.fields if known.encode_name == field)
        elif isinstance(bare, inspect.DictType):
            yield bare.value_type
        elif isinstance(bare, (inspect.ListType, inspect.VarTupleType)):
            yield bare.item_type


def _values(one: inspect.Type) -> Iterator[str]:
    for bare in _bare(one):
        if isinstance(bare, inspect.LiteralType):
            yield from map(str, bare.values)
        elif isinstance(bare, inspect.EnumType) and issubclass(bare.cls, enum.Enum):
            yield from (str(member.value) for member in bare.cls)
        elif isinstance(bare, (inspect.IntType, inspect.FloatType)):
            yield "a number"
