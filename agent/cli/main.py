"""``edgeperf``: finds the command, and turns every error into one line and a status."""

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from edgeperf import InputError, __version__
from edgeperf.agent.cli.console import open_standard_streams, say, stdout_may_close
from edgeperf.agent.cli.ending import end_on_signals, ending_of

#: Command -> where it is, and its line in ``--help``. Strings, so that help loads none.
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("run:run", "Measure a model on this board, now."),
    "show": ("show:show", "Show a result."),
    "decide": ("decide:decide", "Choose among many results by what is asked of them."),
    "spec": ("spec:spec", "Freeze a run's conditions, and hold a repeat to them."),
    "pack": ("pack:pack", "Put results with all their evidence into one archive."),
    "models": ("listings:models", "List the models of the catalogue."),
    "tasks": ("listings:tasks", "List the tasks."),
    "task": ("task:task", "Write and check task files for your own samples."),
    "backends": ("listings:backends", "List the runtimes, and why one is missing."),
    "meter": ("meter:meter", "Find, try and record power meters."),
    "simulate-meter": (
        "simulate_meter:simulate_meter",
        "Play a meter on a pty, for trying things out.",
    ),
    "ptdaemon": (
        "ptdaemon:ptdaemon",
        "MLPerf power: a ranging and a testing run through SPEC PTDaemon.",
    ),
    "doctor": ("doctor:doctor", "Tell what this board can measure and what is missing."),
    "overhead": ("overhead:overhead", "Measure what edgeperf itself adds on this board."),
    "agent": ("agent:agent", "Serve a coordinator: the service on a board."),
    "service": ("service:service", "Install edgeperf as a service of this system."),
    "coordinator": ("coordinator:coordinator", "Collect a fleet's results and give it work."),
    "fleet": ("fleet:fleet", "Boards, runs, campaigns and results of a fleet."),
    "demo": ("demo:demo", "A whole fleet on this machine: one real run, start to end."),
}


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
    end_on_signals()
    open_standard_streams()
    for stream in (sys.stdout, sys.stderr):  # a terminal that knows no "µ" gets a "?"
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    status: object = None
    args = None if argv is None else list(argv)
    try:
        with stdout_may_close():
            status = edgeperf.main(args=args, prog_name="edgeperf", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return InputError.exit_code
    except SystemExit as error:  # click's own end when our reader went away
        return error.code if isinstance(error.code, int) else 0
    except BaseException as error:  # noqa: BLE001 - a user never sees a traceback unasked
        return _tell(error)
    return status if isinstance(status, int) else 0


def _tell(error: BaseException) -> int:
    ending = ending_of(error)
    text = ending.text
    if ending.bug and "EDGEPERF_DEBUG" in os.environ:
        import traceback  # noqa: PLC0415 - it costs start-up time and is hardly ever needed

        traceback.print_exception(error)
    elif ending.bug:
        text += "; EDGEPERF_DEBUG=1 shows where; please report it"
    say(text)
    return ending.status
