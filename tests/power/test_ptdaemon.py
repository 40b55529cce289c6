"""PTDaemon: its lines, its two runs, the log for MLPerf's checker, a stand-in on TCP."""

import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from edgeperf import EdgeperfError
from edgeperf.agent.cli.ptdaemon import ptdaemon
from edgeperf.power import make_source
from edgeperf.power.base import Chunk, MeterError, MeterInputError, MeterReplyError, State
from edgeperf.power.ptd_client import PtdClient, parse_uncertainty, parse_watts
from edgeperf.power.ptd_log import (
    PtdRun,
    parse_sample,
    problems_of,
    ranges_of,
    spl_line,
    summarize,
)
from edgeperf.power.ptd_session import PtdSession
from edgeperf.power.ptdaemon import PtdDecoder
from edgeperf.power.samples import Samples
from edgeperf.power.simulate.bench import Bench
from edgeperf.power.simulate.ptdaemon import PtdDevice
from edgeperf.power.simulate.tcp import TcpServer
from edgeperf.power.simulate.waveform import parse_waveform
from edgeperf.power.timebase import place
from edgeperf.power.window import look

Vector = Callable[[str], dict[str, Any]]
LINE = "Time,01-22-2021 15:05:14.313,Watts,22.970000,Volts,227.370000,Amps,0.204340,PF,0.494400"
MARKED = f"{LINE},Mark,s1_ranging"
CHANNELS = (
    "Time,11-13-2020 22:38:59.240,Watts,272.930000,Volts,-1.000000,Amps,-1.000000,PF,-1.000000"
    ",Watts,91.060000,Volts,120.950000,Amps,0.832100,PF,0.938900"
    ",Watts,90.970000,Volts,120.830000,Amps,0.802000,PF,0.938800"
)


def test_watts(vector: Vector) -> None:
    """PTDaemon's own sums are read; -1 is a sentinel, not a result."""
    found, expect = parse_watts(vector("ptd_ok")["text"]), vector("ptd_ok")["expect"]
    assert found is not None
    names = ("avg", "min", "max", "n", "err", "valid")
    assert list(found) == [expect[name] for name in names]
    assert parse_watts(vector("ptd_nosamples")["text"]) is None
    assert parse_uncertainty("Uncertainty,0.006264,0.006105,0.009201,692,0,692,0") == 0.009201
    assert parse_uncertainty("Uncertainty,-1.0,-1.0,-1.0,0,0,0,0") is None


def test_invalid_sample(vector: Vector, decode: Any) -> None:
    """An infinite current with a power factor of -1 is an invalid sample."""
    samples = decode("ptdaemon", vector("ptd_log_neg")["raw"])
    assert samples.state.tolist() == [State.INVALID]
    sample = parse_sample(vector("ptd_log_neg")["text"])
    assert sample is not None
    assert sample.power_w == -10  # the sign is kept for whoever looks


@pytest.mark.parametrize(
    ("old", "new", "usable"),
    [
        ("", "", True),
        ("22.970000", "-22.970000", True),  # reversed leads: the sign stays
        ("22.970000", "inf", False),
        ("22.970000", "nan", False),
        ("0.494400", "-1.000000", False),
        ("227.370000", "INF", False),
    ],
)
def test_which_samples_are_usable(old: str, new: str, usable: bool) -> None:  # noqa: FBT001
    """Over range, no data and sentinels are not; a negative power is."""
    sample = parse_sample(LINE.replace(old, new) if old else LINE)
    assert sample is not None
    assert sample.usable is usable


def test_time_and_channels() -> None:
    """Time is read to the millisecond; a sum of channels knows no volts but is usable."""
    sample = parse_sample(MARKED)
    assert sample is not None
    assert sample.time_ns == 1_611_327_914_313_000_000
    assert sample.mark == "s1_ranging"
    several = parse_sample(CHANNELS)
    assert several is not None
    assert several.usable
    assert several.channels == ((120.95, 0.8321), (120.83, 0.802))
    ranges = ranges_of([several])
    assert ranges is not None
    assert ranges.voltage_v == 120.95
    assert ranges.current_a == pytest.approx(0.8321 * 1.1)


def test_spl_line() -> None:
    """A line gets its mark and its channels their numbers, as power-dev writes them."""
    assert spl_line(LINE, "s1_testing") == f"{LINE},Mark,s1_testing"
    assert spl_line(MARKED, "other") == MARKED
    first = "PF,-1.000000,Mark,m,Ch1,Watts,91.060000,Volts,120.950000,Amps,0.832100,PF,0.938900"
    assert f"{first},Ch2,Watts,90.970000" in spl_line(CHANNELS, "m")
    again = parse_sample(spl_line(CHANNELS, "m"))
    assert again is not None
    assert len(again.channels) == 2


@pytest.mark.parametrize(
    "line",
    [
        "",
        LINE.replace("Watts", "Watt"),
        LINE.replace("01-22-2021", "22-01-2021"),
        LINE.replace("22.970000", "22.97.0000"),
        "Time,11-07-2020 17:54:49.071,ERROR,Bad volts reading nan from WT310",
        "Buffer was 1.000E+00;1;300.0E+00;1",
    ],
)
def test_other_lines(line: str) -> None:
    """What else stands in the log is no sample."""
    assert parse_sample(line) is None


def test_clock_that_goes_back(decode: Any) -> None:
    """A sample that came twice counts once; a clock that went back is a gap."""
    later = LINE.replace("14.313", "15.322")
    lines = f"{LINE}\r\n{later}\r\n{later}\r\n{LINE}\r\n"
    samples = decode("ptdaemon", lines.encode())
    assert samples.state.tolist() == [State.OK, State.OK, State.GAP, State.OK]
    assert samples.tick_ns[1] - samples.tick_ns[0] == 1_009_000_000


def test_errors_that_ptdaemon_counts() -> None:
    """PTDaemon's own errors and an uncertainty above 1 % are told."""
    decoder = PtdDecoder()
    decoder.feed(Chunk(1, b"Watts,20,19,21,10,2,8\r\nUncertainty,0.006,0.006,0.012,8,0,8,0\r\n"))
    assert decoder.faults == {
        "samples that PTDaemon calls errors": 1,
        "uncertainty above 1 %": 1,
    }


@given(st.binary(max_size=99) | st.text("Time,Wats0123456789.:-VolApsPF\r\n", max_size=99))
def test_any_bytes(data: bytes | str) -> None:
    """Noise raises nothing, and a sample that comes out of it is finite or not OK."""
    raw = data.encode() if isinstance(data, str) else data
    for prefix in (b"", LINE.encode()[:60], b"Watts,1,1,1,", b"Uncertainty,1,"):
        samples = PtdDecoder().feed(Chunk(1, prefix + raw))
        assert all(math.isfinite(watts) for watts in samples.power_w[samples.ok])
    spl_line(raw.decode("latin-1"), "m")


def test_range_that_is_too_low() -> None:
    """8.2 W where the ranging run saw 16.2 W fails; so do a short run and unusable samples."""
    good = PtdRun(16.2, 60, 0, 60.0)
    assert problems_of(good, good._replace(mean_w=15.5)) == []
    (problem,) = problems_of(good, good._replace(mean_w=8.2))
    assert "8.200 W, more than 5 % under the ranging run's 16.200 W: range too low" in problem
    assert "less than half" in problems_of(good, good._replace(length_s=20))[0]
    assert "3 samples over range" in problems_of(good, good._replace(unusable=3))[0]
    assert "no usable sample" in problems_of(good, PtdRun(math.nan, 0, 5, 5.0))[0]
    assert "leads are reversed" in problems_of(good, good._replace(mean_w=-16.2))[-1]


@pytest.mark.parametrize("waveform", ["constant:12", "step:8,20,7", "sine:12,6,5"])
def test_energy(waveform: str) -> None:
    """Energy is right within 0.5 % and what a sample a second explains at the edges."""
    wave = parse_waveform(waveform)
    device = PtdDevice(Bench(wave, voltage_v=230.0))
    source = make_source("ptdaemon:host")
    device.answer(b"Go,1000,0,m\r\n", 1000.0)
    decoder = source.decoder(source.header())
    parts = []
    for i in range(1, 60):
        now_s = 1000 + i * 0.5 + 0.01
        reply = device.answer(b"RL\r\n", now_s).split(b"\r\n", 1)[1]
        parts.append(decoder.feed(Chunk(round(now_s * 1e9), reply)))
    samples = Samples.concatenate(parts)
    samples.t_ns[:] = place(samples, 1_000_000_000, 0.02).t_ns
    seen = look(samples, source.info(), 1003_250_000_000, 1023_750_000_000)
    true_j = wave.energy_j(1003.25, 1023.75)
    edges_j = 0 if waveform.startswith("constant") else 12 * 0.3
    assert seen.energy_j == pytest.approx(true_j, abs=0.005 * true_j + edges_j)
    assert seen.coverage == pytest.approx(1)


@pytest.mark.parametrize("read_command", ["RL", "RL,*,*", "DC-RL"])
def test_simulated_daemon(read_command: str, simulate: Any, read_samples: Any) -> None:
    """A PTDaemon of any kind is identified, started and read; Stop twice does no harm."""
    device = {"voltage_v": 230.0, "interval_s": 0.2, "read_command": read_command}
    port = simulate("ptdaemon", "constant:12", **device).port
    source = make_source(f"ptdaemon:{port},volts=300,amps=0.5,settle=0,session=s1")
    samples, faults = read_samples(source, 2)
    assert samples.power_w[samples.ok] == pytest.approx(12, rel=0.005)
    assert faults == []
    source.stop()
    source.close()


def wait(seconds: float) -> Callable[[], str]:
    """Return work that takes a while."""

    def work() -> str:
        time.sleep(seconds)
        return "done"

    return work


def test_two_runs(simulate: Any, tmp_path: Path) -> None:
    """Ranging finds the range, testing fixes it, and both leave the log of MLPerf's checker."""
    port = simulate("ptdaemon", "constant:12", voltage_v=230.0, interval_s=0.1).port
    client = PtdClient(port)
    identity = client.identify()
    assert identity.model == "YokogawaWT310 behind PTDaemon"
    assert identity.serial == "C2PH13047V"
    assert identity.firmware.startswith("1.11.1-")
    session = PtdSession(client, tmp_path, "2026-11-29_s1", settle_s=0.2)
    with pytest.raises(MeterInputError, match="make the ranging run before the testing run"):
        session.testing(wait(0))
    assert session.ranging(wait(0.4)) == "done"
    assert session.ranges is not None
    assert session.ranges.voltage_v == 230
    assert session.ranges.current_a == pytest.approx(12 / 230 / 0.6 * 1.1, rel=0.01)
    session.testing(wait(0.4))
    session.close()
    assert session.problems() == []
    assert session.watts is not None
    assert session.watts.average_w == pytest.approx(12, rel=0.01)
    for folder, phase in (("ranging", "ranging"), ("run_1", "testing")):
        lines = (tmp_path / folder / "spl.txt").read_text().splitlines()
        assert len(lines) >= 3
        for line in lines:  # where check.py looks
            fields = line.split(",")
            assert fields[0] == "Time"
            assert time.strptime(fields[1], "%m-%d-%Y %H:%M:%S.%f")
            assert float(fields[3]) == pytest.approx(12, rel=0.01)
            assert float(fields[9]) == 0.6
            assert fields[10:] == ["Mark", f"2026-11-29_s1_{phase}"]
    commands = [command for command, _ in client.messages]
    assert commands.index("SR,A,Auto") < commands.index("Go,1000,0,2026-11-29_s1_ranging")
    assert commands[-2:] == ["SR,V,300.0", "SR,A,Auto"]  # as it was before


def test_range_too_low_in_the_stand_in(simulate: Any, tmp_path: Path) -> None:
    """A peaky load on the range of its rms value reads half, and the comparison sees it."""
    port = simulate(
        "ptdaemon", "constant:16.2", voltage_v=230.0, interval_s=0.1, peak_ratio=3.5
    ).port
    session = PtdSession(PtdClient(port), tmp_path, "s2", settle_s=0)
    session.ranging(wait(0.5))
    session.testing(wait(0.5))
    session.close()
    assert "range too low" in session.problems()[0]


def test_other_time_zone(simulate: Any, tmp_path: Path) -> None:
    """A PTDaemon that does not run in UTC is found, with what to do."""
    port = simulate("ptdaemon", voltage_v=230.0, interval_s=0.1, zone_h=-5).port
    session = PtdSession(PtdClient(port), tmp_path, "s3", settle_s=0)
    with pytest.raises(MeterReplyError, match=r"its clock is -5\.00 h off UTC; run .* TZ=UTC"):
        session.ranging(wait(0.3))
    session.close()


def test_measurement_that_was_left_running(simulate: Any) -> None:
    """A measurement that a lost connection left behind is ended first."""
    port = simulate("ptdaemon", voltage_v=230.0).port
    first = PtdClient(port)
    first.go("old")
    first.close()
    source = make_source(f"ptdaemon:{port},phase=ranging,settle=0")
    source.open()
    source.start()
    source.stop()
    source.close()


def test_summary_of_a_window() -> None:
    """Only samples strictly inside a window count."""
    samples = [parse_sample(LINE.replace("14.313", f"{n}.000")) for n in (10, 11, 12, 13)]
    known = [sample for sample in samples if sample]
    run = summarize(known, known[0].time_ns, known[3].time_ns)
    assert run.usable == 2
    assert run.length_s == pytest.approx(1)


@pytest.mark.parametrize(
    ("spec", "error", "complaint"),
    [
        ("ptdaemon", MeterInputError, "no host; expected ptdaemon:HOST:8888"),
        ("ptdaemon:127.0.0.1:1", MeterError, "nothing listens on TCP port 1 there"),
        ("ptdaemon:x,session=a/b", MeterInputError, "session"),
    ],
)
def test_wrong_spec(spec: str, error: type[Exception], complaint: str) -> None:
    """A spec that cannot be used says which part of it."""
    with pytest.raises(error, match=complaint):
        make_source(spec).open()


def test_fixed_ranges_missing(simulate: Any) -> None:
    """A testing run without the ranges of a ranging run does not begin."""
    source = make_source(f"ptdaemon:{simulate('ptdaemon').port}")
    source.open()
    source.identify()
    with pytest.raises(
        MeterInputError, match=r"fixed ranges missing: .*`edgeperf ptdaemon` does both"
    ):
        source.start()
    source.close()


class Echo:
    """A program that sends back whatever it is told."""

    tick_s = 0.0
    queue_bytes = 4096

    def answer(self, data: bytes, now_s: float) -> bytes:
        """Send it back."""
        del now_s
        return data

    def stream(self, now_s: float) -> list[bytes]:
        """Send nothing unasked."""
        del now_s
        return []


def test_wrong_program(tmp_path: Path) -> None:
    """Another program behind the port is one line that says what was seen."""
    bench = Bench(parse_waveform("constant:6"))
    with TcpServer(Echo(), bench, tmp_path / "echo") as server:
        source = make_source(f"ptdaemon:{server.port}")
        source.open()
        with pytest.raises(MeterReplyError, match=r"no PTDaemon .saw 'Hello'.; check host and"):
            source.identify()
        source.close()


def call(*words: str) -> Result:
    """Call ``edgeperf ptdaemon`` with *words*; errors come out as they are."""
    return CliRunner().invoke(ptdaemon, words, standalone_mode=False, catch_exceptions=False)


def test_command(simulate: Any, tmp_path: Path) -> None:
    """The command is run twice, and the logs and the ranges are left behind."""
    port = simulate("ptdaemon", "constant:12", voltage_v=230.0, interval_s=0.1).port
    script = "import time; time.sleep(0.5)"
    words = ("-o", str(tmp_path), "--settle", "1ms", "--session", "s5", "--json")
    ran = call(port, *words, "--", sys.executable, "-c", script)
    assert ran.return_value == 0
    told = json.loads(ran.stdout)
    assert told["volts"] == 230
    assert told["testing_w"] == pytest.approx(12, rel=0.01)
    assert told["problems"] == []
    assert "s5_testing" in (tmp_path / "run_1" / "spl.txt").read_text()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "expected either -- COMMAND or --for TIME"),
        (("--", sys.executable, "-c", "raise SystemExit(5)"), "ended with status 5"),
        (("--", "no-such-program"), "no-such-program: cannot be run: No such file"),
    ],
)
def test_command_that_fails(
    words: tuple[str, ...], complaint: str, simulate: Any, tmp_path: Path
) -> None:
    """A command that fails measures nothing, and says so in one line."""
    port = simulate("ptdaemon", voltage_v=230.0).port
    with pytest.raises(EdgeperfError, match=complaint):
        call(port, "-o", str(tmp_path), "--settle", "1ms", *words)
