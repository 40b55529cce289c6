"""What this board can measure, and what is missing, probe by probe.

A probe is a function from a :class:`~edgeperf.agent.board.findings.Board` to findings. To
add one, write it and add its line to :data:`PROBES`. A probe never raises for what it
finds; a board that lacks something gets a finding that says so and what to do.
"""

from collections.abc import Iterable, Iterator

import msgspec

from edgeperf import __version__
from edgeperf.agent.board.describe import BoardInfo, describe_board
from edgeperf.agent.board.findings import Board, Finding, Health, Probe
from edgeperf.agent.board.probe_cores import probe_cores
from edgeperf.agent.board.probe_health import probe_health
from edgeperf.agent.board.probe_places import probe_places
from edgeperf.agent.board.probe_ports import probe_ports
from edgeperf.agent.board.probe_software import probe_software
from edgeperf.agent.board.probe_system import probe_system
from edgeperf.agent.board.probe_tuner import probe_tuner

#: Every probe, in the order of the report.
PROBES: tuple[Probe, ...] = (
    probe_system,
    probe_software,
    probe_cores,
    probe_tuner,
    probe_health,
    probe_ports,
    probe_places,
)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the doctor says; ``edgeperf doctor --json`` prints it.

    Attributes:
        format_version: 1.
        edgeperf: Version of edgeperf.
        fit: Whether nothing failed that a run needs.
        findings: What the probes found.
        board: What the board is.
    """

    format_version: int = 1
    edgeperf: str
    fit: bool
    findings: tuple[Finding, ...]
    board: BoardInfo


def examine(board: Board, probes: Iterable[Probe] = PROBES) -> Iterator[Finding]:
    """Run the probes and yield each finding as it comes; loading runtimes takes seconds.

    Raises:
        InputError: The broker's URL is none.
    """
    for probe in probes:
        yield from probe(board)


def report(board: Board, findings: Iterable[Finding]) -> Report:
    """Return *findings* with what the board is."""
    found = tuple(findings)
    return Report(
        edgeperf=__version__,
        fit=all(finding.status is not Health.FAIL for finding in found),
        findings=found,
        board=describe_board(board.root),
    )
