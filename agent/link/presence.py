"""What the board says of itself, retained: its state, its last will, its description."""

import time
from pathlib import Path

import msgspec

from edgeperf import EdgeperfError, __version__
from edgeperf.agent.link.clock import utc_now
from edgeperf.agent.link.connection import Connection
from edgeperf.agent.link.incoming import Will
from edgeperf.agent.link.inspector import Findings
from edgeperf.agent.link.settings import Settings
from edgeperf.agent.link.thermal import hottest_c
from edgeperf.agent.messages import (
    BoardState,
    CachedModel,
    Description,
    Presence,
    Telemetry,
    device_topic,
    encode,
)

_MOST_MODELS = 300
_TELL_S = 60.0
_DIGEST_CHARACTERS = 64


class Speaker:
    """Publishes state and description when they change.

    Args:
        settings: The service's.
        session: This life of the agent.
        stream: The outbox's.
    """

    def __init__(self, settings: Settings, *, session: str, stream: str) -> None:
        identity = settings.identity
        self._settings = settings
        self.session, self._stream = session, stream
        self._state_topic = device_topic(identity.fleet, identity.device, "state")
        self._desc_topic = device_topic(identity.fleet, identity.device, "desc")
        self._tlm_topic = device_topic(identity.fleet, identity.device, "tlm")
        self._told_s = float("-inf")
        self._since = utc_now()
        self._said: tuple[object, ...] | None = None
        self._status = Presence.ONLINE

    def will(self) -> Will:
        """Return the last will: the same session, ``lost``."""
        return self._words(Presence.LOST)

    def farewell(self) -> Will:
        """Return what is said when the agent stops in order."""
        return self._words(Presence.OFFLINE)

    def say(  # noqa: PLR0913 - the fields of one message
        self,
        connection: Connection,
        *,
        counter: int,
        run: str | None,
        queued: int,
        unsent: int,
        draining: bool,
        reason: str | None,
        anew: bool = False,
    ) -> None:
        """Publish the state if anything but ``unsent`` changed, or in any case if *anew*."""
        status = Presence.BUSY if run else Presence.ONLINE
        if draining:
            status = Presence.DRAINING
        if status is not self._status:
            self._status, self._since = status, utc_now()
        now = (status, counter, run, queued, reason)
        if now == self._said and not anew:
            return
        self._said = now
        state = BoardState(
            status=status,
            session=self.session,
            since=self._since,
            agent=__version__,
            stream=self._stream,
            counter=counter,
            run=run,
            queued=queued,
            unsent=unsent,
            reason=reason,
        )
        connection.send(self._state_topic, encode(state), retain=True)

    def tell(self, connection: Connection) -> None:
        """Publish a live reading, if the board has a thermometer and it is time for one."""
        if time.monotonic() - self._told_s < _TELL_S:
            return
        self._told_s = time.monotonic()
        if (now_c := hottest_c()) is not None:
            reading = Telemetry(session=self.session, time=utc_now(), temperature_c=now_c)
            connection.send(self._tlm_topic, encode(reading), qos=0)

    def describe(self, connection: Connection, findings: Findings) -> Description:
        """Publish the description, and return it."""
        board, identity = self._settings.board, self._settings.identity
        description = Description(
            device=identity.device,
            fleet=identity.fleet,
            session=self.session,
            time=utc_now(),
            agent=__version__,
            board=findings.board,
            runtimes=findings.runtimes,
            meters=tuple(board.meters),
            data=tuple(board.data),
            models=cached_models(self._settings.cache),
            policy=board.policy.summary(),
            labels=dict(board.labels),
        )
        try:
            connection.send(self._desc_topic, encode(description), retain=True)
        except EdgeperfError:  # too large: the board part is the only one that can be
            small = {"problem": "the description of this board is too large to send"}
            description = msgspec.structs.replace(description, board=small)
            connection.send(self._desc_topic, encode(description), retain=True)
        return description

    def _words(self, status: Presence) -> Will:
        state = BoardState(
            status=status,
            session=self.session,
            since=utc_now(),
            agent=__version__,
            stream=self._stream,
        )
        return Will(self._state_topic, encode(state))


def cached_models(cache: Path) -> tuple[CachedModel, ...]:
    """Return the models in *cache*: files named by a sha256."""
    try:
        files = sorted(path for path in cache.iterdir() if path.is_file())
    except OSError:
        return ()
    return tuple(
        CachedModel(sha256=path.stem, size_bytes=path.stat().st_size)
        for path in files
        if len(path.stem) == _DIGEST_CHARACTERS and not set(path.stem) - set("0123456789abcdef")
    )[:_MOST_MODELS]
