"""What LoadGen and edgeperf add to a bare loop of the same runtime: SingleStream.

    python tests/benchmarks/harness_cost.py [MODEL[@BACKEND] ...] [--rounds N] [--seconds S]

For each model one pinned process holds one session. In it a bare loop and a LoadGen
SingleStream test through edgeperf's own timed path take turns, so that both see the same
machine; the table gives the median over the rounds of each one's percentile, and of
their difference round by round. Aim: p90 within 1 % or 5 µs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

MODELS = ("digits@tflite", "digits@onnxruntime", "digits@openvino")
ALLOWED_SHARE = 0.01
ALLOWED_NS = 5_000.0


def main() -> None:
    """Measure each model in a process of its own and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(_measure(args.child, args.rounds, args.seconds)))
        return
    rows = [_in_child(model, args.rounds, args.seconds) for model in args.models]
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'model':34} {'bare p90':>10} {'LoadGen p90':>12} {'added p50':>10} {'added p90':>10}")
    for row in rows:
        verdict = "ok" if row["within"] else "OVER"
        print(
            f"{row['model']:34} {row['bare_p90_ns'] / 1e3:8.1f}µs"
            f" {row['loadgen_p90_ns'] / 1e3:10.1f}µs"
            f" {row['added_p50_ns'] / 1e3:8.2f}µs {row['added_p90_ns'] / 1e3:8.2f}µs"
            f"  {row['ratio_p90']:.4f}  {verdict}"
        )


def _in_child(model: str, rounds: int, seconds: float) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", model, "--rounds", str(rounds)]
    command += ["--seconds", str(seconds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def _measure(name: str, rounds: int, seconds: float) -> dict[str, Any]:
    from edgeperf.agent.run import loadgen
    from edgeperf.agent.run.jobs import PrepareJob, WorkerJob
    from edgeperf.agent.run.memory import new_block
    from edgeperf.agent.run.plan import make_plan
    from edgeperf.agent.run.prepare import prepare
    from edgeperf.agent.run.shared import PROGRESS, Shared
    from edgeperf.agent.run.sut import single_issue
    from edgeperf.agent.run.wiring import wired
    from edgeperf.agent.run.worker import Samples, quiet
    from edgeperf.agent.spec import Preset, RunSpec

    model, _, backend = name.partition("@")
    plan = make_plan(RunSpec(model=model, backend=backend or None, preset=Preset.SMOKE))
    cores, inputs = plan.layout.workers[0], new_block("inputs")
    prepared = prepare(PrepareJob(sut=plan.sut, data=plan.data, cores=cores, inputs_block=inputs))
    with tempfile.TemporaryDirectory() as folder, wired(inputs, 0) as wiring:
        load = plan.load_plan(Path(folder), accuracy=False)
        job = WorkerJob(
            index=0, rank=0, workers=1, infers=True, cores=cores,
            housekeeping=plan.layout.housekeeping, sut=plan.sut, data=plan.data, load=load,
            prepared=prepared, wiring=wiring,
        )  # fmt: skip
        shared = Shared(job)
        shared.slot_array[:] = np.arange(prepared.library_size) % prepared.slots
        samples = Samples(job, shared)
        member, _ = samples.member()
        if member is None:
            raise RuntimeError("a leader that infers has a session")
        quiet()
        bare_ns(member.answer, prepared.slots, 0.3)
        p50 = float(np.median(bare_ns(member.answer, prepared.slots, 0.3)))
        hints = loadgen.Hints(latency_ns=0.8 * p50, target_qps=0.0)
        settings = loadgen.settings_for(load, hints)
        settings.min_duration_ms = int(seconds * 1000)
        pairs = []
        for turn in range(rounds):

            def driven() -> np.ndarray:
                shared.words[PROGRESS] = 0
                os.sched_setaffinity(0, job.housekeeping)
                loadgen.run(
                    load,
                    settings,
                    samples=(prepared.library_size, prepared.slots),
                    issue=single_issue(shared, member.answer),
                    load=samples.load,
                )
                count = shared.words[PROGRESS]
                log = Path(folder, "mlperf_log_summary.txt").read_text()
                p90 = next(
                    float(line.split(":")[1])
                    for line in log.splitlines()
                    if line.startswith("90.00 percentile latency")
                )
                own = np.array(shared.end_ns[:count]) - np.array(shared.start_ns[:count])
                return np.array([float(np.median(own)), p90])

            def bare() -> np.ndarray:
                times = bare_ns(member.answer, prepared.slots, seconds)
                return np.asarray(np.percentile(times, [50, 90]))

            first, second = (bare, driven) if turn % 2 else (driven, bare)
            one, two = first(), second()
            pairs.append((one, two) if first is bare else (two, one))
    return _row(name, pairs)


def bare_ns(answer: Any, slots: int, seconds: float) -> np.ndarray:
    """Return the latency of each call of *answer* in a plain loop, nanoseconds."""
    now = time.monotonic_ns
    until, times = now() + int(seconds * 1e9), []
    index, begin = 0, now()
    while begin < until:
        answer(index)
        end = now()
        times.append(end - begin)
        index = index + 1 if index + 1 < slots else 0
        begin = now()
    return np.array(times)


def _row(name: str, pairs: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
    bare_p90 = statistics.median(float(bare[1]) for bare, _ in pairs)
    driven_p90 = statistics.median(float(driven[1]) for _, driven in pairs)
    added_p50 = statistics.median(float(driven[0] - bare[0]) for bare, driven in pairs)
    added_p90 = statistics.median(float(driven[1] - bare[1]) for bare, driven in pairs)
    return {
        "model": name,
        "rounds": len(pairs),
        "bare_p90_ns": bare_p90,
        "loadgen_p90_ns": driven_p90,
        "added_p50_ns": added_p50,
        "added_p90_ns": added_p90,
        "ratio_p90": statistics.median(float(driven[1] / bare[1]) for bare, driven in pairs),
        "within": added_p90 <= max(ALLOWED_NS, ALLOWED_SHARE * bare_p90),
    }


if __name__ == "__main__":
    main()
