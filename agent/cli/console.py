"""Where tables are drawn, and what happens when nobody reads them."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_COLUMNS = 200


@contextlib.contextmanager
def stdout_may_close() -> Iterator[None]:
    """Let a reader of standard output go away, as ``| head`` does, without an error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def stdout_console() -> "Console":
    """Return the console on standard output.

    Into a file or a pipe it is wide, so that a line stays a line for scripts.
    """
    from rich.console import Console  # noqa: PLC0415 - rich, only where something is drawn

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the process with status 1

    return Quiet(highlight=False, width=None if sys.stdout.isatty() else _PIPE_COLUMNS)
