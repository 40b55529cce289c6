"""Blobs that come over MQTT, for boards that only MQTT reaches.

A board announces a blob, sends its chunks and asks how far it is. Chunks count only in order;
whatever comes out of turn is left out and named as missing in the answer, so one
answer after a lost chunk sets everything right.
"""

import contextlib

from edgeperf import EdgeperfError
from edgeperf.agent.messages import (
    BlobInit,
    BlobStatus,
    Code,
    DeviceTopic,
    MessageError,
    parse_blob_init,
    sign_ack,
)
from edgeperf.coordinator.artefacts import Artefacts
from edgeperf.coordinator.blobs import BlobDigestError, BlobOffsetError
from edgeperf.coordinator.link import Wire
from edgeperf.coordinator.trust import Keys

#: An unasked answer after so many bytes lets the board send on without waiting.
_STATUS_EVERY_BYTES = 1024 * 1024
_MOST_OPEN = 1000


class Uploads:
    """The uploads under way; kept bytes survive a restart, the announcements do not."""

    def __init__(
        self,
        link: Wire,
        keys: Keys,
        fleet: str,
        *,
        artefacts: Artefacts,
    ) -> None:
        self._link = link
        self._keys = keys
        self._fleet = fleet
        self._artefacts = artefacts
        self._open: dict[tuple[str, str], BlobInit] = {}
        self._told: dict[tuple[str, str], int] = {}

    def take(self, board: str, topic: DeviceTopic, payload: bytes) -> None:
        """Take one message below ``blob``.

        Raises:
            MessageError: It is none that can be used, or the disk fails.
        """
        sha256, part = topic.sha256 or "", topic.part or ""
        try:
            self._take(board, sha256, part, payload)
        except OSError as error:
            raise MessageError(Code.NO_SPACE, f"blob {sha256}: {error.strerror}") from error

    def _take(self, board: str, sha256: str, part: str, payload: bytes) -> None:
        if part == "init":
            if len(self._open) >= _MOST_OPEN:
                self._open.clear()
            self._open[board, sha256] = parse_blob_init(payload)
            self._tell(board, sha256)
        elif part == "fin":
            self._tell(board, sha256)
        else:
            self._chunk(board, sha256, int(part), payload)

    def _chunk(self, board: str, sha256: str, first: int, payload: bytes) -> None:
        announced = self._open.get((board, sha256))
        if announced is None:
            self._tell(board, sha256)
            return
        try:
            whole = self._artefacts.append(
                sha256, payload, first=first, total=announced.size_bytes, board=board
            )
        except BlobOffsetError:
            return  # the answer to ``fin`` names the gap
        except BlobDigestError as error:
            self._tell(board, sha256)
            raise MessageError(Code.MALFORMED, str(error)) from error
        except EdgeperfError as error:
            raise MessageError(Code.NO_SPACE, str(error)) from error
        told = self._told.get((board, sha256), 0)
        if whole or first + len(payload) >= told + _STATUS_EVERY_BYTES:
            self._tell(board, sha256)

    def _tell(self, board: str, sha256: str) -> None:
        blobs = self._artefacts.blobs
        complete = blobs.size(sha256) is not None
        missing: tuple[tuple[int, int], ...] = ()
        if not complete:
            announced = self._open.get((board, sha256))
            kept = blobs.offset(sha256)
            self._told[board, sha256] = kept
            missing = ((kept, announced.size_bytes),) if announced else ()
        else:
            with contextlib.suppress(KeyError):
                del self._open[board, sha256]
            self._told.pop((board, sha256), None)
        status = BlobStatus(
            subject=f"{self._fleet}/{board}", sha256=sha256, missing=missing, complete=complete
        )
        self._link.send(board, "ack", sign_ack(status, self._keys.signing))
