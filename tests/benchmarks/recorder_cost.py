"""What a meter recorder at its full rate does to the latencies of a run.

    python -m benchmarks.recorder_cost [MODEL[@BACKEND]] [--pairs N] [--seconds S]

A simulated PPK2 sends 100,000 readings a second to the recorder of a real run, on the
housekeeping core. One pinned process infers in a bare loop on another core; blocks with
the recorder running and blocks with it stopped (SIGSTOP, the simulator too) take turns.
Aim: the median over the pairs of p90(recording) / p90(not) is below 1.01 on a machine
with a core to spare. The simulator's own work is on the meter's side of a real cable,
so it counts against us here.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.bare import times_ns

from edgeperf.agent.run.answer import load_session, open_samples
from edgeperf.agent.run.plan import make_plan
from edgeperf.agent.run.process import child_environment
from edgeperf.agent.spec import RunSpec
from edgeperf.power.recorder import Recorder

SETTLE_S = 0.1


def main() -> None:
    """Measure and print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="digits@openvino")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.7)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("recorder_cost: needs a core to spare")
    row = _measure(args.model, args.pairs, args.seconds)
    if args.json:
        print(json.dumps(row, indent=2))
        return
    print(
        f"{row['model']}: p90 {row['p90_ns'] / 1e3:.1f} µs; recording / not: p50"
        f" {row['ratio_p50']:.4f}, p90 {row['ratio_p90']:.4f} (median of {row['pairs']} pairs;"
        f" aim below 1.01); {row['readings_per_s']:,.0f} usable readings/s (1 ms bins)"
    )


@contextlib.contextmanager
def _simulated(folder: Path, core: int) -> Iterator[tuple[str, int]]:
    """Yield the port of a simulated PPK2 and the pid of its process."""
    link = folder / "ppk2"
    command = [sys.executable, "-m", "edgeperf", "simulate-meter", "ppk2"]
    command += ["--waveform", "constant:2", "--link", str(link)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as simulator:
        os.sched_setaffinity(simulator.pid, {core})
        if simulator.stdout is None or not simulator.stdout.readline():
            raise RuntimeError("the simulated meter did not start")
        try:
            yield str(link), simulator.pid
        finally:
            os.kill(simulator.pid, signal.SIGCONT)
            simulator.kill()


def _measure(name: str, pairs: int, seconds: float) -> dict[str, Any]:
    model, _, backend = name.partition("@")
    plan = make_plan(RunSpec(model=model, backend=backend or None))
    (core,), house = plan.layout.workers[0], plan.layout.housekeeping[0]
    os.environ.update(child_environment(1))
    os.sched_setaffinity(0, {core})
    session = load_session(plan.sut)
    library, _, slots = open_samples(plan.data, session.inputs, session.outputs)
    blocks = [np.zeros((slots, *spec.sample_shape), spec.dtype) for spec in session.inputs]
    for slot in range(slots):
        library.write(slot, [block[slot] for block in blocks])
    session.bind(blocks)
    ratios = []
    with tempfile.TemporaryDirectory() as text, _simulated(Path(text), house) as (port, simulator):
        spec = f"ppk2:{port},voltage=5.0"
        with Recorder.start(spec, Path(text), house) as recorder:
            stoppable = (simulator, recorder.pid)
            began, first = time.monotonic(), recorder.poll().readings
            times_ns(session.infer, slots, 1.0)
            rate = (recorder.poll().readings - first) / (time.monotonic() - began)
            for turn in range(pairs):
                found = {}
                for recording in (bool(turn % 2), not turn % 2):
                    for pid in stoppable:
                        os.kill(pid, signal.SIGCONT if recording else signal.SIGSTOP)
                    time.sleep(SETTLE_S)
                    found[recording] = np.percentile(
                        times_ns(session.infer, slots, seconds), [50, 90]
                    )
                ratios.append((found[True] / found[False], found[False][1]))
            for pid in stoppable:
                os.kill(pid, signal.SIGCONT)
    return {
        "model": name,
        "pairs": pairs,
        "p90_ns": statistics.median(float(p90) for _, p90 in ratios),
        "ratio_p50": statistics.median(float(ratio[0]) for ratio, _ in ratios),
        "ratio_p90": statistics.median(float(ratio[1]) for ratio, _ in ratios),
        "readings_per_s": rate,
    }


if __name__ == "__main__":
    main()
