"""The processes of one test: started fresh, heard through a socket, killed as a group.

Each child is a new interpreter in a session of its own, so that a Ctrl-C at the terminal
reaches only the supervisor, and killing a child's group takes along whatever its runtime
started. Children ask the kernel to be killed when the supervisor dies, so a SIGKILL of
the supervisor leaves none behind either.
"""

import contextlib
import ctypes
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from edgeperf import EdgeperfError
from edgeperf.agent.run.jobs import Job, Message, decode_message

_PR_SET_PDEATHSIG = 1
_LAST_LINES = 5
#: How long a killed process may take to vanish; the kernel needs milliseconds.
_REAP_S = 5.0


class ChildDiedError(EdgeperfError):
    """A process of the run ended although it should not have.

    Attributes:
        role: What it was: ``leader``, ``follower 1``, ``prepare``.
        returncode: As :class:`subprocess.Popen` gives it: negative is a signal.
        last_lines: The last lines it wrote.
    """

    def __init__(self, role: str, returncode: int, last_lines: Sequence[str]) -> None:
        self.role = role
        self.returncode = returncode
        self.last_lines = tuple(last_lines)
        said = f"; its last words: {' | '.join(last_lines)}" if last_lines else ""
        super().__init__(f"{role} {_how(returncode)}{said}")


def _how(returncode: int) -> str:
    if returncode < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-returncode).name}"
        return f"was killed by signal {-returncode}"
    return f"exited with status {returncode}"


class Child:
    """One child process and the channel to it.

    Attributes:
        role: What it is, for people.
        pid: Its process id, also its group's and session's.
    """

    def __init__(
        self, role: str, job: Job, *, descriptors: Sequence[int], log: Path, env: Mapping[str, str]
    ) -> None:
        self.role = role
        self._log = log
        self._ours, theirs = socket.socketpair()
        self._buffer = b""
        with theirs, log.open("ab") as output:
            self._process = subprocess.Popen(
                _command(theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno(), *descriptors],
                start_new_session=True,
                env=dict(env),
            )
        self.pid = self._process.pid
        self._send(job)
        self._ours.setblocking(False)  # noqa: FBT003 - the socket module's own signature

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._ours.fileno()

    def tell(self, word: str) -> None:
        """Send one word; a child that is gone is noticed elsewhere."""
        with contextlib.suppress(OSError):
            self._send(word)

    def _send(self, thing: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._ours.sendall(msgspec.json.encode(thing) + b"\n")

    def receive(self) -> list[Message]:
        """Return what has arrived.

        Raises:
            ChildDiedError: The channel is closed: the child is gone.
        """
        closed = False
        with contextlib.suppress(BlockingIOError):
            while not closed:
                try:
                    chunk = self._ours.recv(1 << 16)
                except ConnectionResetError:
                    chunk = b""
                self._buffer += chunk
                closed = not chunk
        *lines, self._buffer = self._buffer.split(b"\n")
        messages = [decode_message(line) for line in lines]
        if closed and not messages:
            raise ChildDiedError(self.role, self.wait(), self.last_lines())
        return messages

    def wait(self) -> int:
        """Wait for the child to end and return its status; kill it if it will not."""
        try:
            return self._process.wait(_REAP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait(_REAP_S)

    def kill(self) -> None:
        """Kill the child's whole group, at once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def last_lines(self) -> list[str]:
        """Return the last lines that the child wrote."""
        try:
            text = self._log.read_bytes()[-4096:].decode(errors="replace")
        except OSError:
            return []
        return [line.strip() for line in text.splitlines() if line.strip()][-_LAST_LINES:]

    def close(self) -> None:
        """Kill what is left of the child and reap it."""
        self.kill()
        self._ours.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_REAP_S)


def _command(channel: int) -> list[str]:
    # Without -P the folder we stand in would come before every installed package, and
    # ours has a `datasets`. (Python 3.10 knows neither -P nor a way to get there.)
    safe = ["-P"] if sys.version_info >= (3, 11) else []
    return [sys.executable, *safe, "-m", "edgeperf.agent.run.child", str(channel)]


class Children:
    """The processes of one test. Leaving the ``with`` block kills them all."""

    def __init__(self) -> None:
        self._children: list[Child] = []
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> "Children":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in self._children:
            child.kill()
        for child in self._children:
            child.close()
        self._selector.close()

    def add(self, child: Child) -> Child:
        """Own *child* from now on."""
        self._children.append(child)
        self._selector.register(child, selectors.EVENT_READ)
        return child

    @property
    def pids(self) -> list[int]:
        """The process id of each child, in the order they were added."""
        return [child.pid for child in self._children]

    def messages(self, timeout_s: float) -> list[tuple[Child, Message]]:
        """Wait up to *timeout_s* for messages and return them.

        Raises:
            ChildDiedError: A child is gone. That is an error also for one that has said
                it is done: callers :meth:`forget` those.
        """
        found = []
        for key, _ in self._selector.select(timeout_s):
            child = key.fileobj
            if isinstance(child, Child):
                found += [(child, message) for message in child.receive()]
        return found

    def forget(self, child: Child) -> None:
        """Stop listening to *child*, which may end now."""
        self._selector.unregister(child)


def child_environment(threads: int) -> dict[str, str]:
    """Return the environment of a worker: ours, with every thread pool pinned down.

    Args:
        threads: Threads per inference; maths libraries that runtimes bring along must
            not make pools of their own beside it.
    """
    count = str(threads)
    return {
        **os.environ,
        "OMP_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OMP_WAIT_POLICY": "PASSIVE",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONUNBUFFERED": "1",
    }


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that started it dies."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent == 1:  # it died before we asked
        os._exit(1)


class Deadline:
    """A moment on the monotonic clock by which something must have happened."""

    def __init__(self, seconds: float) -> None:
        self._due = time.monotonic() + seconds

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return time.monotonic() > self._due
