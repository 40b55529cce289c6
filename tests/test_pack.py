"""The evidence pack: the same bytes each time, whole or refused, and never a sample in it."""

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Product
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeperf import InputError
from edgeperf.agent.pack.verify import verify
from edgeperf.datasets.assets import BUNDLED

pytestmark = pytest.mark.slow

QUICK = ("--preset", "smoke", "--min-duration", "0.2", "--min-queries", "64")
PACK = "pack.tar.gz"
Members = dict[str, bytes]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """Return a folder with the result of a run on own samples, and its pack."""
    pytest.importorskip("ai_edge_litert")
    made = Product(tmp_path_factory.mktemp("pack"))
    shutil.copy(BUNDLED / "digits_test.npz", made.folder / "licensed.npz")
    ran = made.run("digits", "--data", "licensed.npz", *QUICK)
    assert ran.code in (0, 1), ran.stderr
    told = made.call("pack", str(ran.directory), "-o", PACK)
    assert told.code == 0, told.stderr
    yield made
    made.close()


@pytest.fixture
def result(first: Product, tmp_path: Path) -> Path:
    """Return a copy of the result directory, to be spoiled."""
    (folder,) = first.output.iterdir()
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for path in copy.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    return copy


def members_of(path: Path) -> Members:
    """Return what is in a pack."""
    with tarfile.open(path) as archive:
        found = {}
        for entry in archive:
            stream = archive.extractfile(entry)
            assert stream is not None
            assert (entry.mtime, entry.uid, entry.gid, entry.uname) == (0, 0, 0, "")
            found[entry.name] = stream.read()
    return found


def write(path: Path, members: Members) -> None:
    """Write a pack by hand."""
    with gzip.open(path, "wb") as zipped, tarfile.open(fileobj=zipped, mode="w") as archive:
        for name, raw in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(raw)
            archive.addfile(entry, io.BytesIO(raw))


def test_same_result_gives_the_same_bytes(first: Product, result: Path, tmp_path: Path) -> None:
    """Wherever the directory lies and whenever it was written, the archive is the same."""
    again = tmp_path / "again.tar.gz"
    told = first.call("pack", str(result / "result.json"), "--output", str(again))
    assert told.code == 0, told.stderr
    assert again.read_bytes() == (first.folder / PACK).read_bytes()
    checked = first.call("pack", "--verify", str(again))
    assert checked.code == 0, checked.stderr
    assert told.stdout.split("MANIFEST ")[1] in checked.stdout


def test_pack_holds_the_evidence_and_no_sample(first: Product, tmp_path: Path) -> None:
    """Result, spec, LoadGen's logs, predictions; what else lies about stays out."""
    found = members_of(first.folder / PACK)
    names = {name.split("/", 2)[-1] for name in found}
    assert {
        *("MANIFEST", "README.txt", "result.json", "spec.json", "predictions.npz"),
        *("latencies.npz", "accuracy/mlperf_log_accuracy.json", "conditions.json"),
        *("performance/mlperf_log_detail.txt", "performance/mlperf_log_summary.txt"),
    } <= {*names, *(name.split("/")[-1] for name in found)}
    samples = (first.folder / "licensed.npz").read_bytes()
    assert not [name for name, raw in found.items() if samples[:4000] in raw or raw == samples]
    spec = next(raw for name, raw in found.items() if name.endswith("spec.json"))
    assert json.loads(spec)["data"]["samples"] == 360
    with tarfile.open(first.folder / PACK) as archive:
        archive.extractall(tmp_path, filter="data")
    done = subprocess.run(
        ["sha256sum", "--strict", "-c", "MANIFEST"],
        cwd=tmp_path / "edgeperf-pack",
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_strangers_in_the_folder_stay_out(first: Product, result: Path, tmp_path: Path) -> None:
    """Only what the result lists is packed."""
    (result / "photograph.jpg").write_bytes(b"not to be shared")
    out = tmp_path / "out.tar.gz"
    assert first.call("pack", str(result), "-o", str(out)).code == 0
    assert out.read_bytes() == (first.folder / PACK).read_bytes()


def listed(name: str) -> Callable[[Path], None]:
    """Return what makes a result list a file called *name*."""

    def change(folder: Path) -> None:
        path = folder / "result.json"
        document: dict[str, Any] = json.loads(path.read_text())
        document["files"][name] = {"sha256": "0" * 64, "size_bytes": 1}
        path.write_text(json.dumps(document))

    return change


def faster(folder: Path) -> None:
    """Make a result say that its slowest percent was as fast as nothing is."""
    path = folder / "result.json"
    document: dict[str, Any] = json.loads(path.read_text())
    document["performance"]["latency_ns"]["p99"] = 5.0
    path.write_text(json.dumps(document))


def believed(folder: Path) -> None:
    """Make a result say INVALID without a reason for it."""
    path = folder / "result.json"
    document: dict[str, Any] = json.loads(path.read_text())
    document["verdict"]["status"] = "INVALID"
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (faster, "was altered: it says p99 5 ns, its latencies.npz"),
        (believed, "was altered: it says INVALID, and its own reasons"),
        (lambda folder: (folder / "latencies.npz").unlink(), "latencies.npz is missing"),
        (
            lambda folder: (folder / "performance/mlperf_log_summary.txt").write_text("better"),
            "performance/mlperf_log_summary.txt is altered",
        ),
        (lambda folder: (folder / "result.json").unlink(), "no result.json in it"),
        (lambda folder: (folder / "result.json").write_text("{"), "not a result.json"),
        (listed("../../etc/passwd"), "no name of a file of a result"),
        (listed("/etc/passwd"), "no name of a file of a result"),
        (listed("spec.json"), "no name of a file of a result"),
    ],
)
def test_result_that_is_not_whole_is_refused(
    first: Product, result: Path, tmp_path: Path, spoil: Callable[[Path], None], words: str
) -> None:
    """A missing or altered file is named in one line, and no archive is left."""
    spoil(result)
    told = first.call("pack", str(result), "-o", str(tmp_path / "out.tar.gz"))
    assert told.code == 2
    assert words in told.stderr
    assert len(told.stderr.splitlines()) == 1
    assert not list(tmp_path.glob("*out.tar.gz*"))


def test_what_makes_no_sense_is_one_line(first: Product, tmp_path: Path) -> None:
    """No result, the same one twice, a file that is there, a place that is not."""
    (folder,) = map(str, first.output.iterdir())
    for arguments, words in (
        ((), "give one result directory"),
        ((folder, folder, "-o", str(tmp_path / "x")), "given twice"),
        ((folder, "-o", PACK), "is there already"),
        ((folder, "-o", str(tmp_path / "nowhere" / "x")), "nothing was packed"),
        (("--verify", PACK, folder), "leave out everything else"),
        (("--verify", "none.tar.gz"), "No such file"),
        (("--verify", str(Path(folder) / "latencies.npz")), "cannot be read as a pack"),
    ):
        told = first.call("pack", *arguments)
        assert told.code == 2, told.stdout
        assert words in told.stderr
        assert len(told.stderr.splitlines()) == 1


def named(members: Members, ending: str) -> str:
    """Return the name of the member with that ending."""
    return next(name for name in members if name.endswith(ending))


def altered(members: Members) -> Members:
    """Return the members with a better summary."""
    return members | {named(members, "performance/mlperf_log_summary.txt"): b"better"}


def lost(members: Members) -> Members:
    """Return the members without the latencies."""
    name = named(members, "latencies.npz")
    return {other: raw for other, raw in members.items() if other != name}


def added(members: Members) -> Members:
    """Return the members and one that nobody lists."""
    return members | {"edgeperf-pack/more.txt": b"more"}


def outside(members: Members) -> Members:
    """Return the members and one that would be unpacked elsewhere."""
    return members | {"edgeperf-pack/../../evil": b"x", "../evil": b"x"}


def relisted(members: Members) -> Members:
    """Return the members with an altered log, and a manifest that fits it."""
    members = altered(members)
    name = named(members, "performance/mlperf_log_summary.txt")
    lines = members["edgeperf-pack/MANIFEST"].decode().splitlines()
    short = name.removeprefix("edgeperf-pack/")
    digest = hashlib.sha256(members[name]).hexdigest()
    lines = [f"{digest}  {short}" if line.endswith(short) else line for line in lines]
    return members | {"edgeperf-pack/MANIFEST": ("\n".join(lines) + "\n").encode()}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (altered, "mlperf_log_summary.txt: altered"),
        (lost, "latencies.npz: missing"),
        (added, "more.txt: not in MANIFEST"),
        (outside, "not in MANIFEST"),
        (relisted, "is missing or not the one that it lists"),
        (lambda _: {}, "has no MANIFEST"),
    ],
)
def test_pack_that_is_not_whole_is_refused(
    first: Product, tmp_path: Path, spoil: Callable[[Members], Members], words: str
) -> None:
    """Whatever was done to a pack, one line says to which file."""
    write(tmp_path / "bad.tar.gz", spoil(members_of(first.folder / PACK)))
    told = first.call("pack", "--verify", str(tmp_path / "bad.tar.gz"))
    assert told.code == 2, told.stdout
    assert words in told.stderr or "does not belong there" in told.stderr
    assert len(told.stderr.splitlines()) == 1


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.999])
def test_pack_that_was_cut_is_refused(first: Product, tmp_path: Path, keep: float) -> None:
    """A transfer that broke off does not pass."""
    raw = (first.folder / PACK).read_bytes()
    (tmp_path / "cut.tar.gz").write_bytes(raw[: int(len(raw) * keep)])
    told = first.call("pack", "--verify", str(tmp_path / "cut.tar.gz"))
    assert told.code == 2
    assert "cut.tar.gz" in told.stderr


def test_something_behind_the_end_is_refused(first: Product, tmp_path: Path) -> None:
    """Nothing travels unseen."""
    raw = (first.folder / PACK).read_bytes()
    (tmp_path / "more.tar.gz").write_bytes(raw + gzip.compress(b"smuggled"))
    told = first.call("pack", "--verify", str(tmp_path / "more.tar.gz"))
    assert told.code == 2
    assert "behind its end" in told.stderr


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(place=st.integers(0, 1 << 40), bit=st.integers(0, 7), at_end=st.booleans())
def test_every_bit_is_accounted_for(
    first: Product, tmp_path: Path, place: int, bit: int, *, at_end: bool
) -> None:
    """Whichever bit of the archive is turned over, the pack is refused."""
    raw = bytearray(gzip.decompress((first.folder / PACK).read_bytes()))
    raw[len(raw) - 1 - place % 12_000 if at_end else place % len(raw)] ^= 1 << bit
    (tmp_path / "turned.tar.gz").write_bytes(gzip.compress(raw, 1))
    with pytest.raises(InputError):
        verify(tmp_path / "turned.tar.gz")
