"""What a run that repeats a frozen spec asks of whoever read that spec."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from edgeperf.agent.result import Reason, Repeat, Severity
from edgeperf.agent.run.jobs import Prepared, Ready


class Repeating(Protocol):
    """Holds a run to a frozen spec."""

    def settle(self, prepared: Prepared) -> Repeat:
        """Lay what really runs beside the spec, before any clock runs.

        Raises:
            InputError: It is not what the spec says, and nobody allowed that.
        """
        ...

    def started(self, workers: Sequence[Ready]) -> Repeat:
        """Lay what the workers of the performance test got beside it, before its clock runs.

        Args:
            workers: What each said, the leader first.

        Raises:
            InputError: As above.
        """
        ...


def repeat_reasons(repeat: Repeat | None) -> Iterator[Reason]:
    """Say what was not as frozen; what matters makes the repeat suspect."""
    if repeat is None:
        return
    for matters, code in ((True, "not-as-frozen"), (False, "other-than-frozen")):
        found = [
            f"{one.name}: {one.where} is {one.found}, not {one.expected}"
            for one in repeat.differs
            if one.matters is matters
        ]
        if found:
            severity = Severity.SUSPECT if matters else Severity.NOTE
            allowed = " (allowed)" if matters else ""
            text = f"not as in the frozen spec{allowed}: {'; '.join(found)}"
            yield Reason(code=code, severity=severity, text=text)
