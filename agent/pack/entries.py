"""Reading the archive of a pack as we write it, and nothing else.

``tarfile`` reads what other programs write too: sparse files of a petabyte, headers of
half a gigabyte, and it passes over what lies in the padding and behind the end. So each
entry is read here and laid beside the very bytes that ``archive`` would have written for
that name and size: there is no place in which anything could hide, and nothing larger than
a header is held in memory.
"""

import re
import tarfile
from collections.abc import Iterator
from io import BufferedIOBase

from edgeperf.agent.pack.archive import FOLDER, entry_of
from edgeperf.agent.pack.evidence import PackError

_BLOCK = tarfile.BLOCKSIZE
_CHUNK_BYTES = 1 << 20
#: A long name and a large size need less; names of files are shorter than 4096 bytes.
_MOST_EXTENDED = 8 << 10
_RECORD = re.compile(rb"\d+ (path|size)=([^\n]*)\n")
#: Places of a header that Python's versions fill differently, and with what: device numbers,
#: and therefore the sum, which was checked by then.
_FREE = (((329, 345), b"\0 0"), ((148, 156), b"\0 01234567"))


class Entry:
    """One file of the archive, to be read before the next one is asked for.

    Attributes:
        name: Below the pack's folder.
        size: Bytes.
    """

    def __init__(self, stream: BufferedIOBase, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self._stream = stream
        self._left = size

    def chunks(self) -> Iterator[bytes]:
        """Yield its content in pieces.

        Raises:
            EOFError: The archive ends too early.
        """
        while self._left:
            chunk = _exactly(self._stream, min(self._left, _CHUNK_BYTES))
            self._left -= len(chunk)
            yield chunk

    def close(self) -> None:
        """Read what is left of it and the padding behind it.

        Raises:
            PackError: There is something in the padding.
        """
        for _ in self.chunks():
            pass
        if any(_exactly(self._stream, -self.size % _BLOCK)):
            raise PackError(f"{self.name}: something was added behind its end")


def entries(stream: BufferedIOBase) -> Iterator[Entry]:
    """Yield every entry of an archive that was unzipped.

    Raises:
        PackError: An entry is none of ours, or something lies where nothing belongs.
        EOFError: The archive ends too early.
        tarfile.TarError: It is no archive.
    """
    while True:
        raw = _exactly(stream, _BLOCK)
        if not any(raw):
            break
        found, raw = _header(stream, raw)
        if _blanked(raw) != _blanked(_ours(found)):
            raise PackError(f"{found.name!r} does not belong there")
        entry = Entry(stream, found.name.removeprefix(f"{FOLDER}/"), found.size)
        yield entry
        entry.close()
    rest = stream.read(tarfile.RECORDSIZE + 1)
    if any(rest) or not _BLOCK <= len(rest) <= tarfile.RECORDSIZE:
        raise PackError("something was added behind its end, or is missing there")


def _header(stream: BufferedIOBase, raw: bytes) -> tuple[tarfile.TarInfo, bytes]:
    """Return what a header says, and all its bytes; *raw* is its first block."""
    found = tarfile.TarInfo.frombuf(raw, tarfile.ENCODING, "surrogateescape")
    if found.type != tarfile.XHDTYPE:
        return found, raw
    if not 0 < found.size <= _MOST_EXTENDED:
        raise PackError(f"a header of {found.size} bytes does not belong there")
    more = _exactly(stream, found.size + -found.size % _BLOCK)
    last = _exactly(stream, _BLOCK)
    found = tarfile.TarInfo.frombuf(last, tarfile.ENCODING, "surrogateescape")
    said = dict(_RECORD.findall(more))
    found.name = said.get(b"path", found.name.encode()).decode()
    found.size = int(said.get(b"size", found.size))
    return found, raw + more + last


def _ours(found: tarfile.TarInfo) -> bytes:
    """Return the header that we would have written for that name and size."""
    inner = found.name.removeprefix(f"{FOLDER}/")
    if not inner.isprintable() or found.size < 0:
        return b""
    return entry_of(inner, found.size).tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _blanked(header: bytes) -> bytes:
    """Return *header* without what may differ in its blocks of fields, the first and last."""
    blank = bytearray(header)
    for block in {0, len(header) - _BLOCK} if header else ():
        for (begin, end), usual in _FREE:
            if not header[block + begin : block + end].strip(usual):
                blank[block + begin : block + end] = bytes(end - begin)
    return bytes(blank)


def _exactly(stream: BufferedIOBase, size: int) -> bytes:
    raw = stream.read(size)
    if len(raw) < size:
        raise EOFError("it ends too early")
    return raw
