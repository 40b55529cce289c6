r"""A Yokogawa WT310E on RS-232: CR LF, NR3 numbers, its integrator and condition register."""

from edgeperf.power.simulate.bench import Bench

IDENTITY = "YOKOGAWA,WT310E,C2PH13047V,F1.03"
UPDATES_S = {"100MS": 0.1, "250MS": 0.25, "500MS": 0.5, "1S": 1.0, "2S": 2.0, "5S": 5.0}
VOLT_RANGES = (15.0, 30.0, 60.0, 150.0, 300.0, 600.0)
AMP_RANGES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
UNDEFINED = '113,"Undefined header"'


class Wt310Device:
    """The analyzer.

    Args:
        bench: What it measures; its voltage is the supply.
        peak_ratio: Peak of the current over its rms value; beyond three times the range the
            power reads too low, and only the condition register says so.
        identity: What it answers to ``*IDN?``.
    """

    tick_s = 0.0
    queue_bytes = 4096

    def __init__(self, bench: Bench, *, peak_ratio: float = 1.4, identity: str = IDENTITY) -> None:
        self._bench = bench
        self._peak_ratio = peak_ratio
        self._identity = identity
        self._seen = b""
        self._settings = {":RATE": "250MS", ":INP:VOLT:RANG": "300", ":INP:CURR:RANG": "20"}
        self._settings |= {f":NUM:NORM:ITEM{n}": f"{item},1" for n, item in enumerate("UIP", 1)}
        self._error = '0,"No error"'
        self._started_s: float | None = None
        self._integrated_j = 0.0
        self._update = (-1, 0.0)
        self._over = self._peak = False

    def answer(self, data: bytes, now_s: float) -> bytes:
        """Carry out whole commands, return the replies to questions."""
        *lines, self._seen = (self._seen + data)[-4096:].split(b"\n")
        replies = (self._command(line.decode("latin-1").strip(), now_s) for line in lines)
        return b"".join(reply.encode("ascii") + b"\r\n" for reply in replies if reply)

    def stream(self, now_s: float) -> list[bytes]:
        """Send nothing unasked."""
        del now_s
        return []

    def _command(self, line: str, now_s: float) -> str:
        name, _, argument = line.partition(" ")
        if name.endswith("?"):
            return self._question(name, now_s)
        if name == ":INTEG:STAR":
            self._started_s, self._integrated_j = now_s, 0.0
        elif name in (":INTEG:STOP", ":INTEG:RES"):
            self._started_s = None
        elif name == "*CLS":
            self._error = '0,"No error"'
        elif name.startswith((":COMM", ":STAT", ":SYST", ":NUM", ":INP", ":INTEG", ":RATE")):
            self._settings[name] = argument
        elif name:
            self._error = UNDEFINED
        return ""

    def _question(self, name: str, now_s: float) -> str:
        self._refresh(now_s)
        if name == "*IDN?":
            return self._identity
        if name == ":STAT:ERR?":
            error, self._error = self._error, '0,"No error"'
            return error
        if name == ":INTEG:STAT?":
            return "RESET" if self._started_s is None else "START"
        return self._measured(name)

    def _measured(self, name: str) -> str:
        if name in (":INP:VOLT:RANG?", ":INP:CURR:RANG?"):
            return f"{self._range(name[:-1]):.1E}"
        if name == ":STAT:COND?":
            return str(self._condition())
        if name == ":NUM:NORM:VAL?":
            return ",".join(self._value(n) for n in range(1, self._count() + 1))
        self._error = UNDEFINED
        return ""

    def _count(self) -> int:
        return int(self._settings.get(":NUM:NORM:NUM", "3"))

    def _range(self, name: str) -> float:
        """Return a range; auto takes the one that fits the load."""
        if self._settings.get(f"{name.removesuffix('RANG')}AUTO", "ON") == "OFF":
            return float(self._settings[name].rstrip("VA"))
        volts = self._bench.voltage_v
        needed = volts if "VOLT" in name else self._update[1] / volts
        ranges = VOLT_RANGES if "VOLT" in name else AMP_RANGES
        return next((one for one in ranges if one * 1.3 >= needed), ranges[-1])

    def _refresh(self, now_s: float) -> None:
        """Make the mean power of the last whole update interval the value."""
        update_s = UPDATES_S[self._settings[":RATE"]]
        self._over = self._bench.over(now_s)
        count = int(now_s // update_s)
        if count == self._update[0]:
            return
        moments = [(count - 1 + (i + 0.5) / 16) * update_s for i in range(16)]
        power_w = float(self._bench.power_w(moments).mean())
        self._update = (self._update[0], power_w)  # an auto range looks at it
        amps = power_w / self._bench.voltage_v
        self._peak = amps * self._peak_ratio > 3 * self._range(":INP:CURR:RANG")
        power_w = power_w / 2 if self._peak else power_w
        if self._started_s is not None and self._update[0] >= 0:
            self._integrated_j += power_w * (count - self._update[0]) * update_s
        self._update = (count, power_w)

    def _condition(self) -> int:
        return (self._started_s is not None) << 1 | 1 << 4 | self._over << 6 | self._peak << 8

    def _value(self, number: int) -> str:
        item = self._settings[f":NUM:NORM:ITEM{number}"].split(",")[0]
        power_w, volts = self._update[1], self._bench.voltage_v
        if item == "WH":
            return "NAN" if self._started_s is None else f"{self._integrated_j / 3600:.6E}"
        if self._over and item != "U":
            return "INF"
        return f"{ {'U': volts, 'I': power_w / volts, 'P': power_w}[item]:.4E}"
