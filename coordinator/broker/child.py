"""A broker as our child process: started, watched, started again, and stopped.

The child may outlive a coordinator that was killed. Its pid is kept in a file, and
the next coordinator ends that orphan first, after checking that it really is ours: the
command line must name our own data directory.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from edgeperf.coordinator.broker.base import BrokerError, check_free, listens

_START_S = 10.0
_STOP_S = 5.0
_POLL_S = 0.02
#: Dying so often in so many seconds is not worth another try.
_MOST_STARTS, _WITHIN_S = 10, 60.0


class Child:
    """One child process that listens on a port.

    Args:
        command: How to start it; one argument must be a path below *folder*.
        folder: Where its pid file and log go.
        host: Where it listens.
        port: ... and on which port.
        recover: Called when it died before it listened, once; what it changes may help.
    """

    def __init__(
        self,
        command: list[str],
        folder: Path,
        *,
        host: str,
        port: int,
        recover: Callable[[], bool] = lambda: False,
    ) -> None:
        self._command = command
        self._folder = folder
        self._host, self._port = host, port
        self._recover = recover
        self._pid_file = folder / "broker.pid"
        self._log = folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._starts: list[float] = []

    def start(self) -> None:
        """Start it and wait until it listens.

        Raises:
            BrokerError: The port is taken, or it does not come up.
        """
        self._end_orphan()
        check_free(self._host, self._port)
        if not self._try_to_start() and not (self._recover() and self._try_to_start()):
            raise BrokerError(f"broker {self._command[0]}: does not start: {self._last_words()}")

    def tend(self) -> None:
        """Start it again if it died.

        Raises:
            BrokerError: It has died too often.
        """
        if self._process is None or self._process.poll() is None:
            return
        now = time.monotonic()
        self._starts = [moment for moment in self._starts if moment > now - _WITHIN_S]
        self._let_go(self._process)
        if len(self._starts) >= _MOST_STARTS:
            raise BrokerError(
                f"broker {self._command[0]}: died {len(self._starts)} times within"
                f" {_WITHIN_S:.0f} s: {self._last_words()}"
            )
        self.start()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it lives."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def stop(self) -> None:
        """End it and wait until it is gone."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._let_go(process)
        self._pid_file.unlink(missing_ok=True)

    def _try_to_start(self) -> bool:
        self._starts.append(time.monotonic())
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl+C is for us; we stop it in order
            )
        self._pid_file.write_text(str(self._process.pid), "ascii")
        give_up = time.monotonic() + _START_S
        while time.monotonic() < give_up:
            if self._process.poll() is not None:
                self._let_go(self._process)
                return False
            if listens(self._host, self._port):
                return True
            time.sleep(_POLL_S)
        self.stop()
        return False

    @staticmethod
    def _let_go(process: subprocess.Popen[bytes]) -> None:
        """Close our end of the pipe that ties the child's life to ours."""
        if process.stdin is not None:
            process.stdin.close()

    def _end_orphan(self) -> None:
        try:
            pid = int(self._pid_file.read_text("ascii"))
        except (OSError, ValueError):
            return
        with contextlib.suppress(ProcessLookupError):
            if self._is_ours(pid):
                os.kill(pid, signal.SIGTERM)
            give_up = time.monotonic() + _STOP_S
            while self._is_ours(pid) and time.monotonic() < give_up:
                time.sleep(_POLL_S)
            if self._is_ours(pid):
                os.kill(pid, signal.SIGKILL)

    def _is_ours(self, pid: int) -> bool:
        """Tell whether the process lives and is a broker of this folder.

        The number may have been given to another process since.
        """
        try:
            return os.fsencode(self._folder) in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    def _last_words(self) -> str:
        try:
            lines = self._log.read_text("utf-8", "replace").splitlines()
        except OSError:
            lines = []
        return f"{lines[-1].strip()} (log: {self._log})" if lines else f"see {self._log}"
