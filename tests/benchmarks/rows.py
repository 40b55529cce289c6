"""What is kept of every measurement, and the file that makes a long run resumable."""

from pathlib import Path
from typing import Any

import msgspec
from benchmarks.protocol import Figures

from edgeperf import InputError


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement.

    Attributes:
        target: What was measured.
        scenario: MLPerf's name.
        contestant: ``bare``, ``plain``, ``edgeperf``, or a peer.
        round: Which repetition.
        figures: What it found.
        cpu_ns: CPU time of all its processes, per sample.
        memory_bytes: What its processes have of their own; 0 where not looked at.
        foreign_share: Share of the cores that others had meanwhile.
        offered_qps: Server: the rate.
    """

    target: str
    scenario: str
    contestant: str
    round: int
    figures: Figures
    cpu_ns: float
    foreign_share: float
    memory_bytes: int = 0
    offered_qps: float = 0.0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a target is.

    Attributes:
        bare_ns: Median of its bare loop.
        cores: How many cores the contestants had.
        bound_ns: Server's bound on the 99th percentile.
        runtime: Package and version.
        precision: Of execution.
        input_copy: Whether the runtime copies its inputs.
    """

    bare_ns: float
    cores: int
    bound_ns: float
    runtime: str
    precision: str
    input_copy: str


class Record(msgspec.Struct, kw_only=True):
    """A whole run of the benchmark, as far as it has come.

    Attributes:
        settings: What it was asked; another run may go on only with the same.
        machine: Where it ran.
        facts: What each target is.
        rows: Every measurement.
        growth: Memory and time to start as work grows.
        memory: Memory that the harness itself takes.
        analysis: Ratios and goals, filled in at the end.
    """

    settings: dict[str, Any]
    machine: dict[str, Any]
    facts: dict[str, Facts] = {}
    rows: list[Row] = []
    growth: list[dict[str, Any]] = []
    memory: dict[str, float] = {}
    analysis: dict[str, Any] = {}

    def has(self, target: str, round_: int) -> bool:
        """Return whether a round of a target is complete."""
        return any(row.target == target and row.round == round_ for row in self.rows)


def load(path: Path | None, settings: dict[str, Any], machine: dict[str, Any]) -> Record:
    """Return the record to go on with: an unfinished one in *path*, or an empty one.

    Raises:
        InputError: *path* holds an unfinished run with other settings.
    """
    settings = msgspec.json.decode(msgspec.json.encode(settings))  # as a file has it: no tuples
    kept = read(path) if path is not None and path.exists() else None
    if kept is None or kept.analysis:
        return Record(settings=settings, machine=machine)
    if kept.settings != settings:
        raise InputError(
            f"{path}: holds an unfinished run with other settings; remove it or repeat those"
        )
    return kept


def read(path: Path) -> Record:
    """Return the record in *path*.

    Raises:
        InputError: There is none.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(f"{path}: not a record of the benchmark: {error}") from error


def save(record: Record, path: Path | None) -> None:
    """Write the record, whole or not at all."""
    if path is None:
        return
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    partial.replace(path)
