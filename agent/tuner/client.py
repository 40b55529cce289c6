"""A run's side: ask the tuner to hold the board, and never fail for it.

What cannot be held is told in the report, which the result keeps; the measurement goes on.
The trap: the connection *is* the hold, so it must not be inherited by a worker. Python's
sockets are closed on exec.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from edgeperf.agent.board.kernel_files import read_text
from edgeperf.agent.tuner.knobs import Knob, choose
from edgeperf.agent.tuner.wire import (
    MAX_MESSAGE_BYTES,
    Report,
    Request,
    Setting,
    Verb,
    Wish,
    is_same,
)

SOCKET = Path("/run/edgeperf-tuner/socket")
_INSTALL = "sudo edgeperf service install"
_GONE = "the tuner went away; at its next start it puts back what it held"
_PATIENCE_S = 10.0


class Hold:
    """How a wish fared.

    Attributes:
        report: As last told: after setting, and in the end what was found before the release.
    """

    def __init__(self, report: Report) -> None:
        self.report = report


@contextmanager
def hold(wish: Wish, *, where: Path | None = None, root: Path = Path("/")) -> Iterator[Hold]:
    """Hold the board as wished while the context is open.

    Args:
        wish: What shall be held.
        where: The tuner's socket; None is where it always is.
        root: Root of the file tree.
    """
    knobs, missing = choose(root, wish)
    as_wished = all(is_same(read_text(knob.path) or "", knob.value) for knob in knobs)
    if not knobs or as_wished:
        held = Hold(_seen(knobs, missing))
        try:
            yield held
        finally:
            held.report = _seen(knobs, missing)
        return
    request = Request(verb=Verb.HOLD, wish=wish)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.settimeout(_PATIENCE_S)
        held = Hold(_ask(line, request, where or look_up(os.environ)))
        problem = held.report.problem
        try:
            yield held
        finally:
            if problem:
                held.report = _seen(knobs, missing, problem=problem)
            else:
                held.report = _exchange(line, Request(verb=Verb.RELEASE))
                if held.report.problem:
                    held.report = _seen(knobs, missing, problem=held.report.problem)


def problem_of(where: Path | None = None) -> str:
    """Return why the tuner would do nothing for this process; empty when it would."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.settimeout(_PATIENCE_S)
        return _ask(line, Request(verb=Verb.STATUS), where or look_up(os.environ)).problem


def look_up(environment: Mapping[str, str]) -> Path:
    """Return where the tuner's socket is: ``EDGEPERF_TUNER``, else the usual place."""
    return Path(environment.get("EDGEPERF_TUNER", str(SOCKET)))


def _ask(line: socket.socket, request: Request, where: Path) -> Report:
    try:
        line.connect(str(where))
    except FileNotFoundError:
        return Report(problem=f"nobody here may set it; {_INSTALL}")
    except PermissionError:
        text = "this user may not; sudo usermod -aG edgeperf $USER, and log in again"
        return Report(problem=text)
    except OSError as error:
        return Report(problem=f"{where}: {error.strerror or error}")
    return _exchange(line, request)


def _exchange(line: socket.socket, request: Request) -> Report:
    try:
        line.send(msgspec.json.encode(request))
        raw = line.recv(MAX_MESSAGE_BYTES)
        return msgspec.json.decode(raw, type=Report) if raw else Report(problem=_GONE)
    except (BrokenPipeError, ConnectionResetError):
        return Report(problem=_GONE)
    except (OSError, msgspec.DecodeError) as error:
        return Report(problem=f"the tuner does not answer: {error}")


def _seen(knobs: list[Knob], missing: list[str], *, problem: str = "") -> Report:
    """Report from the outside, without the tuner."""
    settings = []
    for knob in knobs:
        now = read_text(knob.path) or ""
        settings.append(
            Setting(
                knob=knob.knob,
                where=knob.where,
                path=str(knob.path),
                before=now,
                wanted=knob.value,
                now=now,
                is_held=is_same(now, knob.value),
            )
        )
    return Report(settings=tuple(settings), missing=tuple(missing), problem=problem)
