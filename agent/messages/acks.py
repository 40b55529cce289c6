"""What a coordinator says back: which events it has for good, which bytes of a blob.

An acknowledgement names every event it stored, as ranges of ``seq``, in any order; there
is no "up to", so a gap never holds anything back. It is sent after the
commit, and a board keeps an event until it has read it. Signed, or a broker could make
boards forget results.
"""

from typing import Annotated

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edgeperf.agent.messages.decoding import MAX_CHUNK_BYTES, convert, decode_object
from edgeperf.agent.messages.errors import Code, MessageError
from edgeperf.agent.messages.ids import Count, Id, Sha256
from edgeperf.agent.messages.presence import Moment
from edgeperf.agent.messages.signing import ACK, Keys, sign, verify

Range = tuple[Count, Count]


class Ack(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="events"):
    """Events that are stored.

    Attributes:
        subject: ``{fleet}/{device}``.
        stream: The outbox they came from.
        seqs: Ranges, both ends included.
        time: The coordinator's clock, from which a board estimates its own error.
    """

    subject: str
    stream: Id
    seqs: Annotated[tuple[Range, ...], msgspec.Meta(max_length=1000)]
    time: Moment


class BlobStatus(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="blob"):
    """How far an upload over MQTT is; sent on ``init``, on ``fin`` and now and then between.

    Attributes:
        subject: ``{fleet}/{device}``.
        sha256: Of the blob.
        missing: Byte ranges still wanted, end excluded; the first few are enough.
        complete: The blob is stored and its digest was checked.
    """

    subject: str
    sha256: Sha256
    missing: Annotated[tuple[Range, ...], msgspec.Meta(max_length=100)]
    complete: bool


Downlink = Ack | BlobStatus


class BlobInit(msgspec.Struct, frozen=True, kw_only=True):
    """At ``blob/{sha256}/init``: a blob is about to come in chunks of ``chunk_bytes``.

    Each chunk is the raw bytes at ``blob/{sha256}/{offset}``; ``blob/{sha256}/fin`` has
    an empty payload and asks for a :class:`BlobStatus`.
    """

    size_bytes: Count
    chunk_bytes: Annotated[int, msgspec.Meta(ge=1, le=MAX_CHUNK_BYTES)]


def sign_ack(message: Downlink, key: Ed25519PrivateKey) -> bytes:
    """Return *message* as it goes on the wire."""
    return sign(message, key, ACK)


def parse_ack(raw: bytes, keys: Keys, *, fleet: str, device: str) -> Downlink:
    """Read what came at ``ack``.

    Raises:
        MessageError: Not one of ours, not signed by one of *keys*, or for another board.
    """
    message: Downlink = convert(verify(raw, keys, ACK), Downlink)  # type: ignore[arg-type]
    if message.subject != f"{fleet}/{device}":
        raise MessageError(Code.WRONG_DEVICE, f"it is for {message.subject[:90]!r}")
    return message


def parse_blob_init(raw: bytes) -> BlobInit:
    """Read the announcement of an upload.

    Raises:
        MessageError: It is not one.
    """
    return convert(decode_object(raw), BlobInit)


def ranges(seqs: list[int]) -> tuple[Range, ...]:
    """Return sorted, closed ranges that cover exactly *seqs*."""
    found: list[Range] = []
    for seq in sorted(set(seqs)):
        if found and found[-1][1] == seq - 1:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return tuple(found)
