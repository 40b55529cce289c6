"""Looks at the board in a process of its own, so that the service never loads a runtime.

What was found last is kept and told at once after a start; looking takes seconds on a
small board and waits until nothing is timed.
"""

import os
import subprocess
import time
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from edgeperf.agent.link.child import child_environment
from edgeperf.agent.link.database import Database
from edgeperf.agent.link.log import warn
from edgeperf.agent.link.settings import Settings
from edgeperf.agent.messages import Runtime

_TIMEOUT_S = 120.0
_KEPT = "findings"


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at the board found.

    Attributes:
        board: Hardware and system.
        runtimes: Backends, also those that cannot be used.
        catalogue: sha256 of each file of the catalogue's models, and whether it is here.
        problem: Why the look failed, None when it did not.
    """

    board: dict[str, Any] = msgspec.field(default_factory=dict)
    runtimes: tuple[Runtime, ...] = ()
    catalogue: dict[str, bool] = msgspec.field(default_factory=dict)
    problem: str | None = None


class Request(msgspec.Struct, frozen=True):
    """Who asked for the look: a command's id, "" for nobody; ``selftest`` wants a verdict."""

    command: str
    selftest: bool


class Inspector:
    """Starts the look and collects what it printed.

    Args:
        settings: The service's.
        database: Keeps what was found.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._requests: deque[Request] = deque()
        self._process: subprocess.Popen[bytes] | None = None
        self._began_s = 0.0
        kept = database.value(_KEPT)
        self.findings = msgspec.json.decode(kept, type=Findings) if kept else Findings()

    @property
    def is_busy(self) -> bool:
        """Whether a look is going on; no run starts then."""
        return self._process is not None

    def next_s(self) -> float | None:
        """Return seconds until :meth:`tick` has something to do, None when it has nothing."""
        return 0.1 if self._process is not None else None

    def request(self, command: str = "", *, selftest: bool = False) -> None:
        """Ask for a look."""
        self._requests.append(Request(command, selftest))

    def tick(self) -> list[Request]:
        """Go on; called only while no run is timed.

        Returns:
            The requests that :attr:`findings` now answers.
        """
        if self._process is None:
            if self._requests:
                self._begin()
            return []
        exit_code = self._process.poll()
        if exit_code is None:
            if time.monotonic() - self._began_s > _TIMEOUT_S:
                self._process.kill()
            return []
        self._process = None
        self._collect(exit_code)
        answered = list(self._requests)
        self._requests.clear()
        return answered

    def close(self) -> None:
        """Stop looking."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _begin(self) -> None:
        self._began_s = time.monotonic()
        try:
            with self._output.open("wb") as output:
                self._process = subprocess.Popen(
                    self._settings.probe_program,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.DEVNULL,
                    cwd=self._settings.state,
                    env=child_environment(os.environ, self._settings.cache),
                    start_new_session=True,
                )
        except OSError as error:
            warn(f"the board could not be looked at: {error}")

    def _collect(self, exit_code: int) -> None:
        try:
            raw = self._output.read_bytes()
            found = msgspec.json.decode(raw, type=Findings)
        except (OSError, msgspec.DecodeError) as error:
            problem = f"the look at the board failed (exit code {exit_code}): {error}"
            self.findings = msgspec.structs.replace(self.findings, problem=problem)
            warn(problem)
            return
        self.findings = found
        self._database.keep(_KEPT, raw.decode("utf-8"))

    @property
    def _output(self) -> Path:
        return self._settings.state / "probe.json"
