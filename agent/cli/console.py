"""Where tables are drawn."""

import sys

from rich.console import Console

_PIPE_COLUMNS = 200


def stdout_console() -> Console:
    """Return the console on standard output.

    Into a file or a pipe it is wide, so that a line stays a line for scripts.
    """
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_COLUMNS)
