"""What a run says while it runs: one JSON object a line, for whoever started it.

``edgeperf run --events FD`` writes them to that file descriptor. The agent service reads
them from its child; a person sees the same things drawn as a progress bar.
"""

import enum

import msgspec


class Phase(str, enum.Enum):
    """The parts of a run, in order."""

    PREPARE = "prepare"
    COOLING = "cooling"
    ACCURACY = "accuracy"
    CALIBRATE = "calibrate"
    IDLE_BEFORE = "idle-before"
    PERFORMANCE = "performance"
    IDLE_AFTER = "idle-after"
    REPORT = "report"


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """How far the run is, at most once a second.

    Attributes:
        phase: What it is doing.
        percent: Of this phase, 0 to 100.
        eta_s: Seconds until the whole run ends, None while unknown.
        temperature_c: Hottest zone of the board, None where it has none.
    """

    phase: Phase
    percent: float
    eta_s: float | None = None
    temperature_c: float | None = None


class Noticed(msgspec.Struct, frozen=True, kw_only=True, tag="noticed"):
    """Something is wrong, and the run goes on: the meter fell silent, say.

    Attributes:
        text: One line.
    """

    text: str


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    """The run has a result.

    Attributes:
        directory: Where it is.
        status: The verdict's status.
        exit_code: What the process will exit with.
    """

    directory: str
    status: str
    exit_code: int


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The run ended without a result.

    Attributes:
        message: The one line that a person would see.
        exit_code: 2 bad input, 3 a part failed, 130 interrupted, 143 terminated.
    """

    message: str
    exit_code: int


Event = Progress | Noticed | Finished | Failed
