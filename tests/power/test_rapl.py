"""RAPL: wrap, permission, jumps, several sockets."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.power import make_source
from edgeperf.power.base import Chunk, MeterError, MeterInputError, MeterReplyError, State
from edgeperf.power.rapl import Rapl, RaplDecoder
from edgeperf.power.simulate.bench import Bench
from edgeperf.power.simulate.board import RaplDevice
from edgeperf.power.simulate.tree import write_tree
from edgeperf.power.simulate.waveform import parse_waveform

Vector = Callable[[str], dict[str, Any]]
SECOND_NS = 1_000_000_000


def test_wrap(vector: Vector) -> None:
    """A counter that starts again at 0 goes on counting."""
    found = vector("rapl_wrap")
    before, after, limit = (line.split()[-1] for line in found["text"].splitlines())
    decoder = RaplDecoder({"p": int(limit)}, 1000.0)
    decoder.feed(Chunk(SECOND_NS, f"p {before}\n".encode()))
    samples = decoder.feed(Chunk(2 * SECOND_NS, f"p {after}\n".encode()))
    assert samples.energy_j == pytest.approx([found["expect"]["delta_uJ"] * 1e-6])
    assert samples.power_w == pytest.approx([5.32885])


def test_sockets_wrap_on_their_own() -> None:
    """Two counters are unwrapped one by one before they are added."""
    decoder = RaplDecoder({"a": 1000, "b": 1000}, 1.0)
    decoder.feed(Chunk(1, b"a 990\nb 500\n"))
    samples = decoder.feed(Chunk(500_001, b"a 10\nb 510\n"))  # 30 uJ in 0.5 ms
    assert samples.energy_j == pytest.approx([31e-6], abs=2e-6)


def test_jump_is_a_gap() -> None:
    """A step that no processor could make is neither counted nor negative."""
    decoder = RaplDecoder({"p": 262_143_000_000}, 500.0)
    readings = [b"p 5000000\n", b"p 6000000\n", b"p 5500000\n", b"p 6500000\n"]
    parts = [decoder.feed(Chunk(n * SECOND_NS, data)) for n, data in enumerate(readings, 1)]
    assert [int(part.state[0]) for part in parts] == [State.OK, State.OK, State.GAP, State.OK]
    assert parts[3].energy_j == pytest.approx([2.0])
    assert decoder.faults == {"counter jumped": 1}


def test_too_long_to_tell() -> None:
    """After so long that it may have wrapped twice nothing is counted."""
    decoder = RaplDecoder({"p": 1_000_000_000}, 500.0)
    decoder.feed(Chunk(1, b"p 1\n"))
    assert decoder.feed(Chunk(3 * SECOND_NS, b"p 100\n")).state.tolist() == [State.GAP]


@pytest.mark.parametrize("data", [b"", b"p\n", b"q 5\n", b"p 5\nq 5\n", b"p -5\n", b"p 2000\n"])
def test_incomplete_readings(data: bytes) -> None:
    """A reading that is not every counter within its range is none."""
    decoder = RaplDecoder({"p": 1000}, 500.0)
    assert len(decoder.feed(Chunk(1, data))) == 0


@given(st.lists(st.binary(max_size=20) | st.integers(-5, 2000).map(b"p %d\n".__mod__), max_size=9))
def test_any_bytes(parts: list[bytes]) -> None:
    """Noise raises nothing, and no energy goes down."""
    decoder = RaplDecoder({"p": 1000}, 500.0)
    samples = [decoder.feed(Chunk((n + 1) * 1000, part)) for n, part in enumerate(parts)]
    energies = [float(one) for part in samples for one in part.energy_j[part.ok]]
    assert energies == sorted(energies)
    assert all(map(math.isfinite, energies))


@pytest.mark.parametrize("waveform", ["constant:12", "step:8,30,3", "sine:20,8,5"])
@pytest.mark.parametrize("sockets", [1, 2])
def test_energy(waveform: str, sockets: int, tmp_path: Path, energy_of: Any) -> None:
    """Energy is exact but for the counter's step, over a wrap and several sockets."""
    wave = parse_waveform(waveform)
    device = RaplDevice(Bench(wave), sockets=sockets, range_j=300.0, start_j=250.0)
    write_tree(tmp_path, device.files(1000.0))
    source = make_source(f"rapl:,root={tmp_path},max_power=100")
    source.open()

    def exchange(t_s: float) -> bytes:
        write_tree(tmp_path, device.files(t_s))
        data: bytes = source.ask()  # type: ignore[attr-defined]
        return data

    energy_j, true_j, coverage = energy_of(
        source.decoder(source.header()), source.info(), exchange, wave, poll_s=0.1
    )
    assert energy_j == pytest.approx(true_j, rel=0.001)
    assert coverage == pytest.approx(1)


def test_simulated_processor(simulate: Any, read_samples: Any) -> None:
    """Only the packages are summed, not their cores; a domain can be named."""
    server = simulate("rapl", "constant:20", sockets=2)
    root = Path(server.port.partition("=")[2])
    assert Rapl.find(root) == ["rapl"]
    source = make_source(f"rapl:{server.port}")
    samples, faults = read_samples(source, 4)
    assert samples.energy_j[0] == 0
    assert (samples.energy_j[1:] >= samples.energy_j[:-1]).all()
    assert samples.energy_j[-1] > 0
    assert faults == []
    core = make_source(f"rapl:core{server.port}")
    core.open()
    assert core.identify().details == {"domains": "core+core"}


def test_missing_domain(tmp_path: Path) -> None:
    """A domain that is not there says which are; no RAPL at all says so."""
    write_tree(tmp_path, RaplDevice(Bench(parse_waveform("constant:6"))).files(0.0))
    with pytest.raises(MeterInputError, match=r"no domain 'psys' .*; there is core, package-0"):
        make_source(f"rapl:psys,root={tmp_path}").open()
    with pytest.raises(MeterInputError, match=r"no RAPL here \(virtual machine"):
        make_source(f"rapl:,root={tmp_path}/none").open()


def test_counter_that_stands_still(tmp_path: Path) -> None:
    """A virtual machine's counter that never moves is found before the run."""
    write_tree(tmp_path, RaplDevice(Bench(parse_waveform("constant:6"))).files(0.0))
    source = make_source(f"rapl:,root={tmp_path}")
    source.open()
    with pytest.raises(MeterReplyError, match=r"stands still for 0\.3 s; is this a virtual"):
        source.identify()


def test_range_that_cannot_be_read(tmp_path: Path) -> None:
    """Without the range a wrap cannot be undone, so there is no meter."""
    write_tree(tmp_path, RaplDevice(Bench(parse_waveform("constant:6"))).files(0.0))
    (tmp_path / "sys/class/powercap/intel-rapl:0/max_energy_range_uj").unlink()
    with pytest.raises(MeterReplyError, match="max_energy_range_uj cannot be read"):
        make_source(f"rapl:,root={tmp_path}").open()


def test_forbidden_counter(forbidden: Path, vector: Vector) -> None:
    """No permission is one line with the udev rule, not 0 J."""
    assert vector("rapl_noread")["raw"] == b"EACCES"
    source = make_source("rapl")
    source.files = {"package-0": forbidden}  # type: ignore[attr-defined]
    with pytest.raises(MeterError, match=r"permission denied; run as root, or add the udev rule"):
        source.check_permission()  # type: ignore[attr-defined]
