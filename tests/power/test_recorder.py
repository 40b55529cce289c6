"""The recorder: a process of its own that survives what meters and boards do."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeperf.power.base import MeterError, MeterInputError
from edgeperf.power.live import Live
from edgeperf.power.measure import measure
from edgeperf.power.recorder import Recorder
from edgeperf.power.result import Grade
from edgeperf.power.simulate.waveform import parse_waveform
from edgeperf.power.trace import PowerTrace

Simulate = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an empty folder for a recording."""
    made = tmp_path / "recording"
    made.mkdir()
    return made


def wait_for(recorder: Recorder, wanted: Callable[[Live], bool], patience_s: float = 10) -> Live:
    """Poll until a look is as *wanted*."""
    deadline_s = time.monotonic() + patience_s
    while not wanted(live := recorder.poll()):
        assert time.monotonic() < deadline_s, live
        time.sleep(0.05)
    return live


def test_recording(simulate: Simulate, folder: Path) -> None:
    """A window of a recording has the energy that the load really took, and the marks."""
    server = simulate("textline", "sine:6,2,0.7")
    with Recorder.start(f"textline:{server.port}", folder) as recorder:
        time.sleep(0.2)
        begin_ns = time.monotonic_ns()
        recorder.mark("power_begin")
        live = wait_for(recorder, lambda live: live.readings > 100)
        end_ns = time.monotonic_ns()
        recorder.mark("power_end", end_ns)
        time.sleep(0.2)
        recording = recorder.stop()
    assert live.state == "ok"
    assert live.power_w is not None
    trace = PowerTrace.load(recording.trace)
    result = measure(trace, begin_ns, end_ns)
    truth = server.bench.waveform.energy_j(begin_ns / 1e9, end_ns / 1e9)
    assert result.gross is not None
    assert result.gross.energy_j.value == pytest.approx(truth, rel=0.005)
    assert result.coverage == 1
    assert [mark.name for mark in trace.about.marks] == ["power_begin", "power_end"]
    assert sorted(path.name for path in folder.iterdir()) == ["power.log", "power.npz"]
    assert (folder / "power.log").read_bytes() == b""


def test_ppk2_at_full_rate(tmp_path: Path, folder: Path) -> None:
    """A hundred thousand samples a second, from another process, none lost, energy true."""
    link = tmp_path / "ppk2"
    code = "from edgeperf.agent.cli.simulate_meter import simulate_meter; simulate_meter()"
    words = ["ppk2", "--waveform", "sine:2,1,0.4", "--link", str(link), "--for", "60s"]
    with subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE) as play:
        assert play.stdout is not None
        play.stdout.readline()
        with Recorder.start(f"ppk2:{link},voltage=5", folder) as recorder:
            begin_ns = time.monotonic_ns()
            wait_for(recorder, lambda live: live.readings > 2500)
            end_ns = time.monotonic_ns()
            wait_for(recorder, lambda live: live.t_mono_ns > end_ns + 500_000_000)
            recording = recorder.stop()
        play.terminate()
    result = measure(PowerTrace.load(recording.trace), begin_ns, end_ns)
    truth_j = parse_waveform("sine:2,1,0.4").energy_j(begin_ns * 1e-9, end_ns * 1e-9)
    assert recording.faults == {}
    assert result.coverage == 1
    assert result.gross is not None
    assert result.gross.energy_j.value == pytest.approx(truth_j, rel=0.005)


def test_recorder_stays_on_its_core(simulate: Simulate, folder: Path) -> None:
    """Every thread of the recorder is pinned to the housekeeping core."""
    core = max(os.sched_getaffinity(0))
    port = simulate("textline").port
    with Recorder.start(f"textline:{port}", folder, core) as recorder:
        pid = recorder._process.pid
        for thread in Path(f"/proc/{pid}/task").iterdir():
            assert os.sched_getaffinity(int(thread.name)) == {core}


def test_unplugged_and_back(simulate: Simulate, folder: Path) -> None:
    """An unplugged meter is known; when it is back, the gap stays a gap."""
    server = simulate("textline", faults=("unplug@1.5+1.5",))
    with Recorder.start(f"textline:{server.port}", folder) as recorder:
        lost = wait_for(recorder, lambda live: live.state == "lost")
        assert "unplugged" in lost.problem
        seen = lost.readings
        wait_for(recorder, lambda live: live.state == "ok" and live.readings > seen + 50)
        recording = recorder.stop()
    assert recording.faults["meter lost"] == 1
    trace = PowerTrace.load(recording.trace)
    first, last = int(trace.samples.t_ns[0]), int(trace.samples.t_ns[-1])
    result = measure(trace, first, last)
    assert result.grade is Grade.NONE
    assert result.gross is None
    gap = result.gaps[0]
    assert gap.why == "lost"
    assert 1.4 < (gap.end_mono_ns - gap.start_mono_ns) * 1e-9 < 4
    assert (1 - result.coverage) * result.duration_s == pytest.approx(
        sum(gap.end_mono_ns - gap.start_mono_ns for gap in result.gaps) * 1e-9
    )


@pytest.mark.parametrize(
    ("fault", "state", "problem"),
    [
        ("freeze@1+60", "stale", "repeats itself"),
        ("over@1+60", "invalid", "over range"),
        ("stall@1+60", "gap", "no reading for"),
    ],
)
def test_faults_are_known_while_they_last(
    fault: str, state: str, problem: str, simulate: Simulate, folder: Path
) -> None:
    """Frozen, over range or silent: the live state says so, and the samples so far stay."""
    server = simulate("textline", faults=(fault,))
    with Recorder.start(f"textline:{server.port}", folder) as recorder:
        live = wait_for(recorder, lambda live: live.state == state)
        assert problem in live.problem
        assert live.power_w is None
        recording = recorder.stop()
    samples = PowerTrace.load(recording.trace).samples
    assert samples.power_w[samples.ok] == pytest.approx(6, rel=0.01)
    assert samples.ok.sum() > 30


def test_killed_recorder_loses_nothing(simulate: Simulate, folder: Path) -> None:
    """A recorder that dies is known, and what it had written is decoded."""
    with Recorder.start(f"textline:{simulate('textline').port}", folder) as recorder:
        wait_for(recorder, lambda live: live.readings > 50)
        recorder._process.kill()
        live = wait_for(recorder, lambda live: live.state == "lost")
        assert "the recorder died" in live.problem
        recording = recorder.stop()
    assert recording.faults["recorder died"] == 1
    assert len(PowerTrace.load(recording.trace).samples) > 50


def test_recorder_dies_with_its_run(simulate: Simulate, folder: Path) -> None:
    """A run that is killed leaves no recorder behind, but its raw bytes."""
    port = simulate("textline").port
    code = (
        "import sys, time; from pathlib import Path\n"
        "from edgeperf.power.recorder import Recorder\n"
        "recorder = Recorder.start(sys.argv[1], Path(sys.argv[2]))\n"
        "print(recorder._process.pid, flush=True); time.sleep(60)"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code, f"textline:{port}", str(folder)], stdout=subprocess.PIPE
    )
    assert run.stdout is not None
    pid = int(run.stdout.readline())
    run.send_signal(signal.SIGKILL)
    run.wait()
    run.stdout.close()
    deadline_s = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()
    assert (folder / "power.raw").stat().st_size > 100


def test_nobody_polls(simulate: Simulate, folder: Path) -> None:
    """A run that never looks does not stop the recorder; the pipe just drops looks."""
    with Recorder.start(f"textline:{simulate('textline').port}", folder) as recorder:
        recorder._process.stdin.flush()  # type: ignore[union-attr]  # it is a pipe
        time.sleep(1.0)
        recording = recorder.stop()
    assert len(PowerTrace.load(recording.trace).samples) > 80


@pytest.mark.parametrize(
    ("meter", "error", "complaint"),
    [
        ("textline:/dev/no-such-port", MeterInputError, "no such port"),
        ("nosuch:/dev/null", MeterInputError, "no such kind"),
        ("textline:/dev/x,baud=0", MeterInputError, "baud"),
    ],
)
def test_what_cannot_start(
    meter: str, error: type[Exception], complaint: str, folder: Path
) -> None:
    """What cannot be used is one line, before anything is timed."""
    with pytest.raises(error, match=complaint):
        Recorder.start(meter, folder)


def test_core_that_is_not_ours(folder: Path) -> None:
    """A core outside the affinity mask is refused, with the cores that are there."""
    with pytest.raises(MeterInputError, match=r"core 4000: not available .* may use \["):
        Recorder.start("textline:/dev/null", folder, 4000)


def test_meter_without_a_good_reading(simulate: Simulate, folder: Path) -> None:
    """A meter that is over range from the start fails the run before it begins."""
    server = simulate("textline", faults=("over@0+60",))
    with pytest.raises(MeterError, match="reads no power"):
        Recorder.start(f"textline:{server.port}", folder)
