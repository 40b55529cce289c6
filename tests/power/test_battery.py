"""The battery's gauge: only while discharging, whatever the driver's sign."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.power import make_source
from edgeperf.power.base import Chunk, MeterInputError, MeterReplyError, Quantity, State
from edgeperf.power.battery import Battery, BatteryDecoder
from edgeperf.power.simulate.bench import Bench
from edgeperf.power.simulate.board import BatteryDevice
from edgeperf.power.simulate.tree import write_tree
from edgeperf.power.simulate.waveform import parse_waveform


def tree(root: Path, **device: Any) -> Path:
    """Write a battery under 6 W below *root*."""
    bench = Bench(parse_waveform("constant:6"), voltage_v=11.4, noise=0)
    write_tree(root, BatteryDevice(bench, **device).files(0.0))
    return root


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("power", [True, False])
def test_discharging_is_positive(sign: int, power: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """What leaves the battery is what the device takes, whatever sign the driver gives it."""
    tree(tmp_path, sign=sign, power=power)
    assert Battery.find(tmp_path) == ["battery:BAT0"]
    source = make_source(f"battery:,root={tmp_path}")
    source.open()
    assert source.identify().model == "DELL 5T0HX"
    samples = source.decoder(source.header()).feed(source.read()[0])
    assert samples.power_w == pytest.approx([6])
    assert source.info().measures is (Quantity.POWER if power else Quantity.VOLTAGE_CURRENT)


@pytest.mark.parametrize("status", ["Charging", "Full", "Not charging", "Unknown"])
def test_battery_that_is_not_discharging(status: str, tmp_path: Path) -> None:
    """On the charger the gauge says nothing of the device."""
    source = make_source(f"battery:,root={tree(tmp_path, status=status)}")
    source.open()
    with pytest.raises(MeterReplyError, match=f"not discharging .saw 'status {status}'.; unplug"):
        source.identify()


def test_charger_in_mid_run() -> None:
    """A charger that is plugged in makes readings invalid; a sign that flips is kept."""
    decoder = BatteryDecoder(-1)
    chunk = b"status %s\nvoltage_now 10000000\ncurrent_now %d\n"
    samples = [
        decoder.feed(Chunk(1, chunk % (status, micro)))
        for status, micro in ((b"Discharging", -5), (b"Charging", 5), (b"Discharging", 500000))
    ]
    assert [int(one.state[0]) for one in samples] == [State.OK, State.INVALID, State.OK]
    assert samples[2].power_w == pytest.approx([-5])


@given(
    st.binary(max_size=60)
    | st.text("status Dichargn voltecup_w0123\n", max_size=60).map(str.encode)
)
def test_any_bytes(data: bytes) -> None:
    """Noise raises nothing, and a sample that comes out of it is finite or not OK."""
    for prefix in (b"", b"status Discharging\n"):
        samples = BatteryDecoder(1).feed(Chunk(1, prefix + data))
        assert all(math.isfinite(watts) for watts in samples.power_w[samples.ok])


@pytest.mark.parametrize(
    ("port", "complaint"),
    [
        ("BAT7", "BAT7: below .* there is BAT0; name one, such as battery:BAT0"),
        ("ucsi-source-psy-USBC000:001", "there is BAT0"),
    ],
)
def test_wrong_battery(port: str, complaint: str, tmp_path: Path) -> None:
    """A battery that is not there, or is a USB-C contract, is refused with what there is."""
    with pytest.raises(MeterInputError, match=complaint):
        make_source(f"battery:{port},root={tree(tmp_path)}").open()
    with pytest.raises(MeterInputError, match="there is no battery"):
        make_source(f"battery:,root={tmp_path}/none").open()


@pytest.mark.parametrize("waveform", ["constant:6", "step:4,8,3.3", "sine:6,2,4"])
def test_energy(waveform: str, tmp_path: Path, energy_of: Any) -> None:
    """Energy is right within 0.5 % and the polls of 1 s around a step."""
    wave = parse_waveform(waveform)
    device = BatteryDevice(Bench(wave, voltage_v=11.4))
    write_tree(tmp_path, device.files(1000.0))
    source = make_source(f"battery:,root={tmp_path},refresh=1")
    source.open()
    source.identify()

    def exchange(t_s: float) -> bytes:
        write_tree(tmp_path, device.files(t_s))
        data: bytes = source.ask()  # type: ignore[attr-defined]
        return data

    energy_j, true_j, coverage = energy_of(
        source.decoder(source.header()), source.info(), exchange, wave, poll_s=1.0
    )
    edges_j = 0 if waveform.startswith("constant") else 2 * 4 * 1.0
    assert energy_j == pytest.approx(true_j, abs=0.005 * true_j + edges_j)
    assert coverage == pytest.approx(1)
