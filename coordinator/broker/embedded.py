"""The broker that pip installs: rumqttd inside the wheel ``iotcore``, as a child process.

For a demo, a test or one machine. It knows users but no access rights, so any board could
speak for another; therefore it listens on loopback only. It keeps nothing on disk, which
costs latency only: boards send again. It has one port per protocol version; boards and
coordinator use the MQTT 5 one. It reads its users once, so new ones mean a restart.
"""

import json
import sys
from importlib.util import find_spec
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

# The package's own Broker class does the same but prints to our terminal and cannot be
# found again after a crash. Reading stdin to its end ties the child's life to ours.
_BOOTSTRAP = "from iotcore._serve import main; main()"


def is_installed() -> bool:
    """Tell whether the extra ``broker`` is there."""
    return find_spec("iotcore") is not None


class EmbeddedBroker:
    """The child broker in *folder*, on loopback.

    Args:
        folder: For its config, log and pid.
        port: MQTT 5 port; 0 takes a free one.
    """

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        self.name = "embedded (iotcore)"
        self._folder = folder
        self._port = port or free_port()
        self._old_port = free_port()
        self._child: Child | None = None

    def start(self, accounts: Accounts) -> Endpoint:
        """See :class:`~edgeperf.coordinator.broker.base.Broker`."""
        if not is_installed():
            raise BrokerError("broker embedded: not installed; pip install 'edgeperf[broker]'")
        config = self._folder / "rumqttd.toml"
        self._write(accounts)
        options = json.dumps({"config_path": str(config)})
        self._child = Child(
            [sys.executable, "-P", "-c", _BOOTSTRAP, options]
            if sys.version_info >= (3, 11)
            else [sys.executable, "-c", _BOOTSTRAP, options],
            self._folder,
            host=LOOPBACK,
            port=self._port,
        )
        self._child.start()
        return Endpoint(
            host=LOOPBACK,
            own_port=self._port,
            own_tls=False,
            board_host=LOOPBACK,
            port=self._port,
            tls=False,
            username=COORDINATOR_USER,
            password=accounts.own,
        )

    def set_accounts(self, accounts: Accounts) -> None:
        """See :class:`~edgeperf.coordinator.broker.base.Broker`."""
        self._write(accounts)
        if self._child is not None:
            self._child.stop()
            self._child.start()

    def tend(self) -> None:
        """See :class:`~edgeperf.coordinator.broker.base.Broker`."""
        if self._child is not None:
            self._child.tend()

    def stop(self) -> None:
        """See :class:`~edgeperf.coordinator.broker.base.Broker`."""
        if self._child is not None:
            self._child.stop()

    def _write(self, accounts: Accounts) -> None:
        text = _config(self._port, self._old_port, accounts)
        write_private(self._folder / "rumqttd.toml", text.encode())


def _config(port: int, old_port: int, accounts: Accounts) -> str:
    users = {COORDINATOR_USER: accounts.own, **accounts.boards}
    auth = "\n".join(f"{json.dumps(name)} = {json.dumps(word)}" for name, word in users.items())
    return _TEMPLATE.format(host=LOOPBACK, port=port, old_port=old_port, auth=auth)


_TEMPLATE = """\
id = 0

[router]
id = 0
max_connections = 10010
max_outgoing_packet_count = 2000
max_segment_size = 104857600
max_segment_count = 10

[v4.1]
name = "v4-1"
listen = "{host}:{old_port}"
next_connection_delay_ms = 1

[v4.1.connections]
connection_timeout_ms = 60000
max_payload_size = 262144
max_inflight_count = 1000
dynamic_filters = true

[v4.1.connections.auth]
{auth}

[v5.1]
name = "v5-1"
listen = "{host}:{port}"
next_connection_delay_ms = 1

[v5.1.connections]
connection_timeout_ms = 60000
max_payload_size = 262144
max_inflight_count = 1000
dynamic_filters = true

[v5.1.connections.auth]
{auth}
"""
