"""What the coordinator asks of a broker, and where its clients find it."""

import socket
from pathlib import Path
from typing import NamedTuple, Protocol

from edgeperf import EdgeperfError, InputError

#: Our own user at a broker that we configure; no board can have this name.
COORDINATOR_USER = "_coordinator"
LOOPBACK = "127.0.0.1"


class BrokerError(EdgeperfError):
    """The broker cannot be started or reached; the message says which and why."""


class BrokerConfigError(InputError):
    """What the user said about the broker cannot be used."""


class Endpoint(NamedTuple):
    """How the coordinator itself reaches the broker, and how boards do.

    Attributes:
        host: For the coordinator.
        board_host: For boards; None is "wherever you enrolled".
        tls: Whether the boards' port speaks TLS.
        own_tls: Whether the coordinator's own connection does.
        own_port: The coordinator's port.
        port: The boards' port.
        ca_file: CA of the server, None for the system's.
        cert_file: Our client certificate, with ``key_file``; None without mTLS.
    """

    host: str
    own_port: int
    own_tls: bool
    board_host: str | None
    port: int
    tls: bool
    username: str | None
    password: str | None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None


class Accounts(NamedTuple):
    """Who may connect: board -> password, and our own password."""

    boards: dict[str, str]
    own: str


class Broker(Protocol):
    """A broker that runs, or is joined, while the context is open."""

    #: What it is, for people.
    name: str

    def start(self, accounts: Accounts) -> Endpoint:
        """Start or join it; returns when it listens.

        Raises:
            BrokerError: It does not start or answer.
        """
        ...

    def set_accounts(self, accounts: Accounts) -> None:
        """Let other boards in or out from now on."""
        ...

    def tend(self) -> None:
        """Start it again if it died; called about once a second.

        Raises:
            BrokerError: It died again and again.
        """
        ...

    def stop(self) -> None:
        """Stop it, if it is ours."""
        ...


def free_port(host: str = LOOPBACK) -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def check_free(host: str, port: int) -> None:
    """Refuse a port that is taken.

    Raises:
        BrokerError: Someone listens there already.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise BrokerError(
                f"broker port {port} on {host}: {error.strerror}; choose another with --broker-port"
            ) from error


def listens(host: str, port: int) -> bool:
    """Tell whether somebody answers there."""
    try:
        with socket.create_connection((host, port), timeout=0.5):
            return True
    except OSError:
        return False
