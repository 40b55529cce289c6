"""Names on the wire: identities made by the sender, and plain words.

An id is a UUID of version 7 (RFC 9562): it sorts by the time it was made, which keeps
database indexes small, and needs no authority. Only the sender makes it, so that a
message that is sent twice is the same message.
"""

import os
import time
import uuid
from typing import Annotated

import msgspec

#: An id: UUIDv7 as text when we make it; other senders may use a ULID.
Id = Annotated[str, msgspec.Meta(pattern="^[0-9A-Za-z-]{16,40}$", description="UUIDv7 or ULID")]
#: Name of a fleet or a board, as it stands in topics.
Name = Annotated[str, msgspec.Meta(pattern="^[a-z0-9-]{1,40}$")]
#: A plain word: backend, task, scenario, label.
Word = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]
#: Digest of a blob, lower-case hexadecimal.
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
#: One line for people.
Text = Annotated[str, msgspec.Meta(max_length=2000)]
#: A count of things or bytes.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


def new_id() -> str:
    """Return a fresh UUIDv7."""
    random = int.from_bytes(os.urandom(10), "big")
    value = (time.time_ns() // 1_000_000) << 80 | random
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))
