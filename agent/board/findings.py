"""What a probe of ``edgeperf doctor`` says."""

import enum
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from edgeperf.agent.board.ntp import KernelClock, kernel_clock


class Health(str, enum.Enum):
    """How a probe went.

    ``missing`` is something this board could have and does without; ``fail`` is something
    without which edgeperf cannot measure here at all.
    """

    OK = "ok"
    WARN = "warn"
    MISSING = "missing"
    FAIL = "fail"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One probe's result.

    Attributes:
        area: What it belongs to: ``system``, ``software``, ``cores``, ``clock``, ...
        name: What was looked at.
        status: How it went.
        value: What was found, in words and figures.
        what_to_do: The next step for a person; empty where none is needed.
    """

    area: str
    name: str
    status: Health
    value: str
    what_to_do: str = ""


class Area(msgspec.Struct, frozen=True):
    """Makes the findings of one area of the report."""

    name: str

    def ok(self, name: str, value: str, what_to_do: str = "") -> Finding:
        """It is as it should be."""
        return self._found(name, Health.OK, value, what_to_do)

    def warn(self, name: str, value: str, what_to_do: str) -> Finding:
        """It works, but numbers suffer or something will soon break."""
        return self._found(name, Health.WARN, value, what_to_do)

    def missing(self, name: str, value: str, what_to_do: str = "") -> Finding:
        """It is not here, and runs work without it."""
        return self._found(name, Health.MISSING, value, what_to_do)

    def fail(self, name: str, value: str, what_to_do: str) -> Finding:
        """No run works before this is put right."""
        return self._found(name, Health.FAIL, value, what_to_do)

    def _found(self, name: str, status: Health, value: str, what_to_do: str) -> Finding:
        return Finding(area=self.name, name=name, status=status, value=value, what_to_do=what_to_do)


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """What the probes look at. Only a test gives anything but the defaults here.

    Attributes:
        root: Root of the file tree.
        affinity: Cores in this process's mask; None asks the kernel.
        folders: Folders that edgeperf writes to, by what they are for.
        broker: URL of the MQTT broker; None probes no broker.
        kernel_clock: Asks the kernel how well its clock is kept.
        meters: Looks for meters; None where nothing can.
        fleet: Tries the broker of the fleet; None where nothing can.
        tuner: Socket of the tuner; None is where it always is.
    """

    root: Path = Path("/")
    affinity: Collection[int] | None = None
    folders: Mapping[str, Path] = msgspec.field(default_factory=dict)
    broker: str | None = None
    kernel_clock: Callable[[], KernelClock | None] = kernel_clock
    meters: Callable[[], Iterable[Finding]] | None = None
    fleet: Callable[[], Iterable[Finding]] | None = None
    tuner: Path | None = None


Probe = Callable[[Board], Iterable[Finding]]


def may(path: Path, mode: int) -> bool:
    """Whether this process may access *path* in *mode* (``os.R_OK | os.W_OK``)."""
    # The effective user counts: that is who opens the file.
    return os.access(path, mode, effective_ids=True)
