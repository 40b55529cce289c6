"""MLPerf-style benchmarks on edge boards: latency, throughput, accuracy and energy.

The error tree starts here::

    EdgeperfError          exit status 3: the board or a part of it failed
    └─ InputError          exit status 2: what the user gave cannot be used
"""

from typing import ClassVar

__version__ = "0.1.0"


class EdgeperfError(Exception):
    """Base of every error that edgeperf raises on purpose.

    The command line prints the message as one line and exits with ``exit_code``. Any
    other exception is a bug.

    Attributes:
        exit_code: Exit status of the command line when this error ends it.
    """

    exit_code: ClassVar[int] = 3


class InputError(EdgeperfError):
    """What the user gave (a file, an option, a field) cannot be used.

    The message says what, where, what was expected and what to do.
    """

    exit_code: ClassVar[int] = 2
