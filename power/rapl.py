"""RAPL: the energy counters of Intel and AMD processors, through the kernel's powercap.

``rapl`` sums the packages of all sockets, ``rapl:psys`` takes the platform, ``rapl:dram`` the
memory. The counters wrap, within minutes on a busy server; each is unwrapped by its own range
before they are added. A step that no processor could make is a fault, never negative joules.

The traps: since 2020 only root may read them, and on a virtual machine they are missing or
stand still.

Source:
    Linux ``Documentation/power/powercap/powercap.rst``; CVE-2020-8694 for the permission.
"""

import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec

from edgeperf.power.base import (
    Boundary,
    Chunk,
    Identity,
    MeterInputError,
    MeterReplyError,
    Method,
    Quantity,
    Reading,
    SourceInfo,
    State,
)
from edgeperf.power.samples import ReadingDecoder
from edgeperf.power.sysfs import FileMeter, number_lines, read_number, read_text

POWERCAP = "sys/class/powercap"
#: A counter that has not moved for so long will not.
STANDSTILL_S = 0.3


class RaplDecoder(ReadingDecoder):
    """Counters to their unwrapped sum; the power is the mean since the reading before.

    Args:
        ranges_uj: Domain -> where its counter wraps.
        max_power_w: More is a fault.
    """

    def __init__(self, ranges_uj: Mapping[str, int], max_power_w: float) -> None:
        super().__init__()
        self._ranges_uj = dict(ranges_uj)
        self._max_power_w = max_power_w
        self._last: dict[str, int] | None = None
        self._last_ns = 0
        self._total_uj = 0

    def parse(self, chunk: Chunk) -> Iterator[Reading]:
        """Yield the energy so far, 0 at the first reading."""
        if chunk.fault:
            return
        values = number_lines(chunk.data)
        if values is None or not self._plausible(values):
            self.refuse("readings that are incomplete")
            return
        last, last_ns = self._last, self._last_ns
        if last is not None and chunk.middle_ns <= last_ns:
            return
        self._last, self._last_ns = values, chunk.middle_ns
        if last is None:
            yield Reading(chunk.middle_ns, energy_j=0.0)
            return
        step_uj = sum(self._step(name, last[name], values[name]) for name in values)
        span_s = (chunk.middle_ns - last_ns) * 1e-9
        if step_uj * 1e-6 > self._max_power_w * span_s or self._may_wrap_twice(span_s):
            self.refuse("counter jumped")
            yield Reading(chunk.middle_ns, state=State.GAP)
            return
        self._total_uj += step_uj
        power_w = step_uj * 1e-6 / span_s
        yield Reading(chunk.middle_ns, power_w, energy_j=self._total_uj * 1e-6)

    def _plausible(self, values: dict[str, int]) -> bool:
        known = bool(values) and set(values) == set(self._ranges_uj)
        return known and all(0 <= value <= self._ranges_uj[name] for name, value in values.items())

    def _step(self, name: str, before: int, after: int) -> int:
        return after - before if after >= before else after - before + self._ranges_uj[name]

    def _may_wrap_twice(self, span_s: float) -> bool:
        return self._max_power_w * span_s > min(self._ranges_uj.values()) * 1e-6


class Rapl(FileMeter):
    """The processors' counters."""

    kind: ClassVar[str] = "rapl"
    period_s = 0.1
    permission: ClassVar[str] = (
        'run as root, or add the udev rule SUBSYSTEM=="powercap", ACTION=="add", '
        'RUN+="/bin/chgrp -R power /sys%p", RUN+="/bin/chmod -R g=u /sys%p" and join group power'
    )

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options.

        Attributes:
            max_power: Watts that the domain cannot exceed.
            root: Where ``sys`` is.
        """

        max_power: Annotated[float, msgspec.Meta(gt=0)] = 1000.0
        root: str = "/"

    def __init__(self, port: str, options: Options) -> None:
        super().__init__(port, options.root)
        self._domain = port or "package"
        self._options = options
        self._ranges_uj: dict[str, int] = {}

    @staticmethod
    def find(root: Path = Path("/")) -> list[str]:
        """Return a meter spec for each domain that is not part of another one."""
        names = {name for name, _ in _domains(root)}
        packages = any(name.startswith("package-") for name in names)
        others = [f"rapl:{name}" for name in ("psys", "dram") if name in names]
        return (["rapl"] if packages else []) + others

    def open(self) -> None:
        """Find the counters of the domain by name, in every socket.

        Raises:
            MeterInputError: There are none; lists the domains that there are.
            MeterError: They may not be read.
        """
        domains = _domains(self.root)
        chosen = [(n, f) for n, f in domains if n == self._domain or self._is_package(n)]
        if not chosen:
            known = ", ".join(sorted({name for name, _ in domains}))
            raise MeterInputError(
                f"meter rapl: no domain {self._domain!r} below {self.root / POWERCAP}; "
                + (f"there is {known}" if known else "no RAPL here (virtual machine? no x86?)")
            )
        self.files = {f"{name}@{folder.name}": folder / "energy_uj" for name, folder in chosen}
        ranges = {f"{n}@{f.name}": read_number(f / "max_energy_range_uj") for n, f in chosen}
        self._ranges_uj = {name: value for name, value in ranges.items() if value}
        self.check_permission()
        if len(self._ranges_uj) < len(chosen):
            raise MeterReplyError(
                self.port, "max_energy_range_uj cannot be read; no wrap, no joules"
            )

    def _is_package(self, name: str) -> bool:
        return self._domain == "package" and re.fullmatch(r"package-[0-9]{1,4}", name) is not None

    def identify(self) -> Identity:
        """See whether the counters move.

        Raises:
            MeterReplyError: They do not, or say no number.
        """
        first = number_lines(self.ask())
        time.sleep(STANDSTILL_S)
        second = number_lines(self.ask())
        if first is None or second is None or set(second) != set(self._ranges_uj):
            raise MeterReplyError(self.port, "the counters say no numbers")
        if first == second:
            raise MeterReplyError(
                self.port, f"stands still for {STANDSTILL_S:g} s; is this a virtual machine?"
            )
        domains = "+".join(name.partition("@")[0] for name in self.files)
        return Identity(model="RAPL", details={"domains": domains})

    def info(self) -> SourceInfo:
        """Say what the numbers are worth; no maker states a limit of error, 5 % is assumed."""
        platform = self._domain == "psys"
        return SourceInfo(
            kind=self.kind,
            measures=Quantity.ENERGY,
            boundary=Boundary.PARTIAL if platform else Boundary.PACKAGE,
            method=Method.COUNTER,
            rate_hz=1 / self.period_s,
            bandwidth_hz=0.5 / self.period_s,
            gain=0.05,
            resolution_j=61e-6,
            edge_s=0.001,
            max_power_w=self._options.max_power,
            stale_after_s=1.0,
            notes=(
                f"Only {self._domain} is measured: board, storage and supply are outside.",
                "No maker states its limits of error; 5 % is assumed, and SGX adds noise.",
            ),
        )

    def header(self) -> Mapping[str, Any]:
        """Return where each counter wraps."""
        return {"ranges_uj": self._ranges_uj, "max_power_w": self._options.max_power}

    @classmethod
    def decoder(cls, header: Mapping[str, Any]) -> RaplDecoder:
        """Make a decoder of counters."""
        return RaplDecoder(header.get("ranges_uj", {}), float(header.get("max_power_w", 1000.0)))


def _domains(root: Path) -> list[tuple[str, Path]]:
    """Return name and folder of every RAPL domain, each once."""
    folders = sorted((root / POWERCAP).glob("intel-rapl:*"))
    return [(name, folder) for folder in folders if (name := read_text(folder / "name"))]
