"""The rate that Server is asked for: short tests lower it until half the bound is kept."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from team_jobs import load_plan

import edgeperf
from edgeperf.agent.run.jobs import LoadPlan
from edgeperf.agent.run.loadgen import Settings
from edgeperf.agent.run.loadgen_log import LogError
from edgeperf.agent.run.size import BYTES_PER_SERVER_QUERY
from edgeperf.agent.run.trial import sustained_qps

BOUND_NS = 10_000_000
PLENTY_BYTES = 1 << 40
#: Trials by the real LoadGen of a SUT that answers at once, in a process of their own.
PROGRAM = """
import sys
import mlperf_loadgen as lg
import msgspec
import numpy as np
from edgeperf.agent.run import loadgen
from edgeperf.agent.run.jobs import LoadPlan
from edgeperf.agent.run.trial import sustained_qps

answer, rates = np.zeros(1, np.uint8), []

def issue(ids, indices):
    lg.QuerySamplesComplete([lg.QuerySampleResponse(i, answer.ctypes.data, 1) for i in ids])

def test(plan, settings):
    rates.append(settings.server_target_qps)
    loadgen.run(plan, settings, samples=(8, 8), issue=issue, load=lambda indices: None)

plan = msgspec.json.decode(sys.argv[1], type=LoadPlan)
qps = sustained_qps(plan, 200.0, test, 1 << 40)
print(msgspec.json.encode((qps, rates)).decode())
"""


def plan_in(folder: Path, *, bound_ns: int = BOUND_NS, calibrate_s: float = 0.2) -> LoadPlan:
    """Return a Server test that writes into *folder*."""
    return load_plan(
        scenario="Server",
        samples_per_query=1,
        target_latency_ns=bound_ns,
        calibrate_s=calibrate_s,
        directory=str(folder),
    )


class Board:
    """A board that keeps half the bound up to some rate, and says so in LoadGen's log.

    Args:
        sustains: Up to which rate; beyond it answers as many and the queue grows.
        passing: How many tests are disturbed by a load that passes, at any rate.

    Attributes:
        asked: Rate and milliseconds of each test.
    """

    def __init__(self, sustains: float, *, passing: int = 0) -> None:
        self._sustains = sustains
        self._passing = passing
        self.asked: list[tuple[float, int]] = []

    def test(self, plan: LoadPlan, settings: Settings) -> None:
        """Run one test."""
        qps = settings.server_target_qps
        self.asked.append((qps, settings.min_duration_ms))
        disturbed = len(self.asked) <= self._passing
        kept = qps <= self._sustains and not disturbed
        values = {
            "result_99.00_percentile_latency_ns": BOUND_NS // 2 if kept else BOUND_NS,
            "result_completed_samples_per_sec": min(qps, self._sustains),
            "num_errors": 0,
        }
        lines = [json.dumps({"key": key, "value": value}) for key, value in values.items()]
        log = Path(plan.directory) / "mlperf_log_detail.txt"
        log.write_text("".join(f":::MLLOG {line}\n" for line in lines))


def found(
    board: Board, folder: Path, qps: float, *, available_bytes: int = PLENTY_BYTES
) -> tuple[float, list[float]]:
    """Return the rate that was found, and those that were tried; nothing may stay behind."""
    rate = sustained_qps(plan_in(folder), qps, board.test, available_bytes)
    assert list(folder.iterdir()) == []
    return rate, [rate for rate, _ in board.asked]


def test_rate_that_is_kept_is_asked_for(tmp_path: Path) -> None:
    """One trial, as long as calibration."""
    board = Board(1000.0)
    assert found(board, tmp_path, 1000.0) == (1000.0, [1000.0])
    assert board.asked == [(1000.0, 200)]


def test_load_that_passes_lowers_nothing(tmp_path: Path) -> None:
    """A rate that was reached, though late, is tried a second time before it is lowered."""
    assert found(Board(1000.0, passing=1), tmp_path, 800.0) == (800.0, [800.0, 800.0])


def test_rate_is_lowered_from_what_was_reached(tmp_path: Path) -> None:
    """The next rate is 0.7 of what the board did, not of what it was asked for."""
    rate, tried = found(Board(1000.0), tmp_path, 50_000.0)
    assert rate == pytest.approx(700.0)
    assert tried == pytest.approx([50_000.0, 700.0])


def test_trials_end(tmp_path: Path) -> None:
    """A board that keeps the bound at no rate is asked for less and less, six times."""
    rate, tried = found(Board(1000.0, passing=100), tmp_path, 1000.0)
    assert tried == pytest.approx([1000.0 * 0.7 ** (trial // 2) for trial in range(12)])
    assert rate == pytest.approx(1000.0 * 0.7**6)


def test_test_without_a_log_is_an_error(tmp_path: Path) -> None:
    """No rate is made up, and the folder of the trial goes."""
    with pytest.raises(LogError):
        sustained_qps(plan_in(tmp_path), 1.0, lambda *_: None, PLENTY_BYTES)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("qps", "free_bytes"), [(3e6, 256 << 20), (3e6, 1 << 30), (1e4, 1 << 20)])
def test_trial_fits_the_memory(tmp_path: Path, qps: float, free_bytes: int) -> None:
    """LoadGen makes every query of a trial beforehand: a fast model on a small board is short."""
    board = Board(qps)
    found(board, tmp_path, qps, available_bytes=free_bytes)
    ((_, duration_ms),) = board.asked
    assert duration_ms >= 1
    assert qps * duration_ms / 1e3 * BYTES_PER_SERVER_QUERY <= 0.7 * free_bytes


@pytest.mark.slow
@pytest.mark.parametrize(("bound_ns", "kept"), [(20_000_000_000, True), (1, False)])
def test_loadgen_itself_is_understood(tmp_path: Path, bound_ns: int, kept: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Its log says whether the bound was kept: twenty seconds always are, a nanosecond never."""
    plan = msgspec.json.encode(plan_in(tmp_path, bound_ns=bound_ns, calibrate_s=0.1))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, plan.decode()],
        env={**os.environ, "PYTHONPATH": str(Path(edgeperf.__path__[0]).parent)},
        stdout=subprocess.PIPE,
        check=True,
    )
    qps, rates = json.loads(done.stdout.splitlines()[-1])
    assert rates[0] == 200.0
    if kept:
        assert (qps, rates) == (200.0, [200.0])
    else:
        assert 6 <= len(rates) <= 12
        assert rates == sorted(rates, reverse=True)
        assert qps < rates[-1]
    assert list(tmp_path.iterdir()) == []
