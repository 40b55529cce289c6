"""Base of instruments that answer lines of text to lines of text.

A reply counts only if the whole line looks as it should; other lines (an echo, the ``AT`` of a
program that probes every port) are passed over. What came instead is in the error.
"""

import re
import time
from typing import ClassVar

from edgeperf.power.base import MeterError, MeterReplyError
from edgeperf.power.discover import find_port
from edgeperf.power.links import Line, open_line
from edgeperf.power.polled import Polled

#: ``MAKER,MODEL,SERIAL,FIRMWARE`` (IEEE 488.2, 10.14); a maker has a name.
IDENTITY = r"[A-Za-z][ -~]+,[ -~]*,[ -~]*,[ -~]*"


class Instrument(Polled):
    """An instrument behind a serial port, a TCP socket or USBTMC.

    Attributes:
        kind: Name in :data:`edgeperf.power.METERS`.
        port: Device path or ``HOST[:PORT]``.
        terminator: Ends a command.
        patience_s: How long a reply may take.
    """

    kind: ClassVar[str]
    terminator: bytes = b"\n"
    tcp_port: int = 5025
    patience_s: float = 1.0

    def __init__(self, port: str, baud: int) -> None:
        self.port = port
        self.baud = baud
        self._line: Line | None = None

    @property
    def line(self) -> Line:
        """The open link.

        Raises:
            MeterError: It is not open.
        """
        if self._line is None:
            raise MeterError(self.port, "is not open")
        return self._line

    def open(self) -> None:
        """Claim the port; without one, the only one that looks right."""
        self.port = self.port or find_port(self.kind)
        self._line = open_line(self.port, baud=self.baud, tcp_port=self.tcp_port)
        self._line.drain(0.0)

    def start(self) -> None:
        """Do nothing: the instrument measures all the time."""

    def stop(self) -> None:
        """Do nothing: the instrument measures all the time."""

    def close(self) -> None:
        """Let go of the port. Calling it twice does no harm."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def flush(self) -> None:
        """Throw away what a bad exchange left."""
        self.line.drain(0.05)

    def tell(self, command: str) -> None:
        """Send a command that is not answered."""
        self.line.write(command.encode("ascii") + self.terminator)

    def query(self, command: str, pattern: str) -> str:
        """Send a question and return the first line that looks like its answer.

        Args:
            command: The question.
            pattern: What the whole line must match, ends stripped.

        Raises:
            MeterReplyError: No such line came; says what did.
            MeterLostError: The port is gone.
        """
        self.tell(command)
        deadline_s = time.monotonic() + self.patience_s
        seen = b""
        while (left_s := deadline_s - time.monotonic()) > 0 and len(seen) < 1 << 16:
            raw = self.line.read_until(b"\n", left_s)
            seen += raw
            text = raw.decode("latin-1").strip()
            if raw.endswith(b"\n") and re.fullmatch(pattern, text):
                return text
        raise MeterReplyError(self.port, self.complaint(command, seen))

    def complaint(self, command: str, seen: bytes) -> str:
        """Say what is wrong when *seen* came instead of an answer to *command*."""
        link = f" at {self.baud} baud" if self.port.startswith("/") else ""
        if not seen:
            return f"no reply to {command}{link}; is it on, and set for this interface?"
        if any(byte > 0x7E or byte < 0x09 for byte in seen):  # noqa: PLR2004
            return (
                f"noise instead of a reply to {command}{link} (saw {seen[:24]!r}); give its baud="
            )
        return f"no answer to {command} that a {self.kind} gives (saw {seen[:40]!r})"
