"""What is said in an event: one structure for each kind, and the table of their names."""

import enum
from typing import Annotated, Any

import msgspec

from edgeperf.agent.events import Phase
from edgeperf.agent.messages.errors import Code
from edgeperf.agent.messages.ids import Count, Id, Sha256, Text, Word

Lines = Annotated[tuple[Text, ...], msgspec.Meta(max_length=200)]


class ErrorClass(str, enum.Enum):
    """Who is at fault; retries are decided by it.

    ``user``: the same spec fails again anywhere. ``harness``: edgeperf or a runtime broke.
    ``device``: the board's condition (power, heat, space, policy) was in the way.
    """

    USER = "user"
    HARNESS = "harness"
    DEVICE = "device"


class RunAccepted(msgspec.Struct, frozen=True, kw_only=True):
    """The board has journalled the run. ``position`` counts the runs before it."""

    position: Count = 0


class RunRejected(msgspec.Struct, frozen=True, kw_only=True):
    """Terminal: the board will not run this."""

    code: Code
    reason: Text


class RunPreparing(msgspec.Struct, frozen=True, kw_only=True):
    """The run is next. ``percent`` is of the model's download, None without one."""

    percent: float | None = None


class RunCooling(msgspec.Struct, frozen=True, kw_only=True):
    """The run waits for the board to cool down."""

    temperature_c: float
    target_c: float


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is, at most once a second; see :class:`edgeperf.agent.events.Progress`."""

    phase: Phase
    percent: float
    eta_s: float | None = None
    temperature_c: float | None = None


class RunLog(msgspec.Struct, frozen=True, kw_only=True):
    """Lines that the run wrote, and how many were left out before them."""

    lines: Lines
    dropped: Count = 0


class BlobRef(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a result directory; ``name`` is relative, for people and exports."""

    name: Annotated[
        str,
        msgspec.Meta(
            pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$", max_length=200
        ),
    ]
    sha256: Sha256
    size_bytes: Count


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """Terminal: the run made a result, whatever its verdict.

    Attributes:
        status: The verdict's status.
        exit_code: Of the run.
        result: ``result.json`` as data; None when it is too large for a message and comes
            as the blob ``result.json`` only.
        files: Everything in the result directory, ``result.json`` first.
        duration_s: From the start of the child to its end, monotonic clock.
    """

    status: Word
    exit_code: int
    result: dict[str, Any] | None
    files: Annotated[tuple[BlobRef, ...], msgspec.Meta(max_length=500)]
    duration_s: float


class RunFailed(msgspec.Struct, frozen=True, kw_only=True):
    """Terminal: the run ended without a result.

    Attributes:
        error_class: Who is at fault.
        message: The one line that a person would see.
        exit_code: Of the child, negative for a signal; None when it was never started.
        tail: The last lines it wrote.
    """

    error_class: ErrorClass
    message: Text
    exit_code: int | None = None
    tail: Lines = ()


class RunCancelled(msgspec.Struct, frozen=True, kw_only=True):
    """Terminal: a command or the board's owner stopped it."""

    reason: Text
    tail: Lines = ()


class RunTimedOut(msgspec.Struct, frozen=True, kw_only=True):
    """Terminal: the watchdog stopped it: over its time, or silent for too long."""

    message: Text
    tail: Lines = ()


class RunInterrupted(msgspec.Struct, frozen=True, kw_only=True):
    """Terminal: the agent or the board died under it; said after the next start."""

    message: Text
    phase: Phase | None = None


class CommandDone(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a command that is not a run: ``ok`` and what was asked for."""

    command: Id
    name: Word
    ok: bool
    text: Text = ""
    data: dict[str, Any] = msgspec.field(default_factory=dict)


class CommandRejected(msgspec.Struct, frozen=True, kw_only=True):
    """A command with a good signature that the board does not follow.

    Attributes:
        command: Its id.
        counter: Highest counter seen, for a sender whose own went back.
    """

    command: Id | None
    code: Code
    reason: Text
    counter: Count = 0


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something a person should know. Forged messages are counted, not answered one by one."""

    code: Code
    text: Text
    count: Count = 1


EventData = (
    RunAccepted
    | RunRejected
    | RunPreparing
    | RunCooling
    | RunProgress
    | RunLog
    | RunResult
    | RunFailed
    | RunCancelled
    | RunTimedOut
    | RunInterrupted
    | CommandDone
    | CommandRejected
    | Alert
)

#: Name in ``type`` -> its data. A new event is one class, one line here and one in EventData.
EVENTS: dict[str, type[msgspec.Struct]] = {
    "edgeperf.run.accepted.v1": RunAccepted,
    "edgeperf.run.rejected.v1": RunRejected,
    "edgeperf.run.preparing.v1": RunPreparing,
    "edgeperf.run.cooling.v1": RunCooling,
    "edgeperf.run.progress.v1": RunProgress,
    "edgeperf.run.log.v1": RunLog,
    "edgeperf.run.result.v1": RunResult,
    "edgeperf.run.failed.v1": RunFailed,
    "edgeperf.run.cancelled.v1": RunCancelled,
    "edgeperf.run.timed-out.v1": RunTimedOut,
    "edgeperf.run.interrupted.v1": RunInterrupted,
    "edgeperf.command.done.v1": CommandDone,
    "edgeperf.command.rejected.v1": CommandRejected,
    "edgeperf.alert.v1": Alert,
}
TYPE_OF = {data: name for name, data in EVENTS.items()}
#: After one of these a run (and attempt) never changes again.
TERMINAL = (RunRejected, RunResult, RunFailed, RunCancelled, RunTimedOut, RunInterrupted)
