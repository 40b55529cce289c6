"""What a board reports: one ordered stream of events, each with an id and a ``seq``.

The stream is at-least-once and a reader keeps one of each id. Order is ``(stream, seq)``,
never time: a board's clock may be wrong. Gaps in ``seq`` are normal, an outbox under
pressure drops old progress.
"""

from typing import Annotated, Any, Literal

import msgspec

from edgeperf.agent.messages.decoding import convert, decode_object, encode, id_of
from edgeperf.agent.messages.errors import Code, MessageError
from edgeperf.agent.messages.event_data import EVENTS, TERMINAL, TYPE_OF, EventData
from edgeperf.agent.messages.ids import Count, Id, Name
from edgeperf.agent.messages.presence import Moment


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
        return TYPE_OF[type(self.data)]

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
