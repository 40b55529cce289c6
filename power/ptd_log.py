r"""Lines of SPEC PTDaemon's log: what they say, and how MLPerf's checker wants them.

A line is ``Time,01-22-2021 15:05:14.313,Watts,22.97,Volts,227.37,Amps,0.20434,PF,0.4944``; in
the file ``spl.txt`` the mark of the session stands behind it, and behind that the channels of an
analyzer that has several. Time is wall time of the PTDaemon's machine, which runs in UTC.

The traps: ``-1`` is "not known" (a sum of channels has no volts), ``inf`` is over range, and
the checker's own mean drops whatever is not positive, which makes a bad run look like a good
one. Here such samples are counted.

Source:
    MLCommons power-dev, ``server.py`` (``RE_PTD_LOG``, ``Session.stop``) and ``check.py``.
"""

import math
import re
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import NamedTuple

_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|inf|nan)"
_VALUES = rf"({_NUMBER}),Volts,({_NUMBER}),Amps,({_NUMBER}),PF,({_NUMBER})"
_SAMPLE = re.compile(
    rf"Time,(\d\d-\d\d-\d{{4}} \d\d:\d\d:\d\d\.\d{{3}}),Watts,{_VALUES}(?:,Mark,([^,]*))?"
    rf"((?:(?:,Ch[0-9]{{1,2}})?,Watts,{_VALUES})*),?",
    re.IGNORECASE | re.ASCII,
)
_CHANNEL = re.compile(rf"Watts,{_VALUES}", re.IGNORECASE | re.ASCII)
UNKNOWN = -1.0
#: The testing range is the ranging run's highest current times this.
HEADROOM = 1.1
#: The testing run's mean power may be at most so much lower than the ranging run's.
MOST_DROP = 0.05
#: The testing run must last at least this share of the ranging run.
LEAST_LENGTH = 0.5


class PtdSample(NamedTuple):
    """One sample of one or all channels.

    Attributes:
        time_ns: PTDaemon's clock, nanoseconds since 1970 if it runs in UTC.
        power_w: Power, sign kept; may be infinite or NaN.
        voltage_v: Voltage, -1 if not known.
        current_a: Current, -1 if not known.
        power_factor: Power factor, -1 if not known.
        mark: The mark, empty if there is none.
        channels: Volts and amperes of each channel of an analyzer with several.
    """

    time_ns: int
    power_w: float
    voltage_v: float
    current_a: float
    power_factor: float
    mark: str
    channels: tuple[tuple[float, float], ...]

    @property
    def usable(self) -> bool:
        """Whether it is a measurement: nothing over range, no sentinel for a power."""
        values = (self.power_w, self.voltage_v, self.current_a, self.power_factor)
        if not all(map(math.isfinite, values)):
            return False
        unknown = self.voltage_v == UNKNOWN and self.current_a == UNKNOWN
        return self.power_w != UNKNOWN if unknown else self.power_factor != UNKNOWN


class PtdRanges(NamedTuple):
    """Fixed ranges for the testing run."""

    voltage_v: float
    current_a: float


def parse_sample(line: str) -> PtdSample | None:
    """Read a line; None if it is no sample."""
    match = _SAMPLE.fullmatch(line.strip())
    if match is None:
        return None
    try:
        moment = datetime.strptime(match[1], "%m-%d-%Y %H:%M:%S.%f").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
    time_ns = (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000
    power_w, voltage_v, current_a, factor = (float(match[n]) for n in range(2, 6))
    channels = tuple((float(one[1]), float(one[2])) for one in _CHANNEL.findall(match[7] or ""))
    return PtdSample(time_ns, power_w, voltage_v, current_a, factor, match[6] or "", channels)


def spl_line(line: str, mark: str) -> str:
    """Return a line as it stands in ``spl.txt``: with the mark, its channels numbered."""
    head, *groups = line.strip().rstrip(",").split(",Watts,")
    if ",Mark," in line or not groups:
        return line.strip()
    numbered = "".join(f",Ch{n},Watts,{group}" for n, group in enumerate(groups[1:], 1))
    return f"{head},Watts,{groups[0]},Mark,{mark}{numbered}"


def ranges_of(samples: Iterable[PtdSample]) -> PtdRanges | None:
    """Return the ranges that a ranging run asks for, None if it says nothing.

    Source:
        power-dev ``max_volts_amps_avg_watts``: highest volts, highest amperes times 1.1.
    """
    pairs = [
        pair
        for sample in samples
        if sample.usable
        for pair in (sample.channels or ((sample.voltage_v, sample.current_a),))
    ]
    volts = max((v for v, _ in pairs if math.isfinite(v)), default=UNKNOWN)
    amps = max((a for _, a in pairs if math.isfinite(a)), default=UNKNOWN)
    return PtdRanges(volts, amps * HEADROOM) if volts > 0 and amps > 0 else None


class PtdRun(NamedTuple):
    """What the log says of a run's window.

    Attributes:
        mean_w: Mean power of the usable samples, NaN if there are none.
        usable: How many they are.
        unusable: How many are not.
        length_s: From the first sample to the last.
    """

    mean_w: float
    usable: int
    unusable: int
    length_s: float


def summarize(
    samples: Iterable[PtdSample], begin_ns: int | None = None, end_ns: int | None = None
) -> PtdRun:
    """Sum up the samples strictly inside a window of PTDaemon's clock, or all of them."""
    inside = [
        sample
        for sample in samples
        if (begin_ns is None or sample.time_ns > begin_ns)
        and (end_ns is None or sample.time_ns < end_ns)
    ]
    watts = [sample.power_w for sample in inside if sample.usable]
    mean_w = sum(watts) / len(watts) if watts else math.nan
    length_s = (inside[-1].time_ns - inside[0].time_ns) * 1e-9 if inside else 0.0
    return PtdRun(mean_w, len(watts), len(inside) - len(watts), length_s)


def problems_of(ranging: PtdRun, testing: PtdRun) -> list[str]:
    """Say what MLPerf's checker, or common sense, holds against a pair of runs.

    A range that is too low halves the power without an error, so the testing run may not use
    much less than the ranging run, whose ranges were automatic.
    """
    found = []
    for name, run in (("ranging", ranging), ("testing", testing)):
        if not run.usable:
            found.append(f"the {name} run has no usable sample")
        elif run.unusable:
            found.append(f"the {name} run has {run.unusable} samples over range or without data")
    if ranging.mean_w > 0 and testing.mean_w < ranging.mean_w * (1 - MOST_DROP):
        found.append(
            f"the testing run's mean power is {testing.mean_w:.3f} W, more than 5 % under the "
            f"ranging run's {ranging.mean_w:.3f} W: range too low, or another load"
        )
    if testing.length_s < ranging.length_s * LEAST_LENGTH:
        found.append(
            f"the testing run lasted {testing.length_s:.0f} s, less than half of the ranging "
            f"run's {ranging.length_s:.0f} s"
        )
    if testing.usable and testing.mean_w < 0:
        found.append("the mean power is negative: the analyzer's leads are reversed")
    return found
