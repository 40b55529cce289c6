"""Whether a configuration keeps what is asked, line by line, and how sure that is.

Only runs that are believed count: VALID ones, and SUSPECT ones at the user's word. Of
repeats the median decides. Its interval is the widest of the repeats' own intervals and of
the repeats themselves; where the limit lies inside, the line is *within noise*.
"""

import enum
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from edgeperf.agent.decide.again import Again, can_be_scored_again, with_interval
from edgeperf.agent.decide.configurations import Configuration
from edgeperf.agent.decide.constraints import Limit
from edgeperf.agent.decide.figures import Figure, Missing, Read, read
from edgeperf.agent.decide.names import COSTS, Asked
from edgeperf.agent.decide.sources import Run
from edgeperf.agent.result import Status
from edgeperf.datasets.metrics.names import bare

if TYPE_CHECKING:
    from edgeperf.datasets.metrics.ranking import Costs


class Outcome(str, enum.Enum):
    """What becomes of a configuration."""

    PASSES = "passes"
    SUSPECT = "suspect"  # keeps every line, but no run of it is believed
    FAILS = "fails"
    REFUSED = "refused"  # every run is INVALID


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of a configuration.

    Attributes:
        value: Median over its runs; None where it was not measured.
        low: Lower end of the interval; None where nothing tells.
        high: Upper end.
        runs: How many runs have the figure.
        of_runs: Of how many that were read.
        why_not: Why none has.
        again: Whether it was scored again from kept predictions.
        no_interval: Why raw times could not be read; of the first run where that is so.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    runs: int = 0
    of_runs: int = 0
    why_not: str = ""
    again: bool = False
    no_interval: str = ""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One constraint on one configuration.

    Attributes:
        limit: What was asked.
        reading: What was found.
        met: Whether it is kept; a figure that was not measured does not.
        within_noise: Whether the interval has ends on both sides of the limit, or none on
            the limit's side.
        by: Value less limit, in the figure's base unit; None without a value.
        by_relative: The same as a share of the limit; None for a limit of 0.
    """

    limit: Limit
    reading: Reading
    met: bool
    within_noise: bool = False
    by: float | None = None
    by_relative: float | None = None


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration and what becomes of it.

    Attributes:
        configuration: Which.
        outcome: What becomes of it.
        suspect: Whether SUSPECT runs are among those that were read.
        read: The runs that were read.
        left_out: Those that were not: INVALID, or SUSPECT beside VALID ones.
        lines: One for each constraint; none if refused.
        readings: Further figures, for rank and Pareto set.
    """

    configuration: Configuration
    outcome: Outcome
    suspect: bool
    read: tuple[Run, ...]
    left_out: tuple[Run, ...]
    lines: tuple[Line, ...] = ()
    readings: dict[str, Reading] = {}


class Judge:
    """Reads figures and holds them against limits."""

    def __init__(
        self,
        limits: Sequence[Limit],
        others: Sequence[Asked] = (),
        *,
        costs: "Costs | None" = None,
        accept_suspect: bool = False,
    ) -> None:
        """Take what is asked.

        Args:
            limits: The constraints.
            others: Figures to read besides.
            costs: What wrong answers cost; None takes each result's own.
            accept_suspect: Whether SUSPECT runs count.
        """
        self._limits = tuple(limits)
        self._others = tuple(others)
        self._accept_suspect = accept_suspect
        self._costs = costs
        asked = [limit.asked for limit in limits] + list(others)
        names = (one.name for one in asked if one.quality and can_be_scored_again(one.name))
        self._found: dict[tuple[str, str], Read] = {}
        self._again = Again(tuple(dict.fromkeys(names)), costs)

    def judge(self, configuration: Configuration) -> Judged:
        """Judge one configuration."""
        by_status = {
            status: tuple(run for run in configuration.runs if run.result.verdict.status is status)
            for status in Status
        }
        believed = by_status[Status.VALID]
        if self._accept_suspect or not believed:
            believed += by_status[Status.SUSPECT]
        suspect = any(run.result.verdict.status is Status.SUSPECT for run in believed)
        ids = {run.result.id for run in believed}
        left_out = tuple(run for run in configuration.runs if run.result.id not in ids)
        if not believed:
            return Judged(
                configuration=configuration,
                outcome=Outcome.REFUSED,
                suspect=False,
                read=(),
                left_out=left_out,
            )
        lines = tuple(self._line(limit, believed) for limit in self._limits)
        return Judged(
            configuration=configuration,
            outcome=self._outcome(lines, suspect=suspect),
            suspect=suspect,
            read=believed,
            left_out=left_out,
            lines=lines,
            readings={asked.name: self._reading(asked, believed) for asked in self._others},
        )

    def _outcome(self, lines: Sequence[Line], *, suspect: bool) -> Outcome:
        if not all(line.met for line in lines):
            return Outcome.FAILS
        return Outcome.SUSPECT if suspect and not self._accept_suspect else Outcome.PASSES

    def _line(self, limit: Limit, runs: Sequence[Run]) -> Line:
        reading = self._reading(limit.asked, runs)
        if reading.value is None:
            return Line(limit=limit, reading=reading, met=False)
        by = reading.value - limit.value
        return Line(
            limit=limit,
            reading=reading,
            met=limit.op.holds(reading.value, limit.value),
            within_noise=_straddles(reading, limit),
            by=by,
            by_relative=by / abs(limit.value) if limit.value else None,
        )

    def _reading(self, asked: Asked, runs: Sequence[Run]) -> Reading:
        found = [self._read(run, asked) for run in runs]
        figures = [one for one in found if isinstance(one, Figure)]
        if not figures:
            why = next(one.why for one in found if isinstance(one, Missing))
            return Reading(value=None, of_runs=len(runs), why_not=why)
        values = [figure.value for figure in figures]
        low, high = _widest(figures)
        return Reading(
            value=statistics.median(values),
            low=low,
            high=high,
            runs=len(figures),
            of_runs=len(runs),
            again=any(figure.again for figure in figures),
            no_interval=next((one.no_interval for one in figures if one.no_interval), ""),
        )

    def _read(self, run: Run, asked: Asked) -> Read:
        """Read a figure, once: a constraint and the Pareto set may both want it."""
        key = (run.result.id, asked.name)
        if key not in self._found:
            self._found[key] = self._read_once(run, asked)
        return self._found[key]

    def _read_once(self, run: Run, asked: Asked) -> Read:
        if self._costs is not None and bare(asked.name) in COSTS:
            return self._again.read(run, asked.name)
        found = read(run.result, asked)
        if isinstance(found, Missing) and asked.quality and can_be_scored_again(asked.name):
            return self._again.read(run, asked.name)
        if isinstance(found, Figure) and found.low is None and not asked.quality:
            return with_interval(run, asked.name, found)
        return found


def _widest(figures: Sequence[Figure]) -> tuple[float | None, float | None]:
    """Return the ends of all intervals and values together.

    An end that one run leaves open stays open; runs without any interval are their value.
    """
    values = [figure.value for figure in figures]
    known = [figure for figure in figures if figure.low is not None or figure.high is not None]
    if not known:
        return (min(values), max(values)) if len(values) > 1 else (None, None)
    lows = [figure.low for figure in known]
    highs = [figure.high for figure in known]
    low = None if None in lows else min([*values, *(end for end in lows if end is not None)])
    high = None if None in highs else max([*values, *(end for end in highs if end is not None)])
    return low, high


def _straddles(reading: Reading, limit: Limit) -> bool:
    """Say whether the interval lies on both sides of the limit; an open end reaches far."""
    low, high = reading.low, reading.high
    if low is None and high is None:
        return False
    below = low is None or low < limit.value
    above = high is None or high > limit.value
    return below and above
