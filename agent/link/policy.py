"""The board's own file: what its owner allows. It always wins over any command.

``board.toml``, every part optional::

    [policy]
    models = ["9f86d081..."]          # sha256, parts too; left out: any in a signed command
    backends = ["tflite"]
    max_duration_s = 3600
    max_temperature_c = 80
    hours = "22:00-06:00"             # local time; runs start only then
    max_memory_bytes = 2000000000     # of each process of a run
    max_queue = 100

    [meters]                          # the only meters that a command can name
    main = "ina226:/dev/i2c-1,shunt=0.01"

    [data]                            # the only folders that a command can name
    imagenet = "/data/imagenet"

    [tasks]                           # the only task files that a command can name
    cats = "/data/cats/cats.toml"

    [hold]                            # what the tuner holds while a run lasts that asks for nothing
    governor = "performance"
    clock_hz = "max"
    fan = "full"

    [labels]
    room = "lab-3"

    [storage]
    free_space_floor_bytes = 200000000
"""

from datetime import datetime, time
from pathlib import Path
from typing import Annotated

import msgspec

from edgeperf.agent.link.errors import LinkInputError
from edgeperf.agent.messages import (
    Code,
    MessageError,
    PolicySummary,
    RunStart,
    spec_sha256,
    wire_spec,
)
from edgeperf.agent.messages.ids import Sha256, Word
from edgeperf.agent.spec import RunSpec
from edgeperf.agent.tuner import NO_WISH, Wish
from edgeperf.power import meter_names, parse_meter_spec
from edgeperf.power.base import MeterInputError

Hours = Annotated[str, msgspec.Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$")]
#: Longest run where the board's file says nothing: four hours.
DEFAULT_DURATION_S = 4 * 3600.0


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may run here; see :class:`~edgeperf.agent.messages.PolicySummary`."""

    models: tuple[Sha256, ...] | None = None
    backends: tuple[Word, ...] | None = None
    max_duration_s: Annotated[float, msgspec.Meta(gt=0)] = DEFAULT_DURATION_S
    max_temperature_c: float | None = None
    hours: Hours | None = None
    max_memory_bytes: Annotated[int, msgspec.Meta(ge=1 << 20)] | None = None
    max_queue: Annotated[int, msgspec.Meta(ge=1)] = 100

    def summary(self) -> PolicySummary:
        """Return what the board tells others about it."""
        return PolicySummary(
            models=self.models,
            backends=self.backends,
            max_duration_s=self.max_duration_s,
            max_temperature_c=self.max_temperature_c,
            hours=self.hours,
        )


class Storage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much disk the agent may use.

    Attributes:
        free_space_floor_bytes: No new run when less is free.
        outbox_bytes: Events that wait for the coordinator.
        results_bytes: Results kept here after they were uploaded.
    """

    free_space_floor_bytes: Annotated[int, msgspec.Meta(ge=0)] = 200_000_000
    outbox_bytes: Annotated[int, msgspec.Meta(ge=10_000)] = 64_000_000
    results_bytes: Annotated[int, msgspec.Meta(ge=0)] = 1_000_000_000


class BoardFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    policy: Policy = Policy()
    meters: dict[Word, str] = msgspec.field(default_factory=dict)
    data: dict[Word, str] = msgspec.field(default_factory=dict)
    tasks: dict[Word, str] = msgspec.field(default_factory=dict)
    hold: Wish = NO_WISH
    labels: dict[Word, str] = msgspec.field(default_factory=dict)
    storage: Storage = Storage()


def read_board_file(path: Path) -> BoardFile:
    """Read the board's file; a missing one allows what a signed command asks.

    Raises:
        LinkInputError: It is not TOML or a field is unknown or wrong; names it.
    """
    try:
        board = msgspec.toml.decode(path.read_bytes(), type=BoardFile)
    except FileNotFoundError:
        return BoardFile()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LinkInputError(f"{path}: {error}") from error
    for name, meter in board.meters.items():
        try:
            kind = parse_meter_spec(meter).kind
        except MeterInputError as error:
            raise LinkInputError(f"{path}: meters.{name}: {error}") from error
        if kind not in meter_names():
            known = ", ".join(meter_names())
            raise LinkInputError(f"{path}: meters.{name}: no kind {kind!r}; known: {known}")
    return board


def local_spec(start: RunStart, board: BoardFile) -> RunSpec:
    """Check a run against the board's file and give its names a meaning.

    Returns:
        The spec with the board's own meter, data and task file in the place of their names
        and the model by its sha256.

    Raises:
        MessageError: The spec names a file, or the policy forbids it.
    """
    spec = wire_spec(start.spec)
    if start.spec_sha256 != spec_sha256(start.spec):
        raise MessageError(Code.SPEC, "spec_sha256: not the digest of the spec")
    policy = board.policy
    _check_model(start, spec, policy)
    if policy.backends is not None and spec.backend not in policy.backends:
        allowed = ", ".join(policy.backends)
        _forbid(f"backend {spec.backend or '(any)'}: this board allows {allowed}")
    if (spec.min_duration_ms or 0) > policy.max_duration_s * 1000:
        _forbid(f"min_duration_ms: this board allows {policy.max_duration_s:g} s")
    changes = {
        "model": spec.model if start.model is None else f"sha256:{start.model.sha256}",
        "meter": _known("meter", spec.meter, board.meters),
        "data": _known("data", spec.data, board.data),
        "task": board.tasks.get(spec.task or "", spec.task),
        "governor": spec.governor or board.hold.governor,
        "clock_hz": spec.clock_hz or board.hold.clock_hz,
        "fan": spec.fan or board.hold.fan,
    }
    return msgspec.structs.replace(spec, **changes)


def check_hours(policy: Policy, now: datetime) -> None:
    """Refuse a run outside the board's hours.

    Args:
        policy: The board's.
        now: Local time.

    Raises:
        MessageError: Not now.
    """
    if policy.hours is None:
        return
    begin, end = (time.fromisoformat(part) for part in policy.hours.split("-"))
    at = now.time().replace(tzinfo=None)
    inside = begin <= at < end if begin <= end else at >= begin or at < end
    if not inside:
        _forbid(f"hours: this board runs {policy.hours}, and it is {at:%H:%M} here")


def time_limit_s(start: RunStart, policy: Policy) -> float:
    """Return after how many seconds the watchdog stops a run."""
    return min(start.timeout_s or policy.max_duration_s, policy.max_duration_s)


def _check_model(start: RunStart, spec: RunSpec, policy: Policy) -> None:
    named = "" if start.model is None else f"sha256:{start.model.sha256}"
    if spec.model.startswith("sha256:") and spec.model != named:
        raise MessageError(Code.SPEC, "model: spec and command name different digests")
    if policy.models is None:
        return
    if start.model is None:
        _forbid("model: this board allows models by sha256 only; the command gives none")
    elif start.model.sha256 not in policy.models:
        _forbid(f"model {start.model.sha256[:16]}...: not among those this board allows")
    for name, part in spec.parts.items():
        sha256 = part.removeprefix("sha256:")
        if sha256 not in policy.models:
            _forbid(f"parts.{name} {sha256[:16]}...: not among those this board allows")


def _known(field: str, name: str | None, known: dict[str, str]) -> str | None:
    if name is None:
        return None
    if name not in known:
        names = ", ".join(sorted(known)) or "none"
        raise MessageError(Code.POLICY, f"{field} {name!r}: this board's file names {names}")
    return known[name]


def _forbid(reason: str) -> None:
    raise MessageError(Code.POLICY, reason)
