"""Whether to believe a result, and why."""

import enum
from collections.abc import Sequence

import msgspec


class Status(str, enum.Enum):
    """Whether to believe a result."""

    VALID = "VALID"
    SUSPECT = "SUSPECT"
    INVALID = "INVALID"


class Severity(str, enum.Enum):
    """What a reason does to the verdict: ``note`` nothing, the others what they say."""

    NOTE = "note"
    SUSPECT = "suspect"
    INVALID = "invalid"


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a reader must know before the numbers.

    Attributes:
        code: Stable name for scripts: ``accuracy-gate``, ``worker-died``, ``clock-step``.
        severity: What it does to the verdict.
        text: One plain sentence with the figures.
    """

    code: str
    severity: Severity
    text: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether to believe this result, and why.

    Attributes:
        status: The worst severity among the reasons; VALID without any.
        comparable: Whether it is VALID and was measured as MLPerf's rules ask (length, gate,
            query size, bound), so that it may stand beside others of its model and task.
        reasons: Worst first.
    """

    status: Status
    comparable: bool
    reasons: tuple[Reason, ...]


def status_of(reasons: Sequence[Reason]) -> Status:
    """Return the status that follows from *reasons*."""
    severities = {reason.severity for reason in reasons}
    if Severity.INVALID in severities:
        return Status.INVALID
    return Status.SUSPECT if Severity.SUSPECT in severities else Status.VALID
