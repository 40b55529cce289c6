"""What a board reports: one ordered stream of events, each with an id and a ``seq``.

The stream is at-least-once and a reader keeps one of each id. Order is ``(stream, seq)``,
never time: a board's clock may be wrong. Gaps in ``seq`` are normal, an outbox under
pressure drops old progress.
"""

import enum
from typing import Annotated, Any, Literal

import msgspec

from edgeperf.agent.events import Phase
from edgeperf.agent.messages.decoding import convert, decode_object, encode, id_of
from edgeperf.agent.messages.errors import Code, MessageError
from edgeperf.agent.messages.ids import Count, Id, Name, Sha256, Text, Word
from edgeperf.agent.messages.presence import Moment

Lines = Annotated[tuple[Text, ...], msgspec.Meta(max_length=200)]


class ErrorClass(str, enum.Enum):
    """Who is at fault; retries are decided by it.

    ``user``: the same spec fails again anywhere. ``harness``: edgeperf or a runtime broke.
    ``device``: the board's condition (power, heat, space, policy) was in the way.
    """

    USER = "user"
    HARNESS = "harness"
    DEVICE = "device"


class RunAccepted(msgspec.Struct, frozen=True, kw_only=True):
    """The board has journalled the run. ``position`` counts the runs before it."""

    position: Count = 0


class RunRejected(msgspec.Struct, frozen=True, kw_only=True):
    """Terminal: the board will not run this."""

    code: Code
    reason: Text


class RunPreparing(msgspec.Struct, frozen=True, kw_only=True):
    """The run is next. ``percent`` is of the model's download, None without one."""

    percent: float | None = None


class RunCooling(msgspec.Struct, frozen=True, kw_only=True):
    """The run waits for the board to cool down."""

    temperature_c: float
    target_c: float


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is, at most once a second; see :class:`edgeperf.agent.events.Progress`."""

    phase: Phase
    percent: float
    eta_s: float | None = None
    temperature_c: float | None = None


class RunLog(msgspec.Struct, frozen=True, kw_only=True):
    """Lines that the run wrote, and how many were left out before them."""

    lines: Lines
    dropped: Count = 0


class BlobRef(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a result directory; ``name`` is relative, for people and exports."""

    name: Annotated[
        str,
        msgspec.Meta(
            pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$", max_length=200
        ),
    ]
    sha256: Sha256
    size_bytes: Count


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """Terminal: the run made a result, whatever its verdict.

    Attributes:
        status: The verdict's status.
        exit_code: Of the run.
        result: ``result.json`` as data; None when it is too large for a message and comes
            as the blob ``result.json`` only.
        files: Everything in the result directory, ``result.json`` first.
        duration_s: From the start of the child to its end, monotonic clock.
    """

    status: Word
    exit_code: int
    result: dict[str, Any] | None
    files: Annotated[tuple[BlobRef, ...], msgspec.Meta(max_length=500)]
    duration_s: float


class RunFailed(msgspec.Struct, frozen=True, kw_only=True):
    """Terminal: the run ended without a result.

    Attributes:
        error_class: Who is at fault.
        message: The one line that a person would see.
        exit_code: Of the child, negative for a signal; None when it was never started.
        tail: The last lines it wrote.
    """

    error_class: ErrorClass
    message: Text
    exit_code: int | None = None
    tail: Lines = ()


class RunCancelled(msgspec.Struct, frozen=True, kw_only=True):
    """Terminal: a command or the board's owner stopped it."""

    reason: Text
    tail: Lines = ()


class RunTimedOut(msgspec.Struct, frozen=True, kw_only=True):
    """Terminal: the watchdog stopped it: over its time, or silent for too long."""

    message: Text
    tail: Lines = ()


class RunInterrupted(msgspec.Struct, frozen=True, kw_only=True):
    """Terminal: the agent or the board died under it; said after the next start."""

    message: Text
    phase: Phase | None = None


class CommandDone(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a command that is not a run: ``ok`` and what was asked for."""

    command: Id
    name: Word
    ok: bool
    text: Text = ""
    data: dict[str, Any] = msgspec.field(default_factory=dict)


class CommandRejected(msgspec.Struct, frozen=True, kw_only=True):
    """A command with a good signature that the board does not follow.

    Attributes:
        command: Its id.
        counter: Highest counter seen, for a sender whose own went back.
    """

    command: Id | None
    code: Code
    reason: Text
    counter: Count = 0


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something a person should know. Forged messages are counted, not answered one by one."""

    code: Code
    text: Text
    count: Count = 1


EventData = (
    RunAccepted
    | RunRejected
    | RunPreparing
    | RunCooling
    | RunProgress
    | RunLog
    | RunResult
    | RunFailed
    | RunCancelled
    | RunTimedOut
    | RunInterrupted
    | CommandDone
    | CommandRejected
    | Alert
)

#: Name in ``type`` -> its data. A new event is one class, one line here and one in EventData.
EVENTS: dict[str, type[msgspec.Struct]] = {
    "edgeperf.run.accepted.v1": RunAccepted,
    "edgeperf.run.rejected.v1": RunRejected,
    "edgeperf.run.preparing.v1": RunPreparing,
    "edgeperf.run.cooling.v1": RunCooling,
    "edgeperf.run.progress.v1": RunProgress,
    "edgeperf.run.log.v1": RunLog,
    "edgeperf.run.result.v1": RunResult,
    "edgeperf.run.failed.v1": RunFailed,
    "edgeperf.run.cancelled.v1": RunCancelled,
    "edgeperf.run.timed-out.v1": RunTimedOut,
    "edgeperf.run.interrupted.v1": RunInterrupted,
    "edgeperf.command.done.v1": CommandDone,
    "edgeperf.command.rejected.v1": CommandRejected,
    "edgeperf.alert.v1": Alert,
}
_TYPE_OF = {data: name for name, data in EVENTS.items()}
#: After one of these a run (and attempt) never changes again.
TERMINAL = (RunRejected, RunResult, RunFailed, RunCancelled, RunTimedOut, RunInterrupted)


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """The board's clocks when the event was made.

    Attributes:
        mono_ns: CLOCK_MONOTONIC.
        boot: The kernel's boot id; ``mono_ns`` compares only within one.
        synced: Whether the kernel calls the wall clock synchronised; None is unknown.
    """

    mono_ns: Count
    boot: Annotated[str, msgspec.Meta(max_length=40)]
    synced: bool | None = None


class EventEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """An event on the wire (CloudEvents structured mode); ``data`` is not yet checked."""

    specversion: Literal["1.0"]
    id: Id
    source: Annotated[str, msgspec.Meta(max_length=120)]
    type: Annotated[str, msgspec.Meta(max_length=80)]
    time: Moment
    stream: Id
    seq: Count
    session: Id
    clock: Clock
    data: dict[str, Any]
    run: Id | None = None
    attempt: Count | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event, checked.

    Attributes:
        stream: The outbox it comes from; ``seq`` counts in it.
        session: The agent process that made it.
        run: The run it is about, with its ``attempt``; None for the others.
    """

    id: Id
    fleet: Name
    device: Name
    time: Moment
    stream: Id
    seq: Count
    session: Id
    clock: Clock
    data: EventData
    run: Id | None = None
    attempt: int | None = None

    @property
    def type(self) -> str:
        """Name of the event on the wire."""
        return _TYPE_OF[type(self.data)]

    @property
    def is_terminal(self) -> bool:
        """Whether the run is over with this event."""
        return isinstance(self.data, TERMINAL)


def source_of(fleet: str, device: str) -> str:
    """Return the CloudEvents source of a board."""
    return f"edgeperf/{fleet}/dev/{device}"


def encode_event(event: Event) -> bytes:
    """Return *event* as it goes on the wire.

    Raises:
        MessageError: It is larger than any reader would take.
    """
    return encode(
        {
            "specversion": "1.0",
            "id": event.id,
            "source": source_of(event.fleet, event.device),
            "type": event.type,
            "time": event.time,
            "stream": event.stream,
            "seq": event.seq,
            "session": event.session,
            "clock": event.clock,
            "run": event.run,
            "attempt": event.attempt,
            "data": event.data,
        }
    )


def parse_event(raw: bytes, *, fleet: str, device: str) -> Event:
    """Read an event that came on the topic of *device*.

    Raises:
        MessageError: Not an event of ours, from another board than its topic says
            (``wrong-device``), or of a type or version unknown here (``unknown-type``):
            that one may be acknowledged, a newer agent wrote it.
    """
    document = decode_object(raw)
    envelope = convert(document, EventEnvelope, message_id=id_of(document))
    if envelope.source != source_of(fleet, device):
        raise MessageError(
            Code.WRONG_DEVICE,
            f"source {envelope.source!r} on the topic of {device!r}",
            message_id=envelope.id,
        )
    if (kind := EVENTS.get(envelope.type)) is None:
        raise MessageError(
            Code.UNKNOWN_TYPE, f"event type {envelope.type!r}", message_id=envelope.id
        )
    data = convert(envelope.data, kind, message_id=envelope.id)
    return Event(
        id=envelope.id,
        fleet=fleet,
        device=device,
        time=envelope.time,
        stream=envelope.stream,
        seq=envelope.seq,
        session=envelope.session,
        clock=envelope.clock,
        data=data,  # type: ignore[arg-type]  # EVENTS holds the members of EventData
        run=envelope.run,
        attempt=envelope.attempt,
    )


def stream_and_seq(raw: bytes) -> tuple[str, int] | None:
    """Return where an event stands that :func:`parse_event` refused; None if it does not say.

    A reader sets such an event aside and acknowledges it: its board would send it for ever.
    """
    try:
        place = convert(decode_object(raw), _Place)
    except MessageError:
        return None
    return place.stream, place.seq


class _Place(msgspec.Struct, frozen=True):
    stream: Id
    seq: Count
