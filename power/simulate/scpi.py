"""A bench supply that speaks SCPI, over TCP."""

from edgeperf.power.simulate.bench import Bench
from edgeperf.power.simulate.tcp import TcpServer

QUEUE_EMPTY = '0,"No error"'
UNDEFINED = '-113,"Undefined header"'


class ScpiDevice:
    """The supply.

    Args:
        bench: Its load and output voltage.
        identity: What it answers to ``*IDN?``.
        suffix: What must stand behind a question, such as `` CH1``.
    """

    server = TcpServer
    tick_s = 0.0
    queue_bytes = 4096

    def __init__(
        self,
        bench: Bench,
        *,
        identity: str = "RIGOL TECHNOLOGIES,DP832,DP8C0001,00.01.16",
        suffix: str = " CH1",
    ) -> None:
        self._bench = bench
        self._identity = identity
        self._suffix = suffix
        self._seen = b""
        self._error = QUEUE_EMPTY

    def answer(self, data: bytes, now_s: float) -> bytes:
        """Answer every whole line that is a question."""
        *lines, self._seen = (self._seen + data)[-4096:].split(b"\n")
        replies = (self._reply(line.decode("latin-1").strip(), now_s) for line in lines)
        return b"".join(reply.encode("ascii") + b"\n" for reply in replies if reply)

    def stream(self, now_s: float) -> list[bytes]:
        """Send nothing unasked."""
        del now_s
        return []

    def _reply(self, line: str, now_s: float) -> str:
        if line == "*IDN?":
            return self._identity
        if line == "*CLS":
            self._error = QUEUE_EMPTY
        elif line == "SYST:ERR?":
            error, self._error = self._error, QUEUE_EMPTY
            return error
        elif line.endswith(self._suffix) and line.startswith("MEAS:"):
            return self._measure(line.removesuffix(self._suffix), now_s)
        elif line:
            self._error = UNDEFINED
        return ""

    def _measure(self, question: str, now_s: float) -> str:
        volts, watts = self._bench.voltage_v, float(self._bench.power_w(now_s))
        values = {
            "MEAS:VOLT?": volts,
            "MEAS:CURR?": watts / volts,
            "MEAS:CURR:DC?": watts / volts,
            "MEAS:POW?": watts,
        }
        if self._bench.over(now_s):
            return "9.90000000E+37"
        if question not in values:
            self._error = UNDEFINED
            return ""
        return f"{values[question]:.4f}"
