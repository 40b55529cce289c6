"""The LPM01A: both formats, what spoils them, a simulated board."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.power import make_source
from edgeperf.power.base import Chunk, MeterInputError, MeterReplyError, State
from edgeperf.power.lpm01a_format import LpmBinaryDecoder, LpmTextDecoder
from edgeperf.power.samples import Samples
from edgeperf.power.simulate.bench import Bench, parse_fault
from edgeperf.power.simulate.lpm01a import Lpm01aDevice, word_samples
from edgeperf.power.simulate.waveform import parse_waveform
from edgeperf.power.timebase import place
from edgeperf.power.window import look

Vector = Callable[[str], dict[str, Any]]
Decode = Callable[..., Samples]
BINARY = {"text": False, "rate": 10_000, "voltage": 3.3}


@pytest.mark.parametrize(("name", "header"), [("lpm_ascii", {}), ("lpm_bin", BINARY)])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_vectors(
    name: str, header: dict[str, Any], size: int, vector: Vector, decode: Decode
) -> None:
    """Three samples however the bytes were cut; nothing behind the end is one."""
    found = vector(name)
    raw = found["raw"]
    parts = [raw[i : i + size] for i in range(0, len(raw), size)]
    samples = decode("lpm01a", *parts, header=header)
    assert samples.current_a.tolist() == pytest.approx(found["expect"]["amps"])
    assert samples.power_w == pytest.approx(np.array(found["expect"]["amps"]) * 3.3)
    assert samples.state.tolist() == [State.OK] * 3


def test_energy_output(decode: Decode) -> None:
    """Joules of a period become watts."""
    samples = decode("lpm01a", b"1000-08\r\n", header={"rate": 1000, "energy": True})
    assert samples.power_w == pytest.approx([0.01])


def test_sample_times(decode: Decode) -> None:
    """A sample's time is its number times the period; a spoilt line is one sample."""
    samples = decode("lpm01a", b"1000-06\r\n10x0-06\r\n1000-06\r\n")
    assert samples.tick_ns.tolist() == [0, 2_000_000]


def test_lost_samples_show_in_the_time_stamp(decode: Decode) -> None:
    """A time stamp ahead of the samples is a gap, and the clock catches up."""
    line, stamp = b"1000-06\r\n", b"TimeStamp: %03ds 000ms, buff 03%%\r\n"
    stream = line * 1000 + stamp % 1 + line * 900 + stamp % 2 + line
    samples = decode("lpm01a", stream)
    assert samples.state.tolist().count(State.GAP) == 1
    assert samples.tick_ns[-1] == 2_000_000_000


def test_lost_byte_in_binary() -> None:
    """A slip spoils the block it is in, not one word of it is used, and the next is right."""
    values = np.full(1000, 0.005)
    block = word_samples(values)
    marks = [b"\xf0\xf3" + (100 * n).to_bytes(4, "big") + b"\x03\xff\xff" for n in (1, 2, 3, 4)]
    stream = block + marks[0] + block[:500] + block[501:] + marks[1] + block + marks[2]
    decoder = LpmBinaryDecoder(10_000, 3.3, energy=False)
    samples = decoder.feed(Chunk(1, stream))
    assert np.count_nonzero(samples.ok) == 2000
    assert samples.current_a[samples.ok] == pytest.approx(0.005, rel=0.001)
    assert samples.tick_ns[-1] == 2999 * 100_000
    assert decoder.faults == {"blocks with bytes missing": 1}
    two_lost = decoder.feed(Chunk(2, block[:100] + block[102:] + marks[3]))
    assert two_lost.state.tolist() == [State.GAP]


def test_impossible_current(decode: Decode) -> None:
    """More than the board can let through is a fault, not a load."""
    samples = decode("lpm01a", b"9000-04\r\n1000-06\r\n")
    assert samples.state.tolist() == [State.INVALID, State.OK]
    assert math.isnan(samples.power_w[0])


def test_trip_and_errors(decode: Decode) -> None:
    """An overcurrent or an error from the meter marks its moment."""
    samples = decode("lpm01a", b"\xf0\xf5\xff\xff\xf0\xf1oops\xff\xff" + bytes(2), header=BINARY)
    assert samples.state.tolist() == [State.INVALID, State.INVALID]
    assert State.INVALID in decode("lpm01a", b"error: overrun\r\n").state


@given(st.lists(st.binary(max_size=80) | st.sampled_from([b"\xf0\xf3", b"\xff\xff"]), max_size=9))
def test_any_bytes(parts: list[bytes]) -> None:
    """Noise raises nothing, and a sample that comes out of it is finite or not OK."""
    for make in (LpmTextDecoder, LpmBinaryDecoder):
        decoder = make(10_000, 3.3, energy=False)
        for part in parts:
            samples = decoder.feed(Chunk(1, part))
            assert all(math.isfinite(watts) for watts in samples.power_w[samples.ok])


def test_endless_noise_is_not_kept() -> None:
    """Bytes that never form anything do not fill the memory."""
    for make in (LpmTextDecoder, LpmBinaryDecoder):
        decoder = make(10_000, 3.3, energy=False)
        for _ in range(50):
            assert len(decoder.feed(Chunk(1, b"\x11" * 1000))) == 0
        assert len(decoder._rest) < 5000


@pytest.mark.parametrize("options", ["", ",output=energy", ",rate=20000"])
@pytest.mark.parametrize("waveform", ["constant:0.05", "step:0.02,0.08,3", "sine:0.05,0.03,1"])
def test_energy(waveform: str, options: str) -> None:
    """Energy is right within 0.5 % and the rounding of a 12-bit mantissa, 1/512."""
    wave = parse_waveform(waveform)
    device = Lpm01aDevice(Bench(wave), refuse_first=False)
    source = make_source(f"lpm01a:/dev/x,voltage=3.3{options}")
    header = source.header()
    for command in (
        f"output {'energy' if header['energy'] else 'current'}",
        f"format {'ascii_dec' if header['text'] else 'bin_hexa'}",
        f"freq {header['rate']}",
        "start",
    ):
        device.answer(command.encode() + b"\n", 1000.0)
    decoder = source.decoder(header)
    parts = []
    for i in range(1, 200):
        t_s = 1000 + i * 0.02
        parts.append(decoder.feed(Chunk(round(t_s * 1e9), b"".join(device.stream(t_s)))))
    samples = Samples.concatenate(parts)
    placed = place(samples, round(1e9 / header["rate"]), 0.02)
    samples.t_ns[:] = placed.t_ns
    seen = look(samples, source.info(), 1000_500_000_000, 1003_500_000_000)
    true_j = wave.energy_j(1000.5, 1003.5)
    assert seen.energy_j == pytest.approx(true_j, rel=0.005 + 1 / 512)
    assert seen.coverage == pytest.approx(1, abs=0.001)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("rate", [1000, 20_000])
def test_simulated_board(rate: int, simulate: Any, read_samples: Any) -> None:
    """A board is taken over (refusing once), set up, read, and given back."""
    port = simulate("lpm01a", "constant:0.05").port
    source = make_source(f"lpm01a:{port},voltage=3.3,rate={rate}")
    samples, _ = read_samples(source, 300)
    assert len(samples) >= 300
    assert samples.power_w[samples.ok] == pytest.approx(0.05, rel=0.005)


def test_damaged_lines() -> None:
    """Lost bytes make lines that are no reading; what is left is right, and no time is lost."""
    bench = Bench(parse_waveform("constant:0.05"), faults=[parse_fault("drop@0+9999:0.02")])
    device = Lpm01aDevice(bench, refuse_first=False)
    device.answer(b"freq 1k\nstart\n", 0.0)
    decoder = LpmTextDecoder(1000, 3.3, energy=False)
    stream = b"".join(bench.damage(message, 1.0) for message in device.stream(3.0))
    samples = decoder.feed(Chunk(1, stream))
    assert 2000 < len(samples) < 3000
    assert samples.power_w[samples.ok] == pytest.approx(0.05, rel=0.01)
    assert "lines that are no reading" in decoder.faults
    assert samples.tick_ns[samples.ok][-1] == pytest.approx(3e9, abs=5e6)


@pytest.mark.usefixtures("patient")
def test_other_voltage(simulate: Any, monkeypatch: Any) -> None:
    """A voltage that is not set yet is set and read back."""
    monkeypatch.setattr("edgeperf.power.lpm01a.CALIBRATION_S", 0.1)
    source = make_source(f"lpm01a:{simulate('lpm01a').port},voltage=1.8")
    source.open()
    assert source.identify().firmware == "1.0.6"
    source.start()
    source.stop()
    source.close()


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("lpm01a:/dev/x,voltage=5", "voltage=5.0: expected 1.8 to 3.3"),
        ("lpm01a:/dev/x,rate=1234", "rate=1234: not one of 1, 2, 5"),
        ("lpm01a:/dev/x,rate=20000,output=energy", "rate=20000: not one of"),
    ],
)
def test_wrong_spec(spec: str, complaint: str) -> None:
    """A spec that cannot be used says which part of it."""
    with pytest.raises(MeterInputError, match=complaint):
        make_source(spec)


def test_voltage_at_its_limit() -> None:
    """3.3 V is allowed, whatever 3300 * 0.001 is."""
    make_source("lpm01a:/dev/x,voltage=3.3000000000000003")


@pytest.mark.usefixtures("patient")
def test_voltage_missing(simulate: Any) -> None:
    """Without a voltage nothing is set and nothing is switched on."""
    source = make_source(f"lpm01a:{simulate('lpm01a').port}")
    source.open()
    source.identify()
    with pytest.raises(MeterInputError, match=r"voltage missing: .*such as voltage=3\.3"):
        source.start()
    source.close()


@pytest.mark.parametrize(
    ("behind", "device", "complaint"),
    [
        ("lpm01a", {"faults": ("stall@0+60",)}, r"did not acknowledge 'version' .saw nothing"),
        ("textline", {}, r"no PowerShield: did not acknowledge 'version' .saw "),
    ],
)
def test_wrong_device(
    behind: str, device: dict[str, Any], complaint: str, simulate: Any, monkeypatch: Any
) -> None:
    """Another device, or none, behind the port is one line that says what was seen."""
    monkeypatch.setattr("edgeperf.power.lpm01a.REPLY_S", 0.3)
    source = make_source(f"lpm01a:{simulate(behind, **device).port}")
    source.open()
    with pytest.raises(MeterReplyError, match=complaint):
        source.identify()
    source.close()
