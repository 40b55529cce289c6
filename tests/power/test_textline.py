"""The text-line meter: its notations, its vectors, and a simulated one on a pty."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.power import make_source
from edgeperf.power.base import Chunk, MeterInputError, MeterReplyError, State
from edgeperf.power.samples import Samples
from edgeperf.power.textline_decoder import TextLineDecoder

Vector = Callable[[str], dict[str, Any]]
Decode = Callable[..., Samples]
END = b"\n"  # what follows the half line that every stream begins with


@pytest.mark.parametrize("name", ["csv_ok", "csv_locale", "csv_cksum"])
def test_good_lines(name: str, vector: Vector, decode: Decode) -> None:
    """A line is watts, whatever the locale, with or without a checksum."""
    samples = decode("textline", END, vector(name)["raw"])
    assert samples.power_w.tolist() == [6.0]
    assert samples.voltage_v.tolist() == [5.0]
    assert samples.current_a.tolist() == [1.2]


@pytest.mark.parametrize("name", ["csv_half", "csv_boot"])
def test_opening_noise_is_no_reading(name: str, vector: Vector, decode: Decode) -> None:
    """Half a line and boot messages give nothing; the whole line after them counts."""
    assert decode("textline", vector(name)["raw"]).power_w.tolist() == [6.0]


def test_bad_checksum_is_refused(vector: Vector) -> None:
    """A flipped digit is counted, not believed."""
    decoder = TextLineDecoder()
    assert len(decoder.feed(Chunk(1, END + vector("csv_cksum_bad")["raw"]))) == 0
    assert decoder.faults == {"lines that are no reading": 1}


def test_clock_wrap(vector: Vector, decode: Decode) -> None:
    """A millisecond counter of 32 bits wraps without a gap."""
    samples = decode("textline", END, vector("csv_wrap")["raw"])
    assert (samples.tick_ns[1] - samples.tick_ns[0]) == 10_000_000
    assert samples.state.tolist() == [State.OK, State.OK]


def test_board_restart_is_a_gap(vector: Vector, decode: Decode) -> None:
    """A clock that went back further than a wrap explains begins anew, after a gap."""
    samples = decode("textline", END, vector("csv_restart")["raw"])
    assert samples.state.tolist() == [State.OK, State.GAP, State.OK]
    assert samples.tick_ns[2] > samples.tick_ns[0]


@pytest.mark.parametrize(
    "line",
    [
        b"V=5.0V I=1200mA P=6.0W",
        b"voltage=5,0 current=1,2",
        b"bus_mV=5000 current_mA=1200 shunt_mV=12",
        b'{"t_ms": 7, "voltage": 5.0, "current_mA": 1200}',
        b"5000\t1200\t6000\t0",
    ],
)
def test_other_notations(line: bytes, decode: Decode) -> None:
    """Pairs, JSON and named columns are understood; a shunt voltage is not the voltage."""
    header = b"mV\tmA\tmW\tms\n" if b"\t" in line else b""
    assert decode("textline", END, header + line + END).power_w.tolist() == [6.0]


@pytest.mark.parametrize(
    "line",
    [
        b"1000,50000.000,1200.000,6000.000",  # a digit too many: not volts times amps
        b"1000,5000.0001200.000,6000.000",  # a comma was lost
        b"V1=5V V2=5V I=1A",  # two voltages
        b"AT+GMI",  # ModemManager
        b"1000,5000.000,1200.000,6000.000*",
        b"5.00 0.800",  # which is which?
    ],
)
def test_lines_that_are_no_reading(line: bytes, decode: Decode) -> None:
    """What cannot be understood as a whole gives no sample."""
    assert len(decode("textline", END, line + END)) == 0


def test_dead_sensor_is_no_zero(decode: Decode) -> None:
    """A failed I2C read is 0 V and 0 A: invalid, not a board that needs nothing."""
    samples = decode("textline", END, b"1000,0.000,0.000,0.000\r\n")
    assert samples.state.tolist() == [State.INVALID]
    assert math.isnan(samples.power_w[0])


def test_sign_is_kept(decode: Decode) -> None:
    """The power register of an INA226 has no sign; the current's counts."""
    assert decode("textline", END, b"1,5000,-100,500\n").power_w.tolist() == [-0.5]


@given(st.lists(st.binary(max_size=60), max_size=20))
def test_any_bytes(parts: list[bytes]) -> None:
    """Noise raises nothing, and a sample that comes out of it is finite or not OK."""
    decoder = TextLineDecoder()
    for part in parts:
        samples = decoder.feed(Chunk(1, part))
        assert all(math.isfinite(watts) for watts in samples.power_w[samples.ok])


@given(st.binary(max_size=40), st.integers(1, 50))
def test_any_split(noise: bytes, size: int) -> None:
    """How the bytes were cut into reads changes nothing."""
    stream = noise + b"\n" + b"".join(b"%d,5000.0,1200.0,6000.0\r\n" % n for n in range(10))
    whole = TextLineDecoder().feed(Chunk(1, stream))
    decoder = TextLineDecoder()
    cut = [decoder.feed(Chunk(1, stream[i : i + size])) for i in range(0, len(stream), size)]
    assert Samples.concatenate(cut).tick_ns.tolist() == whole.tick_ns.tolist()
    assert len(whole) >= 10


@pytest.mark.parametrize("notation", ["csv", "csv-de", "pairs", "json"])
def test_simulated_board(notation: str, simulate: Any, record: Any) -> None:
    """A board on a port is identified with its rate, and read."""
    port = simulate("textline", "constant:6", notation=notation, rate_hz=200).port
    source = make_source(f"textline:{port}")
    samples, faults = record(source, 0.5)
    assert source.info().rate_hz == pytest.approx(200, rel=0.05)
    assert len(samples) > 20
    assert samples.power_w[samples.ok].mean() == pytest.approx(6, rel=0.005)
    assert faults in ([], ["lines that are no reading"])  # the boot message


def test_damaged_lines_are_refused(simulate: Any, record: Any) -> None:
    """Flipped bits are caught by the checksum; what is left is right."""
    port = simulate("textline", faults=("crc@0+60:0.3",)).port
    samples, faults = record(make_source(f"textline:{port}"), 1.0)
    assert samples.power_w[samples.ok] == pytest.approx(6, rel=0.01)
    assert faults == ["lines that are no reading"]


def test_silent_port(simulate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port behind which nothing speaks is one line that says so."""
    monkeypatch.setattr("edgeperf.power.textline.PATIENCE_S", 0.3)
    port = simulate("textline", faults=("stall@0+60",)).port
    source = make_source(f"textline:{port}")
    source.open()
    with pytest.raises(MeterReplyError, match=r"sent nothing for 0\.3 s at 115200 baud"):
        source.identify()
    source.close()


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("textline:/dev/no-such-port", "no such port"),
        ("textline:/dev/null", "not a serial port"),
        ("textline", "no port given, and none here looks like one"),
    ],
)
def test_wrong_port(spec: str, complaint: str) -> None:
    """A port that cannot be one is bad input, in one line."""
    with pytest.raises(MeterInputError, match=complaint):
        make_source(spec).open()


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("textline:/dev/x,columns=ms+mV", "expected one power"),
        ("textline:/dev/x,bauds=9600", "bauds: no such option; textline has baud, "),
        ("textline:/dev/x,baud=fast", "baud"),
        ("textlin:/dev/x", "no such kind; known: textline"),
    ],
)
def test_wrong_spec(spec: str, complaint: str) -> None:
    """A spec that cannot be used says which part of it, before a port is touched."""
    with pytest.raises(MeterInputError, match=complaint):
        make_source(spec)


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        (b"\x80\xff\x00\x7f\xfe" * 9, r"no text lines at 115200 baud \(saw b.*; give its baud="),
        (b"temp 23.5\r\n", "not a reading: 'temp 23.5'; name its columns"),
        (b"7,0,0,0\r\n", "reads no power: '7,0,0,0'; check its sensor"),
    ],
)
def test_what_is_no_meter(
    sent: bytes, complaint: str, simulate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong baud, wrong device and a dead sensor are told apart, with what was seen."""
    monkeypatch.setattr("edgeperf.power.textline.PATIENCE_S", 0.4)
    server = simulate("textline")
    monkeypatch.setattr(server._device, "stream", lambda _: [sent])
    source = make_source(f"textline:{server.port}")
    source.open()
    with pytest.raises(MeterReplyError, match=complaint):
        source.identify()
    source.close()


def test_stuck_sensor_rule_can_be_left_out() -> None:
    """A sensor that is too coarse to flicker is not called frozen."""
    assert make_source("textline:/dev/x").info().stale_after_s == 1.0
    assert make_source("textline:/dev/x,stale_after=30").info().stale_after_s == 30.0
    assert make_source("textline:/dev/x,stale_after=0").info().stale_after_s is None


def test_columns_named_once_at_boot(simulate: Any, record: Any, monkeypatch: Any) -> None:
    """What a header line said before the recording began holds for the recording."""
    server = simulate("textline")
    count = 0

    def stream(_: float) -> list[bytes]:
        nonlocal count
        count += 1
        line = b"%d,6.0,5.0,%.4f\n" % (count * 10, 1.2 + count % 3 * 1e-4)
        return [b"boot\nms,power_W,bus_V,current_A\n"] if count == 1 else [line]

    monkeypatch.setattr(server._device, "stream", stream)
    samples, _ = record(make_source(f"textline:{server.port}"), 0.3)
    assert set(samples.power_w.tolist()) == {6.0}
    assert set(samples.voltage_v.tolist()) == {5.0}
