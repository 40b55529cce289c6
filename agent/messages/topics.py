"""The topic tree: one board writes only below its own name.

::

    edgeperf/v1/{fleet}/dev/{device}/state   retained, QoS 1, last will
    edgeperf/v1/{fleet}/dev/{device}/desc    retained, QoS 1
    edgeperf/v1/{fleet}/dev/{device}/cmd     to the board, QoS 1, never retained
    edgeperf/v1/{fleet}/dev/{device}/evt     from the board, QoS 1
    edgeperf/v1/{fleet}/dev/{device}/ack     to the board, QoS 1
    edgeperf/v1/{fleet}/dev/{device}/tlm     from the board, QoS 0
    edgeperf/v1/{fleet}/dev/{device}/blob/{sha256}/{init|OFFSET|fin}
    edgeperf/v1/{fleet}/coord/state          retained, QoS 1, last will

Seven slashes and 256 bytes at most, which is what AWS IoT takes.
"""

import re
from typing import NamedTuple

from edgeperf.agent.messages.errors import Code, MessageError

ROOT = "edgeperf/v1"
_NAME = re.compile(r"[a-z0-9-]{1,40}")
_DEVICE_TOPIC = re.compile(
    rf"{ROOT}/(?P<fleet>[a-z0-9-]{{1,40}})/dev/(?P<device>[a-z0-9-]{{1,40}})"
    r"/(?P<leaf>state|desc|cmd|evt|ack|tlm|blob/(?P<sha>[0-9a-f]{64})/(?P<part>init|fin|[0-9]{1,15}))"
)


class DeviceTopic(NamedTuple):
    """A topic of a board, taken apart.

    Attributes:
        leaf: ``state``, ``desc``, ``cmd``, ``evt``, ``ack``, ``tlm`` or ``blob``.
        sha256: Of the blob, None elsewhere.
        part: ``init``, ``fin`` or the offset of a chunk; None elsewhere.
    """

    fleet: str
    device: str
    leaf: str
    sha256: str | None = None
    part: str | None = None


def is_name(text: str) -> bool:
    """Tell whether *text* can name a fleet or a board."""
    return _NAME.fullmatch(text) is not None


def device_topic(fleet: str, device: str, leaf: str) -> str:
    """Return the topic *leaf* of one board; ``+`` and ``#`` make it a filter."""
    return f"{ROOT}/{fleet}/dev/{device}/{leaf}"


def blob_topic(fleet: str, device: str, sha256: str, part: str | int) -> str:
    """Return the topic for one part of an upload over MQTT."""
    return f"{ROOT}/{fleet}/dev/{device}/blob/{sha256}/{part}"


def coordinator_topic(fleet: str) -> str:
    """Return the topic of the coordinator's own state."""
    return f"{ROOT}/{fleet}/coord/state"


def client_id(device: str) -> str:
    """Return the MQTT client id of a board: never random, never shared."""
    return f"edgeperf-{device}"


def parse_device_topic(topic: str) -> DeviceTopic:
    """Take a topic apart.

    Raises:
        MessageError: It is not a topic of a board.
    """
    match = _DEVICE_TOPIC.fullmatch(topic)
    if match is None:
        raise MessageError(Code.MALFORMED, f"topic {topic[:256]!r}: not a board's")
    leaf = match["leaf"].split("/", 1)[0]
    return DeviceTopic(match["fleet"], match["device"], leaf, match["sha"], match["part"])
