"""Which cores may be used, and what the threads of a process really do."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.agent import board
from edgeperf.agent.board.cgroups import memory_left_bytes, memory_limit_bytes, quota_stall_ns

Tree = Callable[[dict[str, str]], Path]

CPU = "sys/devices/system/cpu"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Write files below a root and return it."""

    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def big_little() -> dict[str, str]:
    """Four little cores and two big ones."""
    files = {f"{CPU}/online": "0-5\n"}
    for core in range(6):
        big = core >= 4
        files[f"{CPU}/cpu{core}/cpu_capacity"] = "1024\n" if big else "446\n"
        files[f"{CPU}/cpu{core}/cpufreq/cpuinfo_max_freq"] = "2400000\n" if big else "1800000\n"
        files[f"{CPU}/cpu{core}/topology/thread_siblings_list"] = f"{core}\n"
    return files


def test_every_core_of_the_mask_is_usable(tree: Tree) -> None:
    """Without cpuset and quota the affinity mask decides."""
    assert board.usable_cores(tree(big_little()), affinity={0, 1, 4}) == (0, 1, 4)


def test_this_machine_has_usable_cores() -> None:
    """On the real tree the answer lies inside this process's mask, and may be asked for."""
    usable = board.usable_cores()
    assert usable
    assert set(usable) <= os.sched_getaffinity(0)
    board.check_cores(usable)


def test_cpuset_v2_narrows_the_mask(tree: Tree) -> None:
    """A core outside the control group's cpuset is not usable, and refused with the reason."""
    group = "sys/fs/cgroup/run.slice"
    files = {"proc/self/cgroup": "0::/run.slice\n", f"{group}/cpuset.cpus.effective": "0-1\n"}
    root = tree(big_little() | files)
    assert board.usable_cores(root, affinity=range(6)) == (0, 1)
    with pytest.raises(board.CoreError, match=r"2 outside .* usable here: 0-1"):
        board.check_cores([1, 2], root, affinity=range(6))


def test_quota_of_an_ancestor_takes_the_fastest_cores(tree: Tree) -> None:
    """A quota of two cores, set one level up, leaves the two big cores."""
    files = {
        "proc/self/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/a/cpu.max": "200000 100000\n",
        "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
        "sys/fs/cgroup/a/b/cpu.stat": "usage_usec 5\nthrottled_usec 12\n",
    }
    root = tree(big_little() | files)
    assert board.usable_cores(root, affinity=range(6)) == (4, 5)
    assert quota_stall_ns(root) == 12_000
    with pytest.raises(board.CoreError, match=r"3 asked, but the CPU quota .* allows 2"):
        board.check_cores([0, 1, 2], root, affinity=range(6))


def test_version_1_groups_are_read_too(tree: Tree) -> None:
    """Quota, cpuset and memory limit of a JetPack 5 container, seen without a namespace."""
    files = {
        "proc/self/cgroup": "7:cpuset:/docker/1\n5:cpu,cpuacct:/docker/1\n3:memory:/docker/1\n",
        "sys/fs/cgroup/cpuset/cpuset.cpus": "0-3\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "150000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_throttled 1\nthrottled_time 77\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "1073700000\n",
        "sys/fs/cgroup/memory/memory.stat": "cache 9\ntotal_inactive_file 700000\n",
    }
    root = tree(big_little() | files)
    assert board.usable_cores(root, affinity=range(6)) == (1,)
    assert memory_limit_bytes(root) == 1 << 30
    assert memory_left_bytes(root) == (1 << 30) - 1_073_700_000 + 700_000
    assert quota_stall_ns(root) == 77


def test_isolated_cores_are_used_only_on_request(tree: Tree) -> None:
    """The option isolcpus keeps cores out of the mask; naming them is allowed all the same."""
    root = tree(big_little() | {f"{CPU}/isolated": "4-5\n", f"{CPU}/nohz_full": "5\n"})
    assert board.usable_cores(root, affinity=range(4)) == (0, 1, 2, 3)
    board.check_cores([4, 5], root, affinity=range(4))
    assert [core.isolated for core in board.cores(root)] == [False] * 4 + [True] * 2
    assert board.cores(root)[5].nohz_full


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ([9], r"no core 9 online .* online: 0-5, usable here: 0-3"),
        ([5], r"5 outside this process's affinity mask or cpuset; usable here: 0-3"),
        ([1, 1], r"1 named twice"),
        ([], r"none given; usable here: 0-3"),
    ],
)
def test_cores_that_cannot_be_used_are_refused(tree: Tree, asked: list[int], says: str) -> None:
    """One line says which core, why, and which can be had; the exit code is that of input."""
    with pytest.raises(board.CoreError, match=says) as caught:
        board.check_cores(asked, tree(big_little()), affinity=range(4))
    assert caught.value.exit_code == 2


def test_cores_say_what_they_are(tree: Tree) -> None:
    """Frequency in hertz, capacity and siblings; a core without topology is its own sibling."""
    files = big_little() | {f"{CPU}/cpu6/topology/thread_siblings_list": "2,6\n"}
    seen = board.cores(tree(files))
    assert (seen[0].max_frequency_hz, seen[0].capacity) == (1_800_000_000, 446)
    assert (seen[6].siblings, seen[6].online, seen[6].max_frequency_hz) == ((2, 6), False, None)


def test_cores_are_ranked_best_first(tree: Tree) -> None:
    """Isolated, then one per physical core, then fast before slow, core 0 after its equals."""
    assert board.rank_cores(range(6), tree(big_little())) == (4, 5, 1, 2, 3, 0)
    assert board.rank_cores([0, 3], tree({f"{CPU}/isolated": "3\n"})) == (3, 0)
    siblings = {f"{CPU}/cpu{core}/topology/thread_siblings_list": "4-5\n" for core in (4, 5)}
    assert board.rank_cores([0, 4, 5], tree({**siblings, f"{CPU}/isolated": ""})) == (4, 0, 5)


def test_memory_is_bounded_by_the_control_group(tree: Tree) -> None:
    """What is available is the lesser of the machine's and the group's."""
    files = {
        "proc/meminfo": "MemTotal: 4000 kB\nMemAvailable: 3000 kB\n",
        "proc/self/cgroup": "0::/\n",
    }
    assert board.available_memory_bytes(tree(files)) == 3000 * 1024
    limited = tree({"sys/fs/cgroup/memory.max": "1048576\n"})
    assert board.available_memory_bytes(limited) == 1 << 20
    used = tree({"sys/fs/cgroup/memory.current": "1000000\n"})
    assert board.available_memory_bytes(used) == (1 << 20) - 1_000_000
    assert board.available_memory_bytes(limited / "nothing") > 0


@given(st.sets(st.integers(0, 300)))
def test_core_lists_survive_a_round_trip(cores: set[int]) -> None:
    """Whatever is written in the kernel's list format is read back the same."""
    assert set(board.parse_core_list(board.format_core_list(cores))) == cores


@given(st.text(max_size=20))
def test_core_lists_never_raise(text: str) -> None:
    """Garbage is no core, not an error."""
    assert all(isinstance(core, int) for core in board.parse_core_list(text))


def test_threads_of_this_process_are_seen() -> None:
    """A thread shows up with its id, its mask, and CPU time."""
    done = threading.Event()
    other = threading.Thread(target=done.wait, name="waits")
    other.start()
    try:
        seen = {thread.tid: thread for thread in board.threads_of(os.getpid())}
        assert other.native_id in seen
        main = seen[threading.main_thread().native_id or 0]
        assert set(main.allowed) == os.sched_getaffinity(0)
        assert main.run_ns > 0
        assert main.core in os.sched_getaffinity(0) or len(main.allowed) > 1
    finally:
        done.set()
        other.join()


def test_threads_of_nobody_are_none() -> None:
    """A process that is gone has no threads; that is no error."""
    assert board.threads_of(2**22 + 1) == ()


def test_thread_names_may_hold_parentheses(tree: Tree) -> None:
    """The name ends at the last parenthesis; without schedstat, ticks give the CPU time."""
    fields = " ".join(str(number) for number in range(3, 53))
    root = tree(
        {
            "proc/7/task/8/stat": f"8 (a) (b)) {fields}\n",
            "proc/7/task/8/status": "Name:\ta) (b)\nCpus_allowed_list:\t0,2\n",
        }
    )
    (thread,) = board.threads_of(7, root)
    assert (thread.tid, thread.name, thread.allowed) == (8, "a) (b)", (0, 2))
    # Fields 14 and 15 are user and system ticks, 22 the start, 39 the core (proc(5)).
    assert (thread.run_ns, thread.started_ticks, thread.core) == (290_000_000, 22, 39)
    assert thread.wait_ns is None


def test_pin_holds_or_says_why() -> None:
    """A child is pinned, thread by thread, and a core that does not exist is an error."""
    target = board.usable_cores()[0]
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        board.pin_process(child.pid, [target])
        assert os.sched_getaffinity(child.pid) == {target}
        with pytest.raises(board.PinError, match=r"cannot pin thread \d+ to cores 4095"):
            board.pin_process(child.pid, [4095])
    finally:
        child.communicate(b"\n")
    with pytest.raises(board.PinError, match="no such process"):
        board.pin_process(child.pid, [target])


def test_the_board_imports_neither_numpy_nor_a_runtime() -> None:
    """The agent's own process stays light."""
    heavy = "{'numpy', 'onnxruntime', 'openvino', 'ai_edge_litert', 'serial', 'paho'}"
    code = f"import sys, edgeperf.agent.board; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
