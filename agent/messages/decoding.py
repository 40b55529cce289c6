"""From any bytes to a checked structure, or one clean error.

Unknown fields are ignored, so that an older reader understands a newer writer; a known
field of the wrong type or out of range is refused. Every message of ours ends up here.
"""

from typing import Any, NoReturn, TypeVar

import msgspec

from edgeperf.agent.messages.errors import Code, MessageError

#: Most bytes of one JSON message. AWS IoT takes 128 KiB, the smallest broker limit we design to.
MAX_MESSAGE_BYTES = 96 * 1024
#: Most bytes of one chunk of a blob.
MAX_CHUNK_BYTES = 64 * 1024
#: Deepest nesting, far above any message of ours and far below any parser's stack.
_MAX_DEPTH = 40
_MAX_ID = 40

T = TypeVar("T")


def decode_object(raw: bytes) -> dict[str, Any]:
    """Parse *raw* into a JSON object within our limits.

    Raises:
        MessageError: Too large, not JSON, not an object, or nested too deep.
    """
    if len(raw) > MAX_MESSAGE_BYTES:
        raise MessageError(Code.TOO_LARGE, f"{len(raw)} bytes; at most {MAX_MESSAGE_BYTES}")
    try:
        document = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MessageError(Code.MALFORMED, f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise MessageError(Code.MALFORMED, f"a JSON {type(document).__name__}, not an object")
    _check_depth(document)
    return document


def convert(document: object, to: type[T], *, message_id: str | None = None) -> T:
    """Check parsed JSON against a structure.

    Raises:
        MessageError: A field is missing, of the wrong type or out of range; names it.
    """
    try:
        return msgspec.convert(document, to)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise MessageError(Code.MALFORMED, str(error), message_id=message_id) from error


def encode(message: object) -> bytes:
    """Return the JSON of one of our messages.

    Raises:
        MessageError: It is larger than any reader would take.
    """
    raw = msgspec.json.encode(message)
    if len(raw) > MAX_MESSAGE_BYTES:
        raise MessageError(Code.TOO_LARGE, f"{len(raw)} bytes; at most {MAX_MESSAGE_BYTES}")
    return raw


def canonical(document: dict[str, Any]) -> bytes:
    """Return the one spelling of *document* that is signed: sorted keys, no white space.

    Raises:
        MessageError: A number is outside what JSON can carry.
    """
    try:
        return msgspec.json.encode(document, order="sorted")
    except (OverflowError, ValueError, RecursionError, msgspec.EncodeError) as error:
        raise MessageError(Code.MALFORMED, f"cannot be written as JSON: {error}") from error


def id_of(document: dict[str, Any]) -> str | None:
    """Return the id that a refused message claims, for the refusal; None without a usable one."""
    value = document.get("id")
    return value if isinstance(value, str) and len(value) <= _MAX_ID and value.isascii() else None


def _check_depth(document: object) -> None:
    level: list[object] = [document]
    for _ in range(_MAX_DEPTH):
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    _too_deep()


def _children(node: object) -> list[object]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else []


def _too_deep() -> NoReturn:
    raise MessageError(Code.MALFORMED, f"nested deeper than {_MAX_DEPTH} levels")
