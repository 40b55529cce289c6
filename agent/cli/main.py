"""``edgeperf``: finds the command, and turns every error into one line and a status."""

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from types import FrameType

import click

from edgeperf import EdgeperfError, InputError, __version__

#: Command -> where it is, and its line in ``--help``. Strings, so that help loads none.
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("run:run", "Measure a model on this board, now."),
    "show": ("show:show", "Show a result."),
    "models": ("listings:models", "List the models of the catalogue."),
    "tasks": ("listings:tasks", "List the tasks."),
    "backends": ("listings:backends", "List the runtimes, and why one is missing."),
    "doctor": ("doctor:doctor", "Tell what this board can measure and what is missing."),
    "agent": ("agent:agent", "Serve a coordinator: the service on a board."),
    "coordinator": ("coordinator:coordinator", "Collect a fleet's results and give it work."),
    "fleet": ("fleet:fleet", "Boards, runs, campaigns and results of a fleet."),
    "demo": ("demo:demo", "A whole fleet on this machine: one real run, start to end."),
}


class Interrupted(BaseException):
    """A signal asks us to end; unwinds everything, so that nothing is left behind.

    Attributes:
        number: The signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(f"edgeperf.agent.cli.{module}"), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}:{attribute} is not a click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="edgeperf", message="%(prog)s %(version)s")
def edgeperf() -> None:
    """Measure how fast, how accurately and at what energy a model runs on a board.

    Results carry a verdict first: VALID, SUSPECT or INVALID, and why.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    args = None if argv is None else list(argv)
    try:
        status = edgeperf.main(args=args, prog_name="edgeperf", standalone_mode=False)
    except BaseException as error:  # noqa: BLE001 - a user never sees a traceback unasked
        return _explain(error)
    return status if isinstance(status, int) else 0


def _explain(error: BaseException) -> int:
    """Say in one line what ended the command and return the exit status for it."""
    text, status = f"a bug: {type(error).__name__}: {error}", EdgeperfError.exit_code
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return InputError.exit_code
    if isinstance(error, BrokenPipeError):  # our reader went away: `edgeperf show | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if isinstance(error, click.ClickException):
        text, status = error.format_message(), InputError.exit_code
    elif isinstance(error, EdgeperfError):
        text, status = str(error), error.exit_code
    elif isinstance(error, Interrupted):
        text, status = "interrupted; nothing was kept", 128 + error.number
    elif isinstance(error, click.Abort):
        text, status = "aborted", 128 + signal.SIGINT
    elif "EDGEPERF_DEBUG" in os.environ:
        traceback.print_exception(error)
    else:
        text += "; EDGEPERF_DEBUG=1 shows where; please report it"
    sys.stderr.write(f"edgeperf: {' '.join(text.split())}\n")
    return status


def _interrupt(number: int, frame: FrameType | None) -> None:
    del frame
    for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)  # cleaning up takes less than a second
    raise Interrupted(number)
