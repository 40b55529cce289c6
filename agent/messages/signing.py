"""Ed25519 signatures over canonical JSON, so that a broker has no power of command.

Signed is ``edgeperf {purpose} v1``, a newline, and the document without its ``sig``, keys
sorted, without white space. The document that was verified is the one that is acted on:
it is parsed once, and the structures are converted from that, so two readings of
one text (a key given twice, say) cannot differ. The purpose keeps an
acknowledgement from being taken for a command.
"""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from edgeperf import InputError
from edgeperf.agent.messages.decoding import canonical, decode_object, encode, id_of
from edgeperf.agent.messages.errors import Code, MessageError

COMMAND = "command"
ACK = "ack"

#: Key id -> public key: whom a board obeys.
Keys = Mapping[str, Ed25519PublicKey]


def key_id(key: Ed25519PublicKey) -> str:
    """Return the short name of a public key: the first 16 digits of its sha256."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]


def public_text(key: Ed25519PublicKey) -> str:
    """Return a public key as base64 text."""
    return base64.b64encode(key.public_bytes_raw()).decode("ascii")


def public_key(text: str) -> Ed25519PublicKey:
    """Read a public key from base64 text.

    Raises:
        InputError: It is not one.
    """
    try:
        return Ed25519PublicKey.from_public_bytes(base64.b64decode(text, validate=True))
    except ValueError as error:
        raise InputError(f"public key {text[:60]!r}: not 32 bytes in base64") from error


def sign(message: object, key: Ed25519PrivateKey, purpose: str) -> bytes:
    """Return *message* as JSON with ``key`` and ``sig``.

    Raises:
        MessageError: It is larger than any reader would take.
    """
    document: dict[str, Any] = msgspec.to_builtins(message, str_keys=True)
    document = decode_object(encode(document))
    document["key"] = key_id(key.public_key())
    signature = key.sign(_signed_bytes(document, purpose))
    return encode(document | {"sig": base64.b64encode(signature).decode("ascii")})


def verify(raw: bytes, keys: Keys, purpose: str) -> dict[str, Any]:
    """Return the document in *raw* without its signature, which is good.

    Raises:
        MessageError: Not JSON, unsigned, signed by a key not in *keys*, or altered.
    """
    document = decode_object(raw)
    message_id = id_of(document)
    signature, name = document.pop("sig", None), document.get("key")
    if not isinstance(signature, str) or not isinstance(name, str):
        raise MessageError(Code.UNSIGNED, "no signature", message_id=message_id)
    if (key := keys.get(name)) is None:
        raise MessageError(Code.UNKNOWN_KEY, f"key {name[:40]!r}", message_id=message_id)
    try:
        key.verify(base64.b64decode(signature, validate=True), _signed_bytes(document, purpose))
    except (InvalidSignature, ValueError) as error:
        raise MessageError(
            Code.BAD_SIGNATURE, "altered, or signed by another key", message_id=message_id
        ) from error
    return document


def _signed_bytes(document: dict[str, Any], purpose: str) -> bytes:
    return f"edgeperf {purpose} v1\n".encode() + canonical(document)
