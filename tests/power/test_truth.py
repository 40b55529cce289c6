"""Energy against the truth, over the whole way from bytes to joules, in simulated time.

The device is asked at made-up moments, its bytes go through a raw file with the delays that
a host adds, and the decoded trace is integrated over a window that fits no sample. So ten
minutes take a second, and no busy machine changes a number.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from edgeperf.power import make_source, simulator_class
from edgeperf.power.base import Chunk, Source
from edgeperf.power.measure import measure
from edgeperf.power.ppk2 import Ppk2
from edgeperf.power.raw import RawWriter
from edgeperf.power.result import PowerResult
from edgeperf.power.simulate.bench import Bench, FaultKind, parse_fault
from edgeperf.power.simulate.ppk2 import CALIBRATION
from edgeperf.power.simulate.waveform import Waveform, parse_waveform
from edgeperf.power.trace import PowerTrace, trace_of_raw

#: Simulated time begins here, so that nothing depends on small numbers.
ORIGIN_S = 5000.0
WINDOW_S = (ORIGIN_S + 3.217, ORIGIN_S + 33.704)
LENGTH_S = 37.0
WAVES = ["constant:3.1", "step:1,4,3.37", "sine:3,1.5,1.7"]

#: Meter, how it is asked and how often, seconds; what its refresh explains beyond 0.5 %.
METERS: dict[str, tuple[bytes, float, float]] = {
    "textline": (b"", 0.02, 0.0),
    "ppk2": (b"", 0.02, 0.0),
    "tc66": (b"getva", 0.05, 0.1),
    "um25c": (b"\xf0", 0.25, 0.4),
}


class Play:
    """One simulated meter, asked in simulated time."""

    def __init__(
        self, kind: str, waveform: str, faults: tuple[str, ...] = (), **device: Any
    ) -> None:
        self.question, self.period_s, self.refresh_s = METERS[kind]
        self.waveform: Waveform = parse_waveform(waveform)
        self.bench = Bench(
            self.waveform, faults=[parse_fault(text) for text in faults], start_s=ORIGIN_S
        )
        self.device = simulator_class(kind)(self.bench, **device)
        self.kind = kind
        self.delays = np.random.default_rng(1)

    def chunks(self) -> Iterator[Chunk]:
        """Yield what a host would have read, each a little late."""
        if self.kind == "ppk2":
            self.device.answer(b"\x06", ORIGIN_S)
        for i in range(round(LENGTH_S / self.period_s)):
            now_s = ORIGIN_S + i * self.period_s
            late_s = float(self.delays.exponential(0.002))
            data = self._asked(now_s) if self.question else b"".join(self._streamed(now_s))
            sent_ns = round(now_s * 1e9) if self.question else 0
            if data:
                yield Chunk(round((now_s + late_s) * 1e9), data, sent_ns)

    def _asked(self, now_s: float) -> bytes:
        if self.bench.fault(FaultKind.STALL, now_s):
            return b""
        return self.bench.damage(self.device.answer(self.question, now_s), now_s)

    def _streamed(self, now_s: float) -> Iterator[bytes]:
        for message in self.device.stream(now_s):
            if not self.bench.fault(FaultKind.STALL, now_s):
                yield self.bench.damage(message, now_s)

    def truth_j(self) -> float:
        """Return the true energy of the window."""
        return self.waveform.energy_j(*WINDOW_S)


@pytest.fixture
def source_of() -> Callable[[str], Source]:
    """Return a function that makes a source as it is after ``start``, without a port."""

    def make(kind: str) -> Source:
        if kind != "ppk2":
            return make_source(f"{kind}:/dev/none")
        ppk2 = Ppk2("/dev/none", Ppk2.Options(voltage=5.0))
        ppk2._metadata = CALIBRATION.format(vdd_mv=5000).encode()
        return ppk2

    return make


@pytest.fixture
def trace_of(tmp_path: Path, source_of: Callable[[str], Source]) -> Callable[[Play], PowerTrace]:
    """Return a function that records a play into a raw file and decodes it."""

    def run(play: Play) -> PowerTrace:
        source = source_of(play.kind)
        writer = RawWriter(tmp_path / f"{len(list(tmp_path.iterdir()))}.raw")
        writer.start(
            0,
            {
                "meter": f"{play.kind}:/dev/none",
                "identity": {"model": "simulated"},
                "info": msgspec.to_builtins(source.info()),
                "header": source.header(),
            },
        )
        for chunk in play.chunks():
            writer.chunk(chunk)
        writer.close()
        return trace_of_raw(tmp_path / f"{len(list(tmp_path.iterdir())) - 1}.raw")

    return run


def measured(trace: PowerTrace) -> PowerResult:
    """Measure the window."""
    return measure(trace, *(round(t * 1e9) for t in WINDOW_S), samples=1000, queries=1000)


@pytest.mark.parametrize("waveform", WAVES)
@pytest.mark.parametrize("kind", list(METERS))
def test_energy_is_true(kind: str, waveform: str, trace_of: Any) -> None:
    """Within 0.5 %, plus what the meter's refresh explains at the two edges of the window."""
    play = Play(kind, waveform)
    result = measured(trace_of(play))
    truth_j = play.truth_j()
    swing_w = 0.0 if waveform.startswith("constant") else 3.0
    allowed_j = 0.005 * truth_j + 2 * swing_w * play.refresh_s
    assert result.gross is not None
    assert abs(result.gross.energy_j.value - truth_j) < allowed_j
    assert abs(result.gross.energy_j.value - truth_j) < result.gross.energy_j.uncertainty
    assert result.coverage == 1
    assert result.problems == ()


@pytest.mark.parametrize("model", ["UM24C", "UM34C"])
def test_coarse_models_are_true(model: str, trace_of: Any) -> None:
    """The models with 10 mV steps give the power that they multiply themselves."""
    play = Play("um25c", "constant:3.1", model=model)
    result = measured(trace_of(play))
    assert result.gross is not None
    assert result.gross.energy_j.value == pytest.approx(play.truth_j(), rel=0.005)


@pytest.mark.parametrize("extra", [{}, {"energy": True}])
@pytest.mark.parametrize("notation", ["csv", "csv-de", "pairs", "json"])
def test_every_notation_is_true(notation: str, extra: dict[str, Any], trace_of: Any) -> None:
    """However the line is written, the energy under it is the same."""
    play = Play("textline", "sine:3,1.5,1.7", notation=notation, **extra)
    result = measured(trace_of(play))
    assert result.gross is not None
    assert result.gross.energy_j.value == pytest.approx(play.truth_j(), rel=0.002)


@pytest.mark.parametrize("kind", list(METERS))
@pytest.mark.parametrize("fault", ["stall", "freeze"])
def test_coverage_is_what_was_broken(kind: str, fault: str, trace_of: Any) -> None:
    """Silent or frozen for 8 s: so much is missing, give or take the meter's own period."""
    play = Play(kind, "sine:3,1.5,1.7", (f"{fault}@10+8",))
    trace = trace_of(play)
    result = measured(trace)
    period_s = 1 / trace.about.info.rate_hz
    missing_s = (1 - result.coverage) * result.duration_s
    assert missing_s == pytest.approx(8, abs=2.5 * period_s + 0.1)
    assert result.gross is None
    assert any("frozen" in p or "sent nothing" in p for p in result.problems)


@pytest.mark.parametrize("kind", ["textline", "ppk2"])
def test_over_range_is_missing(kind: str, trace_of: Any) -> None:
    """Over range for 1 s is missing, not a peak and not a zero."""
    play = Play(kind, "constant:3", ("over@10+1",))
    result = measured(trace_of(play))
    assert (1 - result.coverage) * result.duration_s == pytest.approx(1, abs=0.1)
    assert result.gross is not None
    assert result.gross.average_w.value == pytest.approx(3, rel=0.005)
    assert result.peak_w is not None
    assert result.peak_w.value < 3.2
    assert any("over range" in problem for problem in result.problems)


@pytest.mark.parametrize("fault", ["drop@5+25:0.05", "crc@5+25:0.05"])
@pytest.mark.parametrize("kind", list(METERS))
def test_damage_never_becomes_energy(kind: str, fault: str, trace_of: Any) -> None:
    """Lost bytes and flipped bits cost coverage, never truth."""
    play = Play(kind, "constant:3", (fault,))
    trace = trace_of(play)
    result = measured(trace)
    good = trace.samples.power_w[trace.samples.ok]
    if not (kind == "ppk2" and fault.startswith("crc")):  # its words have no checksum
        assert good == pytest.approx(3, rel=0.02)
    assert float(np.mean(good)) == pytest.approx(3, rel=0.005)
    assert result.coverage > 0.5


def test_ppk2_clock_is_followed(trace_of: Any) -> None:
    """A sample clock that is 60 ppm fast is found, and the samples stay in step with ours."""
    trace = trace_of(Play("ppk2", "constant:3", ppm=60.0))
    assert trace.about.clock_ppm[0] == pytest.approx(-60, abs=20)
    assert measured(trace).problems == ()


def test_lost_bursts_are_found_by_time(trace_of: Any) -> None:
    """A burst of exactly 64 samples, hundreds of times, escapes the counter but not the clock."""
    play = Play("ppk2", "constant:3")
    whole, held = play.chunks, 0

    def lossy() -> Iterator[Chunk]:
        nonlocal held
        for i, chunk in enumerate(whole()):
            if 500 < i < 1100 and len(chunk.data) >= 512:
                held += 1
                yield chunk._replace(data=chunk.data[: -64 * 4])
            else:
                yield chunk

    play.chunks = lossy  # type: ignore[method-assign]
    trace = trace_of(play)
    result = measured(trace)
    assert held > 500
    assert trace.about.faults["losses that only lateness shows"] > 5
    assert (1 - result.coverage) * result.duration_s == pytest.approx(held * 64e-5, rel=0.3)
    assert any("sent nothing" in problem for problem in result.problems)
