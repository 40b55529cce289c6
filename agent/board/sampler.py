"""Watch the board over one window, without a thread.

The supervisor of a run makes a :class:`Sampler` when the clock starts, calls
:meth:`Sampler.sample` about once a second and :meth:`Sampler.finish` while the workers
are still alive. Nothing happens between these calls.
"""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import msgspec

from edgeperf.agent.board.clocks import Clocks, read_clocks
from edgeperf.agent.board.conditions import Sensors, Snapshot
from edgeperf.agent.board.load import OwnLoad, OwnLoadMeter
from edgeperf.agent.board.window import Extremes, WindowConditions, conclude


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One point of the series that is kept for charts.

    Attributes:
        mono_ns: When, CLOCK_MONOTONIC.
        temperatures_c: Temperature by zone or sensor.
        frequencies_hz: Frequency by measured core.
        flags: What held the board back.
    """

    mono_ns: int
    temperatures_c: dict[str, float]
    frequencies_hz: dict[int, int]
    flags: tuple[str, ...]


class Sampler:
    """Readings of one window; making it takes the first.

    Args:
        cores: The measured cores.
        pids: Our own processes, whose work on these cores is not foreign: the leader,
            the workers, and whatever else of ours may run there.
        root: Root of the file tree.
        clocks: Reads the clocks; a test gives its own.
    """

    def __init__(
        self,
        *,
        cores: Collection[int],
        pids: Iterable[int] = (),
        root: Path = Path("/"),
        clocks: Callable[[], Clocks] = read_clocks,
    ) -> None:
        self._cores = frozenset(cores)
        self._sensors = Sensors(root, clocks=clocks)
        self._own = OwnLoadMeter(pids, root)
        self._extremes = Extremes(self._sensors.snapshot())
        self._series = [self._sample(self._extremes.first)]

    @property
    def before(self) -> Snapshot:
        """The first reading."""
        return self._extremes.first

    @property
    def last(self) -> Snapshot:
        """The latest reading."""
        return self._extremes.last

    @property
    def series(self) -> tuple[Sample, ...]:
        """Every reading so far, reduced to what charts show."""
        return tuple(self._series)

    def sample(self) -> Snapshot:
        """Take one reading, about a millisecond's work, and return it."""
        self._own.read()
        snapshot = self._sensors.snapshot()
        self._extremes.add(snapshot)
        self._series.append(self._sample(snapshot))
        return snapshot

    def finish(self) -> WindowConditions:
        """Take the last reading and return what happened.

        Call it while the processes still live: the CPU time of a dead one that had no
        reading would count as foreign.
        """
        self.sample()
        own = self._own.load()
        window = conclude(self._extremes, own_cpu_ns=own.cpu_ns, cores=self._cores)
        if not own.threads:
            return window
        waited = None if own.wait_ns is None else own.wait_ns / window.duration_ns
        return msgspec.structs.replace(
            window, wait_share=waited, involuntary_switches=own.involuntary
        )

    def own_load(self) -> OwnLoad:
        """Return what our own processes did up to the latest reading."""
        return self._own.load()

    def _sample(self, snapshot: Snapshot) -> Sample:
        frequencies = snapshot.frequencies_hz.items()
        return Sample(
            mono_ns=snapshot.clocks.mono_ns,
            temperatures_c=snapshot.temperatures_c,
            frequencies_hz={core: hz for core, hz in frequencies if core in self._cores},
            flags=snapshot.throttle.active,
        )
