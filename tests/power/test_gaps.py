"""What is not seen is not covered: faults on the line against the coverage, in simulated time."""

from typing import Any

import pytest

from edgeperf.power import make_source, simulator_class
from edgeperf.power.modbus import READ_INPUT, read_request
from edgeperf.power.simulate.bench import Bench, FaultKind, parse_fault
from edgeperf.power.simulate.waveform import parse_waveform

#: Spec, device, what is asked before and what every time, seconds between polls.
METERS: dict[str, tuple[str, dict[str, Any], bytes, bytes, float]] = {
    "pzem004t": ("address=1", {}, b"", read_request(1, READ_INPUT, 0, 10), 0.2),
    "pzem017": ("address=1", {}, b"", read_request(1, READ_INPUT, 0, 8), 0.2),
    "wt310": (
        "energy=power",
        {},
        b":NUM:NORM:NUM 3\r\n",
        b":NUM:NORM:VAL?\r\n:STAT:COND?\r\n",
        0.125,
    ),
    "scpi": ("rate=5", {"suffix": ""}, b"", b"MEAS:VOLT?\nMEAS:CURR?\n", 0.2),
    "korad": ("gain=0.01", {}, b"", b"VOUT1?IOUT1?STATUS?", 0.3),
    "ptdaemon": ("phase=ranging", {}, b"Go,1000,0,m\r\n", b"RL\r\n", 0.5),
}
CASES = [
    *((kind, "stall@8+5") for kind in METERS if kind != "ptdaemon"),  # it keeps its samples
    *((kind, f"{fault}@8+5") for kind in ("pzem004t", "pzem017") for fault in ("crc", "drop")),
    *((kind, "drop@8+5") for kind in ("korad",)),
    *((kind, "over@8+5") for kind in ("wt310", "scpi", "ptdaemon")),
]


@pytest.mark.parametrize(("kind", "fault"), CASES)
def test_coverage(kind: str, fault: str, energy_of: Any) -> None:
    """Five seconds of a fault are five seconds uncovered, and the energy of the rest is right."""
    spec, settings, before, question, poll_s = METERS[kind]
    wave = parse_waveform("constant:20")
    bench = Bench(wave, voltage_v=12.0, faults=[parse_fault(fault)], start_s=1000.0)
    device = simulator_class(kind)(bench, **settings)
    device.answer(before, 1000.0)
    source = make_source(f"{kind}:/dev/x,{spec}")

    def exchange(t_s: float) -> bytes:
        if bench.fault(FaultKind.STALL, t_s):
            return b""
        data = bench.damage(device.answer(question, t_s), t_s)
        return data.partition(b"samples")[2] if kind == "ptdaemon" else data

    energy_j, _, coverage = energy_of(
        source.decoder(source.header()), source.info(), exchange, wave, poll_s=poll_s
    )
    period_s = 1 / source.info().rate_hz
    assert coverage == pytest.approx(15 / 20, abs=(period_s + 2 * poll_s) / 20)
    assert energy_j == pytest.approx(20 * 20 * coverage, rel=0.005)
