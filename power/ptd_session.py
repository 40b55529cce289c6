"""MLPerf's two power runs with PTDaemon, and the files that its checker reads.

``ranging`` lets the analyzer choose its ranges and finds the highest volts and amperes;
``testing`` fixes them. Both leave ``spl.txt`` where the checker looks for it:
``ranging/spl.txt`` and ``run_1/spl.txt``.

The trap: the checker's window is LoadGen's, in wall time, so PTDaemon must run in UTC and its
clock agree with this one. A clock that is hours off is found here; MLPerf wants 400 ms.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from edgeperf.power.base import MeterInputError, MeterReplyError
from edgeperf.power.ptd_client import PtdClient, PtdWatts, parse_watts
from edgeperf.power.ptd_log import (
    PtdRanges,
    PtdRun,
    PtdSample,
    parse_sample,
    problems_of,
    ranges_of,
    spl_line,
    summarize,
)
from edgeperf.power.ptdaemon import SETTLE_S

RANGING, TESTING = "ranging", "testing"
#: Phase -> folder of its log.
FOLDERS = {RANGING: "ranging", TESTING: "run_1"}
#: More is no drift but a time zone.
MOST_OFFSET_S = 60.0

Result = TypeVar("Result")


class PtdSession:
    """A ranging run and a testing run on one PTDaemon.

    Args:
        client: Connected and identified.
        folder: Where the logs go; made if it is not there.
        name: Name of the session.
        settle_s: Pause around each run, as power-dev makes it.

    Attributes:
        ranges: What the ranging run found, None before it.
        watts: PTDaemon's own sums of the testing run, None if it had none.
        runs: Phase -> what its log says as a whole.
    """

    def __init__(
        self, client: PtdClient, folder: Path, name: str, *, settle_s: float = SETTLE_S
    ) -> None:
        self.ranges: PtdRanges | None = None
        self.watts: PtdWatts | None = None
        self.runs: dict[str, PtdRun] = {}
        self._client = client
        self._folder = folder
        self._name = name
        self._settle_s = settle_s

    def ranging(self, work: Callable[[], Result]) -> Result:
        """Do the work under automatic ranges and find out which ranges it needs.

        Raises:
            MeterReplyError: PTDaemon refused, or saw no volts and amperes.
        """
        self._client.set_ranges(None, None)
        with self._measured(RANGING) as samples:
            result = work()
        self.ranges = ranges_of(samples)
        if self.ranges is None:
            raise MeterReplyError(
                self._client.port, "the ranging run has no usable sample; is the analyzer wired?"
            )
        return result

    def testing(self, work: Callable[[], Result]) -> Result:
        """Do the work under the ranges that the ranging run found.

        Raises:
            MeterInputError: There was no ranging run.
            MeterReplyError: PTDaemon refused.
        """
        if self.ranges is None:
            raise MeterInputError(
                f"meter ptdaemon:{self._client.port}: fixed ranges missing: make the ranging run "
                "before the testing run"
            )
        self._client.set_ranges(*self.ranges)
        with self._measured(TESTING):
            return work()

    def close(self) -> None:
        """Give the analyzer its ranges back and close the connection."""
        try:
            self._client.restore_ranges()
        finally:
            self._client.close()

    def problems(self) -> list[str]:
        """Say what MLPerf's checker would hold against the two runs; empty is good."""
        return problems_of(self.runs[RANGING], self.runs[TESTING])

    @contextmanager
    def _measured(self, phase: str) -> Iterator[list[PtdSample]]:
        """Measure what is done inside; fills the list with its samples and writes the log."""
        samples: list[PtdSample] = []
        mark = f"{self._name}_{phase}"
        time.sleep(self._settle_s)
        self._client.unread()  # what somebody else left
        self._client.go(mark)
        try:
            yield samples
            time.sleep(self._settle_s)
            if phase == TESTING:
                self.watts = parse_watts(self._client.ask("Watts"))
                self._client.ask("Uncertainty")
        finally:
            self._client.stop()
            lines = self._client.unread()
            samples += [sample for line in lines if (sample := parse_sample(line))]
            self._write(phase, [spl_line(line, mark) for line in lines])
            self.runs[phase] = summarize(samples)
        self._check_clock(samples)

    def _write(self, phase: str, lines: list[str]) -> None:
        path = self._folder / FOLDERS[phase] / "spl.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".tmp")
        fresh.write_text("".join(f"{line}\n" for line in lines), encoding="ascii", errors="replace")
        fresh.replace(path)

    def _check_clock(self, samples: list[PtdSample]) -> None:
        if samples:
            offset_s = samples[-1].time_ns * 1e-9 - time.time()
            if abs(offset_s) > MOST_OFFSET_S + self._settle_s:
                raise MeterReplyError(
                    self._client.port,
                    f"its clock is {offset_s / 3600:+.2f} h off UTC; run PTDaemon with TZ=UTC and "
                    "both machines with NTP",
                )
