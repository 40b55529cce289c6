"""The UM meters: their vectors, and simulated ones on a pty."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.power import make_source
from edgeperf.power.base import Chunk, MeterReplyError
from edgeperf.power.samples import Samples
from edgeperf.power.um25c import UmDecoder, parse_frame

Vector = Callable[[str], dict[str, Any]]
Decode = Callable[..., Samples]


@pytest.mark.parametrize(
    ("name", "amps"), [("um25c_ok", 1.1765), ("um24c_ok", 1.176), ("um34c_ok", 1.176)]
)
def test_good_answer(name: str, amps: float, vector: Vector) -> None:
    """The model number decides what a digit is worth."""
    reply = parse_frame(vector(name)["raw"])
    assert (reply.voltage_v, reply.current_a, reply.power_w) == (5.1, amps, 6.0)
    assert (reply.group_mwh, reply.recorded_s) == (2000, 3600)
    assert reply.model.name.lower() == vector(name)["meter"]


def test_late_bytes_are_stepped_over(vector: Vector, decode: Decode) -> None:
    """Seven late bytes of an old answer shift the new one; it is found."""
    assert decode("um25c", vector("um25c_desync")["raw"]).power_w.tolist() == [6.0]


def test_bad_xor_is_refused(vector: Vector) -> None:
    """The UM34C has a checksum, and it is checked."""
    decoder = UmDecoder()
    assert len(decoder.feed(Chunk(1, vector("um34c_bad_xor")["raw"]))) == 0
    assert decoder.faults == {"answers that fail their checks": 1}


@given(st.binary(max_size=300))
def test_any_bytes(raw: bytes) -> None:
    """Noise gives no sample and no exception."""
    assert len(UmDecoder().feed(Chunk(1, raw))) == 0


@given(st.integers(0, 129), st.binary(min_size=1, max_size=9))
def test_lost_and_added_bytes(vector: Vector, at: int, noise: bytes) -> None:
    """Whatever shifts the answer, no other power than the true one comes out."""
    good = vector("um25c_ok")["raw"]
    for raw in (good[:at] + good[at + 1 :], good[:at] + noise + good[at:]):
        samples = UmDecoder().feed(Chunk(1, raw))
        assert set(samples.power_w.tolist()) <= {6.0}


@pytest.mark.parametrize("model", ["UM24C", "UM25C", "UM34C"])
def test_simulated_meter(model: str, simulate: Any, record: Any) -> None:
    """Each of the family is recognised and read, late bytes or not."""
    source = make_source(f"um25c:{simulate('um25c', model=model, late_bytes=7).port}")
    samples, faults = record(source, 1.0)
    assert faults == []
    assert samples.power_w == pytest.approx(6, rel=0.002)
    source.open()
    assert source.identify().model == model
    source.close()


def test_damaged_answers_are_asked_again(simulate: Any, record: Any) -> None:
    """Lost bytes give fewer samples, never wrong ones."""
    port = simulate("um25c", faults=("drop@0.4+9:0.5",)).port
    samples, _ = record(make_source(f"um25c:{port}"), 3.0)
    assert len(samples) >= 2
    assert samples.power_w == pytest.approx(6, rel=0.01)


def test_another_device_behind_the_port(simulate: Any) -> None:
    """A port with something else behind it is refused, with what was seen."""
    source = make_source(f"um25c:{simulate('textline').port}")
    source.open()
    with pytest.raises(MeterReplyError, match=r"no whole answer in \d+ bytes \(saw"):
        source.identify()
    source.close()
