"""Tells systemd that the service is ready and alive (sd_notify(3)), if it asked to be told."""

import os
import socket


class Notify:
    """The socket that systemd named in ``NOTIFY_SOCKET``; does nothing without one."""

    def __init__(self) -> None:
        name = os.environ.pop("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self.every_s = _watchdog_s() if self._address else None

    def ready(self) -> None:
        """Say that the service has started."""
        self._send("READY=1")

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Say that the service ends on purpose."""
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto(text.encode(), self._address)
        except OSError:  # systemd will notice our silence itself
            return


def _watchdog_s() -> float | None:
    """Return how often systemd wants a sign of life: half of what it allows."""
    text = os.environ.get("WATCHDOG_USEC", "")
    return int(text) / 2e6 if text.isdecimal() else None
