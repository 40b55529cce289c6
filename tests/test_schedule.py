"""Server's schedule, drawn a second time, is LoadGen's to the nanosecond.

The judge is the C++ library that LoadGen is built with: a small program draws from the
same generator and distribution as ``GenerateQueries`` does.
"""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeperf.agent.run.schedule import scheduled_start_ns, server_schedule_ns

#: Source: LoadGen ``loadgen.cc``, ``ScheduleDistribution`` and ``GenerateQueries``.
PROGRAM = r"""
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

int main(int argc, char **argv) {
    const long count = std::atol(argv[1]);
    const std::uint64_t seed = std::strtoull(argv[2], nullptr, 10);
    std::mt19937 generator(seed);
    std::exponential_distribution<> gap(std::strtod(argv[3], nullptr));
    std::chrono::nanoseconds due{0};
    for (long query = 0; query < count; ++query) {
        std::printf("%lld\n", static_cast<long long>(due.count()));
        due += std::chrono::duration_cast<std::chrono::nanoseconds>(
            std::chrono::duration<double>(gap(generator)));
    }
}
"""
SEED = 16159082839903944936


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the compiled program."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("schedule")
    (folder / "draw.cc").write_text(PROGRAM)
    subprocess.run(
        ["g++", "-O2", "-std=c++17", "-o", folder / "draw", folder / "draw.cc"], check=True
    )
    return folder / "draw"


def drawn(program: Path, count: int, seed: int, target_qps: float) -> NDArray[np.int64]:
    """Return what the program draws."""
    command = [str(program), str(count), str(seed), float(target_qps).hex()]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return np.array(lines.split(), np.int64)


@pytest.mark.parametrize("seed", [0, 1, 5489, 2**32 - 1, 2**32, SEED, 2**64 - 1])
@pytest.mark.parametrize("target_qps", [0.5, 1.0, 33.333333333, 1000.0, 31825.803353106, 1e6])
def test_schedule_is_that_of_the_cpp_library(program: Path, seed: int, target_qps: float) -> None:
    """Thousands of queries are due at the same nanosecond, whatever seed and rate."""
    ours = server_schedule_ns(5_000, seed=seed, target_qps=target_qps)
    np.testing.assert_array_equal(ours, drawn(program, 5_000, seed, target_qps))


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 300),
    seed=st.integers(0, 2**64 - 1),
    target_qps=st.floats(0.01, 1e6),
)
def test_any_schedule_is_that_of_the_cpp_library(
    program: Path, count: int, seed: int, target_qps: float
) -> None:
    """The same for any seed that LoadGen can log and any rate that a spec can ask for."""
    ours = server_schedule_ns(count, seed=seed, target_qps=target_qps)
    np.testing.assert_array_equal(ours, drawn(program, count, seed, target_qps))


def test_schedule_has_the_rate_that_was_asked_for() -> None:
    """A million gaps have the mean of the rate, and are exponential: as wide as long."""
    due_ns = server_schedule_ns(1_000_000, seed=SEED, target_qps=250.0)
    gaps_s = np.diff(due_ns) / 1e9
    assert due_ns[0] == 0
    assert gaps_s.mean() == pytest.approx(1 / 250, rel=0.005)
    assert gaps_s.std() == pytest.approx(1 / 250, rel=0.01)
    assert np.median(gaps_s) == pytest.approx(np.log(2) / 250, rel=0.01)


@given(
    offset_ns=st.integers(0, 2**60),
    late_ns=st.lists(st.integers(0, 10**9), min_size=1, max_size=50),
    prompt=st.integers(0, 49),
)
def test_scheduled_start_is_found_from_the_promptest_query(
    offset_ns: int, late_ns: list[int], prompt: int
) -> None:
    """If one query was issued on time, each start is exact, however late the others were."""
    late_ns[prompt % len(late_ns)] = 0
    due_ns = server_schedule_ns(len(late_ns), seed=SEED, target_qps=100.0)
    issued_ns = due_ns + offset_ns + np.array(late_ns, np.int64)
    np.testing.assert_array_equal(scheduled_start_ns(issued_ns, due_ns), due_ns + offset_ns)


@given(late_ns=st.lists(st.integers(0, 10**9), min_size=1, max_size=50))
def test_no_query_starts_after_it_was_issued(late_ns: list[int]) -> None:
    """A latency from the schedule is never shorter than one from the issue."""
    due_ns = server_schedule_ns(len(late_ns), seed=1, target_qps=100.0)
    issued_ns = due_ns + np.array(late_ns, np.int64)
    assert (scheduled_start_ns(issued_ns, due_ns) <= issued_ns).all()
