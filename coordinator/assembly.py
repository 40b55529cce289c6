"""Which broker, which certificates and which address follow from the settings."""

from pathlib import Path

from edgeperf.coordinator import broker as brokers
from edgeperf.coordinator.broker import LOOPBACK, Broker
from edgeperf.coordinator.files import DataDirectory
from edgeperf.coordinator.http import Server
from edgeperf.coordinator.settings import AUTO, EMBEDDED, MOSQUITTO, Settings, SettingsError
from edgeperf.coordinator.store import Store, devices
from edgeperf.coordinator.trust import Authority, Keys, own_names

_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


def check_identity(store: Store, keys: Keys, fleet: str) -> None:
    """Refuse a store that belongs to another fleet or key: its boards would not obey us.

    Raises:
        SettingsError: It does.
    """
    with store.writing() as connection:
        kept = devices.remember(connection, "fleet", fleet)
        public = devices.remember(connection, "signing_key", keys.public)
    if kept != fleet:
        raise SettingsError(f"--fleet {fleet}: the store is of fleet {kept!r}")
    if public != keys.public:
        raise SettingsError(
            f"keys in {keys.folder}: the store's boards obey another key; name the folder with"
            " theirs by --keys"
        )


def choose_authority(settings: Settings, folder: Path) -> Authority | None:
    """Return the fleet's CA where certificates are of use: beyond this machine."""
    if not settings.is_open and not settings.joins_by_url:
        return None
    authority = Authority(folder)
    if settings.is_open:
        given = settings.listen
        names = own_names() if given in _EVERYWHERE else sorted({*own_names(), given})
        authority.serve_as(names)
    return authority


def bind_server(settings: Settings, authority: Authority | None) -> Server:
    """Take the port of the HTTP interface; with TLS beyond this machine.

    Raises:
        HttpError: The port is taken.
    """
    tls = None
    if settings.is_open and authority is not None:
        tls = (authority.server_cert, authority.server_key)
    return Server(settings.listen, settings.http_port, tls=tls)


def local_url(settings: Settings, server: Server) -> str:
    """Return where this machine finds the HTTP interface."""
    host = LOOPBACK if settings.listen in _EVERYWHERE else settings.listen
    shown = f"[{host}]" if ":" in host else host
    return f"{server.scheme}://{shown}:{server.port}"


def trusted_cas(settings: Settings, authority: Authority | None) -> str | None:
    """Return the certificates that boards shall trust; None is the system's."""
    parts = [authority.ca_pem] if authority is not None and settings.is_open else []
    if settings.broker_ca is not None:
        try:
            parts.append(settings.broker_ca.read_text("ascii"))
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"--broker-ca {settings.broker_ca}: {error}") from error
    return "".join(parts) or None


def choose_broker(settings: Settings, data: DataDirectory, authority: Authority | None) -> Broker:
    """Return the broker that the settings mean: a URL's, Mosquitto, or the embedded one.

    Raises:
        SettingsError: ``auto`` finds none.
        BrokerConfigError: The URL cannot be used.
    """
    if settings.joins_by_url:
        return brokers.ExternalBroker(
            brokers.parse_broker_url(settings.broker),
            password=settings.broker_password,
            ca_file=settings.broker_ca,
            cert_file=settings.broker_cert,
            key_file=settings.broker_key,
        )
    if _kind(settings) == EMBEDDED:
        return brokers.EmbeddedBroker(data.broker, port=settings.broker_port)
    return brokers.Mosquitto(
        data.broker,
        fleet=settings.fleet,
        listen=settings.listen if settings.is_open else LOOPBACK,
        port=settings.broker_port,
        authority=authority,
        mtls=settings.mtls,
    )


def _kind(settings: Settings) -> str:
    if settings.broker != AUTO:
        return settings.broker
    if brokers.find_mosquitto():
        return MOSQUITTO
    if settings.is_open or not brokers.is_installed():
        raise SettingsError(
            "--broker auto: found none; apt install mosquitto, or for this machine only"
            " pip install 'edgeperf[broker]', or name one by URL"
        )
    return EMBEDDED
