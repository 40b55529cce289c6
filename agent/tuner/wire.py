"""What a run and the tuner say to each other: one JSON message each way.

Nothing here names a file: a knob is one of three words, and its value one of a few.
"""

import enum
from typing import Literal

import msgspec

from edgeperf.agent.spec import Governor, Hertz

MAX_MESSAGE_BYTES = 1 << 16


class Wish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the board shall be held; None leaves a knob alone.

    Attributes:
        governor: Of every core: ``performance``, ``powersave``, ... as the kernel names it.
        clock_hz: One frequency for every core; ``max`` is the upper limit in force, of
            the cores and of what else scales its clock (GPU, memory).
        fan: ``full``. There is no other value: this one harms no board.
    """

    governor: Governor | None = None
    clock_hz: Literal["max"] | Hertz | None = None
    fan: Literal["full"] | None = None


NO_WISH = Wish()


class Verb(str, enum.Enum):
    """All that the tuner can be asked."""

    STATUS = "status"
    HOLD = "hold"
    RELEASE = "release"


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run to the tuner."""

    verb: Verb
    wish: Wish = NO_WISH


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the kernel, and what became of it.

    Attributes:
        knob: ``governor``, ``clock`` or ``fan``.
        where: Cores or device.
        path: The file.
        before: Its value when it was found.
        wanted: The value asked for.
        now: Its value when this was written.
        is_held: Whether ``now`` is what was wanted.
        problem: Why it is not, in the kernel's words; empty when nothing was refused.
    """

    knob: str
    where: str
    path: str
    before: str
    wanted: str
    now: str
    is_held: bool
    problem: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The tuner to a run; a run keeps the last one in its result.

    Attributes:
        settings: Every file that the wish comes down to.
        missing: What this board does not have, in words; no error.
        problem: Why nothing could be done; empty when something was.
        restored: Whether every file is as it was before; None before the release.
    """

    settings: tuple[Setting, ...] = ()
    missing: tuple[str, ...] = ()
    problem: str = ""
    restored: bool | None = None


def is_same(value: str, wanted: str) -> bool:
    """Whether two values of one file mean the same: drivers round frequencies a little."""
    if value.isdecimal() and wanted.isdecimal():
        return abs(int(value) - int(wanted)) <= int(wanted) // 100
    return value == wanted
