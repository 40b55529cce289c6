"""The recorder's file: what came from the meter and when, byte by byte.

Records are appended as they come and nothing else is ever written, so a killed recorder
or a board that lost power costs at most the last record. A record is a fixed head (kind,
CLOCK_MONOTONIC of the bytes, of the question, length) and its payload.
"""

import enum
import json
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from edgeperf.power.base import Chunk, MeterInputError

MAGIC = b"edgeperf meter record 1\n"
_HEAD = struct.Struct("<BQQI")


class RecordKind(enum.IntEnum):
    """What a record holds."""

    START = 1  # JSON: how to decode what follows; again after every replug
    DATA = 2  # bytes of the meter
    FAULT = 3  # text: why there were none
    LOST = 4  # text: the meter went away
    MARK = 5  # text: a name that the run gave to this moment


class Record(NamedTuple):
    """One record.

    Attributes:
        kind: What it holds.
        t_ns: CLOCK_MONOTONIC of it.
        payload: Its bytes.
        sent_ns: When the question was sent, 0 for a stream.
    """

    kind: RecordKind
    t_ns: int
    payload: bytes
    sent_ns: int = 0

    def chunk(self) -> Chunk:
        """Return the chunk that a DATA or FAULT record was made of."""
        if self.kind is RecordKind.FAULT:
            return Chunk(self.t_ns, b"", self.sent_ns, self.payload.decode("utf-8", "replace"))
        return Chunk(self.t_ns, self.payload, self.sent_ns)

    def json(self) -> dict[str, Any]:
        """Return the payload of a START record."""
        parsed: dict[str, Any] = json.loads(self.payload)
        return parsed


class RawWriter:
    """Appends records to a new file, unbuffered: a crash loses nothing that was written."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._write(MAGIC)

    def append(self, record: Record) -> None:
        """Write one record."""
        head = _HEAD.pack(record.kind, record.t_ns, record.sent_ns, len(record.payload))
        self._write(head + record.payload)

    def chunk(self, chunk: Chunk) -> None:
        """Write what a read gave."""
        if chunk.fault:
            payload, kind = chunk.fault.encode(), RecordKind.FAULT
        else:
            payload, kind = chunk.data, RecordKind.DATA
        self.append(Record(kind, chunk.t_ns, payload, chunk.sent_ns))

    def start(self, t_ns: int, content: Mapping[str, Any]) -> None:
        """Write how to decode what follows."""
        self.append(Record(RecordKind.START, t_ns, json.dumps(content).encode()))

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._file, data) :]


def read_records(path: Path) -> Iterator[Record]:
    """Yield the records of a file; a record that was cut off at its end is left out.

    Raises:
        MeterInputError: It is not a recorder's file.
    """
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise MeterInputError(f"{path}: not a meter record of this version")
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            kind, t_ns, sent_ns, size = _HEAD.unpack(head)
            payload = file.read(size)
            if len(payload) < size or kind not in set(RecordKind):
                return
            yield Record(RecordKind(kind), t_ns, payload, sent_ns)
