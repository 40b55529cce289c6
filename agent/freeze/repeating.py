"""Holding a run to a frozen spec: every condition is looked at, and all refusals are told at once.

What only the loaded model tells (options in force, precision, number of samples) is looked
at a second time in the run itself, before any clock runs; what the system gives to its
workers (priority, locked memory) a third time, when those of the performance test are there.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from edgeperf.agent.board import describe_board
from edgeperf.agent.freeze.board_checks import (
    clock_findings,
    core_findings,
    machine_findings,
    meter_findings,
)
from edgeperf.agent.freeze.document import Execution, FrozenFile, FrozenSpec
from edgeperf.agent.freeze.file_checks import file_findings
from edgeperf.agent.freeze.findings import Finding, NotHeldError, refusals
from edgeperf.agent.freeze.software_checks import software_findings
from edgeperf.agent.result import Repeat, policy_of
from edgeperf.agent.run.jobs import Prepared, Ready
from edgeperf.agent.spec import RunSpec, SpecError, spec_from_mapping
from edgeperf.datasets.catalogue import find_model

#: What may be said beside a frozen spec: where this machine has things, and how it is held.
PLACES = ("model", "parts", "task", "data", "inputs_file", "meter", "governor", "clock_hz", "fan")


def run_here(spec: FrozenSpec, places: dict[str, Any]) -> RunSpec:
    """Return the run of *spec* with the places of this machine.

    Args:
        spec: The frozen spec.
        places: Fields of :data:`PLACES` that were given beside it.

    Raises:
        SpecError: A place makes no sense.
    """
    if "model" in places and find_model(spec.run.model) is not None:
        raise SpecError(
            f"MODEL {places['model']}: the spec's model {spec.run.model!r} is the catalogue's;"
            " leave MODEL out, and name a folder that has the file with EDGEPERF_MIRROR"
        )
    given = msgspec.to_builtins(spec.run, str_keys=True) | places
    return spec_from_mapping({**given, "parts": {**spec.run.parts, **places.get("parts", {})}})


def run_findings(spec: FrozenSpec, run: RunSpec) -> Iterator[Finding]:
    """Yield each field in which *run* is not the frozen one, apart from places."""
    asked, here = (msgspec.to_builtins(one, str_keys=True) for one in (spec.run, run))
    for name, expected in asked.items():
        if name not in PLACES and here[name] != expected:
            yield Finding(
                "run", name, str(expected), str(here[name]), "leave that field as it was frozen"
            )


def inspect(file: FrozenFile, run: RunSpec) -> list[Finding]:
    """Lay the spec beside this machine, as far as nothing need be loaded."""
    spec, board = file.spec, describe_board()
    seal = Finding(
        "digest",
        file.where,
        spec.digest,
        file.found_digest,
        "it was edited since it was frozen: freeze the result again (edgeperf spec freeze), or"
        " run what it says as a plain spec (edgeperf spec show --run)",
        cannot=True,
    )
    return [
        seal,
        *run_findings(spec, run),
        *file_findings(spec, run),
        *software_findings(spec, run, board),
        *machine_findings(spec, board),
        *core_findings(spec, run),
        *clock_findings(spec, run, board),
        *meter_findings(spec, run),
    ]


class HeldToSpec:
    """A run that repeats a frozen spec.

    Args:
        file: The spec.
        run: Its run, with the places of this machine.
        allowed: Conditions that need not be held.

    Attributes:
        run: What to run.

    Raises:
        NotHeldError: A condition is not held here.
    """

    def __init__(self, file: FrozenFile, run: RunSpec, allowed: Sequence[str]) -> None:
        self.run = run
        self._file = file
        self._allowed = allowed
        self._findings: list[Finding] = []
        self._hold(inspect(file, run))

    def _hold(self, findings: Sequence[Finding]) -> None:
        self._findings += findings
        if refused := refusals(findings, self._allowed):
            raise NotHeldError(self._file.where, refused)

    def settle(self, prepared: Prepared) -> Repeat:
        """Lay what really runs beside the spec.

        Raises:
            NotHeldError: It is something else, and nobody allowed that.
        """
        self._hold(loaded_findings(self._file.spec, prepared))
        return self._repeat()

    def started(self, workers: Sequence[Ready]) -> Repeat:
        """Lay what the workers of the performance test got beside the spec.

        Raises:
            NotHeldError: As above.
        """
        self._hold(started_findings(self._file.spec, workers))
        return self._repeat()

    def _repeat(self) -> Repeat:
        return Repeat(
            digest=self._file.spec.digest,
            origin=self._file.spec.origin.result,
            differs=tuple(
                finding.difference() for finding in self._findings if not finding.is_held
            ),
        )


def loaded_findings(spec: FrozenSpec, prepared: Prepared) -> list[Finding]:
    """Compare what only the loaded model tells."""
    info = prepared.info
    here = Execution(
        device=info.device,
        precision=info.precision,
        delegates=info.delegates,
        options=dict(info.options),
        input_copy=info.input_copy,
        batch=prepared.batch,
    )
    advice = "the runtime does something else here than it did; edgeperf doctor may say why"
    found = [
        Finding("execution", where, _word(expected), _word(getattr(here, where)), advice)
        for where in ("device", "precision", "delegates", "input_copy", "batch")
        for expected in [getattr(spec.execution, where)]
    ]
    asked = spec.execution.options
    found += [
        Finding(
            "execution",
            f"option {name}",
            asked.get(name, "not there") or "empty",
            here.options.get(name, "not there") or "empty",
            advice,
        )
        for name in sorted(asked.keys() | here.options.keys())
    ]
    counts = str(spec.data.samples), str(prepared.library_size)
    return [*found, Finding("data", "number of samples", *counts, "name the frozen samples")]


def started_findings(spec: FrozenSpec, workers: Sequence[Ready]) -> list[Finding]:
    """Compare what the workers of the performance test got of the system."""
    asked, found = spec.execution, []
    if asked.scheduling is not None:
        here = tuple(policy_of(worker.scheduling) for worker in workers)
        said = ", ".join(dict.fromkeys(worker.scheduling for worker in workers))
        advice = f"it is {said}; ulimit -r says what this user may have"
        words = _word(asked.scheduling), _word(here)
        found.append(Finding("execution", "priority of the workers", *words, advice))
    if asked.memory_locked is not None:
        locked = tuple(worker.memory_locked for worker in workers)
        advice = "ulimit -l says what this user may lock"
        words = _word(asked.memory_locked), _word(locked)
        found.append(Finding("execution", "memory of the workers locked", *words, advice))
    return found


def _word(value: object) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)
