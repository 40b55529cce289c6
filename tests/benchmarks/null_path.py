"""The timed path of a leader alone on the null backend, so many queries: for callgrind."""

import os
import sys
import traceback
from pathlib import Path

import msgspec
from benchmarks.drive import settings_for
from benchmarks.protocol import Command
from benchmarks.target import Target

from edgeperf.agent.run.calibration import Calibration
from edgeperf.agent.run.jobs import PrepareJob
from edgeperf.agent.run.leader import Leader
from edgeperf.agent.run.memory import new_block
from edgeperf.agent.run.plan import make_plan
from edgeperf.agent.run.prepare import prepare
from edgeperf.agent.run.priority import Priority
from edgeperf.agent.run.shared import Shared
from edgeperf.agent.run.team import Team
from edgeperf.agent.run.wiring import wired
from edgeperf.agent.run.worker import Samples, quiet
from edgeperf.agent.spec import RunSpec
from edgeperf.datasets.assets import BUNDLED


def main() -> None:
    """Run the scenario on the command line with so many queries."""
    scenario, queries, folder = sys.argv[1:]
    plan = make_plan(RunSpec(model=str(BUNDLED / "digits_f32.tflite"), backend="null"))
    inputs = new_block("inputs")
    core = plan.layout.workers[0]
    prepared = prepare(PrepareJob(sut=plan.sut, data=plan.data, cores=core, inputs_block=inputs))
    target = Target("null", plan, prepared, inputs, Path(folder))
    command = Command(
        do=scenario, seconds=0.001, queries=int(queries), latency_ns=1e6, qps=1e6, folder=folder
    )
    with wired(inputs, 0) as wiring:
        job = target.job(wiring, plan.layout, 0)
        shared = Shared(job)
        shared.slot_array[:] = range(prepared.library_size)
        samples = Samples(job, shared)
        member, _ = samples.member()
        team = Team(job, shared, member)
        leader = Leader(job, shared, team=team, samples=samples, priority=Priority(job))
        quiet()
        load = msgspec.structs.replace(job.load, scenario=scenario, directory=folder)
        found = Calibration(latency_ns=1e6, throughput_sps=1e6)
        leader.test(load, settings_for(command), member=member, found=found, failed=_give_up)
    os._exit(0)


def _give_up(error: BaseException) -> None:
    traceback.print_exception(error)
    os._exit(1)


if __name__ == "__main__":
    main()
