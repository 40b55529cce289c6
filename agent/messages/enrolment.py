"""How a board joins: a one-time code carries the trust, whatever the network in between.

``POST {coordinator}/v1/enroll`` with a :class:`SealedBox` of :class:`EnrolRequest`, answered
by a :class:`SealedBox` of :class:`EnrolReply` (``application/json`` both ways; 403 when no
outstanding code opens the box, 429 when too many were tried). The code itself is never
sent: both boxes are sealed with a key made of it by scrypt, so the answer proves that its
sender knows the code, and nobody on the way reads the passwords in it. A code has 50 random bits,
works once and dies within minutes; it must never be shorter.
"""

import base64
import hashlib
import os
import secrets
from typing import Annotated, TypeVar

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from edgeperf import InputError
from edgeperf.agent.messages.decoding import convert, decode_object, encode
from edgeperf.agent.messages.errors import Code, MessageError
from edgeperf.agent.messages.ids import Count, Name, Text

ENROL_PATH = "/v1/enroll"
REQUEST = "request"
REPLY = "reply"
#: Without I, L, O and U, which are misread.
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_CODE_LENGTH = 10

T = TypeVar("T")


class EnrolRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A board asks to join.

    Attributes:
        device: The name it wants.
        agent: Version of edgeperf.
        csr_pem: Certificate request whose common name is ``device``; the key stays here.
    """

    device: Name
    agent: Annotated[str, msgspec.Meta(max_length=40)]
    csr_pem: Annotated[str, msgspec.Meta(max_length=8000)] | None = None


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """Where the board finds the broker.

    Attributes:
        host: Name or address; None is the host that answered the enrolment.
        tls: Whether to speak TLS; ``ca_pem`` of the reply is trusted, else the system's.
    """

    host: Annotated[str, msgspec.Meta(max_length=255)] | None
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    tls: bool = False
    username: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    password: Annotated[str, msgspec.Meta(max_length=200)] | None = None


class EnrolReply(msgspec.Struct, frozen=True, kw_only=True):
    """A coordinator takes the board in.

    Attributes:
        keys: Public keys whose commands the board shall follow, base64.
        counter: Highest command counter used for this name so far.
        http: Base URL for blobs; None is the URL that answered; "" where there is none
            and blobs go over MQTT.
        token: Sent as ``Authorization: Bearer`` with every HTTP request.
    """

    fleet: Name
    device: Name
    broker: Broker
    keys: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1, max_length=8)]
    counter: Count = 0
    http: Annotated[str, msgspec.Meta(max_length=300)] | None = None
    token: Annotated[str, msgspec.Meta(max_length=200)] = ""
    ca_pem: Annotated[str, msgspec.Meta(max_length=20000)] | None = None
    cert_pem: Annotated[str, msgspec.Meta(max_length=20000)] | None = None


class SealedBox(msgspec.Struct, frozen=True, kw_only=True):
    """ChaCha20-Poly1305 under scrypt of the code; all three fields base64."""

    salt: Annotated[str, msgspec.Meta(max_length=40)]
    nonce: Annotated[str, msgspec.Meta(max_length=40)]
    box: str


def new_code() -> str:
    """Return a fresh one-time code, ``XXXXX-XXXXX``."""
    letters = "".join(secrets.choice(_ALPHABET) for _ in range(_CODE_LENGTH))
    return f"{letters[:5]}-{letters[5:]}"


def normalise_code(typed: str) -> str:
    """Return a code as :func:`new_code` made it, from what a person typed.

    Raises:
        InputError: It cannot be a code.
    """
    letters = typed.upper().replace("-", "").replace(" ", "")
    letters = letters.replace("O", "0").replace("I", "1").replace("L", "1")
    if len(letters) != _CODE_LENGTH or set(letters) - set(_ALPHABET):
        raise InputError(
            f"code {typed[:40]!r}: expected {_CODE_LENGTH} letters and digits as"
            " `edgeperf coordinator enroll` prints them"
        )
    return f"{letters[:5]}-{letters[5:]}"


def seal(message: object, code: str, purpose: str) -> bytes:
    """Return *message* sealed with *code*.

    Args:
        message: An :class:`EnrolRequest` or :class:`EnrolReply`.
        code: As :func:`normalise_code` returns it.
        purpose: :data:`REQUEST` or :data:`REPLY`; one cannot be passed off as the other.
    """
    salt, nonce = os.urandom(16), os.urandom(12)
    cipher = ChaCha20Poly1305(_key(code, salt))
    box = cipher.encrypt(nonce, msgspec.json.encode(message), purpose.encode())
    texts = [base64.b64encode(part).decode("ascii") for part in (salt, nonce, box)]
    return encode(SealedBox(salt=texts[0], nonce=texts[1], box=texts[2]))


def unseal(raw: bytes, code: str, purpose: str, to: type[T]) -> T:
    """Open what :func:`seal` made.

    Raises:
        MessageError: Not a box, sealed with another code (``bad-signature``), or not a
            message of the type *to*.
    """
    sealed = convert(decode_object(raw), SealedBox)
    try:
        salt, nonce, box = (
            base64.b64decode(part, validate=True)
            for part in (sealed.salt, sealed.nonce, sealed.box)
        )
        opened = ChaCha20Poly1305(_key(code, salt)).decrypt(nonce, box, purpose.encode())
    except (InvalidTag, ValueError) as error:
        raise MessageError(Code.BAD_SIGNATURE, "sealed with another code") from error
    return convert(decode_object(opened), to)


def _key(code: str, salt: bytes) -> bytes:
    return hashlib.scrypt(code.encode(), salt=salt, n=2**14, r=8, p=1, dklen=32)
