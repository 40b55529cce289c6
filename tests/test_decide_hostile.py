"""Raw files of a result that are not what a run keeps: the figure is missing, and no other."""

import hashlib
import io
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from decide_results import kept, made
from numpy.lib import format as npy

from edgeperf.agent.decide.choose import decide
from edgeperf.agent.decide.decision import Wish
from edgeperf.agent.decide.judge import Line
from edgeperf.agent.decide.sources import find
from edgeperf.agent.result import File, Result
from edgeperf.agent.result.kept import percentiles

TIMES = np.arange(1_000_000, 11_000_000, 1000)


def saved(**arrays: Any) -> bytes:
    """Return an NPZ file with *arrays*."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def zipped(
    header: dict[Any, Any] | bytes, how: int = zipfile.ZIP_STORED, content: int = 8
) -> bytes:
    """Return an NPZ file whose one array has that header, before *content* zeros."""
    array = io.BytesIO()
    if isinstance(header, bytes):
        array.write(npy.magic(1, 0) + len(header).to_bytes(2, "little") + header)
    else:
        npy.write_array_header_1_0(array, header)
    array.write(bytes(content))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", how) as archive:
        archive.writestr("latency_ns.npy", array.getvalue())
        archive.writestr("predictions.npy", array.getvalue())
    return stream.getvalue()


def damaged() -> bytes:
    """Return a compressed file whose streams are no streams."""
    stream = io.BytesIO()
    np.savez_compressed(stream, latency_ns=TIMES, predictions=TIMES)
    raw = bytearray(stream.getvalue())
    raw[200:260] = b"\xff" * 60
    return bytes(raw)


def header(shape: tuple[int, ...]) -> dict[str, Any]:
    """Return what says that an array of that shape follows."""
    return {"descr": "<i8", "fortran_order": False, "shape": shape}


WORDS = np.array(["fast"] * 1000)
BAD = {
    "strings": lambda: saved(latency_ns=WORDS, predictions=WORDS),
    "one-number": lambda: saved(latency_ns=np.int64(5), predictions=np.float32(5)),
    "damaged": damaged,
    "objects": lambda: zipped(b"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}\n"),
    "odd-keys": lambda: zipped(b"{'descr': '<i8', 1: False, 'shape': (1,)}\n"),
    "nested": lambda: zipped(b"-" * 9000 + b"1\n"),
    "longer-than-it-is": lambda: zipped(header((1 << 40,))),
    "negative": lambda: zipped(header((-1,))),
    "bomb": lambda: zipped(header((16 << 20,)), zipfile.ZIP_DEFLATED, 128 << 20),
    "no-array": lambda: saved(other=TIMES),
    "empty": lambda: b"",
}


def with_times(result: Result) -> Result:
    """Return *result* with the percentiles of :data:`TIMES`."""
    assert result.performance is not None
    performance = msgspec.structs.replace(result.performance, latency_ns=percentiles(TIMES))
    return msgspec.structs.replace(result, performance=performance)


def with_file(name: str, raw: bytes, folder: Path, backend: str) -> Result:
    """Keep a result with that raw file in its directory."""
    listed = File(sha256=hashlib.sha256(raw).hexdigest(), size_bytes=len(raw))
    result = msgspec.structs.replace(with_times(made(backend=backend)), files={name: listed})
    kept(folder, result)
    (folder / result.id / name).write_bytes(raw)
    return result


@pytest.mark.parametrize("spoiled", BAD.values(), ids=BAD)
def test_a_bad_file_costs_its_own_figure_only(tmp_path: Path, spoiled: Callable[[], bytes]) -> None:
    """Whatever lies under that name with the right digest, the others are judged as ever."""
    raw = spoiled()
    with_file("latencies.npz", saved(latency_ns=TIMES), tmp_path, "good")
    with_file("latencies.npz", raw, tmp_path, "bad")
    with_file("predictions.npz", raw, tmp_path, "worse")
    lines = ("p99<1s", "recall@precision=0.9>=0.1")
    tracemalloc.start()
    (group,) = decide(find([str(tmp_path)]), Wish(constraints=lines)).groups
    assert tracemalloc.get_traced_memory()[1] < 100 << 20
    tracemalloc.stop()
    found = {one.judged.configuration.backend: one.judged.lines for one in group.candidates}
    low = {backend: latency.reading.low is not None for backend, (latency, _) in found.items()}
    assert low == {"good": True, "bad": False, "worse": False}
    assert "cannot be scored again here" in found["worse"][1].reading.why_not


def test_a_table_is_no_list_of_latencies(tmp_path: Path) -> None:
    """Two axes are something else than one time for each query."""
    raw = saved(latency_ns=TIMES.reshape(100, -1))
    with_file("latencies.npz", raw, tmp_path, "bad")
    (group,) = decide(find([str(tmp_path)]), Wish(constraints=("p99<1s",))).groups
    (line,) = group.candidates[0].judged.lines
    assert line.met
    assert line.reading.low is None


def decided(folder: Path) -> tuple[Line, tuple[str, ...]]:
    """Return the line of a latency of the one configuration there, and the notes."""
    (group,) = decide(find([str(folder)]), Wish(constraints=("p99<1s",))).groups
    return group.candidates[0].judged.lines[0], group.notes


def test_percentile_that_the_latencies_contradict_is_no_figure(tmp_path: Path) -> None:
    """A result whose p99 was edited beside its own latencies passes nothing."""
    result = with_file("latencies.npz", saved(latency_ns=TIMES), tmp_path, "tflite")
    line, notes = decided(tmp_path)
    assert line.met
    assert not any("neither checked" in note for note in notes)
    path = tmp_path / result.id / "result.json"
    document = msgspec.json.decode(path.read_bytes())
    document["performance"]["latency_ns"]["p99"] = 5.0
    path.write_bytes(msgspec.json.encode(document))
    line, _ = decided(tmp_path)
    assert not line.met
    assert "was altered: it says p99 5 ns, its latencies.npz 10900000 ns" in line.reading.why_not


def test_other_latencies_are_no_figure_and_none_are_told(tmp_path: Path) -> None:
    """A file that the result does not list answers nothing; without one, a note says so."""
    result = with_file("latencies.npz", saved(latency_ns=TIMES), tmp_path, "tflite")
    path = tmp_path / result.id / "latencies.npz"
    path.write_bytes(saved(latency_ns=TIMES[::-1]))
    line, _ = decided(tmp_path)
    assert not line.met
    assert "is not the file that the result was made with" in line.reading.why_not
    path.unlink()
    line, notes = decided(tmp_path)
    assert line.met
    assert line.reading.low is None
    assert any("neither checked" in n and "latencies.npz is not there" in n for n in notes)
