"""One run as a child process: the very command a person would type.

The child leads its own session, gets resource limits and an allow-listed environment, and
writes its events to a pipe and everything else to a file, so that the service wakes only
for events. When it ends, whatever is left of its session is killed.

It waits for :meth:`Child.go`: an agent that dies before it wrote down whom it started
must not leave behind a run that the next one does not know of.
"""

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from edgeperf.agent.events import Event
from edgeperf.agent.link.errors import LinkError
from edgeperf.agent.link.lines import printable_lines
from edgeperf.agent.link.processes import end_orphans, kill_session, send, started_ticks
from edgeperf.agent.messages import HoldTo
from edgeperf.agent.spec import RunSpec

#: How a person starts a run; ``-P`` keeps the working directory out of ``sys.path``.
RUN_PROGRAM = (
    (sys.executable, "-P", "-m", "edgeperf", "run")
    if sys.version_info >= (3, 11)
    else (sys.executable, "-m", "edgeperf", "run")
)
#: Waits for a line, then becomes the run; the end of the pipe means that the agent is gone.
_WAIT = ("/bin/sh", "-c", 'read -r go && exec "$@" </dev/null', "run")
#: From SIGTERM to SIGKILL. The issue allows 3 s until everything is free.
GRACE_S = 2.0
_TAIL_LINES, _TAIL_BYTES = 40, 16_384
_EVENT_BYTES = 65_536
_LOG_BYTES = 256 << 20
_FILE_BYTES = 8 << 30
#: Where a run's result lies in its directory.
RESULT_FOLDER = "result"
#: What a run may inherit. Names only; nothing of the agent's own secrets is in them.
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")
_ENVIRONMENT_PREFIXES = ("EDGEPERF_", "XDG_", "LD_LIBRARY_PATH", "CUDA_")
_KILL_ME_FIRST = "500"


def run_command(
    spec: RunSpec,
    *,
    program: tuple[str, ...],
    folder: Path,
    output: Path,
    events_fd: int,
    hold_to: HoldTo | None = None,
) -> list[str]:
    """Write the spec into *folder* and return the command that runs it.

    Args:
        spec: The run, its names already replaced by the board's own meanings.
        program: Up to and including ``run``.
        folder: The run's own directory.
        output: Where the result goes; it does not exist yet.
        events_fd: File descriptor for the events.
        hold_to: A frozen spec that the run is held to.
    """
    path = folder / "spec.json"
    path.write_bytes(msgspec.json.encode(spec))
    held = []
    if hold_to is not None:
        frozen = folder / "frozen.json"
        frozen.write_bytes(msgspec.json.encode(hold_to.spec))
        held = ["--hold-to", str(frozen)]
        for name in hold_to.allow:
            held += ["--allow", name]
    return [
        *program,
        *held,
        "--spec",
        str(path),
        "--events",
        str(events_fd),
        "--output",
        str(output),
    ]


def child_environment(environment: Mapping[str, str], cache: Path) -> dict[str, str]:
    """Return what the child sees of *environment*."""
    kept = {
        name: value
        for name, value in environment.items()
        if name in _ENVIRONMENT or name.startswith(_ENVIRONMENT_PREFIXES)
    }
    return kept | {"EDGEPERF_CACHE": str(cache), "PYTHONSAFEPATH": "1"}


class Child:
    """A run's process, which does nothing before :meth:`go`.

    Attributes:
        pid: Of the child, which is also its session.
        started_ticks: With ``pid`` its identity in this boot.
        log: The file with what it printed.
    """

    def __init__(
        self,
        spec: RunSpec,
        *,
        program: tuple[str, ...],
        folder: Path,
        cache: Path,
        max_memory_bytes: int | None = None,
        hold_to: HoldTo | None = None,
    ) -> None:
        self.log = folder / "run.log"
        self._began_s = time.monotonic()
        self._partial = b""
        self._is_silent = False
        self._killing: float | None = None
        self._events, far_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(far_end, True)
        try:
            command = run_command(
                spec,
                program=program,
                folder=folder,
                output=folder / RESULT_FOLDER,
                events_fd=far_end,
                hold_to=hold_to,
            )
            with self.log.open("wb") as log:
                self._process = subprocess.Popen(
                    [*_WAIT, *command],
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(far_end,),
                    cwd=folder,
                    env=child_environment(os.environ, cache),
                    start_new_session=True,
                )
        except OSError as error:
            os.close(self._events)
            raise LinkError(f"the run could not be started: {error}") from error
        finally:
            os.close(far_end)
        self.pid = self._process.pid
        self.started_ticks = started_ticks(self.pid) or 0
        _limit(self.pid, max_memory_bytes)
        self._pidfd = _open_pidfd(self.pid)

    def go(self) -> None:
        """Let it begin; whoever starts the next agent must be able to find it."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError), self._process.stdin as line:
                line.write(b"go\n")

    @property
    def elapsed_s(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._began_s

    @property
    def is_ending(self) -> bool:
        """Whether it was told to stop."""
        return self._killing is not None

    def descriptors(self) -> list[int]:
        """Return what to select for reading: events, and its end where the kernel tells it."""
        events = None if self._is_silent else self._events
        return [fd for fd in (events, self._pidfd) if fd is not None]

    def take_events(self) -> list[Event]:
        """Return what it said since the last time; a line that is no event is passed over."""
        events: list[Event] = []
        while chunk := self._read():
            *lines, self._partial = (self._partial + chunk).split(b"\n")
            if len(self._partial) > _EVENT_BYTES:
                self._partial = b""
            for line in lines:
                # A runtime that prints into the pipe must not end the service.
                with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                    events.append(msgspec.json.decode(line, type=Event))
        return events

    def ended(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs.

        It stays a zombie until :meth:`close`, so that its number means nobody else.
        """
        end = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if end is None:
            return None
        return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status

    def stop(self) -> None:
        """Ask it to stop; :meth:`press` makes sure that it does."""
        if self._killing is None:
            self._killing = time.monotonic() + GRACE_S
            send(self.pid, signal.SIGTERM)

    def press(self) -> float | None:
        """Kill its session when it had its time.

        Returns:
            Seconds until this should be called again; None when it was not told to stop.
        """
        if self._killing is None:
            return None
        left_s = self._killing - time.monotonic()
        if left_s <= 0:
            kill_session(self.pid, leader_ticks=self.started_ticks)
        return max(0.05, left_s)

    def log_is_too_long(self) -> bool:
        """Tell whether it prints without end."""
        try:
            return self.log.stat().st_size > _LOG_BYTES
        except OSError:
            return False

    def close(self) -> None:
        """Kill what is left of its session and release everything. It must have ended."""
        kill_session(self.pid, leader_ticks=self.started_ticks)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        end_orphans(known=set())  # nothing else of ours runs beside a run
        for fd in (self._events, self._pidfd):
            if fd is not None:
                os.close(fd)

    def _read(self) -> bytes:
        try:
            chunk = os.read(self._events, _EVENT_BYTES)
        except BlockingIOError:
            return b""
        self._is_silent = not chunk  # the far end is closed: nothing to wait for any more
        return chunk


def tail_of(log: Path) -> tuple[str, ...]:
    """Return the last lines of a file, without control characters."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            raw = stream.read(_TAIL_BYTES)
    except OSError:
        return ()
    return tuple(printable_lines(raw)[-_TAIL_LINES:])


def wait_for(descriptors: list[int], timeout_s: float) -> list[int]:
    """Wait until one of *descriptors* has something to read, and return those that have."""
    readable, _, _ = select.select(descriptors, [], [], max(0.0, timeout_s))
    return list(readable)


def _limit(pid: int, max_memory_bytes: int | None) -> None:
    """Set limits on a child that has just been started; its own children inherit them."""
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: _FILE_BYTES}
    if max_memory_bytes is not None:
        limits[resource.RLIMIT_DATA] = max_memory_bytes
    try:
        for what, limit in limits.items():
            _, hard = resource.prlimit(pid, what)
            lowest = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.prlimit(pid, what, (lowest, lowest))
        Path(f"/proc/{pid}/oom_score_adj").write_text(_KILL_ME_FIRST, "ascii")
    except OSError:  # it has ended already, or a container forbids it
        return


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:  # Linux before 5.3: the service looks every second
        return None
