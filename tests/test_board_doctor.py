"""What the doctor finds on a Raspberry Pi 5, a Jetson Orin Nano, a plain PC, and nowhere."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from edgeperf import InputError
from edgeperf.agent.board.cores import cores
from edgeperf.agent.board.describe import describe_board
from edgeperf.agent.board.doctor import Report, examine, report
from edgeperf.agent.board.findings import Area, Board, Finding, Health, Probe
from edgeperf.agent.board.ntp import KernelClock, kernel_clock
from edgeperf.agent.board.probe_cores import probe_cores
from edgeperf.agent.board.probe_health import probe_health
from edgeperf.agent.board.probe_meters import find_meters
from edgeperf.agent.board.probe_places import probe_places
from edgeperf.agent.board.probe_ports import probe_ports
from edgeperf.agent.board.probe_software import import_problem, probe_software
from edgeperf.agent.board.probe_system import probe_system

Files = dict[str, str]
Tree = Callable[[Files], Path]

CPU = "sys/devices/system/cpu"
ARM_CPU = "processor\t: {}\nCPU implementer\t: 0x41\nCPU part\t: {}\n"


def policy(number: int, cores: str, governor: str, khz: tuple[int, int, int]) -> Files:
    """Return one frequency policy; *khz* is lower limit, upper limit, hardware."""
    folder = f"{CPU}/cpufreq/policy{number}"
    return {
        f"{folder}/affected_cpus": f"{cores}\n",
        f"{folder}/scaling_driver": "cpufreq-dt\n",
        f"{folder}/scaling_governor": f"{governor}\n",
        f"{folder}/scaling_available_governors": "ondemand performance powersave\n",
        f"{folder}/scaling_min_freq": f"{khz[0]}\n",
        f"{folder}/scaling_max_freq": f"{khz[1]}\n",
        f"{folder}/cpuinfo_max_freq": f"{khz[2]}\n",
        f"{folder}/scaling_cur_freq": f"{khz[0]}\n",
    }


def linux(count: int, arch: str) -> Files:
    """Return what every board has."""
    return {
        "proc/sys/kernel/osrelease": "6.6.51\n",
        "proc/sys/kernel/arch": f"{arch}\n",
        "proc/sys/kernel/hostname": "shelf-3\n",
        "proc/meminfo": "MemTotal: 8000000 kB\nMemAvailable: 7000000 kB\nSwapTotal: 0 kB\n",
        "proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
        f"{CPU}/online": f"0-{count - 1}\n",
        **{f"{CPU}/cpu{core}/topology/thread_siblings_list": f"{core}\n" for core in range(count)},
    }


def raspberry_pi_5() -> Files:
    """Return a Pi 5 with Raspberry Pi OS 12, a weak supply, a meter, ModemManager about."""
    cpuinfo = "\n".join(ARM_CPU.format(core, "0xd0b") for core in range(4))
    return {
        **linux(4, "aarch64"),
        **policy(0, "0 1 2 3", "ondemand", (1_500_000, 2_400_000, 2_400_000)),
        "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
        "proc/cpuinfo": f"{cpuinfo}\nRevision\t: d04171\nModel\t\t: Raspberry Pi 5 Model B\n",
        "proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.1\0",
        "proc/device-tree/compatible": "raspberrypi,5-model-b\0brcm,bcm2712\0",
        "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
        "sys/class/thermal/thermal_zone0/temp": "55600\n",
        "sys/class/hwmon/hwmon1/name": "rpi_volt\n",
        "sys/class/hwmon/hwmon1/in0_lcrit_alarm": "0\n",
        "sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled": "50000\n",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "arch_sys_counter\n",
        "dev/ttyACM0": "",
        "dev/serial/by-id/usb-POWER-Z_KM003C_42-if00": "-> ../../ttyACM0",
        "dev/ttyAMA10": "",
        "proc/700/comm": "ModemManager\n",
    }


def jetson_orin_nano() -> Files:
    """Return an Orin Nano with JetPack 6.2 at 15 W, capped, throttled by a cooling device."""
    cpuinfo = "\n".join(ARM_CPU.format(core, "0xd42") for core in range(6))
    cooling, oc = "sys/class/thermal/cooling_device0", "sys/class/hwmon/hwmon3"
    return {
        **linux(6, "aarch64"),
        **policy(0, "0 1 2 3", "schedutil", (729_600, 1_510_400, 1_728_000)),
        **policy(4, "4 5", "performance", (1_728_000, 1_728_000, 1_728_000)),
        "etc/os-release": 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\n',
        "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic\n",
        "var/lib/dpkg/status": "Package: nvidia-jetpack\nStatus: install ok\nVersion: 6.2+b77\n\n",
        "var/lib/nvpmodel/status": "pmode:0001 fmode:fanNull\n",
        "etc/nvpmodel.conf": "< POWER_MODEL ID=0 NAME=15W >\n< POWER_MODEL ID=1 NAME=25W >\n",
        "proc/cpuinfo": cpuinfo,
        "proc/device-tree/model": "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit\0",
        "sys/devices/soc0/family": "Tegra\n",
        "sys/devices/soc0/soc_id": "35\n",
        "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
        "sys/class/thermal/thermal_zone0/temp": "84500\n",
        "sys/class/thermal/thermal_zone1/type": "gpu-thermal\n",
        f"{cooling}/type": "cpufreq-cpu0\n",
        f"{cooling}/cur_state": "1\n",
        f"{oc}/name": "soctherm_oc\n",
        f"{oc}/oc1_event_cnt": "0\n",
        f"{oc}/oc3_event_cnt": "37\n",
    }


def plain_pc() -> Files:
    """Return a PC with SMT, turbo and two isolated cores; NUMA balancing on, clock from HPET."""
    files = {
        **linux(8, "x86_64"),
        "etc/os-release": 'PRETTY_NAME="Ubuntu 24.04.1 LTS"\n',
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: Intel(R) N100\nflags\t\t: fpu sse2\n",
        "sys/class/dmi/id/sys_vendor": "ASUS\n",
        "sys/class/dmi/id/product_name": "PN42\n",
        "sys/class/hwmon/hwmon0/name": "coretemp\n",
        "sys/class/hwmon/hwmon0/temp1_input": "41000\n",
        "sys/class/hwmon/hwmon0/temp1_label": "Package id 0\n",
        f"{CPU}/cpu0/thermal_throttle/core_throttle_count": "0\n",
        f"{CPU}/intel_pstate/no_turbo": "0\n",
        f"{CPU}/isolated": "6-7\n",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet\n",
        "proc/sys/kernel/numa_balancing": "1\n",
        "proc/sys/vm/swappiness": "60\n",
    }
    for core in range(8):
        files[f"{CPU}/cpu{core}/topology/thread_siblings_list"] = f"{core % 4},{core % 4 + 4}\n"
        files |= policy(core, str(core), "performance", (800_000, 3_400_000, 3_400_000))
    return files


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Write files below a root and return it; a text ``-> X`` makes a link to X."""

    def write(files: Files) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("-> "):
                path.symlink_to(text[3:])
            else:
                path.write_text(text)
        return tmp_path

    return write


def synced() -> KernelClock:
    """Return a well-kept clock."""
    return KernelClock(synchronised=True, max_error_ns=12_000_000, frequency_ppm=-3.25)


def look(probe: Probe, board: Board) -> dict[str, Finding]:
    """Return what one probe finds, by name."""
    return {finding.name: finding for finding in examine(board, [probe])}


def states(found: dict[str, Finding]) -> dict[str, str]:
    """Return the status of each finding."""
    return {name: finding.status.value for name, finding in found.items()}


def test_a_raspberry_pi_5(tree: Tree) -> None:
    """Model, cores, governor, thermal zone, supply and meter port of a Pi are recognised."""
    board = Board(root=tree(raspberry_pi_5()), affinity=range(4), kernel_clock=synced)
    system = look(probe_system, board)
    assert system["board"].value == "Raspberry Pi 5 Model B Rev 1.1"
    assert system["Raspberry Pi revision"].value == "d04171"
    assert system["architecture"].value == "aarch64, 64-bit"
    assert system["clock source"].status is Health.OK
    found = look(probe_cores, board)
    assert found["cores"].value == "4 usable of 4: 0-3 (Cortex-A76)"
    assert found["governor, cores 0-3"].status is Health.WARN
    assert "performance" in found["governor, cores 0-3"].what_to_do
    assert found["frequency, cores 0-3"].value == "1.5 to 2.4 GHz, hardware 2.4 GHz"
    health = look(probe_health, board)
    assert health["thermal zones"].value == "cpu-thermal 56 °C"
    assert "Raspberry Pi firmware" in health["throttle flags"].value
    assert health["held back"].value == "now: nothing; earlier: under-voltage, throttled"
    assert health["clock sync"].value == "synchronised, error at most 12 ms, crystal -3.2 ppm"
    ports = look(probe_ports, board)
    meter = ports["port /dev/serial/by-id/usb-POWER-Z_KM003C_42-if00"]
    assert (meter.status, meter.value) == (Health.OK, "/dev/ttyACM0 may be opened")
    assert ports["port /dev/ttyAMA10"].status is Health.OK
    assert ports["ModemManager"].status is Health.WARN
    tree({"etc/udev/rules.d/70-edgeperf.rules": ""})
    assert "ModemManager" not in look(probe_ports, board)


def test_a_jetson_orin_nano(tree: Tree) -> None:
    """JetPack, power mode, caps, a hot zone and a slowing cooling device are recognised."""
    board = Board(root=tree(jetson_orin_nano()), affinity=range(6), kernel_clock=synced)
    system = look(probe_system, board)
    assert system["JetPack"].value == "6.2+b77 (Jetson Linux 36.4.3)"
    assert system["OS"].value == "Ubuntu 22.04.5 LTS, kernel 6.6.51"
    assert system["clock source"].status is Health.MISSING
    found = look(probe_cores, board)
    assert states(found) == {
        "cores": "ok",
        "isolated cores": "ok",
        "governor, cores 0-3": "warn",
        "frequency, cores 0-3": "warn",
        "governor, cores 4-5": "ok",
        "frequency, cores 4-5": "ok",
        "power mode": "ok",
    }
    assert found["cores"].value == "6 usable of 6: 0-5 (Cortex-A78AE)"
    assert found["power mode"].value == "25W"
    health = look(probe_health, board)
    assert states(health) == {
        "thermal zones": "warn",
        "throttle flags": "ok",
        "held back": "warn",
        "pressure (PSI)": "ok",
        "memory": "ok",
        "clock sync": "ok",
    }
    assert health["throttle flags"].value == "oc1_event_cnt, oc3_event_cnt, cpufreq-cpu0 0"
    assert look(probe_ports, board)["serial ports"].status is Health.MISSING


def test_a_jetson_without_its_packages(tree: Tree) -> None:
    """Without the nvidia-jetpack package the major release follows from Jetson Linux."""
    files = jetson_orin_nano()
    del files["var/lib/dpkg/status"], files["var/lib/nvpmodel/status"]
    root = tree(files)
    info = describe_board(root)
    assert (info.jetpack, info.l4t, info.power_mode) == ("6", "36.4.3", None)
    assert info.soc == {"family": "Tegra", "soc_id": "35"}
    assert look(probe_cores, Board(root=root))["power mode"].status is Health.MISSING


def test_a_plain_pc(tree: Tree) -> None:
    """DMI model, SMT, isolation, turbo and hwmon's temperature of a PC are recognised."""
    board = Board(root=tree(plain_pc()), affinity=range(6), kernel_clock=lambda: None)
    system = look(probe_system, board)
    assert system["board"].value == "ASUS PN42"
    assert system["clock source"].status is Health.WARN
    assert system["kernel settings"].status is Health.WARN
    found = look(probe_cores, board)
    assert found["cores"].value == "6 usable of 8: 0-5 (Intel(R) N100)"
    assert found["SMT"].value == "0-1,4-5 share physical cores"
    assert found["isolated cores"].value == "6-7"
    assert found["boost"].value == "on"
    assert [core.siblings for core in cores(board.root)][:2] == [(0, 4), (1, 5)]
    health = look(probe_health, board)
    assert health["thermal zones"].value == "coretemp Package id 0 41 °C"
    assert health["throttle flags"].value == "core_throttle_count"
    assert health["clock sync"].status is Health.MISSING


def test_an_empty_tree_fails_nothing(tmp_path: Path) -> None:
    """A board that tells nothing gets findings that say so; no probe raises."""
    board = Board(root=tmp_path, affinity=range(2))
    for probe in (probe_system, probe_cores, probe_health, probe_ports):
        assert Health.FAIL not in {finding.status for finding in look(probe, board).values()}


@pytest.mark.parametrize(
    ("arch", "status"),
    [("armv7l", "fail"), ("i686", "fail"), ("riscv64", "warn"), ("aarch64", "ok")],
)
def test_only_64_bit_systems_can_measure(tree: Tree, arch: str, status: str) -> None:
    """A 32-bit system fails with the way out; one without wheels is warned of."""
    found = look(probe_system, Board(root=tree(linux(1, arch))))["architecture"]
    assert found.status.value == status
    assert (status == "fail") == ("64-bit OS" in found.what_to_do)


def test_quota_and_a_single_core_are_named(tree: Tree) -> None:
    """A CPU quota below the mask, and a board with one core, are warned of; no core fails."""
    quota = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}
    root = tree(linux(4, "aarch64") | quota)
    assert "quota of 1.5 cores" in look(probe_cores, Board(root=root))["cores"].what_to_do
    tree({"sys/fs/cgroup/cpu.max": "max 100000\n"})
    one = look(probe_cores, Board(root=root, affinity=[2]))["cores"]
    assert (one.status, one.value) == (Health.WARN, "1 usable of 4: 2")
    none = look(probe_cores, Board(root=root, affinity=[77]))["cores"]
    assert none.status is Health.FAIL


@pytest.mark.parametrize(
    ("clock", "status", "says"),
    [
        (KernelClock(synchronised=False, max_error_ns=1, frequency_ppm=0), "warn", "no NTP client"),
        (KernelClock(synchronised=True, max_error_ns=2 * 10**9, frequency_ppm=0), "warn", "2000"),
    ],
)
def test_a_clock_that_nobody_keeps(
    tmp_path: Path, clock: KernelClock, status: str, says: str
) -> None:
    """Unsynchronised, or synchronised long ago, is warned of."""
    found = look(probe_health, Board(root=tmp_path, kernel_clock=lambda: clock))["clock sync"]
    assert found.status.value == status
    assert says in found.value


def test_the_kernel_is_asked_about_its_clock() -> None:
    """The system call answers on this machine with sane figures."""
    clock = kernel_clock()
    assert clock is not None
    assert clock.max_error_ns >= 0
    assert abs(clock.frequency_ppm) <= 500


def test_little_memory_is_warned_of(tree: Tree) -> None:
    """200 MB are too few for a runtime."""
    root = tree({"proc/meminfo": "MemTotal: 400000 kB\nMemAvailable: 200000 kB\n"})
    assert look(probe_health, Board(root=root))["memory"].status is Health.WARN


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """Act as an ordinary user where the test runs as root."""
    if os.geteuid() != 0:
        yield
        return
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


@pytest.fixture
def open_root() -> Iterator[Path]:
    """Return a folder that every user may reach; pytest's own is closed to others."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_forbidden_port_names_its_group(open_root: Path) -> None:
    """The finding says which group to join."""
    port = open_root / "dev/ttyUSB0"
    port.parent.mkdir()
    port.write_text("")
    port.chmod(0)
    with ordinary_user():
        found = look(probe_ports, Board(root=open_root))["port /dev/ttyUSB0"]
    assert (found.status, found.value) == (
        Health.WARN,
        "/dev/ttyUSB0 may not be opened by this user",
    )
    assert f"usermod -aG {port.group()}" in found.what_to_do


def test_folders_that_cannot_be_written(open_root: Path) -> None:
    """A forbidden folder and one below a file fail; one yet to be made is judged by its parent."""
    locked = open_root / "locked"
    locked.mkdir(mode=0o555)
    file = open_root / "file"
    file.write_text("")
    folders = {"results": locked / "new" / "deep", "cache": file / "x", "other": open_root / "new"}
    with ordinary_user():
        found = look(probe_places, Board(folders=folders))
    assert found["folder for results"].status is Health.FAIL
    assert f"may not write to {locked}" in found["folder for results"].value
    assert f"{file} is not a folder" in found["folder for cache"].value
    assert look(probe_places, Board(folders=folders))["folder for other"].status is not Health.FAIL


def test_a_broker_that_answers_and_one_that_does_not() -> None:
    """The TCP connection is tried; what fails names address and reason."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = look(probe_places, Board(broker=f"mqtt://127.0.0.1:{port}"))["broker"]
        assert (found.status, found.value) == (Health.OK, f"127.0.0.1:{port} answers")
    gone = look(probe_places, Board(broker=f"127.0.0.1:{port}"))["broker"]
    assert gone.status is Health.FAIL
    assert gone.value == f"127.0.0.1:{port} cannot be reached: Connection refused"


@pytest.mark.parametrize("url", ["http://host", "mqtt://", "mqtt://host:port", "mqtt://host:99999"])
def test_what_is_no_broker_is_bad_input(url: str) -> None:
    """A URL that is none is refused in one line that says what is expected."""
    with pytest.raises(InputError, match=r"broker .* expected mqtt://HOST") as caught:
        look(probe_places, Board(broker=url))
    assert "\n" not in str(caught.value)


def test_software_is_imported_in_a_child() -> None:
    """LoadGen loads here, every backend is listed, and some runtime is usable or said missing."""
    found = look(probe_software, Board())
    assert found["LoadGen"].status is Health.OK
    assert {"backend tflite", "backend onnxruntime", "backend openvino"} <= set(found)
    for finding in found.values():
        assert finding.status is Health.OK or finding.what_to_do


def test_what_kills_an_import_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that raises gives its last line; one that dies of a signal gives the signal."""
    (tmp_path / "raises.py").write_text("raise RuntimeError('no such thing')")
    (tmp_path / "dies.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGILL)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert import_problem("raises") == "RuntimeError: no such thing"
    assert import_problem("dies") == "it died of SIGILL: made for another processor"
    assert import_problem("json") is None


def test_the_report_is_json_and_fit_unless_something_failed(tree: Tree) -> None:
    """The report says whether a run can work, and reads back from JSON the same."""
    area = Area("meters")
    good = area.ok("meter", "KM003C"), area.missing("second meter", "none")
    board = Board(root=tree(raspberry_pi_5()), meters=lambda: good)
    assert set(good) <= set(look(probe_ports, board).values())
    fit = report(board, good)
    assert fit.fit
    assert not report(board, [*good, area.fail("LoadGen", "none", "install it")]).fit
    assert msgspec.json.decode(msgspec.json.encode(fit), type=Report) == fit


def test_the_doctor_stays_light() -> None:
    """Importing the doctor loads no numpy, no runtime and no serial driver."""
    heavy = "{'numpy', 'onnxruntime', 'openvino', 'ai_edge_litert', 'serial', 'paho'}"
    code = f"import sys, edgeperf.agent.board.doctor; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_meters_are_found_and_strangers_not_asked(tree: Tree) -> None:
    """A port whose USB ids are no meter's is listed with what to do, and nothing is sent to it."""
    usb = "sys/devices/usb1/1-1"
    root = tree(
        {
            f"{usb}/idVendor": "1a86\n",
            f"{usb}/idProduct": "7523\n",
            f"{usb}/product": "USB Serial\n",
            f"{usb}/1-1:1.0/ttyUSB0/dev": "188:0\n",
            "sys/class/tty/ttyUSB0/device": f"-> ../../../../{usb}/1-1:1.0",
            "dev/ttyUSB0": "",
        }
    )
    found = {finding.name: finding for finding in find_meters(root)}
    stranger = found["meter on /dev/ttyUSB0"]
    assert stranger.status is Health.MISSING
    assert stranger.value.startswith("USB Serial, not asked (textline")


def test_a_board_without_meters_says_so(tmp_path: Path) -> None:
    """One finding says that energy will not be measured."""
    (finding,) = find_meters(tmp_path)
    assert (finding.status, finding.value) == (Health.MISSING, "none")


def run_doctor(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run ``edgeperf doctor`` as a user does."""
    command = [sys.executable, "-m", "edgeperf", "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def test_the_command_prints_findings_as_json(tmp_path: Path) -> None:
    """Stdout is the report and nothing else; the exit status follows from it."""
    done = run_doctor("--json", folder=tmp_path)
    found = msgspec.json.decode(done.stdout, type=Report)
    assert done.returncode == (0 if found.fit else 3)
    assert {finding.area for finding in found.findings} == {
        "system",
        "software",
        "cores",
        "tuner",
        "condition",
        "ports",
        "meters",
        "places",
        "fleet",
    }
    assert list(tmp_path.iterdir()) == []


def test_the_command_fails_when_something_needed_is_missing(tmp_path: Path) -> None:
    """A broker that was named and does not answer ends in status 3, with a table to read."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    done = run_doctor("--broker", f"mqtt://127.0.0.1:{port}", folder=tmp_path)
    assert done.returncode == 3
    assert "see the lines marked fail" in " ".join(done.stdout.split())
    assert f"127.0.0.1:{port} cannot be reached" in " ".join(done.stdout.split())


def test_the_command_refuses_what_is_no_broker(tmp_path: Path) -> None:
    """Bad input is one line on stderr and status 2."""
    done = run_doctor("--broker", "http://x", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
