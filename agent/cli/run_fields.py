"""What the options of ``edgeperf run`` mean for the fields of a spec."""

import operator
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from edgeperf.agent.cli.values import cores_of, hertz, milliseconds, pair, shapes_of
from edgeperf.agent.spec import RunSpec, SpecError

#: Options that are not called like the field of the spec they set.
_OPTIONS = {
    "model": "MODEL",
    "parts": "--part",
    "inputs_file": "--inputs",
    "shapes": "--input",
    "options": "--option",
    "target_latency_ms": "--target-latency (in the spec, ms)",
    "min_duration_ms": "--min-duration (in the spec, ms)",
    "min_query_count": "--min-queries",
    "stall_s": "--stall",
    "realtime": "--no-realtime",
    "accuracy": "--no-accuracy",
    "clock_hz": "--clock",
}
#: What msgspec calls a type, and what people do.
_TYPES = {"`int`": "a whole number", "`float`": "a number", "`str`": "text"}
_FIELDS = frozenset(RunSpec.__struct_fields__)


def fields_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a spec that the command line sets.

    Args:
        given: Every option by its name, also those that were not given.

    Raises:
        SpecError: A value is not what its option takes.
    """
    fields = {name: value for name, value in given.items() if _is_given(value)}
    for name, value in fields.items():
        check_text(name, value)
    return dict(_field(name, value) for name, value in fields.items())


def _field(name: str, value: Any) -> tuple[str, Any]:
    """Return the field of a spec that an option sets, and its value."""
    read = _READ.get(name)
    return (name, value) if read is None else (read[0], read[1](value))


def _pairs(option: str) -> Callable[[Sequence[str]], dict[str, str]]:
    return lambda texts: dict(pair(option, text) for text in texts)


#: Option -> the field that it sets, and how its value is read.
_READ: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "no_accuracy": ("accuracy", operator.not_),
    "no_realtime": ("realtime", operator.not_),
    "options": ("options", _pairs("--option")),
    "parts": ("parts", _pairs("--part")),
    "shapes": ("shapes", shapes_of),
    "cores": ("cores", cores_of),
    "clock": ("clock_hz", hertz),
    "target_latency": ("target_latency_ms", float),
    "min_duration": ("min_duration_ms", partial(milliseconds, "--min-duration")),
}


def option_of(field: str) -> str:
    """Return what the user types to set *field* of a spec."""
    return _OPTIONS.get(field) or "--" + field.replace("_", "-")


def by_option(error: SpecError) -> SpecError:
    """Name the option that the user typed, not the field that it became."""
    text = str(error)
    if (found := re.fullmatch(r"run spec: (.*) - at `\$\.(\w+)`", text)) is not None:
        problem = re.sub("|".join(_TYPES), lambda kind: _TYPES[kind[0]], found[1])
        return SpecError(f"{option_of(found[2])}: {problem[0].lower()}{problem[1:]}")
    fields, colon, problem = text.partition(": ")
    named = [option_of(word) if word in _FIELDS else word for word in fields.split(" ")]
    return SpecError(f"{' '.join(named)}{colon}{problem}")


def check_text(name: str, value: object) -> None:
    """Refuse what cannot stand in a JSON file."""
    try:
        str(value).encode()
    except UnicodeEncodeError as error:
        raise SpecError(f"{name} {value!r}: the name is not UTF-8; rename the file") from error


def _is_given(value: object) -> bool:
    return value is not None and value is not False and value != ()
