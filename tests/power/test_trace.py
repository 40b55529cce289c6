"""The raw file and the trace made of it: what a crash, a replug or noise leaves."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.power.base import Chunk, MeterInputError, State
from edgeperf.power.raw import MAGIC, RawWriter, Record, RecordKind, read_records
from edgeperf.power.trace import trace_of_raw

START: dict[str, Any] = {
    "meter": "textline:/dev/x",
    "identity": {"model": "text lines"},
    "info": {
        "kind": "textline", "measures": "power", "boundary": "dc-input", "method": "trapezoid",
        "rate_hz": 10.0, "bandwidth_hz": 5.0, "gain": 0.0,
    },
    "header": {},
    "boot_id": "b",
}  # fmt: skip


def line(number: int) -> bytes:
    """Return the number-th reading of a board, 10 a second, 6 W."""
    return b"%d,5000,1200,6000\r\n" % (number * 100)


def write(path: Path, *records: Record | Chunk) -> None:
    """Write a raw file that begins with a start."""
    writer = RawWriter(path)
    writer.start(0, START)
    for record in records:
        writer.append(record) if isinstance(record, Record) else writer.chunk(record)
    writer.close()


def readings(first: int, count: int, start_ms: int = 0) -> list[Chunk]:
    """Return readings that arrive as they are taken."""
    chunks = [Chunk((start_ms + 100 * i) * 1_000_000, line(i)) for i in range(first, first + count)]
    return [chunks[0]._replace(data=b"\n" + chunks[0].data), *chunks[1:]]


def test_raw_file_gives_back_what_was_written(tmp_path: Path) -> None:
    """Records come back in order, faults and marks among them."""
    raw = tmp_path / "power.raw"
    write(raw, Chunk(5, b"abc", 3), Chunk(6, b"", 0, "no reply"), Record(RecordKind.MARK, 7, b"go"))
    start, data, fault, mark = read_records(raw)
    assert start.json() == START
    assert data.chunk() == Chunk(5, b"abc", 3)
    assert fault.chunk().fault == "no reply"
    assert (mark.kind, mark.t_ns, mark.payload) == (RecordKind.MARK, 7, b"go")


@given(st.integers(0, 2000))
def test_cut_files_keep_what_was_whole(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    """A file that ends in the middle of a record, as after a power cut, gives the rest."""
    folder = tmp_path_factory.mktemp("cut")
    write(folder / "whole.raw", *readings(0, 20))
    whole = (folder / "whole.raw").read_bytes()
    (folder / "cut.raw").write_bytes(whole[: len(whole) - min(cut, len(whole) - len(MAGIC))])
    kept = list(read_records(folder / "cut.raw"))
    assert kept == list(read_records(folder / "whole.raw"))[: len(kept)]


@given(st.binary(max_size=200))
def test_any_file(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    """A damaged file ends early or is refused; nothing else."""
    path = tmp_path_factory.mktemp("noise") / "noise.raw"
    path.write_bytes(MAGIC + noise)
    assert all(isinstance(record.kind, RecordKind) for record in read_records(path))
    path.write_bytes(b"no record" + noise)
    with pytest.raises(MeterInputError, match="not a meter record"):
        list(read_records(path))


def test_a_recorder_that_never_started(tmp_path: Path) -> None:
    """A file without a beginning has no trace, and that is said."""
    writer = RawWriter(tmp_path / "power.raw")
    writer.close()
    with pytest.raises(MeterInputError, match="before the meter had started"):
        trace_of_raw(tmp_path / "power.raw")


def test_replugged_meter(tmp_path: Path) -> None:
    """Lost and back: both parts are there, and between them is a loss that stays."""
    again = [Chunk(c.t_ns + 5_000_000_000, c.data) for c in readings(0, 10)]
    writer = RawWriter(tmp_path / "power.raw")
    writer.start(0, START)
    for chunk in readings(0, 10):
        writer.chunk(chunk)
    writer.append(Record(RecordKind.LOST, 1_000_000_000, b"unplugged"))
    writer.start(4_900_000_000, START)
    for chunk in again:
        writer.chunk(chunk)
    writer.append(Record(RecordKind.MARK, 5_500_000_000, b"power_end"))
    writer.close()
    trace = trace_of_raw(tmp_path / "power.raw")
    states = trace.samples.state.tolist()
    assert states == [State.OK] * 10 + [State.LOST, State.GAP] + [State.OK] * 10
    assert trace.about.faults == {"meter lost": 1}
    assert [mark.name for mark in trace.about.marks] == ["power_end"]
    assert (trace.about.meter, trace.about.boot_id) == ("textline:/dev/x", "b")
    assert (trace.samples.t_ns[1:] > trace.samples.t_ns[:-1]).all()


def test_faults_are_counted(tmp_path: Path) -> None:
    """What was refused while recording and while decoding is counted by phrase."""
    noise = Chunk(3_000_000_000, b"noise\r\n")
    write(tmp_path / "r.raw", *readings(0, 9), noise, Chunk(4_000_000_000, b"", 0, "no reply"))
    trace = trace_of_raw(tmp_path / "r.raw")
    assert trace.about.faults == {"lines that are no reading": 1, "no reply": 1}


def test_fault_phrases_are_bounded(tmp_path: Path) -> None:
    """A thousand different faults are counted, not kept."""
    faults = [Chunk(i, b"", 0, f"fault {i}") for i in range(1000)]
    write(tmp_path / "r.raw", *faults)
    counted = trace_of_raw(tmp_path / "r.raw").about.faults
    assert len(counted) <= 41
    assert sum(counted.values()) == 1000
