"""SCPI instruments and Korad supplies: strict replies, wrong devices, simulated ones."""

import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.power import make_source
from edgeperf.power.base import (
    Chunk,
    MeterError,
    MeterInputError,
    MeterLostError,
    MeterReplyError,
    Source,
    State,
)
from edgeperf.power.korad import KoradDecoder
from edgeperf.power.samples import Samples
from edgeperf.power.scpi import QUESTIONS, ScpiDecoder
from edgeperf.power.simulate.bench import Bench, parse_fault
from edgeperf.power.simulate.korad import KoradDevice
from edgeperf.power.simulate.scpi import ScpiDevice
from edgeperf.power.simulate.waveform import parse_waveform


@pytest.mark.parametrize(
    ("measures", "reply", "watts"),
    [
        ("voltage+current", b"5.0000\n1.2000\n", 6.0),
        ("voltage+current", b"+5.00000000E+00\n1.2\n", 6.0),
        ("power", b"6.000\n", 6.0),
        ("current", b"1.2000E+00\n", 6.0),
        ("voltage+current", b"5\n-.5\n", -2.5),
    ],
)
def test_scpi_replies(measures: str, reply: bytes, watts: float) -> None:
    """NR1, NR2 and NR3 numbers are read; a voltage that was given stands in; the sign stays."""
    samples = ScpiDecoder(measures, 5.0).feed(Chunk(1, reply))
    assert samples.power_w == pytest.approx([watts])


@pytest.mark.parametrize(
    "reply", [b"5.0\n", b"5.0\n1.2\n6\n", b"5,0\n1.2\n", b"5.0 V\n1.2 A\n", b"nan\n1\n", b"AT\n1\n"]
)
def test_scpi_replies_that_are_no_reading(reply: bytes) -> None:
    """What is not exactly one number a question gives no sample."""
    decoder = ScpiDecoder("voltage+current", math.nan)
    assert len(decoder.feed(Chunk(1, reply))) == 0
    assert decoder.faults == {"replies that are no reading": 1}


@pytest.mark.parametrize("reply", [b"5.0\n9.9E37\n", b"9.91E+37\n1\n", b"0.000\n0.000\n"])
def test_scpi_sentinels(reply: bytes) -> None:
    """Over-range, no data, and an output that is off are invalid."""
    samples = ScpiDecoder("voltage+current", math.nan).feed(Chunk(1, reply))
    assert samples.state.tolist() == [State.INVALID]


@given(st.binary(max_size=60) | st.text("0123456789.Ee+-\n ", max_size=40).map(str.encode))
def test_any_bytes(data: bytes) -> None:
    """Noise raises nothing, and a sample that comes out of it is finite or not OK."""
    decoders = [KoradDecoder(), *(ScpiDecoder(measures, 5.0) for measures in QUESTIONS)]
    for decoder in decoders:
        samples = decoder.feed(Chunk(1, data))
        assert all(math.isfinite(watts) for watts in samples.power_w[samples.ok])


def test_korad_replies() -> None:
    """Ten characters and a status byte; anything else, or an output that is off, is not."""
    decoder = KoradDecoder()

    def read(reply: bytes) -> Samples:
        return decoder.feed(Chunk(1, reply))

    assert read(b"05.000.733A").power_w.tolist() == [pytest.approx(3.665)]
    assert read(b"05.000.733\x01").state.tolist() == [State.INVALID]
    for reply in (b"05.000.73A", b"5.0000.733A", b"05.000,733A", b"05.000.733AA", b""):
        assert len(read(reply)) == 0


@pytest.mark.parametrize("waveform", ["constant:6", "step:4,8,5", "sine:6,2,4"])
@pytest.mark.parametrize("kind", ["scpi", "korad"])
def test_energy(kind: str, waveform: str, energy_of: Any) -> None:
    """Energy is right within 0.5 %, 1 mA and 10 mV steps, and a poll at each edge."""
    wave = parse_waveform(waveform)
    bench = Bench(wave, voltage_v=5.0)
    if kind == "scpi":
        device: Any = ScpiDevice(bench, suffix="")
        question = b"MEAS:VOLT?\nMEAS:CURR?\n"
    else:
        device, question = KoradDevice(bench), b"VOUT1?IOUT1?STATUS?"
    source = make_source(f"{kind}:/dev/x")
    energy_j, true_j, coverage = energy_of(
        source.decoder(source.header()),
        source.info(),
        lambda t_s: device.answer(question, t_s),
        wave,
        poll_s=1 / source.info().rate_hz,
    )
    edges_j = 0 if waveform.startswith("constant") else 4 * 0.3
    assert energy_j == pytest.approx(true_j, abs=0.005 * true_j + edges_j)
    assert coverage == pytest.approx(1)


@pytest.mark.usefixtures("patient")
def test_simulated_supply_over_tcp(simulate: Any, read_samples: Any) -> None:
    """A supply on the network is asked as its maker wants it."""
    source = make_source(f"scpi:{simulate('scpi', 'constant:6').port},rate=20")
    samples, faults = read_samples(source, 4)
    assert samples.power_w[samples.ok] == pytest.approx(6, rel=0.01)
    assert faults == []


@pytest.mark.usefixtures("patient")
def test_simulated_multimeter(simulate: Any, read_samples: Any) -> None:
    """A meter of current alone gives watts with a voltage, and refuses without."""
    port = simulate("scpi", identity="KEYSIGHT TECHNOLOGIES,34465A,MY1,A.02", suffix="").port
    source = make_source(f"scpi:{port},measures=current,voltage=5,rate=20")
    samples, _ = read_samples(source, 2)
    assert samples.power_w[samples.ok] == pytest.approx(6, rel=0.01)
    source = make_source(f"scpi:{port},measures=current")
    source.open()
    with pytest.raises(MeterInputError, match=r"voltage missing: .* such as voltage=5\.0"):
        source.start()
    source.close()


def test_supply_that_does_not_understand(simulate: Any, monkeypatch: Any) -> None:
    """A question that the supply does not know is an error that says what to give."""
    monkeypatch.setattr("edgeperf.power.scpi.Scpi.patience_s", 0.2)
    source = make_source(f"scpi:{simulate('scpi').port},ask_current=MEAS:AMPS? CH1")
    source.open()
    source.identify()
    with pytest.raises(MeterReplyError, match=r"no reply to MEAS:AMPS\? CH1"):
        source.start()
    source.close()


def _read_until_lost(source: Source) -> None:
    for _ in range(1000):
        source.read()


@pytest.mark.usefixtures("patient")
def test_supply_that_goes_away(simulate: Any) -> None:
    """A connection that closes is a lost meter, and one that is back is read again."""
    server = simulate("scpi")
    source = make_source(f"scpi:{server.port},rate=50")
    source.open()
    server.bench.faults = (parse_fault("unplug@0+9999"),)
    with pytest.raises(MeterLostError):
        _read_until_lost(source)
    source.close()
    with pytest.raises(MeterError, match="nothing listens on TCP port"):
        source.open()
    server.bench.faults = ()
    for _ in range(500):
        try:
            source.open()
            break
        except MeterError:
            source.close()
            time.sleep(0.05)
    source.identify()
    assert source.read()[0].data
    source.close()


@pytest.mark.usefixtures("patient")
def test_simulated_korad(simulate: Any, read_samples: Any) -> None:
    """A Korad supply is identified without line ends and read."""
    source = make_source(f"korad:{simulate('korad', 'constant:6').port}")
    samples, faults = read_samples(source, 2)
    assert samples.power_w[samples.ok] == pytest.approx(6, rel=0.01)
    assert faults == []


def test_damaged_korad_replies(simulate: Any) -> None:
    """A lost byte is a fault; nothing is made of the rest."""
    server = simulate("korad", "constant:6")
    source = make_source(f"korad:{server.port}")
    source.open()
    server.bench.faults = (parse_fault("drop@0+9999"),)
    (chunk,) = source.read()
    source.close()
    assert chunk.data == b""
    assert chunk.fault == "no whole reply to VOUT1?"


@pytest.mark.parametrize(
    ("spec", "behind", "device", "complaint"),
    [
        ("korad", "korad", {"faults": ("stall@0+60",)}, "no reply to .IDN. at 9600 baud"),
        ("korad", "wt310", {}, "no reply to .IDN. at 9600 baud"),  # it waits for a line end
        ("korad", "korad", {"identity": "OWON,P4603"}, "not a Korad supply .saw b'O|no reply"),
        ("scpi", "korad", {}, "no (answer|reply) to .IDN."),
        ("scpi", "textline", {}, "no (answer|reply) to .IDN.|noise instead of"),
    ],
)
def test_wrong_device(
    spec: str, behind: str, device: dict[str, Any], complaint: str, simulate: Any, monkeypatch: Any
) -> None:
    """Another device, or none, behind the port is one line that says what was seen."""
    monkeypatch.setattr("edgeperf.power.scpi.Scpi.patience_s", 0.3)
    source = make_source(f"{spec}:{simulate(behind, **device).port}")
    source.open()
    with pytest.raises(MeterReplyError, match=complaint):
        source.identify()
    source.close()


@pytest.mark.parametrize(
    ("spec", "error", "complaint"),
    [
        ("scpi", MeterInputError, "no port given, and none here looks like one"),
        ("scpi:no.such.host.invalid", MeterInputError, "no such host"),
        ("scpi:127.0.0.1:1", MeterError, "nothing listens on TCP port 1 there"),
        ("scpi:127.0.0.1:99999", MeterInputError, "expected a device path or HOST:PORT"),
        ("scpi:/dev/x,measures=watts", MeterInputError, "measures"),
        ("korad:/dev/no-such-port", MeterInputError, "no such port"),
    ],
)
def test_wrong_spec(spec: str, error: type[Exception], complaint: str) -> None:
    """A spec that cannot be used says which part of it."""
    with pytest.raises(error, match=complaint):
        make_source(spec).open()
