"""The live look at a meter, in simulated time: what is wrong is known within two seconds."""

import pytest

from edgeperf.power import make_source
from edgeperf.power.base import Chunk
from edgeperf.power.live import Live
from edgeperf.power.simulate.bench import Bench, FaultKind, parse_fault
from edgeperf.power.simulate.textline import TextLineDevice
from edgeperf.power.simulate.waveform import parse_waveform
from edgeperf.power.watch import Watch

ORIGIN_S, FAULT_S, LOOK_S = 7000.0, 5.0, 0.25


def watched(fault: str, seconds: float) -> list[Live]:
    """Return the looks at a board of 100 readings a second, four a second."""
    bench = Bench(parse_waveform("constant:6"), faults=[parse_fault(fault)], start_s=ORIGIN_S)
    device, source = TextLineDevice(bench), make_source("textline:/dev/x")
    watch = Watch(source.info(), source.decoder(source.header()), round(ORIGIN_S * 1e9))
    looks, next_s = [], 0.0
    for i in range(round(seconds * 50)):
        now_s = ORIGIN_S + i * 0.02
        data = b"".join(device.stream(now_s))
        if data and not bench.fault(FaultKind.STALL, now_s):
            watch.take(Chunk(round(now_s * 1e9), data))
        if now_s - ORIGIN_S >= next_s:
            looks.append(watch.look(round(now_s * 1e9)))
            next_s += LOOK_S
    return looks


@pytest.mark.parametrize(
    ("fault", "state"), [("freeze", "stale"), ("over", "invalid"), ("stall", "gap")]
)
def test_known_within_two_seconds_and_forgotten_afterwards(fault: str, state: str) -> None:
    """Before the fault all is well, within 2 s of its begin it is not, and after its end it is."""
    looks = watched(f"{fault}@{FAULT_S}+5", 13.0)
    seconds = [(look.t_mono_ns * 1e-9 - ORIGIN_S, look) for look in looks]
    before = [look for t, look in seconds if 0.5 < t < FAULT_S]
    during = [look for t, look in seconds if FAULT_S + 2 - LOOK_S < t < FAULT_S + 5]
    after = [look for t, look in seconds if t > FAULT_S + 5.5]
    assert {look.state for look in before + after} == {"ok"}
    assert {look.state for look in during} == {state}
    assert all(look.power_w is None and look.problem for look in during)
    assert all(look.power_w == pytest.approx(6, rel=0.01) for look in before + after)


def test_lost_and_found() -> None:
    """A meter that is gone is lost at once, and well again when it is back."""
    source = make_source("textline:/dev/x")
    watch = Watch(source.info(), source.decoder({}), 0)
    watch.take(Chunk(1, b"\n1,5000,1200,6000\n"))
    watch.lost("unplugged")
    assert watch.look(2).state == "lost"
    assert watch.look(2).problem == "unplugged"
    watch.found(source.decoder({}), 3)
    watch.take(Chunk(4, b"\n1,5000,1200,6000\n"))
    assert watch.look(5).state == "ok"
    assert watch.look(5).readings == 2
    assert watch.look(5).faults == {"meter lost": 1}
