"""The PZEM meters: vectors, what surrounds a frame, wrong settings, simulated meters on ptys."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.power import make_source
from edgeperf.power.base import Chunk, MeterInputError, MeterReplyError, State
from edgeperf.power.modbus import (
    READ_INPUT,
    find_refusal,
    find_registers,
    read_request,
    with_crc,
)
from edgeperf.power.pzem004t import Pzem004tDecoder
from edgeperf.power.pzem004t import values_of as ac_values
from edgeperf.power.pzem017 import Pzem017Decoder
from edgeperf.power.pzem017 import values_of as dc_values
from edgeperf.power.samples import Samples
from edgeperf.power.simulate.bench import Bench, parse_fault
from edgeperf.power.simulate.pzem004t import Pzem004tDevice
from edgeperf.power.simulate.pzem017 import Pzem017Device
from edgeperf.power.simulate.waveform import parse_waveform

Vector = Callable[[str], dict[str, Any]]
Decode = Callable[..., Samples]


def test_request(vector: Vector) -> None:
    """The request for ten input registers is the one of the manual."""
    assert read_request(1, READ_INPUT, 0, 10) == vector("pzem004t_req")["raw"]
    assert read_request(0xF8, READ_INPUT, 0, 10).hex() == "f8040000000a6464"
    assert read_request(1, READ_INPUT, 0, 8).hex() == "010400000008f1cc"
    assert with_crc(b"\x01\x42") == vector("pzem_reset")["raw"]


@pytest.mark.parametrize("name", ["pzem004t_rep", "pzem004t_stray0", "pzem004t_alarm"])
def test_ac_reply(name: str, vector: Vector, decode: Decode) -> None:
    """Volts, amperes, watts and watt-hours, with a stray byte in front or an alarm set."""
    samples = decode("pzem004t", vector(name)["raw"])
    assert samples.power_w.tolist() == [24.4]
    assert samples.voltage_v.tolist() == [225.7]
    assert samples.current_a.tolist() == [0.108]
    assert samples.energy_j.tolist() == [38 * 3600]


def test_ac_details(vector: Vector) -> None:
    """Frequency, power factor and alarm are read as well."""
    registers = find_registers(vector("pzem004t_alarm")["raw"], 1, READ_INPUT, 10)
    assert registers is not None
    values = ac_values(registers)
    assert values is not None
    assert values[4:] == (50.0, 1.0, True)


def test_dc_reply(vector: Vector, decode: Decode) -> None:
    """The DC meter has other scales and no power factor."""
    samples = decode("pzem017", vector("pzem017_rep")["raw"])
    assert samples.power_w.tolist() == [1.3]
    assert samples.voltage_v.tolist() == [13.44]
    assert samples.current_a.tolist() == [0.1]
    assert samples.energy_j.tolist() == [2 * 3600]


def test_high_word(decode: Decode) -> None:
    """The high word comes second: 0F2C 0001 is 69.420 A, not 3.884 A."""
    body = bytes.fromhex("010414 08fc 0f2c0001 64000002 00000000 01f4 0064 0000".replace(" ", ""))
    samples = decode("pzem004t", with_crc(body))
    assert samples.current_a.tolist() == [69.42]


def test_echo_and_stray_bytes(vector: Vector, decode: Decode) -> None:
    """An echoed request, or what ModemManager sent, in front of the reply changes nothing."""
    request, reply = vector("pzem004t_req")["raw"], vector("pzem004t_rep")["raw"]
    for noise in (request, b"AT\r\n", b"\x00\xff", request + b"\x00"):
        assert decode("pzem004t", noise + reply).power_w.tolist() == [24.4]


def test_swapped_crc_is_refused(vector: Vector) -> None:
    """The CRC is low byte first, whatever the data sheet prints."""
    decoder = Pzem004tDecoder()
    assert len(decoder.feed(Chunk(1, vector("pzem004t_crc_swapped")["raw"]))) == 0
    assert decoder.faults == {"replies that fail their checks": 1}


def test_refusal(vector: Vector, decode: Decode) -> None:
    """A Modbus exception is recognised and is no reading."""
    raw = vector("pzem004t_exc")["raw"]
    assert find_refusal(raw, 1, READ_INPUT) == 2
    assert len(decode("pzem004t", raw)) == 0


def test_registers_that_contradict() -> None:
    """A true power cannot exceed volts times amperes, nor a DC power differ from it."""
    assert ac_values((2300, 100, 0, 900, 0, 0, 0, 500, 100, 0)) is None
    assert dc_values((500, 100, 500, 0, 0, 0, 0, 0)) is None
    assert dc_values((500, 100, 50, 0, 0, 0, 0, 1)) is None


def test_dead_mains_is_invalid(decode: Decode) -> None:
    """0 V is a fault, not a board that needs nothing."""
    for kind, size in (("pzem004t", 20), ("pzem017", 16)):
        samples = decode(kind, with_crc(bytes([1, 4, size]) + bytes(size)))
        assert samples.state.tolist() == [State.INVALID]
        assert math.isnan(samples.power_w[0])


@given(st.binary(max_size=80))
def test_any_bytes(data: bytes) -> None:
    """Noise raises nothing and gives no sample."""
    assert len(Pzem004tDecoder().feed(Chunk(1, data))) == 0
    assert len(Pzem017Decoder().feed(Chunk(1, data))) == 0


@given(st.binary(min_size=20, max_size=20), st.binary(max_size=8))
def test_any_registers(body: bytes, noise: bytes) -> None:
    """A valid frame with any registers gives at most one sample, and a finite one."""
    frame = noise + with_crc(b"\x01\x04\x14" + body)
    samples = Pzem004tDecoder().feed(Chunk(1, frame))
    assert len(samples) <= 1
    assert all(math.isfinite(watts) for watts in samples.power_w[samples.ok])


@pytest.mark.parametrize("waveform", ["constant:20", "step:10,30,8", "sine:20,8,5"])
@pytest.mark.parametrize("kind", ["pzem004t", "pzem017"])
def test_energy(kind: str, waveform: str, energy_of: Any) -> None:
    """Energy is right within 0.5 %, half a step of 0.1 W, and what a refresh of 1 s explains."""
    wave = parse_waveform(waveform)
    bench = Bench(wave, voltage_v=12.0)
    device = Pzem004tDevice(bench) if kind == "pzem004t" else Pzem017Device(bench)
    source = make_source(f"{kind}:/dev/x")
    request = read_request(1, READ_INPUT, 0, 10 if kind == "pzem004t" else 8)
    energy_j, true_j, coverage = energy_of(
        source.decoder({"address": 1}),
        source.info(),
        lambda t_s: device.answer(request, t_s),
        wave,
        poll_s=0.2,
    )
    swing_w = 0 if waveform.startswith("constant") else 20
    assert energy_j == pytest.approx(true_j, abs=0.005 * true_j + 0.05 * 20 + 1.0 * swing_w)
    assert coverage == pytest.approx(1)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("line", [{}, {"stray": "00"}, {"echo": True}])
def test_simulated_ac_meter(line: dict[str, Any], simulate: Any, read_samples: Any) -> None:
    """A meter on a port is found and read, also on a line that echoes or glitches."""
    port = simulate("pzem004t", "constant:20", **line).port
    samples, faults = read_samples(make_source(f"pzem004t:{port}"), 2)
    assert samples.power_w[samples.ok] == pytest.approx(20, abs=0.1)
    assert faults == []


@pytest.mark.usefixtures("patient")
def test_simulated_dc_meter(simulate: Any, read_samples: Any) -> None:
    """A DC meter whose shunt setting agrees is read."""
    port = simulate("pzem017", "constant:20", voltage_v=12).port
    samples, faults = read_samples(make_source(f"pzem017:{port},shunt=100"), 2)
    assert samples.power_w[samples.ok] == pytest.approx(20, abs=0.1)
    assert faults == []


def test_damaged_replies(simulate: Any) -> None:
    """A reply that is damaged, and damaged again when asked again, is a fault and no sample."""
    server = simulate("pzem004t", "constant:20")
    source = make_source(f"pzem004t:{server.port}")
    source.open()
    server.bench.faults = (parse_fault("crc@0+9999"),)
    (chunk,) = source.read()
    source.close()
    assert chunk.data == b""
    assert chunk.fault.startswith(("no valid Modbus reply at 9600 baud", "no reply at"))


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("code", "options", "complaint"),
    [
        (0, "", "which shunt is fitted is not known .*add shunt=100"),
        (1, ",shunt=100", "set for a 50 A shunt, but shunt=100 is fitted"),
        (-1, ",shunt=50", "set for a 10 A shunt, but shunt=50 is fitted"),
    ],
)
def test_shunt(code: int, options: str, complaint: str, simulate: Any) -> None:
    """Without the fitted shunt, or with another than the meter is set for, there is no run."""
    source = make_source(f"pzem017:{simulate('pzem017', shunt_code=code).port}{options}")
    source.open()
    source.identify()
    with pytest.raises(MeterInputError, match=complaint):
        source.start()
    source.close()


@pytest.mark.parametrize(
    ("kind", "behind", "device", "complaint"),
    [
        ("pzem004t", "pzem017", {}, "refused: Modbus exception 2 .no such register.; another"),
        ("pzem004t", "textline", {"rate_hz": 500}, r"no valid Modbus reply .* \(saw .*mains side"),
        ("pzem004t", "pzem004t", {"faults": ("stall@0+60",)}, "no reply at 9600 baud.*mains side"),
        ("pzem017", "pzem004t", {}, "not a pzem017: registers .*choose another kind or port"),
    ],
)
def test_wrong_device(
    kind: str, behind: str, device: dict[str, Any], complaint: str, simulate: Any, monkeypatch: Any
) -> None:
    """Another device, or none, behind the port is one line that says what was seen."""
    if "faults" not in device:
        monkeypatch.setattr("edgeperf.power.modbus.PATIENCE_S", 20.0)
    source = make_source(f"{kind}:{simulate(behind, **device).port}")
    source.open()
    with pytest.raises(MeterReplyError, match=complaint):
        source.identify()
    source.close()
