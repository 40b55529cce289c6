"""The agent service: the board's end of the wire. Import from here."""

from edgeperf.agent.link.errors import LinkError, LinkInputError, RefusedError
from edgeperf.agent.link.identity import Identity, read_identity, write_identity
from edgeperf.agent.link.policy import BoardFile, Policy, Storage, read_board_file
from edgeperf.agent.link.reach import check_broker
from edgeperf.agent.link.service import Service
from edgeperf.agent.link.settings import Settings, default_state, read_settings

__all__ = [
    "BoardFile",
    "Identity",
    "LinkError",
    "LinkInputError",
    "Policy",
    "RefusedError",
    "Service",
    "Settings",
    "Storage",
    "check_broker",
    "default_state",
    "read_board_file",
    "read_identity",
    "read_settings",
    "write_identity",
]
