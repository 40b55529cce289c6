"""What a run says while it goes on: to a person at a terminal, and to a program."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from edgeperf.agent.events import Finished, Phase, Progress

if TYPE_CHECKING:
    from conftest import Outcome, Product

pytestmark = pytest.mark.slow

QUICK = ("digits", "--preset", "smoke", "--min-duration", "2")
#: Makes the terminal on standard input its own, then becomes the command.
AT_TERMINAL = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    " os.execv(sys.argv[1], sys.argv[1:])"
)


def rising(outcome: "Outcome") -> Iterator[tuple[Phase, list[float]]]:
    """Yield each phase of a run, in order, with its percentages."""
    progress = [event for event in outcome.events if isinstance(event, Progress)]
    for phase in dict.fromkeys(event.phase for event in progress):
        yield phase, [event.percent for event in progress if event.phase is phase]


@pytest.mark.parametrize("scenario", ["SingleStream", "MultiStream", "Offline", "Server"])
def test_events_tell_how_far_the_run_is(product: "Product", scenario: str) -> None:
    """Phases come in order, each from nought upwards; the end says where the result is."""
    outcome = product.run(*QUICK, "--scenario", scenario)
    phases = list(rising(outcome))
    order = list(Phase)
    places = [order.index(phase) for phase, _ in phases]
    assert places == sorted(places)
    assert {Phase.PREPARE, Phase.ACCURACY, Phase.PERFORMANCE} <= {phase for phase, _ in phases}
    for _, percent in phases:
        assert percent == sorted(percent)
        assert percent[0] == 0.0
        assert percent[-1] <= 100.0
    assert dict(phases)[Phase.PERFORMANCE][-1] > 10.0
    last = outcome.events[-1]
    assert isinstance(last, Finished)
    assert last.exit_code == outcome.code
    assert product.folder / last.directory == outcome.directory
    assert last.status == outcome.result.verdict.status.value
    left = [e.eta_s for e in outcome.events if isinstance(e, Progress) and e.eta_s is not None]
    assert left
    assert all(eta_s >= 0 for eta_s in left)


class Terminal:
    """A run at a real terminal.

    Attributes:
        process: The command, which leads the terminal's foreground group.
        output: What the terminal has shown.
    """

    def __init__(self, product: "Product", *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        environment = {**product.environment, "TERM": "xterm"}
        command = [*product.command, "run", *arguments]
        self.process = subprocess.Popen(
            [sys.executable, "-c", AT_TERMINAL, *command],
            cwd=product.folder,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self.output = ""

    def read_until(self, text: str | None) -> None:
        """Read until *text* is shown; None is until the end."""
        with contextlib.suppress(OSError):  # the other end was closed
            while (text is None or text not in self.output) and (
                chunk := os.read(self._ours, 1 << 16)
            ):
                self.output += chunk.decode(errors="replace")

    def press(self, key: bytes) -> None:
        """Press a key."""
        os.write(self._ours, key)

    def end(self) -> int:
        """Read all that is left and return the exit status."""
        self.read_until(None)
        code = self.process.wait(30)
        os.close(self._ours)
        return code


def test_bar_at_a_terminal(product: "Product") -> None:
    """A person sees the phases and the time that is left, then the verdict, and a cursor."""
    terminal = Terminal(product, *QUICK)
    code = terminal.end()
    assert code in (0, 1), terminal.output
    for shown in ("accuracy test", "performance test", " left", "digits on tflite"):
        assert shown in terminal.output
    assert "Traceback" not in terminal.output
    verdict = ("VALID" if code == 0 else "SUSPECT", "INVALID")
    assert any(word in terminal.output for word in verdict)
    assert terminal.output.rfind("\x1b[?25h") > terminal.output.rfind("\x1b[?25l")


def test_ctrl_c_at_a_terminal(product: "Product") -> None:
    """The key itself: one line, the cursor back, nothing left."""
    terminal = Terminal(product, *QUICK[:-2], "--min-duration", "60")
    terminal.read_until("performance test")
    terminal.press(b"\x03")
    assert terminal.end() == 128 + signal.SIGINT
    assert "edgeperf: interrupted; nothing was kept" in terminal.output
    assert "Traceback" not in terminal.output
    assert terminal.output.rfind("\x1b[?25h") > terminal.output.rfind("\x1b[?25l")
    assert not product.output.exists()


def test_lines_where_there_is_no_terminal(product: "Product") -> None:
    """In a log each phase is one line, without control characters."""
    outcome = product.run(*QUICK)
    lines = outcome.stderr.splitlines()
    assert lines[0] == "edgeperf: digits on tflite, SingleStream"
    assert "edgeperf: performance test" in lines
    assert len(lines) == len(set(lines))
    assert "\x1b" not in outcome.stderr + outcome.stdout
