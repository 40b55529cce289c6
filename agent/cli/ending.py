"""How a command ends: one line and an exit status, whatever went wrong; and signals."""

import signal
from types import FrameType
from typing import NamedTuple

import click

from edgeperf import EdgeperfError, InputError

_ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asks us to end; unwinds everything, so that nothing is left behind.

    Attributes:
        number: The signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Ending(NamedTuple):
    """What a person, and a script, get to know.

    Attributes:
        text: One line.
        status: Exit status.
        bug: Whether it is our fault.
    """

    text: str
    status: int
    bug: bool = False


def ending_of(error: BaseException) -> Ending:
    """Return how a command ends that *error* ended."""
    if isinstance(error, click.ClickException):
        return Ending(text=_line(error.format_message()), status=InputError.exit_code)
    if isinstance(error, EdgeperfError):
        return Ending(text=_line(str(error)), status=error.exit_code)
    if isinstance(error, Interrupted):
        return Ending(text="interrupted; nothing was kept", status=128 + error.number)
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return Ending(text="interrupted; nothing was kept", status=128 + signal.SIGINT)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return Ending(
            text=_line(f"{where}{error.strerror or error}"), status=EdgeperfError.exit_code
        )
    text = _line(f"a bug: {type(error).__name__}: {error}")
    return Ending(text=text, status=EdgeperfError.exit_code, bug=True)


def _line(text: str) -> str:
    return " ".join(text.split())


def end_on_signals() -> None:
    """From now on a signal that asks us to end raises :class:`Interrupted`, once."""
    for number in _ASKED:
        signal.signal(number, _interrupt)


def ignore_signals() -> None:
    """From now on the command ends by itself: its result is being put in its place."""
    for number in _ASKED:
        signal.signal(number, signal.SIG_IGN)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del frame
    ignore_signals()  # cleaning up takes less than a second
    raise Interrupted(number)
