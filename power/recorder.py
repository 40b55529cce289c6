"""A meter recorded by a process of its own, seen from the run that it belongs to.

Nothing here is imported by a process that is being timed, and nothing here waits for the
meter once it has started: :meth:`Recorder.poll` reads what the recorder said last. No
numpy either: traces are decoded by the recorder process.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from edgeperf.power import parse_meter_spec
from edgeperf.power.base import Identity, MeterError, MeterInputError, SourceInfo
from edgeperf.power.live import Live

#: Opening, identifying, starting and the first reading of the slowest meter.
START_PATIENCE_S = 40.0
STOP_PATIENCE_S = 120.0
_KILL_PATIENCE_S = 2.0


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """What a recorder left behind.

    Attributes:
        trace: The trace, NPZ.
        faults: What went wrong: short phrase to count.
    """

    trace: Path
    faults: dict[str, int]


class Recorder:
    """A recording meter; make it with :meth:`start`.

    Attributes:
        identity: Which instrument it is.
        info: What its numbers are worth.
    """

    def __init__(self, meter: str, directory: Path, process: "subprocess.Popen[bytes]") -> None:
        self._port = parse_meter_spec(meter).port or meter
        self._directory = directory
        self._process = process
        self._rest = b""
        self._live = Live(t_mono_ns=time.monotonic_ns(), power_w=None, state="ok", readings=0)
        self._done: dict[str, Any] | None = None
        self.identity = Identity(model="")
        self.info: SourceInfo | None = None

    @classmethod
    def start(
        cls, meter: str, directory: Path, core: int | None = None, *, keep_raw: bool = False
    ) -> "Recorder":
        """Start recording, and return once the meter gave one good reading.

        The recorder ends when this process or the calling thread does.

        Args:
            meter: Meter spec.
            directory: Where the trace goes, and a log if something breaks.
            core: Core that the recorder stays on; None leaves it free.
            keep_raw: Keep the raw bytes beside the trace.

        Raises:
            MeterInputError: Spec, port, option or core cannot be used.
            MeterError: The meter does not answer, is busy, or gives no good reading.
        """
        command = [sys.executable, "-m", "edgeperf.power.record_process", "--meter", meter]
        command += ["--raw", str(directory / "power.raw"), "--trace", str(directory / "power.npz")]
        command += ["--parent", str(os.getpid())]
        command += ["--core", str(core)] if core is not None else []
        command += ["--keep-raw"] if keep_raw else []
        one_thread = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
        with (directory / "power.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **one_thread, "PYTHONSAFEPATH": "1"},
            )
        recorder = cls(meter, directory, process)
        try:
            recorder._wait_until_ready()
        except BaseException:
            recorder.kill()
            raise
        return recorder

    def __enter__(self) -> "Recorder":  # Self needs Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Process id of the recorder."""
        return self._process.pid

    def poll(self) -> Live:
        """Return how the meter is; never waits.

        What goes wrong with the meter is known here within 2 s. A recorder that died is
        ``lost``.
        """
        self._hear(0)
        if self._process.poll() is not None and self._done is None:
            problem = f"the recorder died (exit status {self._process.returncode})"
            return msgspec.structs.replace(
                self._live, power_w=None, state="lost", problem=self._live.problem or problem
            )
        return self._live

    def mark(self, name: str, t_mono_ns: int | None = None) -> None:
        """Name a moment in the trace: ``idle_begin``, ``power_begin``, ...

        Args:
            name: The name.
            t_mono_ns: The moment, CLOCK_MONOTONIC; None is now.
        """
        moment = time.monotonic_ns() if t_mono_ns is None else t_mono_ns
        self._command({"mark": name, "t_mono_ns": moment})

    def stop(self) -> Recording:
        """Stop recording and return the trace; also after the recorder died.

        Raises:
            MeterError: There is nothing that can be decoded; says why.
        """
        self._command({"stop": True})
        deadline_s = time.monotonic() + STOP_PATIENCE_S
        while self._done is None and time.monotonic() < deadline_s:
            if not self._hear(0.2) and self._process.poll() is not None:
                break
        self.kill()
        if self._done is None:
            return self._rescue()
        return Recording(trace=self._directory / "power.npz", faults=self._done["faults"])

    def kill(self) -> None:
        """End the recorder at once; what it recorded stays. Calling it twice does no harm."""
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError, ValueError):
                if stream is not None:
                    stream.close()
        try:
            self._process.wait(_KILL_PATIENCE_S if self._done is not None else 0.2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _rescue(self) -> Recording:
        """Decode what a recorder that died had written."""
        from edgeperf.power.trace import trace_of_raw  # noqa: PLC0415  # brings numpy

        raw = self._directory / "power.raw"
        try:
            trace = trace_of_raw(raw)
            trace.save(self._directory / "power.npz")
        except (OSError, MeterInputError) as error:
            raise MeterError(self._port, f"nothing was recorded: {error}") from error
        faults = {**trace.about.faults, "recorder died": 1}
        return Recording(trace=self._directory / "power.npz", faults=faults)

    def _wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + START_PATIENCE_S
        while self.info is None:
            if not self._hear(0.2) and self._process.poll() is not None:
                log = (self._directory / "power.log").read_text(errors="replace").strip()
                last = log.splitlines()[-1:] or [f"exit status {self._process.returncode}"]
                raise MeterError(self._port, f"the recorder died: {last[0]}")
            if time.monotonic() > deadline_s:
                raise MeterError(self._port, f"not ready within {START_PATIENCE_S:g} s")

    def _hear(self, timeout_s: float) -> int:
        """Take in what the recorder said; return how many events that were."""
        events = self._events(timeout_s)
        for event in events:
            self._take(event)
        return len(events)

    def _take(self, event: dict[str, Any]) -> None:
        kind = event.pop("event")
        if kind == "live":
            self._live = msgspec.convert(event, Live)
        elif kind == "ready":
            self.identity = msgspec.convert(event["identity"], Identity)
            self.info = msgspec.convert(event["info"], SourceInfo)
        elif kind == "done":
            self._done = event
        elif kind == "error" and self.info is None:
            if event["input"]:
                raise MeterInputError(event["message"])
            raise MeterError(self._port, event["message"].removeprefix(f"meter on {self._port}: "))
        elif kind == "error":
            self._live = msgspec.structs.replace(
                self._live, power_w=None, state="lost", problem=event["message"]
            )

    def _events(self, timeout_s: float) -> list[dict[str, Any]]:
        stream = self._process.stdout
        if stream is None or stream.closed:
            return []
        fd = stream.fileno()
        while select.select([fd], [], [], timeout_s)[0]:
            data = os.read(fd, 65536)
            if not data:
                break
            self._rest += data
            timeout_s = 0
        *lines, self._rest = self._rest.split(b"\n")
        return [json.loads(line) for line in lines if line]

    def _command(self, command: dict[str, Any]) -> None:
        with contextlib.suppress(OSError, ValueError):  # it died: poll() says so
            if self._process.stdin is not None:
                os.write(self._process.stdin.fileno(), json.dumps(command).encode() + b"\n")
