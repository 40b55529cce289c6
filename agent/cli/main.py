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
}


class Terminated(BaseException):
    """SIGTERM or SIGHUP arrived; unwinds everything, so that nothing is left behind."""


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
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _terminate)
    try:
        status = edgeperf.main(
            args=None if argv is None else list(argv), prog_name="edgeperf", standalone_mode=False
        )
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return InputError.exit_code
    except click.ClickException as error:
        _say(error.format_message().replace("\n", " "))
        return InputError.exit_code
    except EdgeperfError as error:
        _say(str(error))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted; nothing was kept")
        return 128 + signal.SIGINT
    except Terminated:
        _say("terminated; nothing was kept")
        return 128 + signal.SIGTERM
    except BrokenPipeError:  # the reader of our output went away: `edgeperf show | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - a user never sees a traceback unasked
        if "EDGEPERF_DEBUG" in os.environ:
            traceback.print_exception(error)
        _say(
            f"a bug: {type(error).__name__}: {error}; with EDGEPERF_DEBUG=1 it shows where;"
            " please report it"
        )
        return EdgeperfError.exit_code
    return status if isinstance(status, int) else 0


def _say(text: str) -> None:
    sys.stderr.write(f"edgeperf: {text}\n")


def _terminate(number: int, frame: FrameType | None) -> None:
    del frame
    raise Terminated(number)
