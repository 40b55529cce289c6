"""The PPK2: its vectors, its decoder under damage and speed, and a simulated one on a pty."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeperf.power import make_source
from edgeperf.power.base import Chunk, MeterInputError, MeterReplyError, State
from edgeperf.power.ppk2 import Ppk2, Ppk2Decoder
from edgeperf.power.ppk2_format import (
    amps_of,
    counters_of,
    logic_of,
    parse_calibration,
    ranges_of,
    smooth_switches,
    words_at,
)
from edgeperf.power.samples import Samples

Vector = Callable[[str], dict[str, Any]]
WORD = bytes.fromhex("bcc200a5")


def stream(count: int, first: int = 0) -> bytes:
    """Return words of a steady current, counters rising from *first*."""
    base = int.from_bytes(bytes.fromhex("bcc20000"), "little")
    words = base | (np.arange(first, first + count, dtype=np.uint32) & 63) << 18
    return words.astype("<u4").tobytes()


@pytest.fixture(scope="session")
def decoder(vector: Vector) -> Callable[..., Ppk2Decoder]:
    """Return a function that makes a decoder with the vector's calibration."""

    def make(bin_samples: int = 1) -> Ppk2Decoder:
        text = vector("ppk2_metadata")["raw"].decode()
        return Ppk2.decoder({"metadata": text, "voltage": 3.3, "bin": bin_samples})

    return make


def test_calibration(vector: Vector) -> None:
    """The text is read whole, and every constant is where it belongs."""
    found = vector("ppk2_metadata")
    calibration, expect = parse_calibration(found["raw"]), found["expect"]
    assert (calibration.vdd_mv, calibration.hardware) == (expect["VDD"], expect["HW"])
    assert calibration.r[4] == pytest.approx(expect["R4"])
    assert (calibration.gs[3], calibration.s[4]) == (expect["GS3"], expect["S4"])
    assert calibration.ug[0] == expect["UG0"]


def test_stale_samples_before_the_calibration(vector: Vector) -> None:
    """Samples of an earlier session in front of the text are dropped."""
    stale, clean = vector("ppk2_stale_before_meta")["raw"], vector("ppk2_metadata")["raw"]
    assert parse_calibration(stale) == parse_calibration(clean)


def test_calibration_is_whole_or_refused(vector: Vector) -> None:
    """Cut anywhere, the text is refused; nothing is filled in."""
    raw = vector("ppk2_metadata")["raw"].rstrip()
    for size in range(len(raw) - 3):
        with pytest.raises(ValueError, match="calibration"):
            parse_calibration(raw[:size])


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (b"R4: 0.0555", b"R4: -nan\nX: ", "R4 is '-nan'"),
        (b"GI2: 0.9600\n", b"", "lacks GI2"),
        (b"GI2: 0.9600\n", b"GI2: 0.9600\nGI2: 1.0\n", "a line that is none"),
        (b"S0", b"\xff\x00S0", "a line that is none"),
        (b"R0: 1002.50000000000000000000", b"R0: 0", "0 ohms"),
    ],
)
def test_damaged_calibration(old: bytes, new: bytes, complaint: str, vector: Vector) -> None:
    """A constant that is missing, doubled or no number is named."""
    raw = vector("ppk2_metadata")["raw"]
    assert old in raw
    with pytest.raises(ValueError, match=complaint):
        parse_calibration(raw.replace(old, new))


def test_uncalibrated_unit_is_refused(vector: Vector) -> None:
    """A unit that holds the design's resistors was never calibrated."""
    text = vector("ppk2_metadata")["raw"].decode()
    for name, ohms in zip(
        ("R0", "R1", "R2", "R3", "R4"), (1031.64, 101.65, 10.15, 0.94, 0.043), strict=True
    ):
        text = "\n".join(
            f"{name}: {ohms}" if line.startswith(f"{name}:") else line for line in text.splitlines()
        )
    with pytest.raises(ValueError, match="never calibrated"):
        parse_calibration(text.encode())


def test_words(vector: Vector, decoder: Any) -> None:
    """Four words across the counter's wrap are four samples and no gap."""
    found = vector("ppk2_4_samples_no_gap")
    words, expect = words_at(found["raw"], 0), found["expect"]
    calibration = parse_calibration(vector("ppk2_metadata")["raw"])
    assert counters_of(words).tolist() == expect["counter"]
    assert (logic_of(words) & 1).tolist() == expect["D0"]
    assert amps_of(words, calibration, 3.3).tolist() == pytest.approx(expect["amps_nofilter"])
    samples = decoder().feed(Chunk(1, found["raw"]))
    assert samples.current_a.tolist() == pytest.approx(expect["amps_nofilter"])
    assert samples.state.tolist() == [State.OK] * 4


@pytest.mark.parametrize("name", ["ppk2_range1", "ppk2_range2", "ppk2_range4"])
def test_ranges(name: str, vector: Vector) -> None:
    """Each range has its own constants."""
    found = vector(name)
    words = words_at(found["raw"], 0)
    calibration = parse_calibration(vector("ppk2_metadata")["raw"])
    assert ranges_of(words).tolist() == [found["expect"]["range"]]
    assert int(words[0] & 0x3FFF) == found["expect"]["adc"]
    assert amps_of(words, calibration, 3.3)[0] == pytest.approx(found["expect"]["amps"])


def test_lost_byte(vector: Vector, decoder: Any) -> None:
    """After a lost byte the words are found again, and the break is a gap."""
    samples = decoder().feed(Chunk(1, vector("ppk2_byte_lost")["raw"]))
    assert samples.state.tolist() == [State.OK] * 4 + [State.GAP] + [State.OK] * 6
    amps = samples.current_a[samples.ok]
    assert amps == pytest.approx(amps[0])


def test_remainder_is_kept(decoder: Any) -> None:
    """Three bytes are no sample; the fourth completes exactly one."""
    reader = decoder()
    assert len(reader.feed(Chunk(1, stream(8)))) == 8
    word = stream(1, first=8)
    assert len(reader.feed(Chunk(2, word[:3]))) == 0
    assert len(reader.feed(Chunk(3, b""))) == 0
    assert len(reader.feed(Chunk(4, word[3:]))) == 1


def test_impossible_current_is_a_fault(vector: Vector, decoder: Any) -> None:
    """More than the unit can carry is invalid, not load."""
    reader = decoder()
    reader.feed(Chunk(1, stream(8)))
    word = int.from_bytes(vector("ppk2_range4")["raw"], "little") & ~(63 << 18) | 8 << 18
    samples = reader.feed(Chunk(2, word.to_bytes(4, "little")))
    assert samples.state.tolist() == [State.INVALID]
    assert reader.faults == {"currents over 1.1 A": 1}


def test_range_switch_noise_is_replaced() -> None:
    """Three samples after a change of range follow the line across them."""
    amps = np.array([1.0, 1.0, 9.0, 9.0, 9.0, 3.0, 3.0])
    ranges = np.array([3, 3, 4, 4, 4, 4, 4])
    assert smooth_switches(amps, ranges).tolist() == [1.0, 1.0, 1.5, 2.0, 2.5, 3.0, 3.0]


@settings(deadline=None)
@given(st.lists(st.integers(1, 400), max_size=30), st.integers(1, 7))
def test_any_split(decoder: Any, sizes: list[int], bin_samples: int) -> None:
    """How the bytes were cut into reads changes nothing."""
    raw, reader, parts, at = stream(500), decoder(bin_samples), [], 0
    for size in [*sizes, len(raw)]:
        parts.append(reader.feed(Chunk(1, raw[at : at + size])))
        at += size
    samples = Samples.concatenate(parts)
    assert samples.tick_ns.tolist() == [
        n * bin_samples * 10_000 for n in range(1, 500 // bin_samples + 1)
    ]
    assert samples.ok.all()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(40, 400), st.integers(1, 255)), max_size=6))
def test_any_loss(decoder: Any, cuts: list[tuple[int, int]]) -> None:
    """Whatever bytes are lost at once, every sample that comes out is the true current.

    (Exactly 64 samples, or losses a few words apart, the counter cannot tell from none.)
    """
    raw, at = bytearray(stream(900)), 0
    for distance, size in cuts:
        at += distance
        del raw[at : at + size]
    samples = decoder().feed(Chunk(1, bytes(raw)))
    truth = decoder().feed(Chunk(1, stream(8))).current_a[0]
    assert samples.current_a[samples.ok] == pytest.approx(truth)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=10))
def test_any_bytes(decoder: Any, parts: list[bytes]) -> None:
    """Noise raises nothing; what comes out is finite or not OK."""
    reader = decoder()
    for part in parts:
        samples = reader.feed(Chunk(1, part))
        assert np.isfinite(samples.power_w[samples.ok]).all()


def test_decoding_is_twenty_times_real_time(decoder: Any) -> None:
    """Ten seconds of samples, in reads of 20 ms, take less than half a second of CPU."""
    raw = stream(1_000_000)
    reader, size = decoder(100), 8000
    start_s = time.process_time()
    bins = sum(len(reader.feed(Chunk(1, raw[at : at + size]))) for at in range(0, len(raw), size))
    spent_s = time.process_time() - start_s
    assert bins == 10_000
    assert spent_s < 10 / 20


@pytest.mark.parametrize("piece_bytes", [3, 50, 1000])
def test_simulated_meter(piece_bytes: int, simulate: Any, record: Any) -> None:
    """The unit is identified through its text in pieces, and gives the true power."""
    port = simulate("ppk2", "constant:2", piece_bytes=piece_bytes).port
    source = make_source(f"ppk2:{port},voltage=5.0")
    samples, faults = record(source, 0.6)
    assert faults == []
    assert samples.ok.all()
    assert samples.power_w.mean() == pytest.approx(2, rel=0.005)
    assert len(samples) > 300


def test_unit_that_is_still_measuring(simulate: Any, record: Any) -> None:
    """A unit that an earlier session left running is stopped and drained first."""
    port = simulate("ppk2", "constant:2").port
    earlier = make_source(f"ppk2:{port},voltage=5")
    earlier.open()
    earlier.identify()
    earlier.start()
    earlier.read()
    earlier.close()  # without stop
    time.sleep(0.1)
    samples, faults = record(make_source(f"ppk2:{port},voltage=5"), 0.3)
    assert faults == []
    assert samples.power_w.mean() == pytest.approx(2, rel=0.005)


def test_another_device_behind_the_port(simulate: Any) -> None:
    """A port with something else behind it is refused, with what was seen."""
    source = make_source(f"ppk2:{simulate('textline').port},voltage=5")
    source.open()
    with pytest.raises(MeterReplyError, match=r"no calibration: .* \(saw b'"):
        source.identify()
    source.close()


def test_source_mode_sets_the_voltage(simulate: Any, record: Any) -> None:
    """As a source it gives the voltage that was asked for; as an ammeter it leaves it."""
    server = simulate("ppk2", "constant:1", voltage_v=3.3)
    record(make_source(f"ppk2:{server.port},voltage=3.3"), 0.1)
    assert (server._device.vdd_mv, server._device.powered) == (3300, True)
    record(make_source(f"ppk2:{server.port},voltage=4.2,mode=source"), 0.1)
    assert (server._device.vdd_mv, server._device.powered) == (4200, True)


def test_voltage_is_needed(simulate: Any, record: Any) -> None:
    """Without a voltage there are no joules, so there is no recording."""
    source = make_source(f"ppk2:{simulate('ppk2', 'constant:2').port}")
    with pytest.raises(MeterInputError, match=r"voltage missing: .*,voltage=5\.0"):
        record(source, 0.1)


def test_second_port_is_named(simulate: Any) -> None:
    """The shell port of newer firmware answers nothing; the message says which one does."""
    source = make_source(f"ppk2:{simulate('ppk2', mute=True).port},voltage=5")
    source.open()
    with pytest.raises(MeterReplyError, match="first interface"):
        source.identify()
    source.close()
