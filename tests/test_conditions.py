"""What snapshots see, what a window makes of them, and what is doubted."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from edgeperf.agent import board

Tree = Callable[[dict[str, str]], Path]

SECOND_NS = 1_000_000_000
HWMON = "sys/class/hwmon"
THERMAL = "sys/class/thermal"
FIRMWARE = "sys/devices/platform/soc/soc:firmware/get_throttled"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Write files below a root and return it; called again, it changes them."""

    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


class Clock:
    """Three clocks that a test moves."""

    def __init__(self) -> None:
        self.mono_ns, self.wall_ns, self.raw_ns = 10 * SECOND_NS, 99 * SECOND_NS, 5 * SECOND_NS

    def __call__(self) -> board.Clocks:
        """Read them."""
        return board.Clocks(mono_ns=self.mono_ns, wall_ns=self.wall_ns, raw_ns=self.raw_ns)

    def advance(self, seconds: float, *, step_s: float = 0, slew_ppm: float = 0) -> None:
        """Let time pass; *step_s* sets the wall clock, *slew_ppm* bends two of three."""
        self.raw_ns += round(seconds * 1e9)
        passed_ns = round(seconds * 1e9 * (1 + slew_ppm / 1e6))
        self.mono_ns += passed_ns
        self.wall_ns += passed_ns + round(step_s * 1e9)


def stat(core: int, *, user: int, idle: int, steal: int = 0) -> str:
    """Return a core's line of /proc/stat, in ticks; the guest's time is in the user's."""
    return f"cpu{core} {user} 0 0 {idle} 0 0 0 {steal} {user} 0\n"


def codes(window: board.WindowConditions) -> list[str]:
    """Return what is doubted."""
    return [doubt.code for doubt in board.doubts(window)]


def test_an_empty_tree_gives_an_empty_snapshot(tmp_path: Path) -> None:
    """A board that tells nothing is recorded as such and doubted for nothing."""
    sensors = board.Sensors(tmp_path)
    before, after = sensors.snapshot(), sensors.snapshot()
    assert (before.cores, before.temperatures_c, before.swap_in_bytes) == ((), {}, None)
    window = board.compare(before, after, own_cpu_ns={}, cores=[0])
    assert (window.cores, window.throttled, window.quota_stall_share) == ((), False, None)
    assert board.doubts(window) == ()


def test_every_record_is_json(tmp_path: Path) -> None:
    """Snapshot, window and samples survive JSON, on this machine and on an empty tree."""
    for root in (Path("/"), tmp_path):
        sampler = board.Sampler(cores=board.usable_cores(), pids=[os.getpid()], root=root)
        window = sampler.finish()
        for record in (sampler.before, window, *sampler.series, sampler.own_load()):
            raw = msgspec.json.encode(record)
            assert msgspec.json.decode(raw, type=type(record)) == record


def test_foreign_work_is_what_we_did_not_do(tree: Tree) -> None:
    """80 % busy with 50 % ours is 30 % foreign; interrupts and others' cores do not leak in."""
    clock = Clock()
    root = tree({"proc/stat": stat(0, user=100, idle=100) + stat(1, user=5, idle=5, steal=7)})
    sensors = board.Sensors(root, clocks=clock)
    before = sensors.snapshot()
    clock.advance(10)
    tree({"proc/stat": stat(0, user=900, idle=300) + stat(1, user=1005, idle=5, steal=107)})
    window = board.compare(before, sensors.snapshot(), own_cpu_ns={0: 5 * SECOND_NS}, cores=[0])
    (core,) = window.cores
    assert (core.core, core.busy_share, core.own_share) == (0, 0.8, 0.5)
    assert core.foreign_share == window.foreign_share == pytest.approx(0.3)
    assert window.steal_share == 0
    assert codes(window) == ["foreign-load"]


def test_foreign_share_of_the_group_survives_moving_threads(tree: Tree) -> None:
    """Work booked on the wrong one of two measured cores is not foreign to the group."""
    clock = Clock()
    root = tree({"proc/stat": stat(0, user=0, idle=0) + stat(1, user=0, idle=0)})
    sensors = board.Sensors(root, clocks=clock)
    before = sensors.snapshot()
    clock.advance(10)
    tree({"proc/stat": stat(0, user=500, idle=500) + stat(1, user=500, idle=500)})
    own = {0: 10 * SECOND_NS}
    window = board.compare(before, sensors.snapshot(), own_cpu_ns=own, cores=[0, 1])
    assert (window.cores[1].foreign_share, window.foreign_share) == (0.5, 0)
    assert codes(window) == []


def test_stolen_time_is_suspect(tree: Tree) -> None:
    """Steal counts as neither busy nor idle; 2 % of a measured core is named."""
    clock = Clock()
    sensors = board.Sensors(tree({"proc/stat": stat(3, user=0, idle=0)}), clocks=clock)
    before = sensors.snapshot()
    clock.advance(10)
    tree({"proc/stat": stat(3, user=980, idle=0, steal=20)})
    own = {3: round(9.8 * SECOND_NS)}
    window = board.compare(before, sensors.snapshot(), own_cpu_ns=own, cores=[3])
    assert window.steal_share == pytest.approx(0.02)
    assert codes(window) == ["steal"]


@pytest.mark.parametrize("step_s", [0.002, -0.002, 3600.0])
def test_a_set_clock_makes_the_run_invalid(tmp_path: Path, step_s: float) -> None:
    """A step of 2 ms in ten minutes is found, with its sign, and its times are wrong."""
    clock = Clock()
    sampler = board.Sampler(cores=[0], root=tmp_path, clocks=clock)
    clock.advance(300, step_s=step_s)
    sampler.sample()
    clock.advance(300)
    window = sampler.finish()
    assert window.clock_step_ns == pytest.approx(step_s * 1e9)
    (doubt,) = board.doubts(window)
    assert (doubt.code, doubt.severity.value) == ("clock-step", "invalid")


def test_a_step_there_and_back_is_found(tmp_path: Path) -> None:
    """The ends of the window agree again, but a reading between them saw the step."""
    clock = Clock()
    sampler = board.Sampler(cores=[0], root=tmp_path, clocks=clock)
    clock.advance(1, step_s=0.5)
    sampler.sample()
    clock.advance(1, step_s=-0.5)
    assert abs(sampler.finish().clock_step_ns) == SECOND_NS // 2


@pytest.mark.parametrize(("slew_ppm", "found"), [(500, []), (-40, []), (83_333, ["clock-rate"])])
def test_slewing_is_no_step(tmp_path: Path, slew_ppm: float, found: list[str]) -> None:
    """NTP's ordinary 500 ppm passes; a clock that runs 8 % fast is suspect, not stepped."""
    clock = Clock()
    sampler = board.Sampler(cores=[0], root=tmp_path, clocks=clock)
    clock.advance(600, slew_ppm=slew_ppm)
    window = sampler.finish()
    assert window.clock_step_ns == 0
    assert window.clock_rate_ppm == pytest.approx(slew_ppm)
    assert codes(window) == found


def test_real_clocks_agree() -> None:
    """On this machine two readings show no step."""
    before = board.read_clocks()
    after = board.read_clocks()
    assert after.mono_ns > before.mono_ns
    assert abs(board.step_between_ns(before, after)) < 1_000_000


def test_temperature_and_frequency_extremes(tree: Tree) -> None:
    """Peaks between the ends count; a zone that refuses is left out; hwmon's copy too."""
    root = tree(
        {
            f"{THERMAL}/thermal_zone0/type": "cpu-thermal\n",
            f"{THERMAL}/thermal_zone0/temp": "51000\n",
            f"{THERMAL}/thermal_zone1/type": "cpu-thermal\n",
            f"{THERMAL}/thermal_zone1/temp": "48500\n",
            f"{THERMAL}/thermal_zone2/type": "gpu-thermal\n",
            f"{HWMON}/hwmon0/name": "cpu_thermal\n",
            f"{HWMON}/hwmon0/temp1_input": "51000\n",
            f"{HWMON}/hwmon1/name": "k10temp\n",
            f"{HWMON}/hwmon1/temp1_input": "60125\n",
            f"{HWMON}/hwmon1/temp1_label": "Tctl\n",
            "sys/devices/system/cpu/cpufreq/policy0/affected_cpus": "0 1\n",
            "sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq": "2400000\n",
        }
    )
    sampler = board.Sampler(cores=[1], root=root)
    tree(
        {
            f"{THERMAL}/thermal_zone0/temp": "84000\n",
            "sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq": "600000\n",
            "proc/stat": "",
        }
    )
    sampler.sample()
    tree({f"{THERMAL}/thermal_zone0/temp": "52000\n"})
    window = sampler.finish()
    assert window.temperatures_max_c == {
        "cpu-thermal": 84.0,
        "cpu-thermal 1": 48.5,
        "k10temp Tctl": 60.125,
    }
    assert [sample.frequencies_hz for sample in sampler.series] == [
        {1: 2_400_000_000},
        {1: 600_000_000},
        {1: 600_000_000},
    ]


def test_frequency_range_of_a_measured_core(tree: Tree) -> None:
    """The window keeps lowest and highest frequency of each measured core."""
    policy = "sys/devices/system/cpu/cpufreq/policy0"
    root = tree({f"{policy}/scaling_cur_freq": "1500000", "proc/stat": stat(0, user=0, idle=0)})
    sampler = board.Sampler(cores=[0], root=root)
    tree({f"{policy}/scaling_cur_freq": "600000"})
    (core,) = sampler.finish().cores
    assert (core.frequency_min_hz, core.frequency_max_hz) == (600_000_000, 1_500_000_000)


def test_a_weak_supply_between_two_readings(tree: Tree) -> None:
    """The Pi firmware's sticky bit appears within the window: under-voltage, suspect."""
    root = tree({FIRMWARE: "0\n"})
    sampler = board.Sampler(cores=[0], root=root)
    tree({FIRMWARE: "50000\n"})
    window = sampler.finish()
    assert window.throttle_reasons == ("throttled", "under-voltage")
    assert (window.throttled, window.under_voltage, window.over_temperature) == (True, True, False)
    assert codes(window) == ["under-voltage"]


def test_an_old_sticky_bit_is_not_this_run(tree: Tree) -> None:
    """What the firmware remembers from before the window throttled nothing in it."""
    root = tree({FIRMWARE: "50000\n"})
    sampler = board.Sampler(cores=[0], root=root)
    assert sampler.before.throttle.happened == ("under-voltage", "throttled")
    assert not sampler.finish().throttled


def test_heat_that_was_over_by_the_end(tree: Tree) -> None:
    """A flag seen by one reading in the middle counts; bit 3 is the soft temperature limit."""
    root = tree({FIRMWARE: "0x0\n"})
    sampler = board.Sampler(cores=[0], root=root)
    tree({FIRMWARE: "0x80008\n"})
    sampler.sample()
    tree({FIRMWARE: "0x80000\n"})
    window = sampler.finish()
    assert window.over_temperature
    assert codes(window) == ["over-temperature"]
    assert [sample.flags for sample in sampler.series] == [(), ("soft temperature limit",), ()]


def test_the_firmware_tool_is_asked_where_there_is_no_file(tree: Tree) -> None:
    """Without the sysfs file, vcgencmd answers; one that fails is no flag."""
    root = tree({"usr/bin/vcgencmd": "#!/bin/sh\necho throttled=0x50005\n"})
    tool = root / "usr/bin/vcgencmd"
    assert board.take_snapshot(root).throttle.active == ()
    tool.chmod(0o755)
    state = board.take_snapshot(root).throttle
    assert state.active == ("under-voltage", "throttled")


def test_supply_alarm_of_the_pi(tree: Tree) -> None:
    """The kernel's own under-voltage alarm is read as well."""
    root = tree({f"{HWMON}/hwmon2/name": "rpi_volt\n", f"{HWMON}/hwmon2/in0_lcrit_alarm": "1\n"})
    assert board.take_snapshot(root).throttle.active == ("under-voltage",)


@pytest.mark.parametrize(
    ("counter", "code"), [("oc1_event_cnt", "under-voltage"), ("oc3_event_cnt", "throttled")]
)
def test_jetson_over_current_events(tree: Tree, counter: str, code: str) -> None:
    """Only what was counted within the window counts; event 1 is under-voltage."""
    folder = f"{HWMON}/hwmon3"
    files = {f"{folder}/oc{number}_event_cnt": "27390\n" for number in (1, 2, 3)}
    root = tree({f"{folder}/name": "soctherm_oc\n", **files})
    sampler = board.Sampler(cores=[0], root=root)
    assert not sampler.sample().throttle.active
    tree({f"{folder}/{counter}": "27391\n"})
    window = sampler.finish()
    assert window.throttle_reasons == (counter,)
    assert codes(window) == [code]


def test_intel_and_cooling_devices(tree: Tree) -> None:
    """A thermal event of a core and a processor's cooling device are heat; a fan is not."""
    count = "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count"
    root = tree(
        {
            count: "4\n",
            f"{THERMAL}/cooling_device0/type": "pwm-fan\n",
            f"{THERMAL}/cooling_device0/cur_state": "3\n",
            f"{THERMAL}/cooling_device1/type": "cpufreq-cpu0\n",
            f"{THERMAL}/cooling_device1/cur_state": "0\n",
        }
    )
    sampler = board.Sampler(cores=[0], root=root)
    assert not sampler.sample().throttle.active
    tree({count: "5\n", f"{THERMAL}/cooling_device1/cur_state": "2\n"})
    window = sampler.finish()
    assert window.throttle_reasons == ("cooling: cpufreq-cpu0 1", "cpu0/core_throttle_count")
    assert codes(window) == ["over-temperature"]


def test_pressure_swap_memory_and_quota(tree: Tree) -> None:
    """Shares of the window from totals in microseconds; swap and the quota are suspect."""
    clock = Clock()
    files = {
        "proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\n",
        "proc/vmstat": "pswpin 0\npswpout 2\n",
        "proc/meminfo": "MemTotal: 100 kB\nMemAvailable: 90 kB\n",
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/cpu.stat": "throttled_usec 0\n",
    }
    root = tree(files)
    sampler = board.Sampler(cores=[0], root=root, clocks=clock)
    clock.advance(10)
    tree({"proc/meminfo": "MemAvailable: 40 kB\n"})
    sampler.sample()
    tree(
        {
            **files,
            "proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1001000\n",
            "proc/vmstat": "pswpin 3\npswpout 2\n",
            "sys/fs/cgroup/cpu.stat": "throttled_usec 500000\n",
        }
    )
    window = sampler.finish()
    assert window.pressure == {"cpu": board.PressureShare(some=0.1, full=None)}
    assert window.memory_available_min_bytes == 40 * 1024
    assert (window.swap_in_bytes, window.swap_out_bytes) == (3 * os.sysconf("SC_PAGE_SIZE"), 0)
    assert window.quota_stall_share == 0.05
    assert codes(window) == ["cpu-quota", "swap"]


BURN = """
import os, sys
os.sched_setaffinity(0, [int(sys.argv[1])])
print(flush=True)
for line in sys.stdin:
    sum(range(1_000_000))
    print(flush=True)
"""


def test_our_own_work_is_booked_where_it_ran() -> None:
    """A child burning CPU on a pinned core is booked there, and its work is not foreign."""
    core = board.usable_cores()[0]
    child = subprocess.Popen(
        [sys.executable, "-c", BURN, str(core)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child:
        child.stdout.readline()
        sampler = board.Sampler(cores=[core], pids=[child.pid])
        for _ in range(3):
            child.stdin.write("\n")
            child.stdout.readline()
            sampler.sample()
        window = sampler.finish()
        own = sampler.own_load()
        child.stdin.close()
    assert own.cpu_ns[core] > 0
    assert set(own.cpu_ns) == {core}
    assert window.cores[0].own_share == own.cpu_ns[core] / window.duration_ns
    assert window.wait_share is not None
    assert window.involuntary_switches is not None


def test_a_thread_that_waits_for_its_core_is_suspect(tree: Tree) -> None:
    """Run-queue delay over 1 % of the window is named, and taken from the unluckiest thread."""
    clock = Clock()
    numbers = [0] * 50
    status = "Cpus_allowed_list:\t0\nnonvoluntary_ctxt_switches:\t{}\n"
    root = tree(
        {
            "proc/7/task/7/stat": f"7 (w) S {' '.join(map(str, numbers))}",
            "proc/7/task/7/schedstat": "1000 500 1",
            "proc/7/task/7/status": status.format(2),
        }
    )
    sampler = board.Sampler(cores=[0], pids=[7], root=root, clocks=clock)
    clock.advance(10)
    tree(
        {
            "proc/7/task/7/schedstat": f"{5 * SECOND_NS + 1000} {SECOND_NS + 500} 9",
            "proc/7/task/7/status": status.format(12),
        }
    )
    window = sampler.finish()
    assert (window.wait_share, window.involuntary_switches) == (0.1, 10)
    assert sampler.own_load().cpu_ns == {0: 5 * SECOND_NS}
    assert codes(window) == ["run-queue-wait"]


def test_short_windows_are_not_doubted_for_a_tick(tree: Tree) -> None:
    """In 200 ms one tick is 5 % of a core; that says nothing."""
    clock = Clock()
    sensors = board.Sensors(tree({"proc/stat": stat(0, user=0, idle=0)}), clocks=clock)
    before = sensors.snapshot()
    clock.advance(0.2)
    tree({"proc/stat": stat(0, user=1, idle=19)})
    window = board.compare(before, sensors.snapshot(), own_cpu_ns={}, cores=[0])
    assert window.foreign_share == pytest.approx(0.05)
    assert codes(window) == []


def test_window_keys_are_plain_json() -> None:
    """Frequencies keyed by core number become strings, as JSON wants."""
    snapshot = board.take_snapshot()
    assert isinstance(json.loads(msgspec.json.encode(snapshot)), dict)
