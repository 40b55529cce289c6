"""hwmon and Jetson sensors: the right rail, never a part twice, never a contract."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.power import make_source, simulator_class
from edgeperf.power.base import (
    Boundary,
    Chunk,
    MeterError,
    MeterInputError,
    MeterLostError,
    MeterReplyError,
    Method,
    Quantity,
    State,
)
from edgeperf.power.hwmon import Hwmon
from edgeperf.power.ina3221 import Ina3221
from edgeperf.power.rails import RailDecoder
from edgeperf.power.simulate.bench import Bench
from edgeperf.power.simulate.board import JETSONS
from edgeperf.power.simulate.tree import write_tree
from edgeperf.power.simulate.waveform import parse_waveform

Vector = Callable[[str], dict[str, Any]]
PAIR: dict[str, Any] = {
    "rails": [{"voltage": ["in1_input", 1e-3], "current": ["curr1_input", 1e-3]}]
}
CHIP = "sys/class/hwmon/hwmon4"


def board(root: Path, kind: str, power_w: float = 6.0, **device: Any) -> Path:
    """Write the sensors of a board under constant load below *root*."""
    bench = Bench(parse_waveform(f"constant:{power_w}"), noise=0)
    write_tree(root, simulator_class(kind)(bench, **device).files(1.0))
    return root


def chip(root: Path, name: str, **files: str) -> None:
    """Write one more hwmon chip below *root*."""
    write_tree(root, {f"{CHIP}/name": name, **{f"{CHIP}/{k}": v for k, v in files.items()}})


def test_vector(vector: Vector, decode: Any) -> None:
    """Millivolts times milliamperes are microwatts."""
    found = vector("hwmon_ina")
    samples = decode("hwmon", found["raw"], header=PAIR)
    assert samples.power_w == pytest.approx([found["expect"]["watts"]])


@pytest.mark.parametrize(
    "data",
    [
        b"in1_input 5032\n",
        b"in1_input 5032\ncurr1_input\n",
        b"in1_input 5032\ncurr1_input 1.2\n",
        b"in1_input 5032\nin1_input 5032\ncurr1_input 1208\n",
        b"in1_input 5032\ncurr1_input 1208\ncurr2_input 1\n",
        b"",
    ],
)
def test_incomplete_readings(data: bytes, decode: Any) -> None:
    """A missing half is unknown, never 0."""
    assert len(decode("hwmon", data, header=PAIR)) == 0


def test_dead_sensor_is_invalid(decode: Any) -> None:
    """0 V with 0 A is a sensor that does not answer; a negative current keeps its sign."""
    dead = decode("hwmon", b"in1_input 0\ncurr1_input 0\n", header=PAIR)
    assert dead.state.tolist() == [State.INVALID]
    back = decode("hwmon", b"in1_input 5000\ncurr1_input -100\n", header=PAIR)
    assert back.power_w == pytest.approx([-0.5])


@given(st.binary(max_size=60) | st.text("in1_put cur0123456789-\n", max_size=60).map(str.encode))
def test_any_bytes(data: bytes) -> None:
    """Noise raises nothing, and a sample that comes out of it is finite or not OK."""
    samples = RailDecoder(PAIR["rails"]).feed(Chunk(1, data))
    assert all(math.isfinite(watts) for watts in samples.power_w[samples.ok])
    assert len(RailDecoder([]).feed(Chunk(1, data))) == 0


@pytest.mark.parametrize("name", sorted(JETSONS))
def test_total_of_each_jetson(name: str, tmp_path: Path, read_samples: Any) -> None:
    """Every board's total is found by label, and its parts are not added to it."""
    board(tmp_path, "ina3221", 15.0, board=name)
    assert Ina3221.find(tmp_path) == ["ina3221"]
    source = make_source(f"ina3221:,root={tmp_path},rate=50")
    samples, _ = read_samples(source, 2)
    assert samples.power_w[samples.ok] == pytest.approx(15, rel=0.01)
    info = source.info()
    assert info.boundary is (Boundary.PARTIAL if name == "agx-orin" else Boundary.DC_INPUT)
    assert 0.1 < info.offset_w < 0.5  # 16 mA and 16 mV at what was read
    assert info.measures is Quantity.VOLTAGE_CURRENT


def test_one_rail(tmp_path: Path, read_samples: Any) -> None:
    """A rail that was named is read alone, and is labelled as a part."""
    board(tmp_path, "ina3221", 15.0)
    source = make_source(f"ina3221:VDD_SOC,root={tmp_path},rate=50")
    samples, _ = read_samples(source, 2)
    assert samples.power_w[0] == pytest.approx(4.5, rel=0.01)
    assert source.info().boundary is Boundary.RAIL


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("ina3221:VDD_IN+VDD_SOC", "VDD_IN already includes the other rails; name VDD_IN alone"),
        ("ina3221:VDD_SOC+VDD_SOC", "a rail is named twice"),
        ("ina3221:VDD_GPU", "no rail 'VDD_GPU'; there is ina3221/VDD_IN, "),
        ("hwmon:VDD_IN+VDD_SOC", "VDD_IN already includes"),
        ("hwmon", "several rails; name one, such as hwmon:ina3221/VDD_IN: "),
    ],
)
def test_wrong_rail(spec: str, complaint: str, tmp_path: Path) -> None:
    """A sum that would count twice, or a name that is none, is refused with what there is."""
    board(tmp_path, "ina3221")
    source = make_source(f"{spec},root={tmp_path}" if ":" in spec else f"{spec}:,root={tmp_path}")
    with pytest.raises(MeterInputError, match=complaint):
        source.open()


def test_board_that_is_not_known(tmp_path: Path) -> None:
    """Without a known total nothing is guessed; without a sensor it says so."""
    chip(tmp_path, "ina3221", in1_label="A", in1_input="5000", curr1_input="8")
    with pytest.raises(MeterInputError, match=r"which of A is the total .* such as ina3221:A"):
        make_source(f"ina3221:,root={tmp_path}").open()
    with pytest.raises(MeterInputError, match=r"no INA3221 below .*; this is no Jetson"):
        make_source(f"ina3221:,root={tmp_path}/none").open()
    with pytest.raises(MeterInputError, match="no sensor of power below"):
        make_source(f"hwmon:,root={tmp_path}/none").open()


def test_power_register(tmp_path: Path, read_samples: Any) -> None:
    """A chip that multiplies itself is read once, not as power and as its factors."""
    board(tmp_path, "hwmon")
    assert Hwmon.find(tmp_path) == ["hwmon:ina226/power1"]
    source = make_source(f"hwmon:,root={tmp_path},rate=50,gain=0.001")
    samples, faults = read_samples(source, 2)
    assert samples.power_w[samples.ok] == pytest.approx(6)
    assert faults == []
    assert source.info().measures is Quantity.POWER
    assert source.info().gain == 0.001


def test_energy_counter(tmp_path: Path, read_samples: Any) -> None:
    """A chip that counts microjoules is a counter; it cannot be added to a power."""
    chip(tmp_path, "amd_energy", energy1_input="5000000", energy1_label="Esocket0")
    source = make_source(f"hwmon:Esocket0,root={tmp_path},rate=50")
    samples, _ = read_samples(source, 2)
    assert samples.energy_j[0] == pytest.approx(5)
    assert source.info().method is Method.COUNTER
    board(tmp_path, "hwmon")
    with pytest.raises(MeterInputError, match="a counter cannot be added to a power"):
        make_source(f"hwmon:Esocket0+power1,root={tmp_path}").open()


def test_average_power(tmp_path: Path) -> None:
    """A power that the driver averages counts until the next one."""
    chip(tmp_path, "amdgpu", power1_average="9000000", power1_label="PPT")
    source = make_source(f"hwmon:PPT,root={tmp_path}")
    source.open()
    assert source.info().method is Method.HOLD


def test_labels_with_a_plus(tmp_path: Path) -> None:
    """``+12V`` is a label, not a sum."""
    chip(
        tmp_path,
        "corsairpsu",
        power1_input="1000000",
        power1_label="power total",
        power2_input="500000",
        power2_label="power +12v",
    )
    make_source(f"hwmon:power +12v,root={tmp_path}").open()
    with pytest.raises(MeterInputError, match="no rail 'power '"):
        make_source(f"hwmon:power total+power +12v,root={tmp_path}").open()


def test_contract_is_no_measurement(tmp_path: Path) -> None:
    """A USB-C port shows volts and amperes that were negotiated, not measured."""
    chip(tmp_path, "ucsi_source_psy_USBC000:001", in0_input="20000", curr0_input="3250")
    assert Hwmon.find(tmp_path) == []
    with pytest.raises(MeterInputError, match="shows a negotiated contract"):
        make_source(f"hwmon:ucsi_source_psy_USBC000:001/in0,root={tmp_path}").open()


def test_channel_that_cannot_be_read(tmp_path: Path) -> None:
    """A disabled channel is skipped with a note; asking for it says why."""
    board(tmp_path, "ina3221")
    channel = tmp_path / "sys/class/hwmon/hwmon2/in3_input"
    channel.unlink()
    channel.mkdir()  # reads of a folder fail, as those of a disabled channel do
    source = make_source(f"ina3221:,root={tmp_path}")
    source.open()
    assert "VDD_SOC (Is a directory)" in source.identify().details["skipped"]
    with pytest.raises(MeterInputError, match=r"cannot be read .*is its channel disabled"):
        make_source(f"ina3221:VDD_SOC,root={tmp_path}").open()


def test_two_chips_alike(tmp_path: Path) -> None:
    """Two rails of the same name are told apart by the address of their chip."""
    for n, address in enumerate(("1-0040", "1-0041")):
        write_tree(
            tmp_path,
            {
                f"sys/class/hwmon/hwmon{n}/name": "ina226",
                f"sys/class/hwmon/hwmon{n}/power1_input": str((n + 1) * 1000000),
                f"sys/bus/i2c/devices/{address}/uevent": "",
            },
        )
        link = tmp_path / f"sys/class/hwmon/hwmon{n}/device"
        link.symlink_to(tmp_path / f"sys/bus/i2c/devices/{address}")
    with pytest.raises(MeterInputError, match=r"2 rails .*; there is 1-0040/power1, 1-0041/power1"):
        make_source(f"hwmon:power1,root={tmp_path}").open()
    source = make_source(f"hwmon:1-0041/power1,root={tmp_path}")
    source.open()
    assert b"2000000" in source.read()[0].data
    both = make_source(f"hwmon:1-0040/power1+1-0041/power1,root={tmp_path}")
    both.open()
    assert RailDecoder(both.header()["rails"]).feed(both.read()[0]).power_w == pytest.approx([3])


def test_sensor_that_vanishes(tmp_path: Path) -> None:
    """A driver that is removed is a lost meter; a reading that fails is a fault."""
    board(tmp_path, "hwmon")
    source = make_source(f"hwmon:,root={tmp_path},rate=50")
    source.open()
    path = tmp_path / "sys/class/hwmon/hwmon1/power1_input"
    path.unlink()
    with pytest.raises(MeterLostError, match="power1_input is gone; was its driver removed"):
        source.read()
    path.mkdir()
    assert source.read()[0].fault == "power1_input: Is a directory"
    path.rmdir()
    path.write_text("no number")
    with pytest.raises(MeterReplyError, match=r"reads no power .saw b'power1_input no number"):
        source.identify()


def test_forbidden_sensor(forbidden: Path) -> None:
    """A sensor that may not be read is one line that says what to do."""
    source = make_source("hwmon")
    source.files = {"power1_input": forbidden}  # type: ignore[attr-defined]
    with pytest.raises(MeterError, match="permission denied; run it as a user who may"):
        source.check_permission()  # type: ignore[attr-defined]


@pytest.mark.parametrize("waveform", ["constant:6", "step:4,8,3.3", "sine:6,2,4"])
@pytest.mark.parametrize(
    ("kind", "device"),
    [("hwmon", {}), ("ina3221", {}), ("ina3221", {"board": "nano"}), ("rpi5-pmic", {})],
)
def test_energy(
    kind: str, device: dict[str, Any], waveform: str, tmp_path: Path, energy_of: Any
) -> None:
    """Energy is right within 0.5 %, half of 8 mV and 8 mA, and the readings around a step."""
    wave = parse_waveform(waveform)
    sensor = simulator_class(kind)(Bench(wave), **device)
    write_tree(tmp_path, sensor.files(1000.0))
    source = make_source(f"{kind}:{sensor.spec.format(tmp_path)},rate=5")
    source.open()
    source.identify()

    def exchange(t_s: float) -> bytes:
        write_tree(tmp_path, sensor.files(t_s))
        data: bytes = source.ask()  # type: ignore[attr-defined]
        return data

    energy_j, true_j, coverage = energy_of(
        source.decoder(source.header()), source.info(), exchange, wave, poll_s=0.2
    )
    steps_j = 20 * (0.004 * 1.2 + 0.004 * 5) if kind == "ina3221" else 0
    edges_j = 0 if waveform.startswith("constant") else 2 * 4 * 0.2
    assert energy_j == pytest.approx(true_j, abs=0.005 * true_j + steps_j + edges_j)
    assert coverage == pytest.approx(1)


def test_simulated_board(simulate: Any, read_samples: Any) -> None:
    """A tree of files that is kept up to date is read like the real one."""
    source = make_source(f"hwmon:{simulate('hwmon', 'constant:6').port},rate=50")
    samples, faults = read_samples(source, 5)
    assert samples.power_w[samples.ok] == pytest.approx(6, rel=0.01)
    assert faults == []
