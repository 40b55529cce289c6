"""``edgeperf overhead`` tells what the harness adds here, and what is slow enough for it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from edgeperf import EdgeperfError

if TYPE_CHECKING:
    from conftest import Product

from edgeperf.agent.result import LoadGen, Percentiles, Stopwatch
from edgeperf.agent.run import overhead as harness
from edgeperf.agent.run import wakeups as waking
from edgeperf.agent.run.harness import HONEST, added_ns, added_offline_ns, empty_ns
from edgeperf.agent.run.jobs import Done
from edgeperf.agent.run.plan import make_plan
from edgeperf.agent.spec import RunSpec

SCENARIOS = ["SingleStream", "MultiStream", "Server", "Offline"]
CORES = sorted(os.sched_getaffinity(0))


def asked(product: "Product", *arguments: str, code: int | None = 0) -> dict[str, Any]:
    """Call the command and return what it found."""
    outcome = product.call("overhead", *arguments, "--json")
    assert code is None or outcome.code == code, outcome.stderr
    found: dict[str, Any] = json.loads(outcome.stdout)
    return found


@pytest.mark.slow
def test_every_scenario_and_every_way_of_waking_is_measured(product: "Product") -> None:
    """Each has a time above nothing, and a model must be twenty times as slow."""
    found = asked(product, code=None)  # 1 where others work on this machine
    assert sorted(each["scenario"] for each in found["added"]) == sorted(SCENARIOS)
    for each in found["added"]:
        assert each["p50_ns"] > 0
        assert each["honest_ns"] == HONEST * each["p50_ns"]
        assert each["per"] == ("sample" if each["scenario"] == "Offline" else "query")
    where = {wakeup["where"] for wakeup in found["wakeups"]}
    assert where == ({"other core", "same core"} if len(CORES) > 1 else {"same core"})
    ways = {wakeup["way"] for wakeup in found["wakeups"] if wakeup["where"] == "other core"}
    assert ways == ({"watch", "event", "pipe"} if len(CORES) > 1 else set())
    assert all(wakeup["p90_ns"] >= wakeup["p50_ns"] > 0 for wakeup in found["wakeups"])
    assert found["bare_ns"] >= 0
    assert found["model"] is None
    text = product.call("overhead")
    assert text.code == ("SUSPECT: " in text.stdout), text.stderr
    assert all(scenario in text.stdout for scenario in SCENARIOS)


@pytest.mark.slow
def test_other_work_makes_it_suspect(product: "Product") -> None:
    """Beside a busy loop on the measured core nobody is told that these are the figures."""
    core = CORES[-1]
    program = f"import os\nos.sched_setaffinity(0, [{core}])\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", program]) as other:
        try:
            found = asked(product, "--cores", str(core), code=1)
        finally:
            other.kill()
    codes = {doubt["code"] for doubt in found["doubts"]}
    assert codes & {"foreign-load", "run-queue-wait"}
    assert all(doubt["severity"] in ("suspect", "invalid") for doubt in found["doubts"])


@pytest.mark.slow
def test_model_is_laid_beside_it(product: "Product") -> None:
    """The exit status says whether the model is slow enough in every scenario."""
    found = asked(product, "digits", "--cores", str(CORES[-1]), code=None)
    assert {share["scenario"] for share in found["shares"]} == set(SCENARIOS)
    for share in found["shares"]:
        assert share["model_ns"] > 0
        assert share["added_ns"] > 0
        assert share["honest"] == (share["model_ns"] >= HONEST * share["added_ns"])


def answerers() -> list[int]:
    """Return the processes that answer wake-ups of this one."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (
                folder.name.isdecimal()
                and b"edgeperf.agent.run.wakeups" in (folder / "cmdline").read_bytes()
                and f"PPid:\t{os.getpid()}\n" in (folder / "status").read_text()
            ):
                found.append(int(folder.name))
    return found


@pytest.mark.parametrize("fault", ["SIGKILL", "SIGSTOP"])
@pytest.mark.parametrize("after_s", [0.0, 1.5], ids=["at once", "later"])
def test_answering_side_that_is_lost_is_an_error(
    monkeypatch: pytest.MonkeyPatch, fault: str, after_s: float
) -> None:
    """It dies or hangs, before its first word or in the middle: nobody waits for ever."""
    monkeypatch.setattr(waking, "ROUNDS", 1 << 40)  # so that it cannot end in order
    monkeypatch.setattr(waking, "_PAUSED_ROUNDS", 0)
    monkeypatch.setattr(waking, "_LONGEST_S", 4.0)

    def strike() -> None:
        while not (found := answerers()):
            time.sleep(0.001)
        time.sleep(after_s)
        os.kill(found[0], signal.Signals[fault])

    striker = threading.Thread(target=strike)
    striker.start()
    with pytest.raises(EdgeperfError, match="the other process is lost"):
        waking.wakeups(CORES[-1], None)
    striker.join()
    assert answerers() == []
    assert sorted(os.sched_getaffinity(0)) == CORES


def test_bare_loop_that_fails_leaves_nothing_behind() -> None:
    """Cores are as before, and no descriptor stays open."""
    plan = make_plan(RunSpec(model="digits", backend="null", cores=(CORES[-1],)))
    broken = msgspec.structs.replace(plan.sut, options={"nosuch": "1"})
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(EdgeperfError):
        harness._bare(msgspec.structs.replace(plan, sut=broken))
    assert sorted(os.sched_getaffinity(0)) == CORES
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before


def test_bad_input_is_one_line(product: "Product") -> None:
    """A model or a core that is not there ends the command before anything is measured."""
    nothing = (("--threads", "2"), ("--backend", "null"))  # of a model that is not given
    for arguments in (("nosuch",), ("--cores", "4096"), ("--cores", "x"), *nothing):
        outcome = product.call("overhead", *arguments)
        assert outcome.code == 2
        assert outcome.stdout == ""
        assert outcome.stderr.splitlines()[-1].startswith("edgeperf: ")


def percentiles(p50_ns: float) -> Percentiles:
    """Return percentiles of which only the median counts."""
    return Percentiles(min=0, mean=0, p50=p50_ns, p90=0, p95=0, p97=0, p99=0, p99_9=0, max=0)


def test_added_is_handing_over_and_what_the_stopwatch_does_not_see() -> None:
    """6 µs to hand over, and 100.9 µs by LoadGen where the inner stopwatch saw 100."""
    loadgen = LoadGen(
        version="", valid=True, reasons=(), errors=(), settings={}, latency_ns={"p50": 100_900.0}
    )
    watch = Stopwatch(latency_ns=percentiles(100_000.0), worst_difference_ns=0.0, agrees=True)
    assert added_ns(loadgen, watch, Done(handover_ns=6_000.0)) == 6_900.0
    assert added_ns(loadgen, None, Done(handover_ns=6_000.0)) is None


def test_offline_adds_completions_and_the_lists_that_loadgen_makes() -> None:
    """1,000 samples: 1 s by LoadGen, 0.9 s by ours, 0.05 s of them completions."""
    done = Done(
        samples=1_000,
        window_start_mono_ns=0,
        window_end_mono_ns=900_000_000,
        completing_ns=50_000_000,
    )
    assert added_offline_ns(1_000.0, done) == pytest.approx(150_000.0)
    assert added_offline_ns(None, done) is None


def test_empty_query_is_timed_by_its_median() -> None:
    """It is asked as often as it was told."""
    asked_for: list[int] = []
    assert empty_ns(lambda: asked_for.append(1), 51) > 0
    assert len(asked_for) == 51
