"""The recorder's own process: ``python -m edgeperf.power.record_process``.

It reads a meter and appends the bytes to a file; while the run is timed it does little
else. It talks JSON lines: commands on stdin (``{"mark": NAME, "t_mono_ns": N}``,
``{"stop": true}``; the end of stdin means stop, so it never outlives its run), events on
stdout (``ready``, ``live``, ``done``, ``error``). A ``live`` event that nobody reads is
dropped: the recorder waits for no one but the meter.
"""

import argparse
import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from edgeperf import EdgeperfError, InputError
from edgeperf.power import make_source, parse_meter_spec
from edgeperf.power.base import Identity, MeterError, MeterInputError, MeterLostError, Source
from edgeperf.power.ports import is_pseudo_terminal
from edgeperf.power.raw import RawWriter, Record, RecordKind
from edgeperf.power.result import PORT, PSEUDO_TERMINAL
from edgeperf.power.trace import trace_of_raw
from edgeperf.power.watch import Watch

LIVE_S = 0.25
RETRY_S = 0.5
#: How long the first good reading may take once the meter has started.
FIRST_READING_S = 10.0
_PR_SET_PDEATHSIG = 1


class Channel:
    """JSON lines from and to the process that started this one."""

    def __init__(self) -> None:
        self._rest = b""
        self.closed = False

    def commands(self) -> list[dict[str, Any]]:
        """Return what has come; never waits."""
        while not self.closed and select.select([0], [], [], 0)[0]:
            data = os.read(0, 65536)
            self.closed = not data
            self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        return [json.loads(line) for line in lines]

    def tell(self, event: str, **content: Any) -> None:
        """Send an event."""
        os.set_blocking(1, True)
        self._write(event, content)

    def hint(self, event: str, content: Any) -> None:
        """Send an event that may be dropped."""
        os.set_blocking(1, False)
        with contextlib.suppress(BlockingIOError):
            self._write(event, content)

    def _write(self, event: str, content: Any) -> None:
        line = msgspec.json.encode({"event": event, **msgspec.to_builtins(content)})
        with contextlib.suppress(BrokenPipeError):
            os.write(1, line + b"\n")


class RecordProcess:
    """Reads one meter until it is told to stop.

    Args:
        meter: Meter spec.
        raw: File to append to; must not exist.
        channel: Where commands come from.

    Attributes:
        abandoned: Whether whoever started this has gone; then nobody waits for a trace.
    """

    def __init__(self, meter: str, raw: Path, channel: Channel) -> None:
        self._meter = meter
        self._channel = channel
        self._source: Source = make_source(meter)
        self._writer = RawWriter(raw)
        self._watch: Watch | None = None
        self._stopping = False
        self._told_s = 0.0
        self.abandoned = False

    def run(self) -> None:
        """Open the meter, wait for a good reading, record until told to stop.

        Raises:
            EdgeperfError: The meter cannot be used; nothing was recorded.
        """
        try:
            identity = self._connect()
            watch = self._first_reading()
            self._channel.tell("ready", identity=identity, info=self._source.info())
            while not self._stopping:
                self._turn_or_wait(watch)
            self._source.stop()
        finally:
            self._source.close()
            self._writer.close()

    def abandon(self, *_: object) -> None:
        """Stop at the next turn, and leave the decoding to others; a signal handler."""
        self._stopping = self.abandoned = True

    def _connect(self) -> Identity:
        """Open, identify and start; write what is needed to decode what follows."""
        self._source.open()
        identity = self._source.identify()
        if is_pseudo_terminal(parse_meter_spec(self._meter).port):
            details = {**identity.details, PORT: PSEUDO_TERMINAL}
            identity = msgspec.structs.replace(identity, details=details)
        self._source.start()
        self._writer.start(
            time.monotonic_ns(),
            {
                "meter": self._meter,
                "identity": msgspec.to_builtins(identity),
                "info": msgspec.to_builtins(self._source.info()),
                "header": self._source.header(),
                "boot_id": _boot_id(),
            },
        )
        return identity

    def _first_reading(self) -> Watch:
        watch = Watch(self._source.info(), self._decoder(), time.monotonic_ns())
        deadline_s = time.monotonic() + FIRST_READING_S
        while not watch.readings and not self._stopping:
            if time.monotonic() > deadline_s:
                seen = watch.look(time.monotonic_ns())
                why = "; ".join(seen.faults) or seen.problem or "it sent nothing"
                port = parse_meter_spec(self._meter).port
                raise MeterError(port, f"no good reading within {FIRST_READING_S:g} s: {why}")
            self._turn(watch)
        return watch

    def _decoder(self) -> Any:
        return self._source.decoder(self._source.header())

    def _turn_or_wait(self, watch: Watch) -> None:
        try:
            self._turn(watch)
        except MeterLostError as error:
            self._wait_for_meter(watch, error)

    def _turn(self, watch: Watch) -> None:
        for chunk in self._source.read():
            self._writer.chunk(chunk)
            watch.take(chunk)
        self._serve(watch)

    def _serve(self, watch: Watch) -> None:
        """Obey commands, and tell four times a second how things are."""
        for command in self._channel.commands():
            if command.get("stop"):
                self._stopping = True
            elif name := command.get("mark"):
                t_ns = int(command.get("t_mono_ns", time.monotonic_ns()))
                self._writer.append(Record(RecordKind.MARK, t_ns, str(name).encode()))
        if self._channel.closed:
            self.abandon()
        if time.monotonic() - self._told_s >= LIVE_S:
            self._told_s = time.monotonic()
            self._channel.hint("live", watch.look(time.monotonic_ns()))

    def _wait_for_meter(self, watch: Watch, error: MeterLostError) -> None:
        """Note the loss and try again until the meter is back or the run is over."""
        self._writer.append(Record(RecordKind.LOST, time.monotonic_ns(), str(error).encode()))
        watch.lost(f"{error}; waiting for it to come back")
        self._source.close()
        retry_s = 0.0
        while not self._stopping:
            self._serve(watch)
            if time.monotonic() >= retry_s:
                try:
                    self._connect()
                except EdgeperfError as again:
                    self._source.close()
                    watch.lost(f"{again}; trying again")
                    retry_s = time.monotonic() + RETRY_S
                else:
                    watch.found(self._decoder(), time.monotonic_ns())
                    return
            time.sleep(0.05)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _bind_to_parent(parent: int, core: int | None) -> None:
    """Die with the parent, stay on the core, leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before prctl could see it
        raise SystemExit(3)
    if core is not None:
        try:
            os.sched_setaffinity(0, {core})
        except OSError as error:
            allowed = sorted(os.sched_getaffinity(0))
            raise MeterInputError(
                f"core {core}: not available to this process, which may use {allowed}"
            ) from error


def main() -> int:
    """Record one meter as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--meter", required=True)
    parser.add_argument("--raw", type=Path, required=True)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--core", type=int)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--keep-raw", action="store_true")
    args = parser.parse_args()
    channel = Channel()
    try:
        _bind_to_parent(args.parent, args.core)
        process = RecordProcess(args.meter, args.raw, channel)
        signal.signal(signal.SIGTERM, process.abandon)
        gc.freeze()
        process.run()
        if process.abandoned:
            return 3
        trace = trace_of_raw(args.raw)
        trace.save(args.trace)
        if not args.keep_raw:
            args.raw.unlink()
        channel.tell("done", faults=trace.about.faults)
    except (EdgeperfError, OSError) as error:
        channel.tell("error", message=str(error), input=isinstance(error, InputError))
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
