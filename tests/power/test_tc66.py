"""The TC66: its vectors, and a simulated one on a pty."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.power import make_source
from edgeperf.power.base import Chunk, MeterReplyError
from edgeperf.power.samples import Samples
from edgeperf.power.tc66 import Tc66Decoder, parse_reply

Vector = Callable[[str], dict[str, Any]]


def test_good_answer(vector: Vector) -> None:
    """Every field of the answer is where the manual has it."""
    reply = parse_reply(vector("tc66_ok")["raw"])
    assert (reply.voltage_v, reply.current_a, reply.power_w) == (5.1, 1.17647, 6.0)
    assert (reply.temperature_c, reply.group_mah[0], reply.group_mwh[0]) == (31, 392, 2000)
    assert reply.model == "TC66"


def test_frost(vector: Vector) -> None:
    """The temperature's sign has a field of its own."""
    assert parse_reply(vector("tc66_neg_temp")["raw"]).temperature_c == -7


@pytest.mark.parametrize("name", ["tc66_short", "tc66_shifted"])
def test_damaged_answer_is_refused(name: str, vector: Vector) -> None:
    """A short or shifted answer is no reading, and is counted."""
    decoder = Tc66Decoder()
    assert len(decoder.feed(Chunk(1, vector(name)["raw"]))) == 0
    assert decoder.faults == {"answers that fail their checks": 1}


@given(st.data())
def test_any_damage_is_refused(vector: Vector, data: st.DataObject) -> None:
    """No changed byte anywhere in the answer passes the checks."""
    raw = bytearray(vector("tc66_ok")["raw"])
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ValueError, match=r"checksum|no answer"):
        parse_reply(bytes(raw))


@given(st.binary(max_size=400))
def test_any_bytes(raw: bytes) -> None:
    """Noise gives no sample and no exception."""
    assert len(Tc66Decoder().feed(Chunk(1, raw))) == 0


def test_simulated_meter(simulate: Any, record: Any) -> None:
    """It says who it is and gives what it measures; asked 20 times a second, 10 are new."""
    source = make_source(f"tc66:{simulate('tc66', 'constant:6').port}")
    samples, faults = record(source, 1.0)
    assert faults == []
    assert samples.power_w == pytest.approx(6, rel=0.002)
    assert 12 <= len(samples) <= 25
    assert len(set(samples.power_w.tolist())) <= 12
    source.open()
    assert source.identify().serial == "4711"
    source.close()


def test_damaged_answers_are_asked_again(simulate: Any, record: Any) -> None:
    """Lost bytes and flipped bits give fewer samples, never wrong ones."""
    port = simulate("tc66", faults=("drop@0.3+9:0.4", "crc@0.3+9:0.2")).port
    samples, _ = record(make_source(f"tc66:{port}"), 2.0)
    assert len(samples) >= 2
    assert samples.power_w == pytest.approx(6, rel=0.002)


def test_another_device_behind_the_port(simulate: Any) -> None:
    """A port with something else behind it is refused, with what was seen."""
    source = make_source(f"tc66:{simulate('textline').port}")
    source.open()
    with pytest.raises(MeterReplyError, match=r"no answer of a TC66 \(saw b'"):
        source.identify()
    source.close()


def test_silent_port(simulate: Any) -> None:
    """A port that does not answer is refused by name."""
    source = make_source(f"tc66:{simulate('tc66', faults=('stall@0+60',)).port}")
    source.open()
    with pytest.raises(MeterReplyError, match="no answer to getva"):
        source.identify()
    source.close()


def test_modem_manager_noise(simulate: Any, record: Any) -> None:
    """Bytes that another program injects are stepped over."""
    server = simulate("tc66")
    with open(server.port, "wb", buffering=0) as injected:  # noqa: PTH123  # a device
        injected.write(b"AT\r\n")
    samples, _ = record(make_source(f"tc66:{server.port}"), 0.5)
    assert len(samples) > 2
    assert isinstance(samples, Samples)
