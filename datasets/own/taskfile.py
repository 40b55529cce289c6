"""The schema of a task file, and reading one without believing it."""

import math
from collections.abc import Iterator
from pathlib import Path

import msgspec

from edgeperf.datasets.base import DatasetError
from edgeperf.datasets.choices import with_choices
from edgeperf.datasets.metrics.names import (
    bare,
    falls,
    gate_problem,
    is_possible,
    operating_point,
)
from edgeperf.datasets.own.recipes import (
    DETECTORS,
    Above0,
    DataRecipe,
    InputRecipe,
    MetricRecipe,
    OutputRecipe,
    Positive,
)

_RANGE = "; a share is from 0 to 1 (95 % is 0.95)"
#: The usual metric of what is read, where it is not top-1.
_GATES = {"threshold": "accuracy", "text": "word_accuracy", "segments": "dice"}


class TaskFile(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A task, as its file has it.

    Attributes:
        title: One line for people.
        classes: Names of the classes, in the order of the model's scores.
        performance_samples: How many samples performance mode holds in memory.
        server_latency_ms: Bound of the Server scenario.
        mlperf: The benchmark's key in mlperf.conf, where it is one of MLPerf's.
        reference: Metrics of the FP32 model on the same samples, the gate's among them or not.
    """

    title: str = "own task"
    classes: tuple[str, ...] = ()
    performance_samples: Positive = 1024
    server_latency_ms: Above0 = 10.0
    mlperf: str | None = None
    input: InputRecipe = msgspec.field(default_factory=InputRecipe)
    output: OutputRecipe = msgspec.field(default_factory=OutputRecipe)
    metric: MetricRecipe = msgspec.field(default_factory=MetricRecipe)
    data: DataRecipe = msgspec.field(default_factory=DataRecipe)
    reference: dict[str, float] = msgspec.field(default_factory=dict)

    @property
    def detects(self) -> bool:
        """Whether answers are boxes."""
        return self.output.read in DETECTORS

    @property
    def gate(self) -> str:
        """Name of the metric that decides."""
        if self.metric.gate is not None:
            return self.metric.gate
        if self.detects:
            return "mAP"
        return _GATES.get(self.output.read, "top1")

    @property
    def precisions(self) -> tuple[float, ...]:
        """Precisions at which recall is wanted, the gate's among them."""
        return _with_gate(self.metric.precisions, self.gate, "recall@precision")

    @property
    def recalls(self) -> tuple[float, ...]:
        """Recalls at which precision is wanted, the gate's among them."""
        return _with_gate(self.metric.recalls, self.gate, "precision@recall")


def _with_gate(wanted: tuple[float, ...], gate: str, kind: str) -> tuple[float, ...]:
    point = operating_point(gate)
    if point is None or point[0] != kind or point[1] in wanted:
        return wanted
    return (*wanted, point[1])


def read_task(path: Path) -> TaskFile:
    """Read a task file.

    Raises:
        DatasetError: It cannot be read, is no TOML, or says something that it may not; the
            message names the field.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DatasetError(f"task file {path}: {error.strerror}") from error
    return parse_task(raw, str(path))


def parse_task(raw: bytes, where: str) -> TaskFile:
    """Read the text of a task file; *where* is for messages.

    Raises:
        DatasetError: As :func:`read_task`.
    """
    try:
        task = msgspec.toml.decode(raw, type=TaskFile)
    except ImportError as error:  # Python 3.10 has no TOML reader of its own
        raise DatasetError(f"task file {where}: needs tomli here; pip install tomli") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DatasetError(f"task file {where}: {with_choices(str(error), TaskFile)}") from error
    for problem in _problems(task):
        raise DatasetError(f"task file {where}: {problem}")
    return task


def _bound_problems(task: TaskFile) -> Iterator[str]:
    """Yield what is wrong with the gate's bound: the floor, or the reference and its share."""
    metric = task.metric
    given = {
        name: value
        for name in ("at_least", "at_most", "reference", "share")
        if (value := getattr(metric, name)) is not None
    }
    floors = given.keys() & {"at_least", "at_most"}
    if len(floors) > 1 or (floors and len(given) > 1):
        yield f"[metric] {' and '.join(given)}: give one of them"
    for floor in floors:
        if (floor == "at_most") != falls(task.gate):
            other = {"at_least": "at_most", "at_most": "at_least"}[floor]
            yield f"[metric] {floor}: {task.gate} is better the other way; give {other}"
    for name in ("at_least", "at_most", "reference"):
        if name in given and not is_possible(task.gate, given[name]):
            yield f"[metric] {name}: {task.gate} is never {given[name]:g}{_RANGE}"
    if "share" in given and metric.reference is None and task.gate not in task.reference:
        yield f"[metric] share: of what? give reference, what the FP32 model reaches in {task.gate}"


def _metric_problems(task: TaskFile) -> Iterator[str]:
    metric = task.metric
    yield from _bound_problems(task)
    if (value := task.reference.get(task.gate)) is not None and not is_possible(task.gate, value):
        yield f"[reference] {task.gate}: is never {value:g}{_RANGE}"
    if (problem := gate_problem(task.gate, task.output.read)) is not None:
        yield f"[metric] gate = {problem}"
    costs = metric.costs
    if costs is not None and not 0 < costs.miss + costs.false_alarm < math.inf:
        yield "[metric] costs: expected finite numbers, and one of them above 0"
    if bare(task.gate) in ("cost", "least_cost") and costs is None:
        yield "[metric] costs: say what a miss and a false alarm cost, {miss = 10, false_alarm = 1}"


def _problems(task: TaskFile) -> Iterator[str]:
    """Yield what fits the schema and makes no sense."""
    yield from _metric_problems(task)
    recipe = task.input
    if len(set(task.classes)) != len(task.classes):
        yield "classes: the same name twice"
    for name in ("mean", "std"):
        numbers = getattr(recipe, name)
        if len(numbers) not in (1, recipe.channels) and recipe.kind == "image":
            yield f"[input] {name}: give 1 number, or {recipe.channels} for {recipe.colour}"
        if not all(map(math.isfinite, numbers)):
            yield f"[input] {name}: expected numbers that are finite"
    if task.detects and (recipe.crop is not None or recipe.resize == "shorter_side"):
        yield "[input] crop, shorter_side: cut boxes off; use stretch or letterbox"
    if task.output.read == "text" and task.output.vocabulary is None:
        yield "[output] vocabulary: name the file with the tokens, one a line"
    if task.data.path is not None and task.data.catalogue is not None:
        yield "[data] path and catalogue: give one of them"
