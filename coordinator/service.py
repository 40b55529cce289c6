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
from edgeperf.coordinator import assembly
from edgeperf.coordinator.artefacts import Artefacts
from edgeperf.coordinator.blobs import BlobStore
from edgeperf.coordinator.broker import Accounts, Broker
from edgeperf.coordinator.campaign import Scheduler
from edgeperf.coordinator.commander import Commander
from edgeperf.coordinator.enrolment import Enrolment
from edgeperf.coordinator.files import DataDirectory, write_private
from edgeperf.coordinator.http import Doorman, Parts, Server, make_app
from edgeperf.coordinator.intake import Intake
from edgeperf.coordinator.link import Link
from edgeperf.coordinator.settings import Settings, read_credentials
from edgeperf.coordinator.store import Store, StoreError, devices, open_store
from edgeperf.coordinator.trust import Keys

_log = logging.getLogger(__name__)

_TICK_S = 1.0
#: Many changes at once make one round of the dispatcher, not many.
_GATHER_S = 0.02


#: A loop that has not come round for so long is stuck.
_STUCK_S = 20.0


class CoordinatorError(EdgeperfError):
    """A part of the coordinator failed while it ran."""


class Coordinator:
    """A whole coordinator, running while the context is open.

    Attributes:
        url: Base URL of its HTTP interface, for this machine.
        broker_name: The broker that it started or joined, for people.
    """

    def __init__(self, settings: Settings, *, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._settings = settings
        self._clock_ns = clock_ns
        self._data = DataDirectory(settings.data)
        self._stack = contextlib.ExitStack()
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._failure: BaseException | None = None
        self._intake: Intake | None = None
        self._turned_at = time.monotonic()
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

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until :meth:`end` is called, or for the time.

        Returns:
            Whether it is to end.

        Raises:
            CoordinatorError: A part failed.
        """
        ended = self._stopping.wait(timeout_s)
        if self._failure is not None:
            failure = self._failure
            text = str(failure) or type(failure).__name__
            raise CoordinatorError(f"coordinator: {text}") from failure
        return ended

    @property
    def is_working(self) -> bool:
        """Whether its loops have come round lately; a supervisor's watchdog wants to know."""
        oldest = min(self._turned_at, self._intake.turned_at if self._intake else self._turned_at)
        return time.monotonic() - oldest < _STUCK_S

    def end(self) -> None:
        """Make :meth:`wait` return; safe in a signal handler."""
        self._stopping.set()

    def _start(self) -> None:
        settings, data, stack = self._settings, self._data, self._stack
        data.prepare()
        stack.enter_context(data.locked())
        folder = settings.keys or data.keys
        keys = Keys(folder)
        store = open_store(settings.store or data.store)
        stack.callback(store.close)
        assembly.check_identity(store, keys, settings.fleet)
        authority = assembly.choose_authority(settings, folder)
        server = assembly.bind_server(settings, authority)
        stack.callback(server.stop)
        broker = assembly.choose_broker(settings, data, authority)
        own_password = secrets.token_urlsafe(32)
        stack.callback(broker.stop)  # first: a signal may come while it starts
        endpoint = broker.start(_accounts(store, keys, own_password))
        self.broker_name = f"{broker.name}, port {endpoint.port}"
        link = Link(endpoint, fleet=settings.fleet, shared=store.many_writers, on_up=self._wake.set)
        given = settings.credentials
        enrolment = Enrolment(
            store,
            keys,
            settings.fleet,
            broker=broker,
            endpoint=endpoint,
            own_password=own_password,
            authority=authority,
            ca_pem=assembly.trusted_cas(settings, authority),
            credentials=read_credentials(given) if given else None,
            clock_ns=self._clock_ns,
        )
        self._work(store, keys, link, broker, enrolment, server)

    def _work(
        self,
        store: Store,
        keys: Keys,
        link: Link,
        broker: Broker,
        enrolment: Enrolment,
        server: Server,
    ) -> None:
        """Start what takes in, sends out and answers."""
        commander = Commander(store, link, keys, self._settings.fleet, clock_ns=self._clock_ns)
        scheduler = Scheduler(store, commander, clock_ns=self._clock_ns)
        artefacts = Artefacts(
            store,
            BlobStore(self._settings.blobs or self._data.blobs),
            board_space_gib=self._settings.board_space_gib,
        )
        intake = self._intake = Intake(
            store,
            link,
            keys,
            self._settings.fleet,
            artefacts=artefacts,
            commander=commander,
            clock_ns=self._clock_ns,
            on_change=self._wake.set,
        )
        parts = Parts(
            store=store,
            commander=commander,
            scheduler=scheduler,
            enrolment=enrolment,
            artefacts=artefacts,
            doorman=Doorman(store, keys, self._admin_token),
            wake=self._wake.set,
            health=lambda: self._health(link, broker),
            clock_ns=self._clock_ns,
            packages=self._settings.packages or self._data.packages,
        )
        link.start()
        self._stack.callback(link.stop)
        self._thread("intake", intake.run, intake.stop)
        self._thread(
            "dispatch", lambda: self._dispatch(commander, scheduler, broker), self._wake.set
        )
        server.start(make_app(parts))
        self._announce(server)

    def _admin_token(self) -> str:
        return self._data.admin_token.read_text("ascii").strip()

    def _announce(self, server: Server) -> None:
        """Leave word where ``edgeperf fleet`` on this machine finds us."""
        self.url = assembly.local_url(self._settings, server)
        word: dict[str, Any] = {"url": self.url, "pid": os.getpid()}
        if server.scheme == "https":
            word["ca"] = str((self._settings.keys or self._data.keys) / "ca.pem")
        write_private(self._data.endpoint, json.dumps(word).encode())
        self._stack.callback(self._data.endpoint.unlink, missing_ok=True)

    def _dispatch(self, commander: Commander, scheduler: Scheduler, broker: Broker) -> None:
        """Send commands and move campaigns on, whenever there is news and once a second."""
        while not self._stopping.is_set():
            self._turned_at = time.monotonic()
            self._wake.clear()
            broker.tend()
            try:
                scheduler.tick()
                commander.give_up_overdue()
                commander.send_due()
            except StoreError as error:
                if not error.passing:
                    raise
                _log.warning("store: %s; trying again", error)
            self._wake.wait(_TICK_S)
            self._stopping.wait(_GATHER_S)

    def _health(self, link: Link, broker: Broker) -> dict[str, Any]:
        return {
            "ok": link.is_up and self._failure is None,
            "version": __version__,
            "fleet": self._settings.fleet,
            "broker": broker.name,
            "broker_up": link.is_up,
            "dropped": link.dropped,
        }

    def _thread(self, name: str, work: Callable[[], None], stop: Callable[[], None]) -> None:
        """Start a thread that ends with the coordinator, and ends it if it fails."""

        def watched() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - whatever it was, we must end
                _log.debug("%s failed", name, exc_info=error)
                self._failure = error
                self._stopping.set()

        def join() -> None:
            self._stopping.set()
            stop()
            thread.join()

        thread = threading.Thread(target=watched, name=name, daemon=True)
        thread.start()
        self._stack.callback(join)


def _accounts(store: Store, keys: Keys, own_password: str) -> Accounts:
    with store.reading() as connection:
        enrolled = devices.enrolled(connection)
    return Accounts({b: keys.password(b, at) for b, at in enrolled.items()}, own_password)
