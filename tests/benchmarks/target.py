"""What is measured: a model on a runtime, loaded and laid out once for every contestant.

All contestants of a target get the same file, the same settings of the runtime, the same
samples in the same shared block and the same cores, so that only the harness differs.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from edgeperf import InputError
from edgeperf.agent.run.jobs import LoadPlan, Prepared, WorkerJob
from edgeperf.agent.run.layout import Layout
from edgeperf.agent.run.memory import new_block
from edgeperf.agent.run.plan import Plan, make_plan
from edgeperf.agent.run.preparation import prepare
from edgeperf.agent.run.wiring import Wiring
from edgeperf.agent.spec import Precision, Preset, RunSpec, Scenario

#: Fast and slow models on each runtime; names of the catalogue.
TARGETS = (
    "vww@tflite",
    "vww@onnxruntime",
    "vww@openvino",
    "mobilenet_v1_025@tflite",
    "mobilenet_v2@tflite",
    "mobilenet_v2@onnxruntime",
    "mobilenet_v2@openvino",
)
#: Where no model of the catalogue can be had, and for a quick look.
BUNDLED = ("digits@tflite", "digits@onnxruntime", "digits@openvino")


class Target(msgspec.Struct, frozen=True):
    """A model on a runtime, ready for contestants.

    Attributes:
        name: ``MODEL[:PRECISION]@BACKEND``.
        plan: SingleStream's plan; the others differ in cores and scenario only.
        prepared: What the model looks like.
        inputs: Descriptor of the block of samples.
        folder: Where contestants may write.
    """

    name: str
    plan: Plan
    prepared: Prepared
    inputs: int
    folder: Path

    def job(self, wiring: Wiring, layout: Layout, place: int) -> WorkerJob:
        """Return the job of the process at *place* of the team that *layout* describes."""
        return WorkerJob(
            index=place,
            workers=len(layout.workers),
            cores=layout.workers[place],
            issuing=layout.issuing,
            housekeeping=layout.housekeeping,
            realtime=False,
            sut=self.plan.sut,
            data=self.plan.data,
            load=self.load("SingleStream"),
            prepared=self.prepared,
            wiring=wiring,
        )

    def load(self, scenario: str) -> LoadPlan:
        """Return LoadGen's plan; durations and hints come with each command."""
        plan = self.plan.load_plan(self.folder, accuracy=False)
        return msgspec.structs.replace(plan, scenario=scenario)


def spec_of(name: str, scenario: Scenario = Scenario.SINGLE_STREAM) -> RunSpec:
    """Return the spec for ``MODEL[:PRECISION]@BACKEND``.

    Raises:
        InputError: It is not of that form.
    """
    model, at, backend = name.rpartition("@")
    model, _, precision = model.partition(":")
    if not at or not model or not backend:
        raise InputError(f"target {name!r}: expected MODEL[:PRECISION]@BACKEND")
    return RunSpec(
        model=model,
        backend=backend,
        precision=Precision(precision) if precision else None,
        preset=Preset.SMOKE,
        scenario=scenario,
        accuracy=False,
    )


@contextmanager
def opened(name: str, folder: Path) -> Iterator[Target]:
    """Have a target prepared; its block of samples lives as long as the context.

    Raises:
        EdgeperfError: The model or its runtime cannot be had.
    """
    plan = make_plan(spec_of(name))
    inputs = new_block("inputs")
    try:
        prepared = prepare(plan, folder / "prepare.log", inputs)
        yield Target(name, plan, prepared, inputs, folder)
    finally:
        os.close(inputs)


def reachable(names: Sequence[str]) -> tuple[str, ...]:
    """Return those of *names* whose files can be had, or the bundled ones if none can."""
    found = []
    for name in names:
        try:
            make_plan(spec_of(name))
        except InputError as error:
            sys.stderr.write(f"benchmarks: left out: {error}\n")
        else:
            found.append(name)
    return tuple(found) or BUNDLED
