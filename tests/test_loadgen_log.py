"""LoadGen's own logs, written by the real LoadGen, whole and cut short at every place."""

import json
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from edgeperf.agent.run.loadgen_log import DetailLog, LogError, read_answers

#: Runs one test against a SUT that answers at once; sample i is answered with 10 * i.
PROGRAM = r"""
import sys
import mlperf_loadgen as lg
import numpy as np

folder, scenario, mode, conf = sys.argv[1:]
answers = np.arange(20, dtype=np.float32) * 10

def issue(ids, indices):
    lg.QuerySamplesComplete([
        lg.QuerySampleResponse(i, answers[n:].ctypes.data, 4) for i, n in zip(ids, indices)
    ])

open(folder + "/user.conf", "w").write("".join(f"*.{scenario}.{c}\n" for c in conf.split(";")))
settings = lg.TestSettings()
assert settings.FromConfig(folder + "/user.conf", "none", scenario, 1) in (0, None)
settings.scenario = getattr(lg.TestScenario, scenario)
settings.mode = getattr(lg.TestMode, mode + "Only")
output = lg.LogOutputSettings()
output.outdir = folder
log = lg.LogSettings()
log.log_output = output
log.enable_trace = False
sut = lg.ConstructFastSUT(issue, lambda: None)
qsl = lg.ConstructQSL(20, 7, lambda _: None, lambda _: None)
lg.StartTestWithLogSettings(sut, qsl, settings, log, folder + "/none.conf")
lg.DestroyQSL(qsl)
lg.DestroyFastSUT(sut)
"""
QUICK = {
    "SingleStream": "min_duration = 100;target_latency = 0.001",
    "MultiStream": "min_duration = 100;target_latency = 0.001;samples_per_query = 8",
    "Offline": "min_duration = 1;target_qps = 100000000;min_query_count = 1",
    "Server": "min_duration = 600;target_qps = 1000;target_latency = 10000",
}
DETAIL, ACCURACY = "mlperf_log_detail.txt", "mlperf_log_accuracy.json"


def loadgen(folder: Path, scenario: str, mode: str, conf: str) -> Path:
    """Run LoadGen in a process of its own and return the folder with its logs."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", PROGRAM, str(folder), scenario, mode, conf]
    subprocess.run(command, check=True, timeout=60)
    return folder


@pytest.fixture(scope="session", params=QUICK)
def performance(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the logs of a performance test, scenario by scenario."""
    folder = tmp_path_factory.mktemp(request.param)
    return loadgen(folder, request.param, "Performance", QUICK[request.param])


@pytest.fixture(scope="session", params=QUICK)
def accuracy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the logs of an accuracy test, scenario by scenario."""
    folder = tmp_path_factory.mktemp(request.param)
    return loadgen(folder, request.param, "Accuracy", QUICK[request.param])


def test_whole_log_of_a_performance_test(performance: Path) -> None:
    """Verdict, settings and percentiles are LoadGen's, and fit each other."""
    found = DetailLog(performance / DETAIL, "performance").loadgen()
    assert found.valid, found.reasons
    assert not found.reasons
    assert not found.errors
    assert found.version.startswith("6.")
    assert found.settings["performance_sample_count"] == 7
    assert performance.name.startswith(str(found.settings["scenario"]))
    assert found.settings["qsl_rng_seed"] != 0
    latency = found.latency_ns
    order = ("min", "p50", "p90", "p95", "p97", "p99", "p99_9", "max")
    assert [latency[name] for name in order] == sorted(latency[name] for name in order)
    assert latency["min"] <= latency["mean"] <= latency["max"]


def test_whole_log_of_an_accuracy_test(accuracy: Path) -> None:
    """It has no percentiles and no verdict, and is whole all the same."""
    log = DetailLog(accuracy / DETAIL, "accuracy")
    assert not log.errors
    assert not log.loadgen().latency_ns


def test_answers_of_every_sample(accuracy: Path) -> None:
    """Each sample's answer is the one that the SUT gave, also where LoadGen asked twice."""
    answers = read_answers(accuracy / ACCURACY)
    assert {index: struct.unpack("<f", answer) for index, answer in answers.items()} == {
        index: (10.0 * index,) for index in range(20)
    }


def accuracy_log(path: Path) -> DetailLog:
    """Read the detail log of an accuracy test."""
    return DetailLog(path, "accuracy")


def cut_log(folder: Path, name: str, share: float) -> tuple[Path, bool]:
    """Return a copy of a log without its end, and whether more than the end of line is lost."""
    raw = (folder / name).read_bytes()
    size = int(len(raw) * share)
    path = folder / "cut"
    path.write_bytes(raw[:size])
    return path, raw[:size].rstrip() != raw.rstrip()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1))
@example(share=0.0)
def test_cut_detail_log_is_never_taken_for_a_whole_one(performance: Path, share: float) -> None:
    """A full disk cuts LoadGen's logs without a word; that must not look like a result."""
    path, lost = cut_log(performance, DETAIL, share)
    if lost:
        with pytest.raises(LogError):
            DetailLog(path, "performance")


def cuts_between_lines(folder: Path) -> Iterator[Path]:
    """Yield a copy of the detail log with each number of whole lines, but the full one."""
    lines = (folder / DETAIL).read_bytes().splitlines(keepends=True)
    for count in range(len(lines)):
        (folder / "cut").write_bytes(b"".join(lines[:count]))
        yield folder / "cut"


def test_detail_log_cut_between_lines(performance: Path) -> None:
    """The same where every line that is left is whole."""
    for cut in cuts_between_lines(performance):
        with pytest.raises(LogError):
            DetailLog(cut, "performance")


def test_accuracy_log_cut_between_lines(accuracy: Path) -> None:
    """The same in accuracy mode, where every set of samples ends like the last."""
    for cut in cuts_between_lines(accuracy):
        with pytest.raises(LogError):
            accuracy_log(cut)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1))
@example(share=0.0)
def test_cut_answers_are_refused(accuracy: Path, share: float) -> None:
    """Answers that miss an end are no answers."""
    path, lost = cut_log(accuracy, ACCURACY, share)
    if lost:
        with pytest.raises(LogError):
            read_answers(path)


@pytest.mark.parametrize("read", [accuracy_log, read_answers])
@pytest.mark.parametrize("content", [None, b"", b"\xff\x00", b"[]{", b":::MLLOG {}"])
def test_what_is_no_log_is_refused(
    tmp_path: Path, read: Callable[[Path], object], content: bytes | None
) -> None:
    """A missing, empty or foreign file is an error of ours that names it."""
    path = tmp_path / "log"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LogError, match="log"):
        read(path)


@given(data=st.text("0123456789ABCDEFg", max_size=20))
def test_payloads_that_are_no_hexadecimal_are_refused(
    tmp_path_factory: pytest.TempPathFactory, data: str
) -> None:
    """An answer is whole bytes in hexadecimal, or the log is refused."""
    path = tmp_path_factory.mktemp("log") / ACCURACY
    path.write_text(json.dumps([{"seq_id": 0, "qsl_idx": 3, "data": data}]))
    if "g" in data or len(data) % 2:
        with pytest.raises(LogError):
            read_answers(path)
    else:
        assert read_answers(path)[3] == bytes.fromhex(data)


def test_lines_that_are_not_loadgens_are_passed_over(performance: Path) -> None:
    """Whatever else writes into the file does no harm."""
    raw = (performance / DETAIL).read_bytes()
    (performance / "mixed").write_bytes(b"warning: something\n" + raw + b"\nbye\n")
    assert (
        DetailLog(performance / "mixed", "performance").values
        == DetailLog(performance / DETAIL, "performance").values
    )


def test_errors_are_kept(tmp_path: Path) -> None:
    """LoadGen runs out of queries when the hint is far too slow, and that is an error."""
    conf = "min_duration = 500;target_latency = 1000"
    folder = loadgen(tmp_path, "SingleStream", "Performance", conf)
    found = DetailLog(folder / DETAIL, "performance").loadgen()
    assert not found.valid
    assert any("Ran out of generated queries" in error for error in found.errors)


@pytest.mark.parametrize(
    ("scenario", "conf", "says"),
    [
        ("SingleStream", "min_duration = 1;min_query_count = 20;target_latency = 1", "64 queries"),
        ("MultiStream", "min_duration = 1;min_query_count = 20;target_latency = 1", "662 queries"),
        ("Server", "min_duration = 1;min_query_count = 20;target_qps = 10000", "queries"),
        ("Offline", "min_duration = 60000;target_qps = 1;min_query_count = 1", "duration"),
    ],
)
def test_invalid_result_says_why(tmp_path: Path, scenario: str, conf: str, says: str) -> None:
    """A result that LoadGen calls invalid has LoadGen's reason, in one line each."""
    folder = loadgen(tmp_path, scenario, "Performance", conf)
    found = DetailLog(folder / DETAIL, "performance").loadgen()
    assert not found.valid
    assert any(says in reason for reason in found.reasons), found.reasons
    assert not any("\n" in reason or "*" in reason for reason in found.reasons)
