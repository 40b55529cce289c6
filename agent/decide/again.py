"""Figures that a result does not state but its directory can still tell.

Quality: kept predictions are scored again with questions that nobody asked at run time,
against the task's own samples. The samples at hand must give the very figures that the
result has, else they are not the run's. Latency: the interval of a percentile, from every
query.
"""

import math
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf import EdgeperfError
from edgeperf.agent.decide.figures import PERCENTILES, Figure, Missing, Read
from edgeperf.agent.decide.names import COSTS
from edgeperf.agent.decide.sources import Run
from edgeperf.agent.result import Tensor
from edgeperf.agent.result.files import ANSWERS, LATENCIES, LATENCY_NS, PREDICTIONS, TASK
from edgeperf.agent.result.kept import contradiction
from edgeperf.datasets import is_task_file, open_task
from edgeperf.datasets.assets import digest
from edgeperf.datasets.base import SampleLibrary
from edgeperf.datasets.metrics.names import bare
from edgeperf.datasets.metrics.ranking import Costs
from edgeperf.datasets.metrics.scoring import Extra
from edgeperf.datasets.npz import read_stored
from edgeperf.datasets.tensors import Quantisation, TensorSpec

#: Two-sided 95 % of a normal distribution.
_Z = 1.96
_SAME = 1e-6
#: What other costs change.
_OF_COSTS = (*COSTS, "threshold@least_cost")
_AT = re.compile(r"(recall@precision|precision@recall)=([^\[]+)")

Array = NDArray[Any]
_Scored = dict[str, Figure] | Missing


class AlteredError(EdgeperfError):
    """A file of a result directory is not the one that the result lists."""


def can_be_scored_again(name: str) -> bool:
    """Say whether the metric *name* is one that takes a number or costs."""
    return _AT.match(name) is not None or bare(name) in COSTS


class Again:
    """Scores kept predictions again, each file once."""

    def __init__(self, names: tuple[str, ...], costs: Costs | None) -> None:
        """Take the metrics that are wanted, and what wrong answers cost."""
        at = [found for found in map(_AT.match, names) if found is not None]
        self._extra = Extra(
            precisions=tuple(float(one[2]) for one in at if one[1].startswith("recall")),
            recalls=tuple(float(one[2]) for one in at if one[1].startswith("precision")),
            costs=costs,
        )
        self._scored: dict[tuple[str, ...], _Scored] = {}

    def read(self, run: Run, name: str) -> Read:
        """Return the metric *name* of *run*, or why it cannot be had."""
        if not run.result.accuracy.measured:
            return Missing(why=f"accuracy was not measured: {run.result.accuracy.why_not}")
        kept = run.result.files.get(PREDICTIONS)
        if run.directory is None or kept is None:
            return Missing(
                why=f"the result does not state it; {PREDICTIONS} would tell: bring the"
                " whole result directory"
            )
        key = (kept.sha256, str(run.result.task), str(run.result.spec.get("data")))
        if key not in self._scored:
            self._scored[key] = self._score(run)
        scored = self._scored[key]
        if isinstance(scored, Missing):
            return scored
        return scored.get(name) or Missing(
            why=f"answers of task {run.result.task} have no {bare(name)}: they are not yes or no"
            " with a score"
        )

    def _score(self, run: Run) -> _Scored:
        try:
            predictions = _array(run, PREDICTIONS, ANSWERS, kinds="biuf")
            library = self._library(run)
            if library is None:
                return {}
            score = library.score(predictions.astype(np.float32))
        except EdgeperfError as error:
            return Missing(why=f"cannot be scored again here: {error}")
        except (ValueError, IndexError, KeyError, TypeError) as error:
            return Missing(why=f"cannot be scored again: answers and samples do not fit: {error}")
        for name, value in run.result.accuracy.metrics.items():
            here = score.metrics.get(name, value)
            if bare(name) not in _OF_COSTS and abs(here - value) > _SAME:
                return Missing(
                    why=f"cannot be scored again: with the samples here {name} is"
                    f" {here:.4f}, the result says {value:.4f}: not the run's samples"
                )
        figures = {}
        for name, value in score.metrics.items():
            low, high = score.intervals.get(name, (None, None))
            figures[name] = Figure(value=value, low=low, high=high, again=True)
        return figures

    def _library(self, run: Run) -> SampleLibrary | None:
        """Open the run's samples with our questions added; None where they have no place."""
        result = run.result
        task = open_task(_task_of(run))
        data = result.spec.get("data")
        library = task.open(
            [_spec(tensor) for tensor in result.model.inputs],
            [_spec(tensor) for tensor in result.model.outputs],
            data=None if data is None else Path(str(data)),
        )
        for asked in (library, task):
            ask_also = getattr(asked, "ask_also", None)
            if ask_also is not None:
                ask_also(self._extra)
                return library
        return None


def with_interval(run: Run, name: str, figure: Figure) -> Read:
    """Return a figure of latency with its 95 % interval, from every query.

    Returns:
        The figure with lower and upper end; without an end that cannot be told (a high
        percentile of few queries has no upper one). Missing where the raw times are others
        than those that the result states, or another file than it lists.

    Source:
        Distribution-free interval of a quantile: the order statistics at ``n q`` plus and
        minus 1.96 standard deviations of a binomial. It takes queries for independent.
    """
    share = _share(name)
    performance = run.result.performance
    stated = None if performance is None else performance.latency_ns
    listed = run.result.files.get(LATENCIES)
    if run.directory is None or share is None or stated is None or listed is None:
        return figure
    if not (run.directory / LATENCIES).is_file():
        return msgspec.structs.replace(figure, no_interval=f"{LATENCIES} is not there")
    try:
        latency_ns = _latencies(run)
    except AlteredError as error:
        return Missing(why=str(error))
    except EdgeperfError as error:
        return msgspec.structs.replace(figure, no_interval=str(error))
    if problem := contradiction(stated, latency_ns):
        return Missing(why=f"{run.where}: {problem}")
    low, high = _interval(latency_ns, share)
    return msgspec.structs.replace(figure, low=low, high=high)


def _latencies(run: Run) -> Array:
    latency_ns = _array(run, LATENCIES, LATENCY_NS, kinds="iu")
    if latency_ns.ndim > 1:
        raise EdgeperfError(f"{LATENCIES} holds a table")
    return latency_ns


def _interval(latency_ns: Array, share: float) -> tuple[float | None, float | None]:
    count = len(latency_ns)
    if count < 2:  # noqa: PLR2004 - one query has no spread
        return None, None
    if math.isnan(share):
        off = _Z * float(latency_ns.std(ddof=1)) / math.sqrt(count)
        return float(latency_ns.mean()) - off, float(latency_ns.mean()) + off
    ranked = np.sort(latency_ns)
    off = _Z * math.sqrt(count * share * (1 - share))
    low, high = math.floor(count * share - off), math.ceil(count * share + off)
    return (
        float(ranked[low]) if low >= 0 else None,
        float(ranked[high]) if high < count else None,
    )


def _share(name: str) -> float | None:
    """Return the quantile that *name* is; NaN for the mean, None for what is neither."""
    field = PERCENTILES.get(name, "")
    if field == "mean":
        return math.nan
    return float(field[1:].replace("_", ".")) / 100 if field.startswith("p") else None


def _array(run: Run, name: str, key: str, *, kinds: str) -> Array:
    """Read an array of a result directory that is what the result says it is.

    That file may still be anything: who made the result made its digest too.

    Args:
        run: The result.
        name: Of the file.
        key: Of the array.
        kinds: The kinds of numbers it may hold, numpy's letters.

    Raises:
        AlteredError: It is another.
        EdgeperfError: It is not there, or is no array of numbers.
    """
    path = (run.directory or Path()) / name
    try:
        sha256, _ = digest(path) if path.is_file() else ("", 0)
    except OSError as error:
        raise EdgeperfError(f"{path}: cannot be read: {error}") from error
    if sha256 != run.result.files[name].sha256:
        raise AlteredError(f"{path} is not the file that the result was made with")
    array = read_stored(path, key, f"numbers {key!r} as a run keeps them")
    if array.dtype.kind not in kinds:
        raise EdgeperfError(f"{path}: {key} is {array.dtype}; expected numbers")
    return array


def _task_of(run: Run) -> str:
    """Return the task to open: the user's own file where it still is, else its kept copy."""
    named = str(run.result.spec.get("task") or run.result.task)
    kept = (run.directory or Path()) / TASK
    return str(kept) if is_task_file(named) and not Path(named).is_file() else named


def _spec(tensor: Tensor) -> TensorSpec:
    quantisation = None
    if tensor.scale is not None and tensor.zero_point is not None:
        quantisation = Quantisation(scale=tensor.scale, zero_point=tensor.zero_point)
    return TensorSpec(
        name=tensor.name, shape=tensor.shape, dtype=tensor.dtype, quantisation=quantisation
    )
