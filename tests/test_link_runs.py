"""The agent service and its runs: a real broker, a real process, real children."""

import contextlib
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet_bench import DEVICE, FLEET, Bench, bench, start, wait_until

from edgeperf.agent.link.child import Child
from edgeperf.agent.link.processes import is_same
from edgeperf.agent.messages import (
    Alert,
    Code,
    CommandDone,
    Describe,
    Drain,
    ErrorClass,
    Ping,
    Presence,
    RunAccepted,
    RunCancel,
    RunCancelled,
    RunFailed,
    RunInterrupted,
    RunLog,
    RunProgress,
    RunRejected,
    RunResult,
    RunTimedOut,
    Selftest,
    new_id,
    parse_description,
    sign_command,
)
from edgeperf.agent.spec import RunSpec

BOARD = """
[policy]
backends = ["tflite"]
max_duration_s = 600
[labels]
room = "lab-3"
[meters]
main = "textline:/dev/ttyACM0"
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Return a board that is online; every test leaves it idle."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "agent").mkdir(mode=0o700)
    with bench(folder) as together:
        yield together


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Bench]:
    """Return a board of its own, for tests that kill it."""
    with bench(tmp_path) as together:
        yield together


def test_a_run_is_accepted_run_and_reported(up: Bench) -> None:
    """The result comes back whole, with a manifest of its files and progress on the way."""
    run = up.coordinator.start_run({"ms": "1500"})
    result = up.coordinator.last(run)
    assert isinstance(result, RunResult)
    assert result.status == "VALID"
    assert result.result is not None
    assert [file.name for file in result.files] == ["result.json", "latencies.bin", "run.log"]
    assert up.coordinator.of(run) == ["RunAccepted", "RunPreparing", "RunLog", "RunResult"]
    lines = [e.data.lines for e in up.coordinator.events if isinstance(e.data, RunLog)]
    assert ("measured",) in lines
    progress = [
        e for e in up.coordinator.events if isinstance(e.data, RunProgress) and e.run == run
    ]
    assert 1 <= len(progress) <= 5


def test_progress_comes_once_a_second_at_most(up: Bench) -> None:
    """A child that speaks twenty times a second is not passed on as often."""
    run = up.coordinator.start_run({"ms": "3000"})
    up.coordinator.last(run)
    times = [
        event.clock.mono_ns / 1e9
        for event in up.coordinator.events
        if event.run == run and isinstance(event.data, RunProgress)
    ]
    # The first of a phase comes at once.
    pairs = itertools.pairwise(times[1:])
    assert all(later - earlier > 0.9 for earlier, later in pairs)


def test_runs_wait_for_each_other(up: Bench) -> None:
    """One at a time, in the order they were accepted."""
    runs = [up.coordinator.start_run({"ms": "50"}) for _ in range(3)]
    for run in runs:
        up.coordinator.last(run)
    ends = [e.run for e in up.coordinator.events if e.is_terminal and e.run in runs]
    assert ends == runs
    positions = [
        e.data.position
        for e in up.coordinator.events
        if e.run in runs and isinstance(e.data, RunAccepted)
    ]
    assert positions[0] <= positions[1] <= positions[2]


@pytest.mark.parametrize(
    ("what", "kind", "words"),
    [
        ("crash", ErrorClass.HARNESS, "exit code 3"),
        ("abort", ErrorClass.HARNESS, "SIGABRT"),
        ("fail", ErrorClass.USER, "no such input"),
    ],
)
def test_a_run_that_dies_is_reported_with_its_last_words(
    up: Bench, what: str, kind: ErrorClass, words: str
) -> None:
    """The class says who is at fault, the tail what it wrote."""
    end = up.coordinator.last(up.coordinator.start_run({"do": what}))
    assert isinstance(end, RunFailed)
    assert end.error_class is kind
    assert words in end.message
    if what != "fail":
        assert any("near" in line or "bad_alloc" in line for line in end.tail)


def test_nonsense_on_the_event_pipe_harms_nobody(up: Bench) -> None:
    """A runtime that prints where it should not is only not understood."""
    end = up.coordinator.last(up.coordinator.start_run({"do": "babble"}))
    assert isinstance(end, RunResult)


def test_a_killed_run_is_the_boards_trouble(up: Bench) -> None:
    """SIGKILL from outside is most likely the kernel, short of memory."""
    run = up.coordinator.start_run({"do": "hang"})
    child = _child(up)
    os.kill(child, signal.SIGKILL)
    end = up.coordinator.last(run)
    assert isinstance(end, RunFailed)
    assert end.error_class is ErrorClass.DEVICE
    assert "memory" in end.message


def _child(up: Bench) -> int:
    """Return the pid of the run's child."""
    path = Path(f"/proc/{up.agent.pid}/task/{up.agent.pid}/children")

    def found() -> list[int]:
        pids = [int(pid) for pid in path.read_text().split()]
        return [pid for pid in pids if b"measure.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    wait_until(found, "the run's child")
    wait_until(lambda: _is_working(up), "the child works")
    return found()[0]


def _is_working(up: Bench) -> bool:
    return any(
        isinstance(e.data, RunProgress)
        for e in up.coordinator.events
        if not up.coordinator.ended(e.run or "")
    )


@pytest.mark.parametrize("what", ["hang", "family"])
def test_cancel_frees_everything_within_three_seconds(up: Bench, what: str) -> None:
    """Also children that ignore SIGTERM, also those that left the process group."""
    run = up.coordinator.start_run({"do": what})
    child = _child(up)
    wait_until(lambda: what == "hang" or len(_stubborn(up)) >= 3, "the family is there")
    before, stubborn = _session(child), _stubborn(up)
    began_s = time.monotonic()
    command = up.coordinator.send(RunCancel(run=run, reason="enough"))
    end = up.coordinator.last(run)
    assert time.monotonic() - began_s < 3.5
    assert isinstance(end, RunCancelled)
    assert end.reason == "enough"
    assert len(before) >= (1 if what == "hang" else 2)
    assert len(stubborn) >= (0 if what == "hang" else 3)
    assert _session(child) == []
    assert up.coordinator.answer(command).ok
    assert _stubborn(up) == []


def _stubborn(up: Bench) -> list[int]:
    """Return the members of this board's "family", also those that left its session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = path.read_bytes()
            if b"signal.SIG_IGN" in command and os.fsencode(up.agent.state) in command:
                found.append(int(path.parent.name))
    return found


def _session(leader: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


def test_a_waiting_run_is_cancelled_without_being_run(up: Bench) -> None:
    """Its program is never started."""
    first = up.coordinator.start_run({"ms": "800"})
    second = up.coordinator.start_run()
    up.coordinator.send(RunCancel(run=second))
    assert isinstance(up.coordinator.last(second), RunCancelled)
    up.coordinator.last(first)
    assert f"{second}-1" not in up.agent.executed()


def test_a_cancellation_that_overtakes_its_run_is_remembered(up: Bench) -> None:
    """The run that comes later is not run."""
    run = new_id()
    up.coordinator.answer(up.coordinator.send(RunCancel(run=run)))
    up.coordinator.send(start(run))
    wait_until(lambda: up.coordinator.of(run).count("RunCancelled") == 2, "both answers")
    assert f"{run}-1" not in up.agent.executed()


def test_a_duplicate_repeats_the_state_and_never_the_run(up: Bench) -> None:
    """The same command again, and the same run under another command, are answered the same."""
    run = new_id()
    command = up.coordinator.command(start(run))
    raw = sign_command(command, up.coordinator.key)
    up.coordinator.publish(raw)
    up.coordinator.last(run)
    seen = len(up.coordinator.events)
    for _ in range(5):
        up.coordinator.publish(raw)
    up.coordinator.send(start(run))
    up.coordinator.answer(up.coordinator.send(Ping()))
    assert up.agent.executed().count(f"{run}-1") == 1
    kinds = up.coordinator.of(run)
    assert kinds.count("RunResult") == 1, "the repeated event has the first one's id"
    assert len(up.coordinator.events) == seen + 1


def test_a_retry_is_another_attempt(up: Bench) -> None:
    """The same run runs again only under the next attempt."""
    run = up.coordinator.start_run()
    up.coordinator.last(run)
    up.coordinator.send(start(run, attempt=2))
    wait_until(
        lambda: any(
            e.run == run and e.attempt == 2 and e.is_terminal for e in up.coordinator.events
        ),
        "the second attempt",
    )
    assert [n for n in up.agent.executed() if n.startswith(run)] == [f"{run}-1", f"{run}-2"]


def test_describe_selftest_and_ping_are_answered(up: Bench) -> None:
    """The description names runtimes, policy, meters and labels."""
    assert up.coordinator.answer(up.coordinator.send(Ping())).ok
    assert up.coordinator.answer(up.coordinator.send(Describe())).ok
    selftest = up.coordinator.answer(up.coordinator.send(Selftest()))
    assert isinstance(selftest, CommandDone)
    assert selftest.data["device"] == DEVICE
    description = parse_description(up.coordinator.descriptions[-1])
    assert description.fleet == FLEET
    assert {runtime.backend for runtime in description.runtimes} >= {"tflite", "null"}
    assert description.board["arch"]


def test_a_drained_board_takes_no_runs(up: Bench) -> None:
    """It says so in its state, and takes them again when told."""
    up.coordinator.answer(up.coordinator.send(Drain(reason="repairs")))
    wait_until(lambda: up.coordinator.states[-1].status is Presence.DRAINING, "draining")
    end = up.coordinator.last(up.coordinator.start_run())
    assert isinstance(end, RunRejected)
    assert end.code is Code.DRAINING
    up.coordinator.answer(up.coordinator.send(Drain(on=False)))
    wait_until(lambda: up.coordinator.states[-1].status is Presence.ONLINE, "online")
    assert isinstance(up.coordinator.last(up.coordinator.start_run()), RunResult)


def test_a_run_over_its_time_is_stopped(up: Bench) -> None:
    """The watchdog ends it and says after how long."""
    end = up.coordinator.last(up.coordinator.start_run({"do": "hang"}, timeout_s=1.0))
    assert isinstance(end, RunTimedOut)
    assert "1 s" in end.message


def test_a_run_is_held_to_its_limits_before_it_begins(tmp_path: Path) -> None:
    """Its own session; no core dumps, bounded files and data, and first in line for the kernel."""
    shown = "cat /proc/self/limits /proc/self/oom_score_adj; cut -d ' ' -f 6 /proc/self/stat"
    child = Child(
        RunSpec(model="digits"),
        program=("sh", "-c", shown),
        folder=tmp_path,
        cache=tmp_path,
        max_memory_bytes=1 << 30,
    )
    child.go()
    wait_until(lambda: child.ended() is not None, "its end")
    told = child.log.read_text()
    child.close()
    assert re.search(r"Max core file size +0 +0 ", told)
    assert re.search(rf"Max file size +{8 << 30} +{8 << 30} ", told)
    assert re.search(rf"Max data size +{1 << 30} +{1 << 30} ", told)
    assert told.split()[-2:] == ["500", str(child.pid)]


def test_a_silent_run_is_hung(tmp_path: Path) -> None:
    """The watchdog does not wait for its time to pass."""
    with bench(tmp_path, silence_s=1.0) as together:
        end = together.coordinator.last(together.coordinator.start_run({"do": "hang"}))
    assert isinstance(end, RunTimedOut)
    assert "hung" in end.message


def test_a_board_that_dies_in_a_run_reports_it_after_boot(fresh: Bench) -> None:
    """Interrupted, in which phase, and never run again; its orphans are gone."""
    run = fresh.coordinator.start_run({"do": "hang"})
    child = _child(fresh)
    fresh.agent.kill()
    assert _session(child)
    fresh.agent.start()
    end = fresh.coordinator.last(run)
    assert isinstance(end, RunInterrupted)
    assert _session(child) == []
    assert fresh.agent.executed() == [f"{run}-1"]
    assert isinstance(fresh.coordinator.last(fresh.coordinator.start_run()), RunResult)


@pytest.mark.parametrize("word", ["die", "go"])
def test_an_agent_that_dies_before_it_wrote_down_its_child_leaves_none(
    tmp_path: Path, word: str
) -> None:
    """The child does nothing until it is let go, and ends with whoever would let it go."""
    script = f"""
import os, sys
from pathlib import Path
from edgeperf.agent.link.child import Child
from edgeperf.agent.spec import RunSpec
program = (sys.executable, "-c", "open('began', 'w').close()")
folder = Path({str(tmp_path)!r})
child = Child(RunSpec(model="digits"), program=program, folder=folder, cache=folder)
if sys.argv[1] == "go":
    child.go()
print(child.pid, child.started_ticks, flush=True)
os._exit(0)
"""
    said = subprocess.run(
        [sys.executable, "-c", script, word], check=True, capture_output=True, text=True
    )
    pid, ticks = map(int, said.stdout.split())
    wait_until(lambda: not is_same(pid, ticks), "the child ends")
    assert (tmp_path / "began").exists() is (word == "go")


def test_a_result_written_while_the_agent_was_dead_is_reported(fresh: Bench) -> None:
    """What is whole is a result, whoever was listening."""
    run = fresh.coordinator.start_run({"ms": "500"})
    _child(fresh)
    fresh.agent.kill()
    result = fresh.agent.state / "runs" / f"{run}-1" / "result"
    wait_until(lambda: list(result.glob("2*/result.json")), "the child ends by itself")
    fresh.agent.start()
    assert isinstance(fresh.coordinator.last(run), RunResult)


def test_an_agent_that_stops_reports_its_run(fresh: Bench) -> None:
    """SIGTERM ends the run, says so, and says that the board is offline on purpose."""
    run = fresh.coordinator.start_run({"do": "hang"})
    child = _child(fresh)
    assert fresh.agent.kill(signal.SIGTERM) == 0
    assert _session(child) == []
    wait_until(lambda: fresh.coordinator.states[-1].status is Presence.OFFLINE, "offline")
    fresh.agent.start()
    assert isinstance(fresh.coordinator.last(run), RunInterrupted)


def test_a_second_agent_does_not_start(fresh: Bench) -> None:
    """Two would kick each other off the broker for ever."""
    second = type(fresh.agent).__new__(type(fresh.agent))
    second.__dict__ |= fresh.agent.__dict__
    assert second.start().wait() == 2
    assert "another agent is running" in fresh.agent.log()


def test_a_lost_journal_runs_nothing_again(fresh: Bench) -> None:
    """What its directories show to have been run is reported, as a result or as interrupted."""
    done = fresh.coordinator.start_run()
    assert isinstance(fresh.coordinator.last(done), RunResult)
    broken = fresh.coordinator.start_run({"do": "hang"})
    child = _child(fresh)
    fresh.agent.kill()
    os.killpg(child, signal.SIGKILL)
    for path in fresh.agent.state.glob("agent.db*"):
        path.write_bytes(b"\0" * 100_000)
    fresh.coordinator.events.clear()
    fresh.agent.start()
    for run in (done, broken):
        fresh.coordinator.send(start(run))
    assert isinstance(fresh.coordinator.last(done), RunResult)
    assert isinstance(fresh.coordinator.last(broken), RunInterrupted)
    assert sorted(fresh.agent.executed()) == sorted([f"{done}-1", f"{broken}-1"])
    alerts = [e.data for e in fresh.coordinator.events if isinstance(e.data, Alert)]
    assert any("journal was damaged" in alert.text for alert in alerts)


def test_systemd_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ready, alive as often as the watchdog wants it, and stopping."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "600000")
        with bench(tmp_path) as up:
            words = [listener.recv(100) for _ in range(8)]
            # Mosquitto, which inherits the variable, says that it is ready too.
            assert set(words) == {b"READY=1", b"WATCHDOG=1"}
            assert words.count(b"WATCHDOG=1") >= 6
            up.agent.kill(signal.SIGTERM)
            while (word := listener.recv(100)) == b"WATCHDOG=1":
                pass
            assert word == b"STOPPING=1"
            up.agent.start()
