"""One coordinator: its parts, in the order in which they start and stop.

Threads: the MQTT client's, the intake, the dispatcher and the HTTP server's. Any of ours
that ends with an error ends the coordinator, since half of one would be worse than none.
"""

import contextlib
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from edgeperf import EdgeperfError, __version__
from edgeperf.coordinator import broker as brokers
from edgeperf.coordinator.artefacts import Artefacts
from edgeperf.coordinator.blobs import BlobStore
from edgeperf.coordinator.broker import LOOPBACK, Broker
from edgeperf.coordinator.campaign import Scheduler
from edgeperf.coordinator.commander import Commander
from edgeperf.coordinator.enrolment import Enrolment
from edgeperf.coordinator.files import DataDirectory, write_private
from edgeperf.coordinator.http import Doorman, Parts, Server, make_app
from edgeperf.coordinator.intake import Intake
from edgeperf.coordinator.link import Link
from edgeperf.coordinator.settings import (
    AUTO,
    EMBEDDED,
    MOSQUITTO,
    Settings,
    SettingsError,
    read_credentials,
)
from edgeperf.coordinator.store import Store, devices, open_store
from edgeperf.coordinator.trust import Authority, Keys, own_names

_log = logging.getLogger(__name__)

_TICK_S = 1.0


class CoordinatorError(EdgeperfError):
    """A part of the coordinator failed while it ran."""


class Coordinator:
    """A whole coordinator, running while the context is open.

    Attributes:
        url: Base URL of its HTTP interface, for this machine.
    """

    def __init__(self, settings: Settings, *, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._settings = settings
        self._clock_ns = clock_ns
        self._data = DataDirectory(settings.data)
        self._stack = contextlib.ExitStack()
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._failure: BaseException | None = None
        self.url = ""
        self.broker_name = ""

    def __enter__(self) -> "Coordinator":
        """Start every part; those that started are stopped again if a later one fails."""
        with self._stack:
            self._start()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop every part, last first."""
        self._stopping.set()
        self._wake.set()
        self._stack.close()

    def wait(self, timeout_s: float | None = None) -> None:
        """Return when :meth:`end` is called, or after the time.

        Raises:
            CoordinatorError: A part failed.
        """
        self._stopping.wait(timeout_s)
        if self._failure is not None:
            failure = self._failure
            text = str(failure) or type(failure).__name__
            raise CoordinatorError(f"coordinator: {text}") from failure

    def end(self) -> None:
        """Make :meth:`wait` return; safe in a signal handler."""
        self._stopping.set()

    def _start(self) -> None:
        settings, data, stack = self._settings, self._data, self._stack
        data.prepare()
        stack.enter_context(data.locked())
        keys_folder = settings.keys or data.keys
        keys = Keys(keys_folder)
        store = open_store(settings.store or data.store)
        stack.callback(store.close)
        self._check_identity(store, keys)
        authority = Authority(keys_folder) if settings.is_open or self._joins_by_url else None
        server = self._bind(authority)
        stack.callback(server.stop)

        broker = self._choose_broker(authority)
        own_password = secrets.token_urlsafe(32)
        accounts = _accounts(store, keys, own_password)
        endpoint = broker.start(accounts)
        stack.callback(broker.stop)
        self.broker_name = f"{broker.name}, port {endpoint.port}"

        link = Link(endpoint, fleet=settings.fleet, shared=store.many_writers, on_up=self._wake.set)
        commander = Commander(store, link, keys, settings.fleet, clock_ns=self._clock_ns)
        scheduler = Scheduler(store, commander, clock_ns=self._clock_ns)
        artefacts = Artefacts(store, BlobStore(settings.blobs or data.blobs))
        intake = Intake(
            store,
            link,
            keys,
            settings.fleet,
            artefacts=artefacts,
            commander=commander,
            clock_ns=self._clock_ns,
            on_change=self._wake.set,
        )
        enrolment = Enrolment(
            store,
            keys,
            settings.fleet,
            broker=broker,
            endpoint=endpoint,
            own_password=own_password,
            authority=authority,
            credentials=read_credentials(settings.credentials) if settings.credentials else None,
            clock_ns=self._clock_ns,
        )
        parts = Parts(
            store=store,
            commander=commander,
            scheduler=scheduler,
            enrolment=enrolment,
            artefacts=artefacts,
            doorman=Doorman(store, keys, self._admin_token()),
            wake=self._wake.set,
            health=lambda: self._health(link, broker),
            clock_ns=self._clock_ns,
        )
        link.start()
        stack.callback(link.stop)
        stack.callback(self._join(self._thread("intake", intake.run), intake.stop))
        dispatch = self._thread("dispatch", lambda: self._dispatch(commander, scheduler, broker))
        stack.callback(self._join(dispatch, self._wake.set))
        server.start(make_app(parts))
        self._announce(server)

    @property
    def _joins_by_url(self) -> bool:
        return "://" in self._settings.broker

    def _check_identity(self, store: Store, keys: Keys) -> None:
        """Refuse a store that belongs to another fleet or key: its boards would not obey us."""
        with store.writing() as connection:
            fleet = devices.remember(connection, "fleet", self._settings.fleet)
            public = devices.remember(connection, "signing_key", keys.public)
        if fleet != self._settings.fleet:
            raise SettingsError(f"--fleet {self._settings.fleet}: the store is of fleet {fleet!r}")
        if public != keys.public:
            raise SettingsError(
                f"keys in {keys.folder}: the store's boards obey another key; name the folder"
                " with theirs by --keys"
            )

    def _bind(self, authority: Authority | None) -> Server:
        tls = None
        if self._settings.is_open and authority is not None:
            given = self._settings.listen
            names = own_names() if given in {"0.0.0.0", "::"} else sorted({*own_names(), given})  # noqa: S104 - compared, not bound
            authority.serve_as(names)
            tls = (authority.server_cert, authority.server_key)
        return Server(self._settings.listen, self._settings.http_port, tls=tls)

    def _choose_broker(self, authority: Authority | None) -> Broker:
        settings = self._settings
        if self._joins_by_url:
            return brokers.ExternalBroker(
                brokers.parse_broker_url(settings.broker),
                password=settings.broker_password,
                ca_file=settings.broker_ca,
                cert_file=settings.broker_cert,
                key_file=settings.broker_key,
            )
        kind = settings.broker
        if kind == AUTO:
            kind = MOSQUITTO if brokers.find_mosquitto() else EMBEDDED
            if kind == EMBEDDED and (settings.is_open or not brokers.is_installed()):
                raise SettingsError(
                    "--broker auto: found no broker; apt install mosquitto, or for this machine"
                    " only pip install 'edgeperf[broker]', or name one by URL"
                )
        if kind == EMBEDDED:
            return brokers.EmbeddedBroker(self._data.broker, port=settings.broker_port)
        return brokers.Mosquitto(
            self._data.broker,
            fleet=settings.fleet,
            listen=settings.listen if settings.is_open else LOOPBACK,
            port=settings.broker_port,
            authority=authority,
            mtls=settings.mtls,
        )

    def _admin_token(self) -> Callable[[], str]:
        path = self._data.admin_token
        return lambda: path.read_text("ascii").strip()

    def _announce(self, server: Server) -> None:
        """Leave word where ``edgeperf fleet`` on this machine finds us."""
        host = LOOPBACK if self._settings.listen in {"0.0.0.0", "::"} else self._settings.listen  # noqa: S104 - compared, not bound
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{server.scheme}://{shown}:{server.port}"
        ca_file = (self._settings.keys or self._data.keys) / "ca.pem"
        word: dict[str, Any] = {"url": self.url, "pid": os.getpid()}
        if server.scheme == "https":
            word["ca"] = str(ca_file)
        write_private(self._data.endpoint, json.dumps(word).encode())
        self._stack.callback(self._data.endpoint.unlink, missing_ok=True)

    def _dispatch(self, commander: Commander, scheduler: Scheduler, broker: Broker) -> None:
        """Send commands and move campaigns on, whenever there is news and once a second."""
        while not self._stopping.is_set():
            self._wake.clear()
            broker.tend()
            scheduler.tick()
            commander.give_up_overdue()
            commander.send_due()
            self._wake.wait(_TICK_S)
            # Many changes at once make one round, not many.
            self._stopping.wait(0.02)

    def _health(self, link: Link, broker: Broker) -> dict[str, Any]:
        return {
            "ok": link.is_up and self._failure is None,
            "version": __version__,
            "fleet": self._settings.fleet,
            "broker": broker.name,
            "broker_up": link.is_up,
            "dropped": link.dropped,
        }

    def _thread(self, name: str, work: Callable[[], None]) -> threading.Thread:
        def watched() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - whatever it was, we must end
                _log.exception("coordinator: %s failed", name)
                self._failure = error
                self._stopping.set()

        thread = threading.Thread(target=watched, name=name, daemon=True)
        thread.start()
        return thread

    def _join(self, thread: threading.Thread, stop: Callable[[], None]) -> Callable[[], None]:
        def join() -> None:
            self._stopping.set()
            stop()
            thread.join()

        return join


def _accounts(store: Store, keys: Keys, own_password: str) -> brokers.Accounts:
    with store.reading() as connection:
        enrolled = devices.enrolled(connection)
    return brokers.Accounts({b: keys.password(b, at) for b, at in enrolled.items()}, own_password)
