"""The Raspberry Pi 5's power chip: pairs by name, refusals, a program that answers."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.power import make_source
from edgeperf.power.base import Boundary, Chunk, MeterInputError, MeterLostError, MeterReplyError
from edgeperf.power.rpi5pmic import PmicDecoder, Rpi5Pmic, measured, rails_of

Vector = Callable[[str], dict[str, Any]]


def test_vector(vector: Vector, decode: Any) -> None:
    """A rail is its two halves; the input, of which only the voltage is known, is none."""
    found = vector("pmic")
    samples = decode("rpi5-pmic", found["raw"])
    assert samples.power_w == pytest.approx([found["expect"]["vdd_core_w"]])
    assert samples.voltage_v == pytest.approx([5.0853])
    assert measured(rails_of(found["raw"]) or {}) == ["VDD_CORE"]


@pytest.mark.parametrize(
    "data",
    [
        b"     VDD_CORE_A current(7)=1.11625000A\n",
        b"     VDD_CORE_A current(7)=1.11625000V\n     VDD_CORE_V volt(15)=0.76V\n",
        b"     VDD_CORE_A volt(7)=1.11625000A\n     VDD_CORE_V volt(15)=0.76V\n",
        b"     VDD_CORE_A current(7)=1.1A\n     VDD_CORE_A current(7)=1.1A\n",
        b"     VDD_CORE_A current(7)=1.1",
        b"",
    ],
)
def test_answers_that_are_incomplete(data: bytes, decode: Any) -> None:
    """A missing half is unknown, never 0 A."""
    assert len(decode("rpi5-pmic", data)) == 0


def test_rail_that_goes_missing(vector: Vector, decode: Any) -> None:
    """An answer without a rail that was there at the start is none."""
    header = {"rails": ["3V3_SYS", "VDD_CORE"]}
    assert len(decode("rpi5-pmic", vector("pmic")["raw"], header=header)) == 0


@given(st.binary(max_size=80) | st.text("VD_A curent(7)=1.2V\n ", max_size=80).map(str.encode))
def test_any_bytes(data: bytes) -> None:
    """Noise raises nothing, and a sample that comes out of it is finite or not OK."""
    samples = PmicDecoder(()).feed(Chunk(1, data))
    assert all(math.isfinite(watts) for watts in samples.power_w[samples.ok])


def test_simulated_chip(simulate: Any, read_samples: Any) -> None:
    """A program that prints like vcgencmd is run and read; the sum is labelled as a part."""
    source = make_source(f"rpi5-pmic:{simulate('rpi5-pmic', 'constant:4').port}")
    samples, faults = read_samples(source, 2)
    assert samples.power_w[samples.ok] == pytest.approx(4, rel=0.01)
    assert faults == []
    assert source.info().boundary is Boundary.PARTIAL


def program(path: Path, text: str) -> Path:
    """Write a program that prints *text*."""
    path.write_text(f"#!/bin/sh\nprintf '%s' '{text}'\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no PMIC readings .saw ''.; only a Raspberry Pi 5"),
        ("VCHI initialization failed", "permission denied .*usermod -a -G video"),
        ("     VDD_CORE_A current(7)=1.1A", "no PMIC readings"),
    ],
)
def test_other_answers(text: str, complaint: str, tmp_path: Path) -> None:
    """An answer without readings says what was answered and what to do."""
    source = make_source(f"rpi5-pmic:,command={program(tmp_path / 'vcgencmd', text)}")
    source.open()
    with pytest.raises(MeterReplyError, match=complaint):
        source.identify()


def test_older_board(vector: Vector, tmp_path: Path) -> None:
    """A board without the chip answers with an error and exit status 0."""
    text = vector("pmic_err")["text"]
    source = make_source(f"rpi5-pmic:,command={program(tmp_path / 'vcgencmd', text)}")
    with pytest.raises(MeterReplyError, match=r"error=1 error_msg=.*only a Raspberry Pi 5"):
        source.identify()


def test_no_program(tmp_path: Path) -> None:
    """Without the program it is no Raspberry Pi."""
    source = make_source(f"rpi5-pmic:,command={tmp_path}/vcgencmd")
    with pytest.raises(MeterInputError, match=r"no program .*/vcgencmd that may be run; is this"):
        source.open()
    with pytest.raises(MeterLostError, match="does not run"):
        source.read()


def test_found_by_model(tmp_path: Path) -> None:
    """The board is known by its device tree."""
    assert Rpi5Pmic.find(tmp_path) == []
    model = tmp_path / "proc/device-tree/model"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"Raspberry Pi 4 Model B Rev 1.4\0")
    assert Rpi5Pmic.find(tmp_path) == []
    model.write_bytes(b"Raspberry Pi 5 Model B Rev 1.0\0")
    assert Rpi5Pmic.find(tmp_path) == ["rpi5-pmic"]
