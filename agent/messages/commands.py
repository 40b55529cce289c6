"""What a coordinator asks of a board. Every command is signed and says for whom it is.

A command's ``id`` makes it one thing however often it arrives; ``run`` and ``attempt`` do
the same for a run. ``counter`` rises by one with each command to a board and never
goes back, ``deadline`` ends its life: a board without a trustworthy clock leaves the deadline
out and relies on the counter and the journal.
"""

from typing import Annotated, Any, Literal

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edgeperf.agent.messages.decoding import convert, id_of
from edgeperf.agent.messages.errors import Code, MessageError
from edgeperf.agent.messages.ids import Count, Id, Name, Sha256, Text
from edgeperf.agent.messages.presence import Moment
from edgeperf.agent.messages.signing import COMMAND, Keys, sign, verify
from edgeperf.agent.messages.wirespec import spec_sha256

Seconds = Annotated[float, msgspec.Meta(gt=0, le=7 * 86400)]


class ModelRef(msgspec.Struct, frozen=True, kw_only=True):
    """A model by its digest.

    Attributes:
        sha256: Its identity; the board's policy and cache go by it.
        size_bytes: A download that grows beyond it is given up.
        format: File ending that the backend expects: ``tflite``, ``onnx``, ``xml``.
        name: For people.
    """

    sha256: Sha256
    size_bytes: Count
    format: Annotated[str, msgspec.Meta(pattern="^[a-z0-9]{1,12}$")]
    name: Text = ""


class HoldTo(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen spec that a run is held to. Nothing in it is run, or names a file of the board.

    Attributes:
        spec: The frozen spec as data, with its digest.
        allow: Conditions that need not be held.
    """

    spec: dict[str, Any]
    allow: Annotated[tuple[Name, ...], msgspec.Meta(max_length=64)] = ()


class RunStart(msgspec.Struct, frozen=True, kw_only=True):
    """Run one spec once.

    Attributes:
        run: The run's id, made by the sender.
        attempt: 1 for the first; a retry is the same run with the next attempt.
        spec: A :class:`~edgeperf.agent.spec.RunSpec` as data, whole, never a name for one.
        spec_sha256: Its identity, checked by the board.
        model: The file behind ``spec.model``; None when that is a name of the board's own
            catalogue.
        timeout_s: The watchdog stops the run after so long; None is the board's limit.
        cool_to_c: The run starts when the board is no warmer.
        cool_timeout_s: ... or after so long, whatever the temperature.
        files: Upload the whole result directory, not only ``result.json``.
        hold_to: Refuse the run unless the board holds this; its result says that it did.
    """

    run: Id
    attempt: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    spec: dict[str, Any]
    spec_sha256: Sha256
    model: ModelRef | None = None
    timeout_s: Seconds | None = None
    cool_to_c: Annotated[float, msgspec.Meta(ge=0, le=150)] | None = None
    cool_timeout_s: Seconds = 600.0
    files: bool = True
    hold_to: HoldTo | None = None


class RunCancel(msgspec.Struct, frozen=True, kw_only=True):
    """Stop a run, or take it out of the queue. The board frees everything within 3 s."""

    run: Id
    reason: Text = "cancelled by the coordinator"


class Describe(msgspec.Struct, frozen=True, kw_only=True):
    """Look at the board again and publish its description."""


class ModelPrefetch(msgspec.Struct, frozen=True, kw_only=True):
    """Download a model from the coordinator into the cache."""

    model: ModelRef


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """Take no new runs (``on``), or take them again."""

    on: bool = True
    reason: Text = ""


class Selftest(msgspec.Struct, frozen=True, kw_only=True):
    """Check the board and answer with what was found."""


class Ping(msgspec.Struct, frozen=True, kw_only=True):
    """Answer at once."""


CommandData = RunStart | RunCancel | Describe | ModelPrefetch | Drain | Selftest | Ping

#: Name in ``type`` -> its data. A new command is one class, one line here and one in CommandData.
COMMANDS: dict[str, type[msgspec.Struct]] = {
    "edgeperf.run.start.v1": RunStart,
    "edgeperf.run.cancel.v1": RunCancel,
    "edgeperf.describe.v1": Describe,
    "edgeperf.model.prefetch.v1": ModelPrefetch,
    "edgeperf.drain.v1": Drain,
    "edgeperf.selftest.v1": Selftest,
    "edgeperf.ping.v1": Ping,
}
_TYPE_OF = {data: name for name, data in COMMANDS.items()}


class CommandEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """A command on the wire, without ``key`` and ``sig``; ``data`` is not yet checked.

    Attributes:
        source: ``edgeperf/{fleet}/coord``.
        subject: ``{fleet}/{device}``: the one board that may follow it.
        nonce: Random; two commands that are alike still have different bytes.
        issued: Sender's clock.
        deadline: Not to be begun after this, sender's clock.
        counter: Rises with each command of this sender to this board, from 1.
    """

    specversion: Literal["1.0"]
    id: Id
    source: Annotated[str, msgspec.Meta(max_length=120)]
    subject: Annotated[str, msgspec.Meta(max_length=90)]
    type: Annotated[str, msgspec.Meta(max_length=80)]
    nonce: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    issued: Moment
    deadline: Moment
    counter: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    data: dict[str, Any]


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command, checked; see :class:`CommandEnvelope` for the fields."""

    id: Id
    fleet: Name
    device: Name
    nonce: str
    issued: Moment
    deadline: Moment
    counter: int
    data: CommandData

    @property
    def type(self) -> str:
        """Name of the command on the wire."""
        return _TYPE_OF[type(self.data)]

    @property
    def name(self) -> str:
        """Name of the command for people: ``run.start``, ``drain``."""
        return self.type.removeprefix("edgeperf.").rsplit(".", 1)[0]


def sign_command(command: Command, key: Ed25519PrivateKey) -> bytes:
    """Return *command* as it goes on the wire.

    The bytes are to be kept: sent again, they are the same command.

    Raises:
        MessageError: It is larger than any reader would take.
    """
    envelope = CommandEnvelope(
        specversion="1.0",
        id=command.id,
        source=f"edgeperf/{command.fleet}/coord",
        subject=f"{command.fleet}/{command.device}",
        type=command.type,
        nonce=command.nonce,
        issued=command.issued,
        deadline=command.deadline,
        counter=command.counter,
        data=msgspec.to_builtins(command.data, str_keys=True),
    )
    return sign(envelope, key, COMMAND)


def parse_command(raw: bytes, keys: Keys, *, fleet: str, device: str) -> Command:
    """Read a command. Whether it is fresh and allowed is the board's journal's to say.

    Raises:
        MessageError: Not signed by one of *keys*, or as :func:`read_command`.
    """
    return read_command(verify(raw, keys, COMMAND), fleet=fleet, device=device)


def read_command(document: dict[str, Any], *, fleet: str, device: str) -> Command:
    """Read a command whose signature was verified.

    Raises:
        MessageError: Not a command of ours, for another board, or of an unknown type.
    """
    envelope = convert(document, CommandEnvelope, message_id=id_of(document))
    if envelope.subject != f"{fleet}/{device}":
        raise MessageError(
            Code.WRONG_DEVICE, f"it is for {envelope.subject!r}", message_id=envelope.id
        )
    if (kind := COMMANDS.get(envelope.type)) is None:
        raise MessageError(Code.UNKNOWN_TYPE, f"command {envelope.type!r}", message_id=envelope.id)
    data = convert(envelope.data, kind, message_id=envelope.id)
    return Command(
        id=envelope.id,
        fleet=fleet,
        device=device,
        nonce=envelope.nonce,
        issued=envelope.issued,
        deadline=envelope.deadline,
        counter=envelope.counter,
        data=data,  # type: ignore[arg-type]  # COMMANDS holds the members of CommandData
    )


def run_start(spec: dict[str, Any], **fields: Any) -> RunStart:
    """Return the command's data for *spec*, its digest filled in.

    Args:
        spec: As :func:`~edgeperf.agent.messages.wirespec.spec_to_wire` makes it.
        fields: The other fields of :class:`RunStart`.

    Raises:
        MessageError: The spec does not fit the wire.
    """
    return RunStart(spec=spec, spec_sha256=spec_sha256(spec), **fields)
