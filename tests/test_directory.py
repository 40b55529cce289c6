"""The result directory is there whole or not at all, and nothing else is touched."""

import contextlib
import hashlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeperf import EdgeperfError, InputError
from edgeperf.agent.result import Accuracy, Model, Result, Status, Verdict, result_from_json
from edgeperf.agent.run.directory import DiskError, OutputError, ResultDirectory

RESULT = Result(
    id="run-1",
    created="2026-11-29T15:38:40Z",
    edgeperf="0.1.0",
    verdict=Verdict(status=Status.VALID, comparable=False, reasons=()),
    spec={},
    model=Model(
        name="m",
        file="m",
        format=".onnx",
        sha256="",
        size_bytes=0,
        precision=None,
        inputs=(),
        outputs=(),
    ),
    task=None,
    sut=None,
    accuracy=Accuracy(measured=False),
    performance=None,
    board={},
    conditions=None,
    power=None,
    phases_ns={},
    files={},
)


class BrokenError(Exception):
    """What goes wrong in the middle of a run."""


def everything(folder: Path) -> list[str]:
    """Return every path below *folder*."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_finished_directory_holds_what_was_written(tmp_path: Path) -> None:
    """All files and ``result.json`` are in place, under the run's id, and nothing beside."""
    with ResultDirectory(tmp_path / "results", "run-1") as directory:
        (directory.path / "performance").mkdir()
        (directory.path / "performance" / "log.txt").write_text("log")
        assert not directory.final.exists()
        final = directory.finish(RESULT)
    assert final == tmp_path / "results" / "run-1"
    assert everything(tmp_path / "results") == [
        "run-1",
        "run-1/performance",
        "run-1/performance/log.txt",
        "run-1/result.json",
    ]
    raw = (final / "result.json").read_bytes()
    assert result_from_json(raw, where="here") == RESULT


@pytest.mark.parametrize("error", [BrokenError, KeyboardInterrupt, SystemExit, OSError])
@pytest.mark.parametrize("parent", ["results", "a/b/c", "."])
def test_directory_of_a_failed_run_vanishes(
    tmp_path: Path, parent: str, error: type[BaseException]
) -> None:
    """Whatever ends a run, its files are gone, and so are the folders made for them."""
    (tmp_path / "mine").write_text("mine")
    with contextlib.suppress(error), ResultDirectory(tmp_path / parent, "run-1") as directory:
        (directory.path / "performance").mkdir()
        (directory.path / "performance" / "log.txt").write_text("log")
        raise error
    assert everything(tmp_path) == ["mine"]


def test_run_that_never_finishes_leaves_nothing(tmp_path: Path) -> None:
    """Leaving without :meth:`finish` is a failure too."""
    with ResultDirectory(tmp_path / "results", "run-1"):
        pass
    assert everything(tmp_path) == []


def test_folder_that_others_use_meanwhile_stays(tmp_path: Path) -> None:
    """A folder made for this run is not taken away under somebody else's result."""
    with contextlib.suppress(BrokenError), ResultDirectory(tmp_path / "results", "run-1"):
        with ResultDirectory(tmp_path / "results", "run-2") as other:
            other.finish(RESULT)
        raise BrokenError
    assert everything(tmp_path) == ["results", "results/run-2", "results/run-2/result.json"]


def test_failure_after_the_end_keeps_the_result(tmp_path: Path) -> None:
    """What is in its place stays there."""
    with contextlib.suppress(BrokenError), ResultDirectory(tmp_path, "run-1") as directory:
        directory.finish(RESULT)
        raise BrokenError
    assert everything(tmp_path) == ["run-1", "run-1/result.json"]


@pytest.mark.parametrize("parent", ["file", "file/results", "n" * 300, "a/" * 3000])
def test_place_that_cannot_be_written_is_refused(tmp_path: Path, parent: str) -> None:
    """One line with the folder and the reason; the user's input, so exit status 2."""
    (tmp_path / "file").write_text("mine")
    with (
        pytest.raises(OutputError, match=r"cannot write there: .*--output"),
        ResultDirectory(tmp_path / parent, "run-1"),
    ):
        pass
    assert everything(tmp_path) == ["file"]
    assert OutputError.exit_code == InputError.exit_code == 2


def test_disk_that_takes_no_more_is_told_in_one_line(tmp_path: Path) -> None:
    """What the system refuses while a run writes is a failed part: exit status 3."""
    with (
        ResultDirectory(tmp_path, "run-1") as directory,
        pytest.raises(DiskError, match="No space left on device") as caught,
        directory.disk_errors(),
        Path("/dev/full").open("wb", buffering=0) as full,
    ):
        full.write(b"x")
    assert str(directory.final) in str(caught.value)
    assert DiskError.exit_code == EdgeperfError.exit_code == 3


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    files=st.dictionaries(
        st.lists(st.text("abcü ", min_size=1, max_size=5).map(str.strip), min_size=1, max_size=3)
        .filter(all)
        .map("/".join),
        st.binary(max_size=100),
        max_size=5,
    )
)
def test_digest_names_every_file(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    """Each file of the directory is listed with its own sha256 and size."""
    written = {}
    with ResultDirectory(tmp_path_factory.mktemp("results"), "run-1") as directory:
        for name, content in files.items():
            path = directory.path / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            except OSError:  # one name is a file in the way of another
                continue
            written[name] = content
        found = directory.digest()
        assert {name: (file.sha256, file.size_bytes) for name, file in found.items()} == {
            name: (hashlib.sha256(content).hexdigest(), len(content))
            for name, content in written.items()
        }
