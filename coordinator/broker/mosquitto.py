"""Mosquitto as a child: its own port, users, ACL and data, nothing of the system's.

Anonymous clients are refused, and each board may write only its own topics and read only
what is for it. The queue on disk is saved often, and one that a power cut spoiled is moved
aside: boards keep what was not acknowledged, so an empty broker costs latency only.

Trap: Mosquitto reads the ACL and password files again on SIGHUP, but a client that is
connected keeps its rights until it reconnects.
"""

import hashlib
import os
import pwd
import shutil
import signal
from pathlib import Path

from edgeperf.coordinator.broker.base import (
    COORDINATOR_USER,
    LOOPBACK,
    Accounts,
    BrokerError,
    Endpoint,
    free_port,
)
from edgeperf.coordinator.broker.child import Child
from edgeperf.coordinator.files import write_private
from edgeperf.coordinator.trust import Authority, mosquitto_hash

#: A directory that Debian leaves out of an ordinary user's PATH.
_SBIN = "/usr/sbin"
_WRITES = ("state", "desc", "evt", "tlm", "blob/#")
_READS = ("cmd", "ack")


def find_mosquitto() -> str | None:
    """Return the path of the program; None when it is not installed."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path=_SBIN)


class Mosquitto:
    """The child broker in *folder*.

    Args:
        folder: For its config, passwords, ACL, queue and log.
        fleet: Whose topics the ACL opens.
        listen: Address for boards; anything but loopback speaks TLS only.
        port: Port for boards; 0 takes a free one.
        authority: Signs its certificate; needed beyond loopback.
        mtls: Ask boards for a certificate as well.
    """

    def __init__(
        self,
        folder: Path,
        *,
        fleet: str,
        listen: str = LOOPBACK,
        port: int = 0,
        authority: Authority | None = None,
        mtls: bool = False,
    ) -> None:
        self.name = "Mosquitto (child)"
        self._folder = folder
        self._fleet = fleet
        self._listen = listen
        self._port = port or free_port()
        self._authority = authority
        self._mtls = mtls
        self._tls = listen != LOOPBACK
        self._own_port = free_port() if self._tls else self._port
        self._child: Child | None = None

    def start(self, accounts: Accounts) -> Endpoint:
        """See :class:`~edgeperf.coordinator.broker.base.Broker`."""
        program = find_mosquitto()
        if program is None:
            raise BrokerError("broker mosquitto: not installed; apt install mosquitto")
        self._write_accounts(accounts)
        config = self._folder / "mosquitto.conf"
        write_private(config, self._config().encode())
        self._child = Child(
            [program, "-c", str(config)],
            self._folder,
            host=LOOPBACK,
            port=self._own_port,
            recover=self._move_queue_aside,
        )
        self._child.start()
        return Endpoint(
            host=LOOPBACK,
            own_port=self._own_port,
            own_tls=False,
            board_host=None,
            port=self._port,
            tls=self._tls,
            username=COORDINATOR_USER,
            password=accounts.own,
        )

    def set_accounts(self, accounts: Accounts) -> None:
        """See :class:`~edgeperf.coordinator.broker.base.Broker`."""
        self._write_accounts(accounts)
        if self._child is not None:
            self._child.signal(signal.SIGHUP)

    def tend(self) -> None:
        """See :class:`~edgeperf.coordinator.broker.base.Broker`."""
        if self._child is not None:
            self._child.tend()

    def stop(self) -> None:
        """See :class:`~edgeperf.coordinator.broker.base.Broker`."""
        if self._child is not None:
            self._child.stop()

    def _config(self) -> str:
        lines = [
            "per_listener_settings false",
            "allow_anonymous false",
            f"password_file {self._folder}/passwords",
            f"acl_file {self._folder}/acl",
            f"user {pwd.getpwuid(os.geteuid()).pw_name}",
            "persistence true",
            f"persistence_location {self._folder}/",
            "autosave_interval 10",
            "set_tcp_nodelay true",
            "max_queued_messages 10000",
            "message_size_limit 262144",
            "log_type error",
            "log_type warning",
            "log_dest stderr",
            f"listener {self._own_port} {LOOPBACK}",
        ]
        if self._tls and self._authority is not None:
            lines += [
                f"listener {self._port} {self._listen}",
                f"certfile {self._authority.server_cert}",
                f"keyfile {self._authority.server_key}",
                f"cafile {self._authority.ca_file}",
                f"require_certificate {'true' if self._mtls else 'false'}",
                "tls_version tlsv1.2",
            ]
        return "\n".join(lines) + "\n"

    def _write_accounts(self, accounts: Accounts) -> None:
        everyone = {COORDINATOR_USER: accounts.own, **accounts.boards}
        lines = [
            f"{name}:{mosquitto_hash(password, hashlib.sha256(name.encode()).digest()[:12])}"
            for name, password in sorted(everyone.items())
        ]
        write_private(self._folder / "passwords", "\n".join([*lines, ""]).encode())
        write_private(self._folder / "acl", self._acl().encode())

    def _acl(self) -> str:
        root = f"edgeperf/v1/{self._fleet}"
        own = f"{root}/dev/%u"
        lines = [f"user {COORDINATOR_USER}", f"topic readwrite {root}/#", ""]
        lines += [f"pattern write {own}/{leaf}" for leaf in _WRITES]
        lines += [f"pattern read {own}/{leaf}" for leaf in (*_READS, "state")]
        lines += [f"pattern read {root}/coord/state", ""]
        return "\n".join(lines)

    def _move_queue_aside(self) -> bool:
        """Start without the queue if it may be what the broker choked on."""
        queue = self._folder / "mosquitto.db"
        if not queue.exists():
            return False
        queue.replace(queue.with_suffix(".spoiled"))
        return True
