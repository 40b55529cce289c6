"""``edgeperf meter`` and ``edgeperf simulate-meter``, as a user calls them."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from edgeperf import EdgeperfError, InputError
from edgeperf.agent.cli.meter import meter, seconds_of
from edgeperf.agent.cli.simulate_meter import simulate_meter
from edgeperf.power.base import MeterInputError
from edgeperf.power.measure import measure
from edgeperf.power.trace import PowerTrace

Simulate = Callable[..., Any]


def call(*words: str) -> Result:
    """Call ``edgeperf meter`` with *words*; errors come out as they are."""
    return CliRunner().invoke(meter, words, standalone_mode=False, catch_exceptions=False)


def test_record_json(simulate: Simulate, tmp_path: Path) -> None:
    """The JSON has the energy of exactly its window; the trace that is kept gives it again."""
    server = simulate("textline", "sine:6,2,0.3")
    output = tmp_path / "trace.npz"
    ran = call("record", f"textline:{server.port}", "--for", "1s", "--json", "-o", str(output))
    told = json.loads(ran.stdout)
    start_ns, end_ns = told["start_mono_ns"], told["end_mono_ns"]
    assert end_ns - start_ns == 1_000_000_000
    truth = server.bench.waveform.energy_j(start_ns * 1e-9, end_ns * 1e-9)
    assert told["energy_j"] == pytest.approx(truth, rel=0.005)
    assert told["average_w"] == pytest.approx(truth, rel=0.005)
    assert told["peak_w"] == pytest.approx(8, rel=0.01)
    assert told["coverage"] == 1
    assert told["uncertainty"] > 0
    assert told["result"]["identity"]["details"]["port"] == "pseudo-terminal"
    assert ran.return_value == 0
    again = measure(PowerTrace.load(output), start_ns, end_ns)
    assert again.gross is not None
    assert again.gross.energy_j.value == told["energy_j"]


def test_record_of_a_faulty_meter(simulate: Simulate) -> None:
    """A gap is told with what to think of it, and the status is 1."""
    server = simulate("textline", faults=("stall@1.2+0.8",))
    ran = call("record", f"textline:{server.port}", "--for", "2s")
    assert ran.return_value == 1
    assert "not stated" in ran.stdout
    assert "less than 95 %: no joules" in ran.stdout


def test_probe(simulate: Simulate) -> None:
    """A probe says who answered, what it measures and what it reads."""
    ran = call("probe", f"tc66:{simulate('tc66').port}")
    assert "TC66 4711 1.14" in ran.stdout
    assert "power, at the dc-input" in ran.stdout
    told = json.loads(call("probe", f"tc66:{simulate('tc66').port}", "--json").stdout)
    assert told["live"]["power_w"] == pytest.approx(6, rel=0.01)


def test_ls_lists_or_says_that_there_is_nothing() -> None:
    """The list works on a machine without any port."""
    assert set(json.loads(call("ls", "--json").stdout)) == {"ports", "onboard"}
    assert call("ls").stdout


def test_kinds() -> None:
    """Every kind has a line, and its options have a default."""
    assert "ppk2        Nordic Power Profiler Kit II" in call("kinds").stdout
    told = call("kinds", "ppk2").stdout
    assert re.search("^ppk2: Nordic Power Profiler Kit II", told)
    assert re.search("^    voltage= +Supply voltage of the board", told, re.MULTILINE)
    assert re.search(
        "^    mode=ampere +ampere measures .* itself, with voltage.$", told, re.MULTILINE
    )
    assert "``" not in told


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 10), ("500ms", 0.5), ("2m", 120), ("1h", 3600), ("7", 7)]
)
def test_durations(text: str, seconds: float) -> None:
    """Durations have the units that people write."""
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "0s", "ten", "1e3s", "10 parsecs"])
def test_bad_durations(text: str) -> None:
    """Anything else is bad input."""
    with pytest.raises(InputError, match="duration"):
        seconds_of(text)


def test_bad_input(tmp_path: Path) -> None:
    """Bad input is an error of ours, before anything is recorded."""
    with pytest.raises(MeterInputError, match="no such kind"):
        call("record", "nosuch:/dev/x", "--for", "1s")
    with pytest.raises(InputError, match="there is no folder"):
        call("record", "textline:/dev/x", "--for", "1s", "-o", str(tmp_path / "no" / "t.npz"))
    with pytest.raises(EdgeperfError, match="no such option"):
        call("probe", "textline:/dev/x,volts=5")


def test_simulate_meter_command(tmp_path: Path) -> None:
    """The command prints a port that a meter can be read from, and ends when told to."""
    code = "from edgeperf.agent.cli.simulate_meter import simulate_meter; simulate_meter()"
    words = ["textline", "--waveform", "constant:4", "--link", str(tmp_path / "meter")]
    words += ["--set", "rate_hz=50", "--set", "energy=true"]
    with subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = process.stdout.readline().decode().strip()
        told = json.loads(call("record", f"textline:{port}", "--for", "1s", "--json").stdout)
        process.terminate()
    assert port == str(tmp_path / "meter")
    assert told["average_w"] == pytest.approx(4, rel=0.005)
    assert told["result"]["method"] == "counter"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["nosuch"], "no simulator"),
        (["textline", "--waveform", "square:1"], "expected constant"),
        (["textline", "--fault", "burn@1+1"], "KIND one of drop"),
        (["textline", "--set", "colour=red"], "colour"),
        (["textline", "--set", "colour"], "NAME=VALUE"),
        (["textline", "--waveform", "file:/no/such"], "/no/such"),
    ],
)
def test_simulate_meter_bad_input(words: list[str], complaint: str) -> None:
    """What cannot be simulated is one line."""
    with pytest.raises(InputError, match=complaint):
        CliRunner().invoke(simulate_meter, words, standalone_mode=False, catch_exceptions=False)


def test_simulation_ends_by_itself() -> None:
    """With a time limit it ends and takes its port with it."""
    begin_s = time.monotonic()
    ran = CliRunner().invoke(
        simulate_meter, ["um25c", "--for", "200ms"], standalone_mode=False, catch_exceptions=False
    )
    assert time.monotonic() - begin_s >= 0.2
    assert not Path(ran.stdout.strip()).exists()
