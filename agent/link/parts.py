"""The parts of the service and how they are joined; each knows only what it is given."""

from collections.abc import Callable
from typing import NamedTuple

from edgeperf.agent.link.chunks import ChunkSender
from edgeperf.agent.link.clock import BoardClock
from edgeperf.agent.link.connection import Connection
from edgeperf.agent.link.database import Database
from edgeperf.agent.link.desk import Desk
from edgeperf.agent.link.http import BlobServer
from edgeperf.agent.link.incoming import Incoming, Patience
from edgeperf.agent.link.inspector import Inspector
from edgeperf.agent.link.journal import Journal
from edgeperf.agent.link.ledger import Ledger
from edgeperf.agent.link.models import Models
from edgeperf.agent.link.outbox import Outbox
from edgeperf.agent.link.presence import Speaker
from edgeperf.agent.link.runs import Runs
from edgeperf.agent.link.settings import Settings
from edgeperf.agent.link.transfers import TransferEnded, Transfers
from edgeperf.agent.link.uploads import Blobs
from edgeperf.agent.messages import coordinator_topic, device_topic, new_id


class Parts(NamedTuple):
    """Everything that the service's loop drives."""

    clock: BoardClock
    database: Database
    outbox: Outbox
    journal: Journal
    ledger: Ledger
    inspector: Inspector
    speaker: Speaker
    connection: Connection
    transfers: Transfers | None
    blobs: Blobs
    models: Models
    runs: Runs
    desk: Desk


class _Records(NamedTuple):
    """What is on the disk."""

    database: Database
    outbox: Outbox
    journal: Journal
    ledger: Ledger


def assemble(settings: Settings, deliver: Callable[[Incoming | TransferEnded], None]) -> Parts:
    """Make the parts; nothing is started.

    Args:
        settings: The service's.
        deliver: Takes what the carrying threads bring.

    Raises:
        LinkInputError: A file or an address in the settings cannot be used.
        LinkError: The disk failed.
    """
    identity, session, clock = settings.identity, new_id(), BoardClock()
    fleet, device = identity.fleet, identity.device
    records = _open_records(settings, session, clock)
    inspector = Inspector(settings, records.database)
    speaker = Speaker(settings, session=session, stream=records.outbox.stream)
    topics = [device_topic(fleet, device, leaf) for leaf in ("cmd", "ack", "state")]
    connection = Connection(
        identity,
        will=speaker.will(),
        topics=(*topics, coordinator_topic(fleet)),
        deliver=deliver,
        patience=Patience(settings.keepalive_s, settings.longest_pause_s),
    )
    transfers = None
    if identity.http:
        transfers = Transfers(BlobServer(identity.http, identity), deliver)
    blobs = Blobs(
        records.journal,
        settings.cache,
        transfers,
        ChunkSender(connection, fleet=fleet, device=device),
        longest_pause_s=settings.longest_pause_s,
    )
    models = Models(blobs, inspector)
    runs = Runs(settings, records.journal, models.find)
    return Parts(
        **records._asdict(),
        clock=clock,
        inspector=inspector,
        speaker=speaker,
        connection=connection,
        transfers=transfers,
        blobs=blobs,
        models=models,
        runs=runs,
        desk=Desk(
            settings,
            **records._asdict(),
            runs=runs,
            blobs=blobs,
            clock=clock,
            inspect=lambda command, selftest: inspector.request(command, selftest=selftest),
        ),
    )


def _open_records(settings: Settings, session: str, clock: BoardClock) -> _Records:
    database = Database(settings.state / "agent.db")
    outbox = Outbox(
        database,
        fleet=settings.identity.fleet,
        device=settings.identity.device,
        session=session,
        clock=clock,
        max_bytes=settings.board.storage.outbox_bytes,
        ack_timeout_s=settings.ack_timeout_s,
    )
    ledger = Ledger(database)
    ledger.raise_counter(settings.identity.counter)
    return _Records(database, outbox, Journal(database, outbox), ledger)
