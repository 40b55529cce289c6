"""Speaks to SPEC PTDaemon: one line of command, one line of reply, over TCP.

PTDaemon owns the power analyzer, alone is trusted by MLPerf's power rules, and comes from SPEC
under its own licence; this is only the client. Every command and its reply is kept, as the
rules want them shown.

The trap: ``RL`` hands out unread samples once. Who asks, owns them.

Source:
    MLCommons power-dev, ``ptd_client_server/lib/server.py``.
"""

import re
from typing import NamedTuple

from edgeperf.power.base import Identity, MeterReplyError
from edgeperf.power.links import TcpPort

PORT = 8888
REPLY_S = 5.0
#: Ways to ask for unread samples: of all channels, of one, of a DC analyzer.
READ_COMMANDS = ("RL,*,*", "RL", "DC-RL")
MOST_SAMPLES = 500_000
_FIGURE = r"-?[0-9]{1,9}(?:\.[0-9]{1,12})?"


class PtdWatts(NamedTuple):
    """What ``Watts`` says of the measurement so far."""

    average_w: float
    lowest_w: float
    highest_w: float
    samples: int
    errors: int
    valid: int


def parse_watts(reply: str) -> PtdWatts | None:
    """Read the reply to ``Watts``; None if there is no result, which is sent as -1."""
    match = re.fullmatch(rf"Watts((?:,{_FIGURE}){{6}})", reply.strip())
    if match is None:
        return None
    average, low, high, *counts = (float(part) for part in match[1][1:].split(","))
    result = PtdWatts(average, low, high, *(int(count) for count in counts))
    return result if result.valid > 0 else None


def parse_uncertainty(reply: str) -> float | None:
    """Read the highest relative uncertainty from the reply to ``Uncertainty``; None if none."""
    match = re.fullmatch(rf"Uncertainty,{_FIGURE},{_FIGURE},({_FIGURE})(?:,{_FIGURE})*", reply)
    return float(match[1]) if match and float(match[1]) >= 0 else None


class PtdClient:
    """A connection to a PTDaemon.

    Args:
        port: ``HOST[:PORT]``.

    Attributes:
        messages: Every command and its reply so far.
    """

    def __init__(self, port: str) -> None:
        self.port = port
        self.messages: list[tuple[str, str]] = []
        self._line = TcpPort(port, PORT)
        self._read_command = 0
        self._initial: tuple[str, str] | None = None

    def ask(self, command: str) -> str:
        """Send a command and return its reply.

        Raises:
            MeterReplyError: None came within 5 s.
            MeterLostError: The connection is closed.
        """
        self._line.write(command.encode("ascii", "replace") + b"\r\n")
        raw = self._line.read_until(b"\n", REPLY_S)
        if not raw.endswith(b"\n"):
            raise MeterReplyError(self.port, f"no reply to {command} within {REPLY_S:g} s")
        reply = raw.decode("latin-1").strip()
        self.messages.append((command, reply))
        return reply

    def expect(self, command: str, beginning: str) -> None:
        """Send a command that must be answered with *beginning*.

        Raises:
            MeterReplyError: It was answered otherwise; says how.
        """
        reply = self.ask(command)
        if not reply.startswith(beginning):
            raise MeterReplyError(self.port, f"answered {command} with (saw {reply[:80]!r})")

    def identify(self) -> Identity:
        """Ask who is there.

        Raises:
            MeterReplyError: It is no PTDaemon; says what was seen.
        """
        hello = self.ask("Hello")
        if hello != "Hello, PTDaemon here!":
            raise MeterReplyError(
                self.port, f"no PTDaemon (saw {hello[:60]!r}); check host and port, {PORT} is usual"
            )
        text = self.ask("Identify")
        model, _, rest = text.partition(",")
        version = re.search(r"version=([^,]+)", rest)
        serial = re.search(r"YOKOGAWA;[^;]*;([^;,]*)", rest)
        return Identity(
            model=f"{model} behind PTDaemon",
            serial=serial[1] if serial else "",
            firmware=version[1] if version else "",
            details={"identify": text},
        )

    def set_ranges(self, voltage_v: float | None, current_a: float | None) -> None:
        """Set the analyzer's ranges; None is automatic. The first time keeps the old ones.

        Raises:
            MeterReplyError: PTDaemon refused.
        """
        if self._initial is None:
            self._initial = _initial_ranges(self.ask("RR"))
        for letter, value in (("V", voltage_v), ("A", current_a)):
            text = "Auto" if value is None else f"{value:g}"
            self.expect(f"SR,{letter},{text}", f"Range {letter} changed")

    def restore_ranges(self) -> None:
        """Set the ranges that were there at first."""
        if self._initial is not None:
            for letter, text in zip("VA", self._initial, strict=True):
                self.expect(f"SR,{letter},{text}", f"Range {letter} changed")
            self._initial = None

    def go(self, mark: str) -> None:
        """Begin to take a sample a second, under *mark*.

        Raises:
            MeterReplyError: PTDaemon refused.
        """
        if not self.ask(f"Go,1000,0,{mark}").startswith("Starting untimed measurement"):
            self.stop()  # one that a lost connection left behind
            self.expect(f"Go,1000,0,{mark}", "Starting untimed measurement")

    def stop(self) -> None:
        """End the measurement; it does no harm if there is none."""
        self.ask("Stop")

    def unread(self) -> list[str]:
        """Return the lines of the samples that nobody has read yet.

        Raises:
            MeterReplyError: The reply is not one that announces samples.
        """
        while True:
            reply = self.ask(READ_COMMANDS[self._read_command])
            if reply.startswith("No data"):
                return []
            if match := re.fullmatch(r"Last ([0-9]{1,6}) samples", reply):
                return [self._sample_line() for _ in range(min(int(match[1]), MOST_SAMPLES))]
            other = "Invalid number of parameters" in reply or "Unknown command" in reply
            if not other or self._read_command + 1 == len(READ_COMMANDS):
                raise MeterReplyError(self.port, f"does not hand out samples (saw {reply[:80]!r})")
            self._read_command += 1 if "Invalid" in reply or self._read_command else 2

    def _sample_line(self) -> str:
        raw = self._line.read_until(b"\n", REPLY_S)
        if not raw.endswith(b"\n"):
            raise MeterReplyError(self.port, "a sample that was announced did not come")
        return raw.decode("latin-1").strip()

    def drain(self) -> None:
        """Throw away what a bad exchange left."""
        self._line.drain()

    def close(self) -> None:
        """Close the connection."""
        self._line.close()


def _initial_ranges(reply: str) -> tuple[str, str]:
    """Return volts and amperes to set again, ``Auto`` unless a fixed range is known."""
    parts = reply.split(",")

    def at(place: int) -> str:
        fixed = len(parts) > place + 1 and parts[place] == "0"
        value = parts[place + 1] if fixed else ""
        known = re.fullmatch(_FIGURE, value) is not None and float(value) > 0
        return value if known else "Auto"

    return at(3), at(1)
