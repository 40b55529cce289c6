"""Puts a simulated meter behind a pty, and breaks it as asked.

The far end of the pty is behind a symbolic link, so that an unplugged meter comes back
under the same name, as it does in ``/dev/serial/by-id``.
"""

import contextlib
import os
import pty
import select
import threading
import time
import tty
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from edgeperf.power import simulator_class
from edgeperf.power.base import MeterInputError
from edgeperf.power.simulate.bench import Bench, Device, FaultKind, parse_fault
from edgeperf.power.simulate.waveform import parse_waveform

#: How long the loop may sleep; bounds how late a fault begins.
NAP_S = 0.05


class PtyServer:
    """A simulated meter on a pty, served by one thread while it is open.

    Args:
        device: The meter.
        bench: Its load and faults.
        link: Symbolic link to make; this is the port to give to a driver.

    Attributes:
        port: The link, as text.
        dropped_bytes: Bytes that the host did not read in time.
    """

    def __init__(self, device: Device, bench: Bench, link: Path) -> None:
        self.port = str(link)
        self.dropped_bytes = 0
        self._device = device
        self._bench = bench
        self._link = link
        self._pending = bytearray()
        self._master = self._slave = -1
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self.serve, name=f"simulated {link.name}")

    @property
    def bench(self) -> Bench:
        """The load and the faults."""
        return self._bench

    def __enter__(self) -> "PtyServer":  # Self needs Python 3.11
        self._plug()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._thread.join()
        self._unplug()

    def serve(self) -> None:
        """Play the meter until the server is closed."""
        nap_s = min(NAP_S, self._device.tick_s or NAP_S)
        while not self._closing.is_set():
            now_s = time.monotonic()
            if self._follow_plug(now_s):
                self._turn(now_s, nap_s)
            else:
                time.sleep(nap_s)

    def _turn(self, now_s: float, nap_s: float) -> None:
        writers = [self._master] if self._pending else []
        readable, _, _ = select.select([self._master], writers, [], nap_s)
        stalled = self._bench.fault(FaultKind.STALL, now_s) is not None
        if readable:
            data = os.read(self._master, 4096)
            if not stalled and (reply := self._device.answer(data, time.monotonic())):
                self._queue(reply)
        for message in self._device.stream(time.monotonic()):
            if not stalled:
                self._queue(message)
        self._send()

    def _queue(self, message: bytes) -> None:
        message = self._bench.damage(message, time.monotonic())
        if len(self._pending) + len(message) > max(self._device.queue_bytes, len(message)):
            self.dropped_bytes += len(message)
        else:
            self._pending += message

    def _send(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._pending:
                del self._pending[: os.write(self._master, self._pending)]

    def _follow_plug(self, now_s: float) -> bool:
        """Plug or unplug as the faults say; return whether the meter is there."""
        there = self._bench.fault(FaultKind.UNPLUG, now_s) is None
        if there and self._master < 0:
            self._plug()
        elif not there and self._master >= 0:
            self._unplug()
        return there

    def _plug(self) -> None:
        self._master, self._slave = pty.openpty()
        tty.setraw(self._slave)  # the server keeps it open, or the next open would echo
        os.set_blocking(self._master, False)
        fresh = self._link.with_name(self._link.name + ".new")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(os.ttyname(self._slave))
        fresh.replace(self._link)
        self._pending.clear()

    def _unplug(self) -> None:
        if self._master >= 0:
            self._link.unlink(missing_ok=True)
            os.close(self._slave)
            os.close(self._master)
            self._master = self._slave = -1


def open_simulated(
    kind: str,
    link: Path,
    waveform: str = "constant:6",
    *,
    voltage_v: float = 5.0,
    faults: Sequence[str] = (),
    **device: Any,
) -> PtyServer:
    """Make a simulated meter; enter it to plug it in.

    Args:
        kind: Name in :data:`edgeperf.power.SIMULATORS`.
        link: Where its port shall appear.
        waveform: As :func:`~edgeperf.power.simulate.waveform.parse_waveform` takes it.
        voltage_v: Supply voltage of the load.
        faults: As :func:`~edgeperf.power.simulate.bench.parse_fault` takes them; their
            seconds begin now.
        **device: Further arguments of the device.

    Raises:
        MeterInputError: Kind, waveform, fault or argument cannot be used.
    """
    make = simulator_class(kind)
    bench = Bench(
        parse_waveform(waveform),
        voltage_v=voltage_v,
        faults=[parse_fault(text) for text in faults],
        start_s=time.monotonic(),
    )
    server: type[PtyServer] = getattr(make, "server", PtyServer)
    try:
        return server(make(bench, **device), bench, link)
    except TypeError as error:
        raise MeterInputError(f"simulated {kind}: {error}") from error
