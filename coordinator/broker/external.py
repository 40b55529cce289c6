"""A broker that someone else runs, named by URL.

``mqtt://USER@HOST:PORT`` or ``mqtts://…``; the password comes from a file or the
environment, never from the command line, where everyone on the machine could read it.
We cannot make users there: its owner gives the boards theirs (``--board-credentials``), or
lets them in by the certificates that this coordinator signs.
"""

import socket
import ssl
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from edgeperf.coordinator.broker.base import (
    Accounts,
    BrokerConfigError,
    BrokerError,
    Endpoint,
    listens,
)

_PORTS = {"mqtt": 1883, "mqtts": 8883}


class BrokerUrl(NamedTuple):
    """An address of a broker."""

    host: str
    port: int
    tls: bool
    username: str | None


def parse_broker_url(text: str) -> BrokerUrl:
    """Read the URL of a broker.

    Raises:
        BrokerConfigError: It is none; the message says what was expected.
    """
    expected = "expected mqtt://[USER@]HOST[:PORT] or mqtts://…"
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as error:
        raise BrokerConfigError(f"broker {text!r}: {error}; {expected}") from error
    if url.scheme not in _PORTS or not url.hostname:
        raise BrokerConfigError(f"broker {text!r}: {expected}")
    if url.password:
        raise BrokerConfigError(
            "broker: the URL holds a password, which others on this machine could read; put it"
            " into a file and name that with --broker-password-file"
        )
    username = unquote(url.username) if url.username else None
    return BrokerUrl(url.hostname, port or _PORTS[url.scheme], url.scheme == "mqtts", username)


class ExternalBroker:
    """A broker at an address; nothing is started or stopped."""

    def __init__(
        self,
        url: BrokerUrl,
        *,
        password: str | None,
        ca_file: Path | None = None,
        cert_file: Path | None = None,
        key_file: Path | None = None,
    ) -> None:
        self.name = f"{url.host}:{url.port}"
        self._url = url
        self._password = password
        self._ca_file, self._cert_file, self._key_file = ca_file, cert_file, key_file

    def start(self, accounts: Accounts) -> Endpoint:
        """See :class:`~edgeperf.coordinator.broker.base.Broker`."""
        del accounts
        url = self._url
        self._probe()
        return Endpoint(
            host=url.host,
            own_port=url.port,
            own_tls=url.tls,
            board_host=url.host,
            port=url.port,
            tls=url.tls,
            username=url.username,
            password=self._password,
            ca_file=self._ca_file,
            cert_file=self._cert_file,
            key_file=self._key_file,
        )

    def set_accounts(self, accounts: Accounts) -> None:
        """See :class:`~edgeperf.coordinator.broker.base.Broker`."""

    def tend(self) -> None:
        """See :class:`~edgeperf.coordinator.broker.base.Broker`."""

    def stop(self) -> None:
        """See :class:`~edgeperf.coordinator.broker.base.Broker`."""

    def _probe(self) -> None:
        """Say at once, and in words, what paho would only retry."""
        where = f"broker {self.name}"
        if not self._url.tls:
            if not listens(self._url.host, self._url.port):
                raise BrokerError(f"{where}: nobody answers; is it running and the port right?")
            return
        context = ssl.create_default_context(cafile=self._ca_file)
        if self._cert_file is not None:
            context.load_cert_chain(self._cert_file, self._key_file)
        try:
            with (
                socket.create_connection((self._url.host, self._url.port), timeout=5) as plain,
                context.wrap_socket(plain, server_hostname=self._url.host),
            ):
                return
        except ssl.SSLCertVerificationError as error:
            raise BrokerError(
                f"{where}: its certificate is not trusted: {error.verify_message}; give its CA"
                " with --broker-ca and check this machine's clock"
            ) from error
        except OSError as error:
            raise BrokerError(f"{where}: {error}; is it running, and does it speak TLS?") from error
