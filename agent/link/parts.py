"""The parts of the service and how they are joined; each knows only what it is given."""

from collections.abc import Callable
from typing import NamedTuple

from edgeperf.agent.link.chunks import ChunkSender
from edgeperf.agent.link.clock import BoardClock
from edgeperf.agent.link.connection import Connection
from edgeperf.agent.link.database import Database
from edgeperf.agent.link.desk import Desk
from edgeperf.agent.link.http import BlobServer
from edgeperf.agent.link.incoming import Incoming
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


def assemble(settings: Settings, deliver: Callable[[Incoming | TransferEnded], None]) -> Parts:
    """Make the parts; nothing is started.

    Args:
        settings: The service's.
        deliver: Takes what the carrying threads bring.

    Raises:
        LinkInputError: A file or an address in the settings cannot be used.
        LinkError: The disk failed.
    """
    identity, session = settings.identity, new_id()
    fleet, device = identity.fleet, identity.device
    clock = BoardClock()
    database = Database(settings.state / "agent.db")
    outbox = Outbox(
        database,
        fleet=fleet,
        device=device,
        session=session,
        clock=clock,
        max_bytes=settings.board.storage.outbox_bytes,
        ack_timeout_s=settings.ack_timeout_s,
    )
    journal = Journal(database, outbox)
    ledger = Ledger(database)
    ledger.raise_counter(identity.counter)
    inspector = Inspector(settings, database)
    speaker = Speaker(settings, session=session, stream=outbox.stream)
    topics = [device_topic(fleet, device, leaf) for leaf in ("cmd", "ack", "state")]
    connection = Connection(
        identity,
        will=speaker.will(),
        topics=(*topics, coordinator_topic(fleet)),
        deliver=deliver,
        keepalive_s=settings.keepalive_s,
        longest_pause_s=settings.longest_pause_s,
    )
    transfers = None
    if identity.http:
        transfers = Transfers(BlobServer(identity.http, identity), deliver)
    chunks = ChunkSender(connection, fleet=fleet, device=device)
    blobs = Blobs(
        journal, settings.cache, transfers, chunks, longest_pause_s=settings.longest_pause_s
    )
    models = Models(blobs)
    runs = Runs(settings, journal, models.find)
    desk = Desk(
        settings,
        database=database,
        ledger=ledger,
        journal=journal,
        outbox=outbox,
        runs=runs,
        blobs=blobs,
        clock=clock,
        inspect=lambda command, selftest: inspector.request(command, selftest=selftest),
    )
    return Parts(
        clock=clock,
        database=database,
        outbox=outbox,
        journal=journal,
        ledger=ledger,
        inspector=inspector,
        speaker=speaker,
        connection=connection,
        transfers=transfers,
        blobs=blobs,
        models=models,
        runs=runs,
        desk=desk,
    )
