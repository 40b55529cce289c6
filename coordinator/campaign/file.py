"""A campaign as its author wrote it: a TOML file, checked once, errors with line and field.

::

    name = "shelf"
    boards = ["pi5-01", "label:pi4"]        # names, or every board with a label
    models = ["digits", "mobilenet.tflite"] # names from the catalogue, or files
    backends = ["tflite", "onnxruntime"]    # left out: what fits the model
    scenarios = ["SingleStream", "Offline"]
    presets = ["fast"]
    repeats = 3
    order = "interleaved"                   # or "grouped", "shuffled"

    [cool_down]
    to_c = 55

    [retries]
    device = 2

    [run]                                   # fields of every run's spec
    threads = 1

    [scenario.Server]                       # ... and of one scenario's
    target_qps = 40

    [[skip]]                                # combinations that make no sense
    model = "digits"
    backend = "onnxruntime"
"""

import enum
import re
from typing import Annotated, Any

import msgspec

from edgeperf import InputError
from edgeperf.agent.spec import Preset, Scenario
from edgeperf.datasets.choices import with_choices

_NAME = "^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$"
Names = Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=500)]
Retry = Annotated[int, msgspec.Meta(ge=0, le=20)]


class CampaignError(InputError):
    """A campaign file cannot be used; the message names file, line and field."""


class Order(str, enum.Enum):
    """In which order a board goes through its cells.

    ``interleaved``: every combination once, then all again, so that a board that drifts (heat,
    a neighbour) spoils none more than another. ``grouped``: all repeats of one, then the
    next. ``shuffled``: like interleaved, each round in a random order that ``seed`` fixes.
    """

    INTERLEAVED = "interleaved"
    GROUPED = "grouped"
    SHUFFLED = "shuffled"


class CoolDown(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run starts when its board is no warmer than ``to_c``, or after ``timeout_s``."""

    to_c: Annotated[float, msgspec.Meta(ge=0, le=150)]
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=86400)] = 600.0


class Retries(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a run that did not end well is tried again, by who was at fault.

    Attributes:
        device: The board's condition was in the way, or it did not answer.
        harness: edgeperf or a runtime broke.
        interrupted: The board or its agent died under the run.
        timed_out: The watchdog stopped it.
        user: The spec was wrong; the same again fails again.
        pause_s: Wait before a retry, twice as long each time.
    """

    device: Retry = 2
    harness: Retry = 1
    interrupted: Retry = 3
    timed_out: Retry = 0
    user: Retry = 0
    pause_s: Annotated[float, msgspec.Meta(ge=0, le=86400)] = 30.0

    def allowed(self, error_class: str | None) -> int:
        """Return how many retries an error of this class has."""
        name = (error_class or "").replace("-", "_")
        return int(getattr(self, name, 0)) if name in self.__struct_fields__[:-1] else 0


class Skip(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A combination that is left out; a field that is not given matches everything."""

    board: str | None = None
    model: str | None = None
    backend: str | None = None
    scenario: Scenario | None = None
    preset: Preset | None = None


class Campaign(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file; see the module's example.

    Attributes:
        timeout_s: The watchdog stops each run after so long; None is the board's limit.
        files: Upload whole result directories, not only ``result.json``.
        seed: Of ``shuffled``.
    """

    name: Annotated[str, msgspec.Meta(pattern=_NAME)]
    boards: Names
    models: Names
    backends: tuple[str, ...] = ()
    scenarios: tuple[Scenario, ...] = (Scenario.SINGLE_STREAM,)
    presets: tuple[Preset, ...] = (Preset.FAST,)
    repeats: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    order: Order = Order.INTERLEAVED
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=7 * 86400)] | None = None
    files: bool = True
    cool_down: CoolDown | None = None
    retries: Retries = Retries()
    run: dict[str, Any] = msgspec.field(default_factory=dict)
    scenario: dict[Scenario, dict[str, Any]] = msgspec.field(default_factory=dict)
    skip: tuple[Skip, ...] = ()


def parse_campaign(source: str, *, where: str) -> Campaign:
    """Read a campaign file.

    Args:
        source: Its text.
        where: What to call it in errors.

    Raises:
        CampaignError: It is not TOML, or a field is unknown, missing or wrong.
    """
    try:
        document = msgspec.toml.decode(source)
    except msgspec.DecodeError as error:
        found = re.search(r"\(at line (\d+), column \d+\)", str(error))
        line = f":{found[1]}" if found else ""
        raise CampaignError(f"{where}{line}: not TOML: {error}") from error
    try:
        return msgspec.convert(document, Campaign)
    except msgspec.ValidationError as error:
        raise _located(with_choices(str(error), Campaign), source, where) from error


def field_error(field: str, problem: str, *, source: str, where: str) -> CampaignError:
    """Return the error that *field* (``run.threads``, ``boards[2]``) is wrong."""
    line = line_of(source, field)
    at = f"{where}:{line}" if line else where
    return CampaignError(f"{at}: {field}: {problem}")


def line_of(source: str, field: str) -> int | None:
    """Return the line, counted from 1, where *field* is set; None when it is nowhere.

    TOML parsers give no places, so this looks for the key below its table's header. A field
    inside an inline table is found at that table's line.
    """
    parts = [part for part in re.split(r"\.|\[\d*\]|\[\.\.\.\]", field) if part]
    while parts:
        table, key = ".".join(parts[:-1]), parts[-1]
        if (line := _find(source, table, key)) is not None:
            return line
        parts.pop()
    return None


def _find(source: str, table: str, key: str) -> int | None:
    current = ""
    name = re.escape(key)
    setting = re.compile(rf"""\s*(?:"{name}"|'{name}'|{name})\s*=""")
    for number, text in enumerate(source.splitlines(), start=1):
        header = re.match(r"\s*\[\[?\s*([^\[\]]+?)\s*\]\]?", text)
        if header and "=" not in header[1]:
            current = header[1].replace('"', "").replace(" ", "")
            if current == (f"{table}.{key}" if table else key):
                return number
        elif current == table and setting.match(text):
            return number
    return None


def _located(message: str, source: str, where: str) -> CampaignError:
    """Turn msgspec's words (``Expected `int` - at `$.repeats` ``) into ours."""
    problem, _, path = message.partition(" - at ")
    field = path.strip("`").removeprefix("$").removeprefix(".")
    unknown = re.search(r"unknown field `(.+)`", problem)
    missing = re.search(r"required field `(.+)`", problem)
    if unknown or missing:
        name = (unknown or missing)[1]  # type: ignore[index]  # one of them is there
        field = f"{field}.{name}" if field else name
        problem = "unknown field" if unknown else "missing"
    return field_error(field or "file", problem, source=source, where=where)
