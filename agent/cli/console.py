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


def open_standard_streams() -> None:
    """Put the null device where the caller closed a standard stream.

    Otherwise the next file that is opened takes its number, and gets what is printed.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 - for the whole life


def say(text: str) -> None:
    """Write one line to standard error; a place that takes none does not stop a run."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"edgeperf: {text}\n")
        sys.stderr.flush()


def stdout_console() -> "Console":
    """Return the console on standard output.

    Into a file or a pipe it is wide, so that a line stays a line for scripts.
    """
    from rich.console import Console  # noqa: PLC0415 - rich, only where something is drawn

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the process with status 1

    return Quiet(highlight=False, width=None if sys.stdout.isatty() else _PIPE_COLUMNS)
