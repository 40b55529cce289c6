"""What the connection hands to the service, and what it is given."""

from typing import NamedTuple


class Patience(NamedTuple):
    """How long the connection waits.

    Attributes:
        keepalive_s: The broker declares the board lost after one and a half times this.
        longest_pause_s: Between two attempts to connect.
    """

    keepalive_s: int = 30
    longest_pause_s: float = 60.0


class Message(NamedTuple):
    """Something that came in on a topic."""

    topic: str
    payload: bytes


class Connected(NamedTuple):
    """The broker took the board in. ``session_present``: it remembers subscriptions."""

    session_present: bool


class Disconnected(NamedTuple):
    """The connection is gone or could not be made; ``reason`` is one line."""

    reason: str
    refused: bool = False


class NotTaken(NamedTuple):
    """The broker refused something this board published; ``reason`` is one line."""

    reason: str


class Stop(NamedTuple):
    """A signal asks the service to end."""


Incoming = Message | Connected | Disconnected | NotTaken | Stop


class Will(NamedTuple):
    """What the broker says, retained, when the board is lost."""

    topic: str
    payload: bytes
