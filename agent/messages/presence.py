"""What a board and a coordinator say about themselves, retained by the broker."""

import enum
from datetime import datetime
from typing import Annotated, Any

import msgspec

from edgeperf.agent.messages.decoding import convert, decode_object
from edgeperf.agent.messages.ids import Count, Id, Name, Sha256, Text, Word

Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Presence(str, enum.Enum):
    """Whether a board takes work. ``lost`` is only ever written by the broker (last will)."""

    ONLINE = "online"
    BUSY = "busy"
    DRAINING = "draining"
    OFFLINE = "offline"
    LOST = "lost"


class BoardState(msgspec.Struct, frozen=True, kw_only=True):
    """Retained at ``state``; the last will is the same with ``lost``.

    A reader ignores ``lost`` when its session is not the board's current one: it is the
    late will of an older connection. A board that reads its own ``lost`` republishes.

    Attributes:
        session: One life of the agent process.
        since: When this status began, the board's own clock.
        agent: Version of edgeperf.
        stream: The outbox that this board's ``seq`` counts in.
        counter: Highest command counter the board has seen; a coordinator that lost its
            own continues above it.
        run: The run in progress.
        queued: Runs that wait.
        unsent: Events not yet acknowledged.
        reason: Why it takes no new runs, None when it does.
    """

    status: Presence
    session: Id
    since: Moment
    agent: Annotated[str, msgspec.Meta(max_length=40)]
    stream: Id
    counter: Count = 0
    run: Id | None = None
    queued: Count = 0
    unsent: Count = 0
    reason: Text | None = None


class CoordinatorState(msgspec.Struct, frozen=True, kw_only=True):
    """Retained at ``coord/state``; the last will is the same with ``offline``."""

    status: Presence
    session: Id
    since: Moment
    version: Annotated[str, msgspec.Meta(max_length=40)]


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """One backend on a board.

    Attributes:
        backend: Name as in a run spec.
        version: Version of the runtime, None when it cannot be used.
        problem: Why it cannot be used, None when it can.
        delegates: Delegates or providers it offers.
    """

    backend: Word
    version: Text | None = None
    problem: Text | None = None
    delegates: tuple[Text, ...] = ()


class CachedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that a board need not download."""

    sha256: Sha256
    size_bytes: Count
    name: Text | None = None


class PolicySummary(msgspec.Struct, frozen=True, kw_only=True):
    """What the board's own policy allows; None means that it does not limit this.

    Attributes:
        models: Digests that may run; None is any model in a signed command.
        backends: Names that may run.
        max_duration_s: Longest run.
        max_temperature_c: No run starts above it, and one that gets there is stopped.
        hours: When runs may start, local time: ``22:00-06:00``.
    """

    models: tuple[Sha256, ...] | None = None
    backends: tuple[Word, ...] | None = None
    max_duration_s: float | None = None
    max_temperature_c: float | None = None
    hours: Text | None = None


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """Retained at ``desc``: what a board is and can do.

    Attributes:
        board: Hardware and system as ``edgeperf doctor`` describes them.
        runtimes: Backends, also those that cannot be used and why.
        meters: Names that a spec's ``meter`` may use here. The board's file says what
            they stand for.
        data: Names that a spec's ``data`` may use here.
        models: Models in the cache.
        policy: What the board allows.
        labels: Set by the board's owner.
    """

    device: Name
    fleet: Name
    session: Id
    time: Moment
    agent: Annotated[str, msgspec.Meta(max_length=40)]
    board: dict[str, Any]
    runtimes: tuple[Runtime, ...] = ()
    meters: tuple[Word, ...] = ()
    data: tuple[Word, ...] = ()
    models: tuple[CachedModel, ...] = ()
    policy: PolicySummary = PolicySummary()
    labels: dict[str, Text] = msgspec.field(default_factory=dict)


class Telemetry(msgspec.Struct, frozen=True, kw_only=True):
    """At ``tlm``, QoS 0, lossy by design and silent while a test is timed."""

    session: Id
    time: Moment
    temperature_c: float | None = None
    clock_hz: Count | None = None
    power_w: float | None = None


def parse_state(raw: bytes) -> BoardState:
    """Read a board's state.

    Raises:
        MessageError: It is not one.
    """
    return convert(decode_object(raw), BoardState)


def parse_coordinator_state(raw: bytes) -> CoordinatorState:
    """Read a coordinator's state.

    Raises:
        MessageError: It is not one.
    """
    return convert(decode_object(raw), CoordinatorState)


def parse_description(raw: bytes) -> Description:
    """Read a board's description.

    Raises:
        MessageError: It is not one.
    """
    return convert(decode_object(raw), Description)


def parse_telemetry(raw: bytes) -> Telemetry:
    """Read a live reading.

    Raises:
        MessageError: It is not one.
    """
    return convert(decode_object(raw), Telemetry)
