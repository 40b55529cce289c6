"""Telling systemd that a service is ready, alive, or about to stop.

The protocol is one datagram of ``KEY=VALUE`` lines to the socket in ``NOTIFY_SOCKET``; a
service that nobody watches has no such variable, and then nothing is sent. The trap: the
variable must not reach child processes, or a run would speak for the service.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

import os
import socket
from collections.abc import MutableMapping

#: Whoever must answer every so often answers twice as often, as sd_watchdog_enabled(3) asks.
_MARGIN = 2


class Supervisor:
    """The systemd that started this service, or nobody.

    Args:
        environment: Where systemd left its variables; they are taken out of it, so that
            children do not inherit them.
    """

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        self._address = environment.pop("NOTIFY_SOCKET", "")
        watchdog_us = environment.pop("WATCHDOG_USEC", "")
        watched = environment.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        limit_s = int(watchdog_us) / 1e6 if watchdog_us.isdecimal() and watched else None
        self.alive_period_s: float | None = None if limit_s is None else limit_s / _MARGIN
        """How often to call :meth:`alive`, in seconds; None when nobody waits for it."""

    def ready(self) -> None:
        """Say that the service has started."""
        self._send("READY=1")

    def alive(self) -> None:
        """Say that the service still works; call it from the loop that does the work."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Say that the service is about to stop."""
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        """Set the line that ``systemctl status`` shows."""
        self._send(f"STATUS={text.splitlines()[0] if text else ''}")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        # An address that begins with @ is in the abstract name space.
        address = self._address.replace("@", "\0", 1)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(1.0)
            try:
                sender.sendto(message.encode(), address)
            except OSError:  # a supervisor that is gone is no reason to stop working
                return
