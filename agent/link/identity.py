"""Who this board is and whom it obeys: written once by enrolment, readable by nobody else."""

import os
from pathlib import Path
from typing import Annotated

import msgspec

from edgeperf.agent.link.errors import LinkError, LinkInputError
from edgeperf.agent.messages import Broker, Keys, key_id, public_key
from edgeperf.agent.messages.ids import Count, Name

_FILE = "identity.json"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a board knows after enrolment.

    Attributes:
        fleet: Name of the fleet.
        device: Name of this board: its MQTT user name and, with a prefix, client id.
        broker: Where the broker is; ``host`` is set.
        keys: Public keys that commands must be signed with, base64.
        counter: Highest command counter used before the enrolment.
        http: Base URL for blobs, "" to send them over MQTT.
        token: For HTTP.
        ca: File with the certificates to trust instead of the system's.
        certificate: File with this board's certificate.
        private_key: File with the key of the certificate.
    """

    fleet: Name
    device: Name
    broker: Broker
    keys: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    counter: Count = 0
    http: str = ""
    token: str = ""
    ca: str | None = None
    certificate: str | None = None
    private_key: str | None = None

    def verifying_keys(self) -> Keys:
        """Return the public keys by their ids.

        Raises:
            InputError: One of them is not a key.
        """
        keys = [public_key(text) for text in self.keys]
        return {key_id(key): key for key in keys}


def read_identity(state: Path) -> Identity:
    """Read who this board is.

    Raises:
        LinkInputError: It was never enrolled, or the file is damaged.
    """
    path = state / _FILE
    try:
        identity = msgspec.json.decode(path.read_bytes(), type=Identity)
    except FileNotFoundError as error:
        raise LinkInputError(
            f"{path}: this board is not enrolled;"
            " run `edgeperf agent enroll COORDINATOR --code CODE`"
        ) from error
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LinkInputError(f"{path}: {error}; enrol this board again") from error
    if identity.broker.host is None:
        raise LinkInputError(f"{path}: broker.host: missing; enrol this board again")
    return identity


def write_identity(state: Path, identity: Identity) -> Path:
    """Write who this board is, for its owner's eyes only.

    Raises:
        LinkError: The directory cannot be written.
    """
    path = state / _FILE
    write_secret(path, msgspec.json.format(msgspec.json.encode(identity), indent=2) + b"\n")
    return path


def write_secret(path: Path, content: bytes) -> None:
    """Write *content* to *path*, mode 0600, whole or not at all.

    Raises:
        LinkError: The directory cannot be written.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except OSError as error:
        raise LinkError(f"{path}: cannot be written: {error.strerror or error}") from error
