"""What can be wrong with what a decision is asked for."""

from edgeperf import InputError


class DecideError(InputError):
    """A result, a constraint or an option of ``edgeperf decide`` cannot be used."""
