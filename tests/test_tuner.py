"""The root service that holds clocks, governor and fan, on trees of ordinary files.

What is proved is the way back: however run and service end, every file is as it was.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.agent.board.findings import Board
from edgeperf.agent.board.probe_tuner import probe_tuner
from edgeperf.agent.result import Severity
from edgeperf.agent.run.tuning import tuning_reasons
from edgeperf.agent.tuner import Report, Wish, hold
from edgeperf.agent.tuner.holder import Holder
from edgeperf.agent.tuner.knobs import choose

if TYPE_CHECKING:
    from conftest import Product

LONGEST_S = 30.0


def put(root: Path, files: dict[str, str]) -> None:
    """Write *files* below *root*."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def contents(root: Path) -> dict[str, str]:
    """Return every file below *root*, without its newline."""
    return {
        str(path.relative_to(root)): path.read_text().strip()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def policy(first: int, cores: str, *, highest: int = 1_800_000) -> dict[str, str]:
    """Return the files of one frequency policy."""
    folder = f"sys/devices/system/cpu/cpufreq/policy{first}"
    return {
        f"{folder}/affected_cpus": cores,
        f"{folder}/scaling_available_governors": "ondemand performance schedutil",
        f"{folder}/scaling_governor": "ondemand",
        f"{folder}/scaling_available_frequencies": f"600000 1000000 1500000 {highest}",
        f"{folder}/cpuinfo_min_freq": "600000",
        f"{folder}/cpuinfo_max_freq": str(highest),
        f"{folder}/scaling_min_freq": "600000",
        f"{folder}/scaling_max_freq": "1500000",
    }


@pytest.fixture
def pi(tmp_path: Path) -> Path:
    """Return the tree of a Raspberry Pi 5: one policy, a fan on a PWM pin."""
    root = tmp_path / "pi"
    hwmon = "sys/class/hwmon/hwmon2"
    fan = {"name": "pwmfan", "pwm1": "75", "pwm1_enable": "1", "fan1_input": "3200"}
    back_light = {"sys/class/hwmon/hwmon3/name": "lcd", "sys/class/hwmon/hwmon3/pwm1": "9"}
    put(root, policy(0, "0 1 2 3"))
    put(root, {f"{hwmon}/{name}": text for name, text in fan.items()} | back_light)
    return root


@pytest.fixture
def jetson(tmp_path: Path) -> Path:
    """Return the tree of a Jetson Orin: two clusters, a GPU, a fan with a mode."""
    root = tmp_path / "jetson"
    put(root, policy(0, "0 1 2 3") | policy(4, "4 5", highest=2_200_000))
    gpu = "sys/class/devfreq/17000000.gpu"
    put(root, {f"{gpu}/min_freq": "306000000", f"{gpu}/max_freq": "918000000"})
    hwmon = "sys/class/hwmon/hwmon0"
    put(root, {f"{hwmon}/name": "pwmfan", f"{hwmon}/pwm1": "0", f"{hwmon}/pwm1_enable": "2"})
    return root


class TunerProcess:
    """The service as systemd would start it, for one tree."""

    def __init__(self, root: Path, state: Path) -> None:
        self.root = root
        self.state = state
        self.socket = state / "socket"
        state.mkdir(exist_ok=True)
        self.start()

    def start(self) -> None:
        """Start it, again perhaps, and wait until it listens."""
        self.socket.unlink(missing_ok=True)
        command = [sys.executable, "-m", "edgeperf.agent.tuner", "--group", "nogroup"]
        command += ["--state", str(self.state), "--socket", str(self.socket)]
        self.process = subprocess.Popen(
            [*command, "--root", str(self.root)], stderr=subprocess.PIPE, text=True
        )
        until_s = time.monotonic() + LONGEST_S
        while True:
            with contextlib.suppress(OSError), self.connect() as line:
                ask(line, b'{"verb":"status"}')  # it listens before it has restored
                return
            assert self.process.poll() is None
            assert time.monotonic() < until_s
            time.sleep(0.01)

    def __enter__(self) -> "TunerProcess":
        return self

    def __exit__(self, *exc: object) -> None:
        """End it if it lives."""
        if self.process.poll() is None:
            self.end()

    def connect(self) -> socket.socket:
        """Return a connection to it."""
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.settimeout(LONGEST_S)
        try:
            line.connect(str(self.socket))
        except OSError:
            line.close()
            raise
        return line

    def end(self, number: int = signal.SIGTERM) -> str:
        """End it and return what it logged."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=LONGEST_S)
        return said


@pytest.fixture
def tuner(pi: Path, tmp_path: Path) -> Iterator[TunerProcess]:
    """Return the service of a Pi."""
    with TunerProcess(pi, tmp_path / "state") as process:
        yield process


def ask(line: socket.socket, raw: bytes) -> Report:
    """Send *raw* and return the answer."""
    line.send(raw)
    return msgspec.json.decode(line.recv(1 << 16), type=Report)


EVERYTHING = Wish(governor="performance", clock_hz="max", fan="full")
HOLD = b'{"verb":"hold","wish":{"governor":"performance","clock_hz":"max","fan":"full"}}'
POLICY = "sys/devices/system/cpu/cpufreq/policy0"


def wait_until_restored(root: Path, before: dict[str, str]) -> None:
    """Wait until every file is as before."""
    until_s = time.monotonic() + LONGEST_S
    while contents(root) != before:
        assert time.monotonic() < until_s, contents(root)
        time.sleep(0.01)


def test_a_pi_is_held_and_put_back(tuner: TunerProcess) -> None:
    """Governor, clock and fan are set, told with what was before, and restored in the end."""
    before = contents(tuner.root)
    with hold(EVERYTHING, where=tuner.socket, root=tuner.root) as held:
        during = contents(tuner.root)
        assert all(setting.is_held for setting in held.report.settings)
    changed = {name: value for name, value in during.items() if before[name] != value}
    assert changed == {
        f"{POLICY}/scaling_governor": "performance",
        f"{POLICY}/scaling_min_freq": "1500000",
        "sys/class/hwmon/hwmon2/pwm1": "255",
    }
    assert held.report.restored is True
    governor = held.report.settings[0]
    assert (governor.where, governor.before, governor.now) == (
        "cores 0-3",
        "ondemand",
        "performance",
    )
    assert contents(tuner.root) == before
    assert not list(tuner.state.glob("*restore*"))


def test_a_jetson_has_clusters_a_gpu_and_a_fan_with_a_mode(jetson: Path, tmp_path: Path) -> None:
    """The upper limits stay, since the power mode sets them; the fan is taken from its daemon."""
    before = contents(jetson)
    holder = Holder(jetson, tmp_path / "record")
    report = holder.hold(EVERYTHING)
    during = contents(jetson)
    changed = {name: value for name, value in during.items() if before[name] != value}
    clusters = "sys/devices/system/cpu/cpufreq/policy"
    assert changed == {
        f"{clusters}0/scaling_governor": "performance",
        f"{clusters}4/scaling_governor": "performance",
        f"{clusters}0/scaling_min_freq": "1500000",
        f"{clusters}4/scaling_min_freq": "1500000",
        "sys/class/devfreq/17000000.gpu/min_freq": "918000000",
        "sys/class/hwmon/hwmon0/pwm1": "255",
        "sys/class/hwmon/hwmon0/pwm1_enable": "1",
    }
    assert report.missing == ()
    holder.release()
    assert contents(jetson) == before


@given(khz=st.integers(1_000, 3_000_000), low=st.integers(0, 3), high=st.integers(0, 3))
def test_no_lower_limit_is_ever_above_an_upper_one(
    tmp_path_factory: pytest.TempPathFactory, khz: int, low: int, high: int
) -> None:
    """Whatever is asked and wherever the limits stand, in setting and in restoring."""
    steps = (600_000, 1_000_000, 1_500_000, 1_800_000)
    root = tmp_path_factory.mktemp("tree")
    put(root, policy(0, "0"))
    lowest, highest = sorted((steps[low], steps[high]))
    names = ("scaling_min_freq", "scaling_max_freq")
    values = dict(zip(names, (lowest, highest), strict=True))
    put(root, {f"{POLICY}/{name}": str(value) for name, value in values.items()})
    knobs, missing = choose(root, Wish(clock_hz=khz * 1000))
    before = dict(values)
    assert bool(missing) == (not 600_000 <= khz <= 1_800_000)
    backwards = [(knob.path.name, before[knob.path.name]) for knob in reversed(knobs)]
    for name, value in [*((knob.path.name, int(knob.value)) for knob in knobs), *backwards]:
        values[name] = value
        assert values["scaling_min_freq"] <= values["scaling_max_freq"]
        assert value in steps
    assert values == before


def test_what_a_board_lacks_is_told_and_fails_nothing(tmp_path: Path) -> None:
    """A virtual machine has no knob at all; a board may lack one governor."""
    with hold(EVERYTHING, where=tmp_path / "none", root=tmp_path) as held:
        pass
    assert held.report.missing == (
        "governor: the kernel controls no frequency here",
        "clock: the kernel controls no frequency here",
        "fan: none here that can be set",
    )
    assert [reason.severity for reason in tuning_reasons(held.report)] == [Severity.NOTE] * 3
    put(tmp_path, policy(0, "0 1"))
    _, missing = choose(tmp_path, Wish(governor="userspace"))
    assert missing == [
        "governor: cores 0-1 have no userspace, only ondemand, performance, schedutil"
    ]


def test_without_the_service_the_run_goes_on_and_is_suspect(pi: Path, tmp_path: Path) -> None:
    """The reason says what was not held, and how to get the service."""
    with hold(Wish(governor="performance"), where=tmp_path / "none", root=pi) as held:
        pass
    (reason,) = tuning_reasons(held.report)
    assert reason.severity is Severity.SUSPECT
    assert reason.text == (
        "not held as asked: governor of cores 0-3 is ondemand, not performance"
        " (nobody here may set it; sudo edgeperf service install)"
    )


def test_where_all_is_as_wished_nobody_need_be_root(pi: Path, tmp_path: Path) -> None:
    """A board whose owner set the governor himself has what was asked."""
    put(pi, {f"{POLICY}/scaling_governor": "performance"})
    with hold(Wish(governor="performance"), where=tmp_path / "none", root=pi) as held:
        pass
    assert list(tuning_reasons(held.report)) == []
    assert held.report.settings[0].is_held


def test_a_value_that_somebody_changed_meanwhile_is_noticed(tuner: TunerProcess) -> None:
    """A fan daemon that takes its fan back makes the run suspect; the old value comes back."""
    before = contents(tuner.root)
    with hold(Wish(fan="full"), where=tuner.socket, root=tuner.root) as held:
        put(tuner.root, {"sys/class/hwmon/hwmon2/pwm1": "100"})
    (reason,) = tuning_reasons(held.report)
    assert "fan of pwmfan pwm1 is 100, not 255" in reason.text
    assert contents(tuner.root) == before


def test_a_run_that_is_killed_lets_go(tuner: TunerProcess) -> None:
    """The kernel closes its socket, and that is the release."""
    before = contents(tuner.root)
    program = (
        "import sys, time; from pathlib import Path; from edgeperf.agent.tuner import Wish, hold\n"
        "where, root = map(Path, sys.argv[1:])\n"
        "with hold(Wish(governor='performance'), where=where, root=root):\n"
        "    print('held', flush=True); time.sleep(600)\n"
    )
    command = [sys.executable, "-c", program, str(tuner.socket), str(tuner.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        run.stdout.readline()
        assert contents(tuner.root) != before
        run.kill()
    wait_until_restored(tuner.root, before)


def test_a_service_that_is_killed_restores_at_its_next_start(tuner: TunerProcess) -> None:
    """Its record says what was there; the run it left is told, and does not fail."""
    before = contents(tuner.root)
    with hold(EVERYTHING, where=tuner.socket, root=tuner.root) as held:
        tuner.end(signal.SIGKILL)
        assert contents(tuner.root) != before
        tuner.start()
        assert contents(tuner.root) == before
    assert "went away" in held.report.problem
    assert [reason.code for reason in tuning_reasons(held.report)] == ["not-held"]
    assert "restored ondemand" in tuner.end()


@pytest.mark.parametrize("after", [1, 7, 40])
def test_a_service_killed_in_the_middle_of_setting_restores_everything(
    tmp_path: Path, after: int
) -> None:
    """Killed when so many of some hundred files are changed: none stays changed."""
    root = tmp_path / "server"
    for first in range(100):
        put(root, policy(first, str(first)))
    before = contents(root)
    watched = root / f"sys/devices/system/cpu/cpufreq/policy{after}/scaling_governor"
    with TunerProcess(root, tmp_path / "state") as tuner, tuner.connect() as line:
        line.send(HOLD)
        until_s = time.monotonic() + LONGEST_S
        while watched.read_text().strip() == "ondemand":
            assert time.monotonic() < until_s
        tuner.end(signal.SIGKILL)
        assert contents(root) != before
        tuner.start()
        assert contents(root) == before


def test_the_end_of_the_service_is_the_end_of_the_hold(tuner: TunerProcess) -> None:
    """SIGTERM restores before it ends."""
    before = contents(tuner.root)
    with tuner.connect() as line:
        ask(line, HOLD)
        assert "service ends: 4 setting(s) put back" in tuner.end()
        assert tuner.process.returncode == 0
    assert contents(tuner.root) == before


def test_what_cannot_be_restored_is_tried_again(pi: Path, tmp_path: Path) -> None:
    """A file that is gone for a while stays on record; one of another boot is nobody's."""
    before = contents(pi)
    record = tmp_path / "record"
    holder = Holder(pi, record)
    holder.hold(EVERYTHING)
    governor = pi / POLICY / "scaling_governor"
    governor.rename(governor.with_name("gone"))
    assert holder.release().restored is False
    governor.with_name("gone").rename(governor)
    assert Holder(pi, record).recover() == (f"{governor}: restored ondemand",)
    assert contents(pi) == before
    holder.hold(EVERYTHING)
    during = contents(pi)
    put(pi, {"proc/sys/kernel/random/boot_id": "another"})
    assert Holder(pi, record).recover() == ()
    assert contents(pi).items() >= during.items()


def test_one_run_at_a_time(tuner: TunerProcess) -> None:
    """The second is told who holds the board; it gets it when the first has let go."""
    with tuner.connect() as first, tuner.connect() as second:
        ask(first, HOLD)
        assert ask(second, HOLD).problem == f"process {os.getpid()} holds the board"
        assert ask(second, b'{"verb":"release"}').problem == "you hold nothing"
        assert ask(first, b'{"verb":"status"}').settings
        assert ask(first, b'{"verb":"release"}').restored
        assert ask(second, HOLD).problem == ""


@pytest.mark.parametrize(
    "raw",
    [
        b"hold",
        b"\xff\xfe",
        b'{"verb":"write","path":"/etc/passwd"}',
        b'{"verb":"hold","wish":{"path":"/etc/passwd"}}',
        b'{"verb":"hold","wish":{"governor":"../../../etc/passwd"}}',
        b'{"verb":"hold","wish":{"fan":"off"}}',
        b'{"verb":"hold","wish":{"clock_hz":-1}}',
        b'{"verb":"hold","wish":{"clock_hz":' + b"9" * 400 + b"}}",
        b"[" * 30_000,
    ],
)
def test_anything_but_the_verbs_is_refused(tuner: TunerProcess, raw: bytes) -> None:
    """One line back and the connection closed; nothing changed, and the next one is served."""
    before = contents(tuner.root)
    with tuner.connect() as line:
        assert ask(line, raw).problem.startswith("not a request: ")
        assert line.recv(100) == b""
    with tuner.connect() as line:
        assert ask(line, b'{"verb":"status"}') == Report()
    assert contents(tuner.root) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which only root can")
def test_a_user_outside_the_group_is_refused(pi: Path) -> None:
    """Even where the socket lets everybody connect; a member of the group is let in."""
    program = (
        "import os, socket, sys; user = int(sys.argv[2])\n"
        "os.setgroups([]); os.setgid(user); os.setuid(user)\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1])\n"
        's.send(b\'{"verb":"status"}\'); print(s.recv(9999).decode())\n'
    )

    def answer(tuner: TunerProcess, uid: int) -> str:
        command = [sys.executable, "-c", program, str(tuner.socket), str(uid)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return str(json.loads(done.stdout)["problem"])

    # Not in pytest's own folder, which others may not enter.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with TunerProcess(pi, Path(folder) / "state") as tuner:
            tuner.socket.chmod(0o777)
            assert answer(tuner, 2) == "user 2 is not in group nogroup"
            assert answer(tuner, 65534) == ""


def test_it_ends_by_itself_when_nobody_comes(pi: Path, tmp_path: Path) -> None:
    """So that no process waits on a board between runs."""
    command = [sys.executable, "-m", "edgeperf.agent.tuner", "--state", str(tmp_path)]
    command += ["--socket", str(tmp_path / "s"), "--root", str(pi), "--idle", "0.1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=True)
    assert done.stderr == ""


def test_the_doctor_tells_the_knobs_and_who_turns_them(tuner: TunerProcess) -> None:
    """With the service, without it, and where there is nothing to turn."""

    def told(board: Board) -> list[tuple[str, str]]:
        return [(finding.status.value, finding.value) for finding in probe_tuner(board)]

    assert told(Board(root=tuner.root, tuner=tuner.socket)) == [
        ("ok", "governor (cores 0-3); clock (cores 0-3); fan (pwmfan pwm1)"),
        ("ok", "holds them for a run with --governor, --clock, --fan"),
    ]
    nowhere = tuner.root / "none"
    assert told(Board(root=tuner.root, tuner=nowhere))[1] == ("missing", "nobody here may set it")
    assert told(Board(root=nowhere)) == [
        ("missing", "no governor, clock or fan that could be held")
    ]


def test_a_run_holds_and_records_it(product: "Product", tuner: TunerProcess) -> None:
    """On a machine without knobs the result says so, and the verdict is not worse for it."""
    product.environment["EDGEPERF_TUNER"] = str(tuner.socket)
    options = ("digits", "--preset", "smoke", "--min-duration", "0.2", "--no-accuracy")
    outcome = product.run(*options, "--governor", "performance", "--fan", "full")
    tuning = outcome.result.tuning
    assert tuning is not None
    assert tuning["settings"] or tuning["missing"]
    assert outcome.result.spec["governor"] == "performance"
    assert product.call("run", "digits", "--clock", "1.5").stderr == (
        "edgeperf: --clock 1.5: expected max, or a frequency such as 1.5GHz or 1500MHz\n"
    )
