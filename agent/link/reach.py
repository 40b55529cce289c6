"""Whether the broker takes this board: one connection, for a person who waits."""

import collections
import threading

from edgeperf.agent.link.connection import Connection
from edgeperf.agent.link.errors import LinkError, RefusedError
from edgeperf.agent.link.identity import Identity
from edgeperf.agent.link.incoming import Disconnected, Incoming
from edgeperf.agent.messages import client_id


def check_broker(identity: Identity, *, timeout_s: float = 15.0) -> None:
    """Connect once under a name of its own, and disconnect.

    Raises:
        RefusedError: The broker or its certificate says no.
        LinkError: It cannot be reached.
    """
    answers: collections.deque[Incoming] = collections.deque()
    answered = threading.Event()

    def take(incoming: Incoming) -> None:
        answers.append(incoming)
        answered.set()

    name = f"{client_id(identity.device)}-check"  # the agent may be connected under its own
    connection = Connection(identity, will=None, topics=(), deliver=take, client=name)
    connection.open()
    answered.wait(timeout_s)
    connection.close()
    if not answers:
        raise LinkError(f"{connection.where}: no answer within {timeout_s:g} s")
    first = answers[0]
    if isinstance(first, Disconnected):
        raise (RefusedError if first.refused else LinkError)(first.reason)
