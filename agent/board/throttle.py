"""Whether the board holds itself back: weak supply, heat, over-current, power limit.

Every vendor tells it in another way:

* Raspberry Pi: the firmware's ``get_throttled`` word. Bits 0-3 are the state now; bits
  16-19 say "has happened", since boot or since the kernel's ``rpi_volt`` driver last
  cleared them (it polls every 2 s), so only one that appears between two readings counts.
* Jetson: counters of over-current events (``soctherm_oc``); event 1 is under-voltage.
* Intel: counters of thermal events per core and package.
* Anywhere: a cooling device that slows a processor down and is not at rest, and
  hwmon alarms.
"""

import subprocess
from pathlib import Path

import msgspec

from edgeperf.agent.board.kernel_files import numbered, read_int, read_text

UNDER_VOLTAGE = "under-voltage"
FREQUENCY_CAPPED = "frequency capped"
THROTTLED = "throttled"
SOFT_TEMPERATURE_LIMIT = "soft temperature limit"
OVER_TEMPERATURE = "over temperature"
COOLING = "cooling"

#: Bit -> flag. Source: Raspberry Pi documentation, "vcgencmd", ``get_throttled``.
_PI_BITS: dict[int, str] = {
    0: UNDER_VOLTAGE,
    1: FREQUENCY_CAPPED,
    2: THROTTLED,
    3: SOFT_TEMPERATURE_LIMIT,
}
_PI_STICKY_SHIFT = 16

#: Types of cooling devices that slow a processor down; the others are fans.
_SLOWING = ("cpufreq-", "thermal-cpufreq", "devfreq-", "thermal-devfreq", "Processor", "cpu-idle")

#: vcgencmd talks to the firmware and answers at once, or hangs with it.
_VCGENCMD_TIMEOUT_S = 1.0


class ThrottleState(msgspec.Struct, frozen=True, kw_only=True):
    """What holds the board back, at one moment.

    Attributes:
        active: Flags that are up now.
        happened: Flags the firmware remembers, of an unknown moment.
        counters: Counters of throttling events, since boot.
        cooling: State of each cooling device, 0 at rest, by ``TYPE NUMBER``.
    """

    active: tuple[str, ...]
    happened: tuple[str, ...]
    counters: dict[str, int]
    cooling: dict[str, int]


class ThrottleSensors:
    """Finds the board's throttle flags once, reads them often.

    Attributes:
        names: What was found, for people: ``Raspberry Pi firmware``, ``oc1_event_cnt``, ...
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._pi_file = next(
            root.glob("sys/devices/platform/soc*/soc*:firmware/get_throttled"), None
        )
        vcgencmd = [path for path in _vcgencmd(root) if path.is_file()]
        self._vcgencmd = vcgencmd[0] if vcgencmd and self._pi_file is None else None
        self._alarms = _hwmon_alarms(root)
        self._counters = _counters(root)
        self._cooling = [
            (f"{read_text(path / 'type') or 'unknown'} {number}", str(path / "cur_state"))
            for number, path in numbered(root / "sys/class/thermal", "cooling_device")
        ]
        firmware = self._pi_file is not None or self._vcgencmd is not None
        self.names = (
            *(("Raspberry Pi firmware",) if firmware else ()),
            *sorted({path.rpartition("/")[2] for path, _ in self._alarms}),
            *sorted({name.rpartition("/")[2] for name in self._counters}),
            *(name for name, _ in self._cooling if name.startswith(_SLOWING)),
        )

    def read(self) -> ThrottleState:
        """Return the state now."""
        word = self._pi_word()
        cooling = {name: read_int(path) for name, path in self._cooling}
        counters = {name: read_int(path) for name, path in self._counters.items()}
        alarms = [flag for path, flag in self._alarms if read_int(path)]
        slowing = [
            f"{COOLING}: {name}"
            for name, state in cooling.items()
            if state and state > 0 and name.startswith(_SLOWING)
        ]
        active = dict.fromkeys([*pi_flags(word), *alarms, *slowing])
        return ThrottleState(
            active=tuple(active),
            happened=pi_flags(word >> _PI_STICKY_SHIFT),
            counters={name: count for name, count in counters.items() if count is not None},
            cooling={name: state for name, state in cooling.items() if state is not None},
        )

    def _pi_word(self) -> int:
        if self._pi_file is not None:
            return _hex(read_text(self._pi_file) or "")
        if self._vcgencmd is None:
            return 0
        try:
            done = subprocess.run(
                [str(self._vcgencmd), "get_throttled"],
                capture_output=True,
                check=False,
                text=True,
                timeout=_VCGENCMD_TIMEOUT_S,
            )
        except (OSError, subprocess.TimeoutExpired):
            self._vcgencmd = None  # it will not get better within a run
            return 0
        return _hex(done.stdout.partition("throttled=")[2].strip())


def pi_flags(word: int) -> tuple[str, ...]:
    """Return the flags in the low bits of the firmware's ``get_throttled`` word."""
    return tuple(flag for bit, flag in _PI_BITS.items() if word >> bit & 1)


def _hex(text: str) -> int:
    try:
        return int(text, 16)  # with or without 0x
    except ValueError:
        return 0


def _vcgencmd(root: Path) -> tuple[Path, Path]:
    return root / "usr/bin/vcgencmd", root / "opt/vc/bin/vcgencmd"


def _hwmon_alarms(root: Path) -> list[tuple[str, str]]:
    alarms: list[tuple[str, str]] = []
    for _, path in numbered(root / "sys/class/hwmon", "hwmon"):
        if read_text(path / "name") == "rpi_volt":
            alarms.append((str(path / "in0_lcrit_alarm"), UNDER_VOLTAGE))
        alarms += [(str(file), OVER_TEMPERATURE) for file in sorted(path.glob("temp*_crit_alarm"))]
    return alarms


def _counters(root: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for _, path in numbered(root / "sys/class/hwmon", "hwmon"):
        if read_text(path / "name") == "soctherm_oc":
            found |= {file.name: str(file) for file in sorted(path.glob("oc*_event_cnt"))}
    for core, path in numbered(root / "sys/devices/system/cpu", "cpu"):
        for name in ("core_throttle_count", "package_throttle_count"):
            file = path / "thermal_throttle" / name
            if file.is_file():
                found[f"cpu{core}/{name}"] = str(file)
    return found
