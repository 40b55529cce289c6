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
from pathlib import Path
from types import TracebackType

from edgeperf.power.simulate.bench import Bench, Device, FaultKind

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
        message = self._break(message)
        if len(self._pending) + len(message) > max(self._device.queue_bytes, len(message)):
            self.dropped_bytes += len(message)
        else:
            self._pending += message

    def _break(self, message: bytes) -> bytes:
        now_s, dice = time.monotonic(), self._bench.random
        if (drop := self._bench.fault(FaultKind.DROP, now_s)) and dice.random() < drop.share:
            at = dice.randrange(len(message))
            message = message[:at] + message[at + 1 :]
        if (flip := self._bench.fault(FaultKind.CRC, now_s)) and dice.random() < flip.share:
            at = dice.randrange(len(message)) if message else 0
            message = message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]
        return message

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
