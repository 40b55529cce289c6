"""Packs that were made to deceive or to exhaust: each is refused in one line, and at once."""

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from edgeperf.agent.pack.entries import entries
from edgeperf.agent.pack.evidence import PackError
from edgeperf.agent.pack.verify import verify

TEXT = "edgeperf-pack/README.txt"
MIB = 1 << 20


def archive_of(members: dict[str, bytes]) -> bytes:
    """Return an archive as we write it, not zipped."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, raw in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(raw)
            archive.addfile(entry, io.BytesIO(raw))
    return stream.getvalue()


def behind_the_end(raw: bytes) -> bytes:
    """Return *raw* with a file behind the first block of zeros, in the same record."""
    hidden = archive_of({TEXT: b"not accounted for"})[:1024]
    return raw[:1536] + hidden + raw[1536 + len(hidden) :]


def in_the_padding(raw: bytes) -> bytes:
    """Return *raw* with something between the end of a file and the next entry."""
    return raw[:600] + b"not accounted for" + raw[617:]


def in_the_header(raw: bytes) -> bytes:
    """Return *raw* with an owner, the header's sum put right."""
    entry = tarfile.TarInfo(TEXT)
    entry.size, entry.uname = 5, "not accounted for"
    return entry.tobuf() + raw[512:]


def without_end(raw: bytes) -> bytes:
    """Return *raw* without the blocks that end it."""
    return raw[:1024]


def longer(raw: bytes) -> bytes:
    """Return *raw* with more zeros than belong there."""
    return raw + bytes(10_240)


def sparse(_: bytes) -> bytes:
    """Return an archive whose one file says that it unpacks to 2^50 bytes."""
    entry = tarfile.TarInfo(TEXT)
    entry.type, entry.size = tarfile.GNUTYPE_SPARSE, 512
    header = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
    header[386:398] = b"\x80" + (2**50 - 512).to_bytes(11, "big")
    header[398:410] = b"%011o\0" % 512
    header[483:495] = b"\x80" + (2**50).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(512) + bytes(9216)


def large_header(_: bytes) -> bytes:
    """Return an archive that begins with 400 MB of what should be a long name."""
    entry = tarfile.TarInfo("x")
    entry.type, entry.size = tarfile.XHDTYPE, 400 * MIB
    return entry.tobuf(tarfile.USTAR_FORMAT) + bytes(9728)


def escapes(_: bytes) -> bytes:
    """Return an archive whose file would clear the reader's terminal."""
    return archive_of({"edgeperf-pack/\x1b[2Jwhole": b"x"})


def many_files(_: bytes) -> bytes:
    """Return an archive with more texts than any pack has, none of them large."""
    return archive_of({f"edgeperf-pack/{i}/result.json": bytes(3 * MIB) for i in range(22)})


def large_file(_: bytes) -> bytes:
    """Return an archive with a result that is far too large."""
    return archive_of({"edgeperf-pack/x/result.json": bytes(5 * MIB)})


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (behind_the_end, "added behind its end"),
        (in_the_padding, "README.txt: something was added behind its end"),
        (in_the_header, "does not belong there"),
        (without_end, "ends too early"),
        (longer, "added behind its end"),
        (sparse, "does not belong there"),
        (large_header, "a header of 419430400 bytes does not belong there"),
        (escapes, r"'edgeperf-pack/\\x1b\[2Jwhole' does not belong there"),
        (many_files, "21/result.json is far too large"),
        (large_file, "x/result.json is far too large"),
    ],
)
def test_what_hides_or_exhausts_is_refused(
    tmp_path: Path, spoil: Callable[[bytes], bytes], words: str
) -> None:
    """Wherever it lies, nothing travels unseen, and no file costs more than it is large."""
    path = tmp_path / "bad.tar.gz"
    path.write_bytes(gzip.compress(spoil(archive_of({TEXT: b"hello"})), 1))
    with pytest.raises(PackError, match=words) as refused:
        verify(path)
    assert str(refused.value).isprintable()


def test_names_in_a_manifest_do_not_reach_the_terminal(tmp_path: Path) -> None:
    """A manifest may list what is not there; its name is shown, not obeyed."""
    line = f"{'0' * 64}  \x1b[2Jwhole\n".encode()
    path = tmp_path / "bad.tar.gz"
    path.write_bytes(gzip.compress(archive_of({"edgeperf-pack/MANIFEST": line})))
    with pytest.raises(PackError, match="cannot read") as refused:
        verify(path)
    assert str(refused.value).isprintable()


def test_long_names_are_read() -> None:
    """What needs a second header is still ours, in any alphabet."""
    names = ["short", "n" * 99, "l" * 180 + "/mlperf_log_detail.txt", "ünï/ascii"]
    raw = archive_of({f"edgeperf-pack/{name}": name.encode() * 100 for name in names})
    found = {entry.name: b"".join(entry.chunks()) for entry in entries(io.BytesIO(raw))}
    assert found == {name: name.encode() * 100 for name in names}


@pytest.mark.parametrize(("device", "is_ours"), [(b"0000000\0", True), (b"0000001\0", False)])
def test_device_numbers_of_nought_are_read(device: bytes, *, is_ours: bool) -> None:
    """Older Pythons write them into the header of every file; others are no file's."""
    raw = bytearray(archive_of({TEXT: b"hello"}))
    raw[329:345] = device * 2
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw[:512])
    stream = io.BytesIO(raw)
    if is_ours:
        assert [entry.name for entry in entries(stream)] == ["README.txt"]
        return
    with pytest.raises(PackError, match="does not belong there"):
        list(entries(stream))
