"""What can go wrong between a board and its coordinator."""

from edgeperf import EdgeperfError, InputError


class LinkError(EdgeperfError):
    """The link or the agent's own files failed; trying again may help."""


class LinkInputError(InputError):
    """The board's files or options are wrong; trying again will not help."""


class RefusedError(LinkInputError):
    """The broker or the coordinator refuses this board: credentials, certificate, protocol."""
