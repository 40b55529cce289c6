"""A stand-in for SPEC PTDaemon: the commands that MLPerf's power flow uses, one sample a second."""

import time
from datetime import datetime, timezone

from edgeperf.power.simulate.bench import Bench
from edgeperf.power.simulate.tcp import TcpServer

IDENTITY = (
    "YokogawaWT310,1000,1,1,1,1,0,0,1,version=1.11.1-simulated,OS=Linux,mode=power,1,1,1,0,0,"
    "no_cal_date,YOKOGAWA;WT310;C2PH13047V;F1.03"
)
POWER_FACTOR = 0.6
UNCERTAINTY = "Uncertainty,0.006264,0.006105,0.009201,{0},0,{0},0"


class PtdDevice:
    """PTDaemon with a one-channel analyzer.

    Args:
        bench: The load; its voltage is the mains.
        peak_ratio: Peak of the current over its rms value; beyond three times a fixed range
            the power reads half, and nothing says so.
        read_command: What it hands out samples for: ``RL``, ``RL,*,*`` or ``DC-RL``.
        zone_h: Hours that its clock is off UTC.
        interval_s: Time between samples, shorter than in life for quick tests.
    """

    server = TcpServer
    tick_s = 0.0
    queue_bytes = 1 << 20

    def __init__(
        self,
        bench: Bench,
        *,
        peak_ratio: float = 1.4,
        read_command: str = "RL",
        zone_h: float = 0.0,
        interval_s: float = 1.0,
    ) -> None:
        self._bench = bench
        self._peak_ratio = peak_ratio
        self._read_command = read_command
        self._wall_s = time.time() - time.monotonic() + zone_h * 3600
        self._interval_s = interval_s
        self._seen = b""
        self._ranges = {"V": "300.0", "A": "Auto"}
        self._go_s: float | None = None
        self._taken = 0
        self._unread: list[str] = []
        self._watts: list[float] = []
        self._errors = 0

    def answer(self, data: bytes, now_s: float) -> bytes:
        """Answer every whole line with at least one."""
        *lines, self._seen = (self._seen + data)[-4096:].split(b"\n")
        self._sample(now_s)
        replies = (self._command(line.decode("latin-1").strip(), now_s) for line in lines)
        return b"".join(reply.encode("ascii") + b"\r\n" for reply in replies)

    def stream(self, now_s: float) -> list[bytes]:
        """Send nothing unasked."""
        self._sample(now_s)
        return []

    def _command(self, line: str, now_s: float) -> str:
        name, _, rest = line.partition(",")
        simple = {
            "Hello": "Hello, PTDaemon here!",
            "Identify": IDENTITY,
            "RR": f"Ranges,{self._auto('A')},{self._auto('V')}",
            "Watts": self._sums(),
            "Uncertainty": UNCERTAINTY.format(len(self._watts)),
        }
        if name in simple:
            return simple[name]
        if name == "SR":
            return self._set_range(rest)
        if name == "Go":
            return self._start(now_s)
        if name == "Stop":
            return self._stop()
        return self._read(line)

    def _auto(self, letter: str) -> str:
        text = self._ranges[letter]
        return "1,-1.0" if text == "Auto" else f"0,{text}"

    def _set_range(self, rest: str) -> str:
        letter, _, text = rest.partition(",")
        if letter not in self._ranges:
            return "Invalid number of parameters"
        self._ranges[letter] = text
        return f"Range {letter} changed"

    def _start(self, now_s: float) -> str:
        if self._go_s is not None:
            return "Error: measurement already in progress"
        self._go_s, self._taken, self._watts, self._errors = now_s, 0, [], 0
        return (
            "Starting untimed measurement, maximum 500000 samples at 1000ms with 0 rampup samples"
        )

    def _stop(self) -> str:
        if self._go_s is None:
            return "Error: no measurement to stop"
        self._go_s = None
        return "Stopping untimed measurement"

    def _sums(self) -> str:
        if not self._watts:
            return f"Watts,-1.000000,-1.000000,-1.000000,{self._errors},{self._errors},0"
        mean = sum(self._watts) / len(self._watts)
        low, high, count = min(self._watts), max(self._watts), len(self._watts)
        figures = f"{mean:.6f},{low:.6f},{high:.6f}"
        return f"Watts,{figures},{count + self._errors},{self._errors},{count}"

    def _read(self, line: str) -> str:
        if line != self._read_command:
            known = line.startswith("RL") and self._read_command == "RL"
            return "Invalid number of parameters" if known else "Unknown command"
        lines, self._unread = self._unread, []
        return "\r\n".join([f"Last {len(lines)} samples", *lines])

    def _sample(self, now_s: float) -> None:
        """Take the samples that are due, each the mean of its second."""
        while self._go_s is not None and self._go_s + (self._taken + 1) * self._interval_s <= now_s:
            self._taken += 1
            end_s = self._go_s + self._taken * self._interval_s
            moments = [end_s - (i + 0.5) / 32 * self._interval_s for i in range(32)]
            self._unread.append(self._line(float(self._bench.power_w(moments).mean()), end_s))

    def _line(self, power_w: float, end_s: float) -> str:
        volts = self._bench.voltage_v
        amps = power_w / volts / POWER_FACTOR
        fixed = self._ranges["A"]
        if fixed != "Auto" and amps * self._peak_ratio > 3 * float(fixed):
            power_w, amps = power_w / 2, amps / 2
        over = self._bench.over(end_s)
        if over:
            self._errors += 1
        else:
            self._watts.append(power_w)
        moment = datetime.fromtimestamp(self._wall_s + end_s, timezone.utc)
        stamp = moment.strftime("%m-%d-%Y %H:%M:%S.") + f"{moment.microsecond // 1000:03d}"
        values = (
            "inf,Volts,{1:.6f},Amps,inf,PF,-1.000000"
            if over
            else ("{0:.6f},Volts,{1:.6f},Amps,{2:.6f},PF,{3:.6f}")
        )
        line = f"Time,{stamp},Watts," + values.format(power_w, volts, amps, POWER_FACTOR)
        if self._read_command == "RL,*,*":  # the sum, then each channel
            line += "".join(f",Watts,{values.format(power_w, volts, amps, POWER_FACTOR)}")
        return line
