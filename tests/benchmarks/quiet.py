"""How much of the cores others use, and waiting until they use little."""

import time
from collections.abc import Collection
from pathlib import Path

#: A share of the cores below which a machine counts as quiet.
QUIET_SHARE = 0.03
_LOOK_S = 0.2
_NS_PER_TICK = 10_000_000


class Onlooker:
    """Measures what others did on *cores* since it was made."""

    def __init__(self, cores: Collection[int]) -> None:
        self._cores = frozenset(cores)
        self._began_ns = time.monotonic_ns()
        self._busy_ns = self._read_ns()

    def _read_ns(self) -> int:
        total = 0
        for line in Path("/proc/stat").read_text().splitlines():
            name, *fields = line.split()
            if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in self._cores:
                ticks = list(map(int, fields[:8]))
                total += sum(ticks) - ticks[3] - ticks[4]
        return total * _NS_PER_TICK

    def share(self, own_ns: float) -> float:
        """Return the share of the cores that others had, whose own CPU time is *own_ns*."""
        wall_ns = (time.monotonic_ns() - self._began_ns) * len(self._cores)
        return max(0.0, self._read_ns() - self._busy_ns - own_ns) / max(1, wall_ns)


def wait_for_quiet(cores: Collection[int], patience_s: float) -> None:
    """Wait until others leave the cores alone, at most *patience_s*."""
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        onlooker = Onlooker(cores)
        time.sleep(_LOOK_S)
        if onlooker.share(0.0) < QUIET_SHARE:
            return
