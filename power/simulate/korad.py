"""A Korad KA3005P: fixed-length replies, no line ends."""

import re

from edgeperf.power.simulate.bench import Bench

_COMMAND = re.compile(rb"\*IDN\?|[VI](?:OUT|SET)1\?|STATUS\?")


class KoradDevice:
    """The supply.

    Args:
        bench: Its load and output voltage.
        output: Whether the output is on.
        identity: What it answers to ``*IDN?``.
    """

    tick_s = 0.0
    queue_bytes = 256

    def __init__(
        self, bench: Bench, *, output: bool = True, identity: str = "KORADKA3005PV2.0"
    ) -> None:
        self._bench = bench
        self._output = output
        self._identity = identity
        self._seen = b""

    def answer(self, data: bytes, now_s: float) -> bytes:
        """Answer every whole question."""
        self._seen = (self._seen + data)[-64:]
        reply = b""
        while match := _COMMAND.search(self._seen):
            reply += self._reply(match.group(0), now_s)
            self._seen = self._seen[match.end() :]
        return reply

    def stream(self, now_s: float) -> list[bytes]:
        """Send nothing unasked."""
        del now_s
        return []

    def _reply(self, question: bytes, now_s: float) -> bytes:
        on = self._output
        if question == b"*IDN?":
            return self._identity.encode("ascii")
        if question == b"STATUS?":
            return bytes([0x41 if on else 0x01])
        if question.startswith(b"V"):
            return f"{self._bench.voltage_v if on else 0:05.2f}".encode("ascii")
        amps = float(self._bench.current_a(now_s)) if on else 0.0
        extra = b"K" if question == b"ISET1?" else b""  # some firmware adds a sixth byte
        return f"{amps:05.3f}".encode("ascii") + extra
