"""The power analyzer: vectors, over-range of both kinds, its integrator, a simulated one."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.power import make_source
from edgeperf.power.base import Chunk, MeterError, MeterInputError, MeterReplyError, State
from edgeperf.power.samples import Samples
from edgeperf.power.simulate.bench import Bench
from edgeperf.power.simulate.waveform import parse_waveform
from edgeperf.power.simulate.wt310 import Wt310Device
from edgeperf.power.wt310 import Wt310Decoder, over_mask

Vector = Callable[[str], dict[str, Any]]
Decode = Callable[..., Samples]
FULL = {"counter": True, "condition": True, "element": "1"}


@pytest.mark.parametrize(("name", "watts"), [("wt_val", 12.0), ("wt_neg", -12.0)])
def test_values(name: str, watts: float, vector: Vector, decode: Decode) -> None:
    """Volts, amperes and watts; a negative power keeps its sign."""
    samples = decode("wt310", vector(name)["raw"])
    assert samples.power_w.tolist() == [watts]
    assert samples.voltage_v.tolist() == [230.0]
    assert samples.current_a.tolist() == [0.094862]


def test_reversed_leads_are_told(vector: Vector) -> None:
    """A negative power is kept and counted, for whoever wonders."""
    decoder = Wt310Decoder(counter=False, condition=False, element="1")
    decoder.feed(Chunk(1, vector("wt_neg")["raw"]))
    assert decoder.faults == {"negative power (leads reversed?)": 1}


@pytest.mark.parametrize("name", ["wt_over", "wt_nan"])
def test_over_range_and_no_data(name: str, vector: Vector, decode: Decode) -> None:
    """9.9E37 is over range and NAN is no data: invalid samples, neither zero nor huge."""
    samples = decode("wt310", vector(name)["raw"])
    assert samples.state.tolist() == [State.INVALID]
    assert math.isnan(samples.power_w[0])


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        (0b10, State.OK),
        (0b10010, State.OK),  # a frequency out of range does not spoil the power of DC
        (0b10 | 1 << 6, State.INVALID),
        (0b10 | 1 << 8, State.INVALID),  # the peak: the number looks fine and is too low
        (0b10 | 1 << 9, State.OK),  # another element's
        (0, State.INVALID),  # somebody stopped the integration
    ],
)
def test_condition_register(condition: int, state: State, decode: Decode) -> None:
    """Bits that spoil a reading make it invalid although its number looks fine."""
    reply = f"230.0E+00,100.0E-03,12.00E+00,1.000E-03\n{condition}\n".encode()
    samples = decode("wt310", reply, header=FULL)
    assert samples.state.tolist() == [state]
    assert samples.energy_j.tolist() == [pytest.approx(3.6)]


def test_reply_without_an_update() -> None:
    """A counter is asked faster than it is renewed; the same reply again is no reading."""
    decoder = Wt310Decoder(counter=True, condition=True, element="1")
    reply = b"230.0E+00,100.0E-03,12.00E+00,%d.000E-03\n%d\n"
    parts = [decoder.feed(Chunk(n, reply % (n, bits))) for n, bits in ((1, 2), (1, 3), (2, 2))]
    assert [len(part) for part in parts] == [1, 0, 1]


def test_elements() -> None:
    """Each element has its own three bits; the sum has all of them and its overflow."""
    assert [over_mask(element) for element in "123"] == [0x1C0, 0xE00, 0x7000]
    assert over_mask("SIGMA") == 0x7FC8


@pytest.mark.parametrize(
    "reply",
    [
        b"230.0E+00,100.0E-03,12.00E+00\n2\n",  # a value is missing
        b"230.0E+00,100.0E-03,12.00E+00,1E-3\n",  # the condition is missing
        b"230.0E+00,100.0E-03,12.0.0E+00,1E-3\n2\n",
        b"230.0E+00,100.0E-03,12.00E+00,1E-3\n2\n2\n",
        b"230.0E+00,100.0E-03,12.00E+00,1E-3\n99999\n",
        b"AT\r\n",
    ],
)
def test_replies_that_are_no_reading(reply: bytes, decode: Decode) -> None:
    """What is not whole gives no sample."""
    assert len(decode("wt310", reply, header=FULL)) == 0


@given(st.binary(max_size=60) | st.text("0123456789.E+-,NAIF\n ", max_size=60).map(str.encode))
def test_any_bytes(data: bytes) -> None:
    """Noise raises nothing, and a sample that comes out of it is finite or not OK."""
    for counter in (False, True):
        decoder = Wt310Decoder(counter=counter, condition=counter, element="1")
        samples = decoder.feed(Chunk(1, data))
        assert all(math.isfinite(watts) for watts in samples.power_w[samples.ok])


@pytest.mark.parametrize("energy", ["counter", "power"])
@pytest.mark.parametrize("waveform", ["constant:12", "step:4,20,7", "sine:12,6,5"])
def test_energy(waveform: str, energy: str, energy_of: Any) -> None:
    """Energy is right within 0.5 % and what an update of 250 ms explains."""
    wave = parse_waveform(waveform)
    device = Wt310Device(Bench(wave, voltage_v=230.0))
    source = make_source(f"wt310:/dev/x,energy={energy},volts=300,amps=1")
    for command in source._setup():  # type: ignore[attr-defined]  # what start() sends
        device.answer(command.encode() + b"\r\n", 1000.0)
    energy_j, true_j, coverage = energy_of(
        source.decoder(source.header()),
        source.info(),
        lambda t_s: device.answer(b":NUM:NORM:VAL?\r\n:STAT:COND?\r\n", t_s),
        wave,
        poll_s=0.125,
    )
    swing_w = 0 if waveform.startswith("constant") else 16
    assert energy_j == pytest.approx(true_j, abs=0.005 * true_j + 0.25 * swing_w)
    assert coverage == pytest.approx(1)


def test_range_too_low_is_seen(decode: Decode) -> None:
    """A range that is too low halves the reading; the peak bit makes it invalid."""
    device = Wt310Device(Bench(parse_waveform("constant:16.2"), voltage_v=230.0), peak_ratio=3)
    device.answer(b":INP:CURR:AUTO OFF\r\n:INP:CURR:RANG 0.05A\r\n:NUM:NORM:NUM 3\r\n", 0.0)
    reply = device.answer(b":NUM:NORM:VAL?\r\n:STAT:COND?\r\n", 10.0)
    header = {**FULL, "counter": False}
    assert float(reply.split(b",")[2].split()[0]) == pytest.approx(8.1, rel=0.01)
    assert decode("wt310", reply, header=header).state.tolist() == [State.INVALID]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("name", ["wt310", "usbtmc0"])
def test_simulated_analyzer(name: str, simulate: Any, read_samples: Any, tmp_path: Path) -> None:
    """An analyzer on a port is identified, set up and read; its ranges are known."""
    link = tmp_path / name
    link.symlink_to(simulate("wt310", "constant:12", voltage_v=230.0).port)
    source = make_source(f"wt310:{link},update=100MS,volts=300,amps=0.5")
    samples, faults = read_samples(source, 4)
    assert samples.power_w[samples.ok] == pytest.approx(12, rel=0.005)
    assert faults in ([], ["over range or no data"])  # an update before the first
    assert source.info().offset_w == pytest.approx(0.0005 * 300 * 0.5)
    assert samples.energy_j[-1] > samples.energy_j[0] >= 0


@pytest.mark.usefixtures("patient")
def test_modem_manager_is_ignored(simulate: Any) -> None:
    """A line that is no identity in front of the answer is passed over."""
    port = simulate("wt310", identity="AT\r\nYOKOGAWA,WT333E,C1,F1").port
    source = make_source(f"wt310:{port}")
    source.open()
    assert source.identify().model == "Yokogawa WT333E"
    source.close()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("identity", "complaint"),
    [
        ("RIGOL TECHNOLOGIES,DP832,1,2", "not a WT310 or WT33x .saw 'RIGOL"),
        ("YOKOGAWA,WT5000,1,2", "not a WT310 or WT33x"),
    ],
)
def test_wrong_instrument(identity: str, complaint: str, simulate: Any) -> None:
    """Another instrument behind the port says who it is."""
    source = make_source(f"wt310:{simulate('wt310', identity=identity).port}")
    source.open()
    with pytest.raises(MeterReplyError, match=complaint):
        source.identify()
    source.close()


@pytest.mark.parametrize(
    ("seen", "complaint"),
    [
        (b"", "no reply to .IDN. at 9600 baud; is it on, and set for this interface.; RS-232"),
        (b"KORADKA3005P", "no answer to .IDN. that a wt310 gives .saw b'KORADKA3005P'.; RS-232"),
        (bytes([0, 0xF8, 0x80]), "noise instead of a reply .* at 9600 baud .saw .*give its baud="),
    ],
)
def test_complaints(seen: bytes, complaint: str) -> None:
    """What came instead of an answer, how the line was set, and what to do."""
    source = make_source("wt310:/dev/ttyUSB0")
    assert re.match(complaint, source.complaint("*IDN?", seen))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("behind", "device", "complaint"),
    [
        ("korad", {}, "no (answer|reply) to .IDN.*null-modem"),
        ("wt310", {"faults": ("stall@0+60",)}, "no reply to .IDN. at 9600 baud; .*null-modem"),
        ("ppk2", {}, "no reply to .IDN. at 9600 baud"),
    ],
)
def test_wrong_device(
    behind: str, device: dict[str, Any], complaint: str, simulate: Any, monkeypatch: Any
) -> None:
    """Another device, or none, behind the port is one line that says what was seen."""
    monkeypatch.setattr("edgeperf.power.wt310.Wt310.patience_s", 0.3)
    source = make_source(f"wt310:{simulate(behind, **device).port}")
    source.open()
    with pytest.raises(MeterReplyError, match=complaint):
        source.identify()
    source.close()


@pytest.mark.usefixtures("patient")
def test_refused_setting(simulate: Any) -> None:
    """A meter that does not take its settings says with which error."""
    device = simulate("wt310")
    source = make_source(f"wt310:{device.port}")
    source.open()
    source.identify()
    source._setup = lambda: iter(["BAD:COMMAND"])  # type: ignore[attr-defined]
    with pytest.raises(MeterReplyError, match=r"refused its settings \(error 113\); check volts="):
        source.start()
    source.close()


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("wt310:192.168.0.7", "VXI-11"),
        ("wt310:/dev/usbtmc77", "no such device; plug it in, load the module usbtmc"),
        ("wt310:/dev/x,update=3S", "update"),
    ],
)
def test_wrong_spec(spec: str, complaint: str) -> None:
    """A spec that cannot be used says which part of it."""
    with pytest.raises(MeterInputError, match=complaint):
        make_source(spec).open()


def test_forbidden_device(forbidden: Path) -> None:
    """No permission is one line with the udev rule."""
    with pytest.raises(MeterError, match=r"permission denied; add the udev rule SUBSYSTEM"):
        make_source(f"wt310:{forbidden}").open()


def test_two_programs(simulate: Any, tmp_path: Path) -> None:
    """A USBTMC device that is in use is refused; the second program is told."""
    link = tmp_path / "usbtmc1"
    link.symlink_to(simulate("wt310").port)
    first, second = make_source(f"wt310:{link}"), make_source(f"wt310:{link}")
    first.open()
    with pytest.raises(MeterError, match="busy: held by"):
        second.open()
    first.close()
    second.open()
    second.close()
