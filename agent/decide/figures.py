"""Reading figures out of a result: a value with its interval, or why there is none.

A result came from a board, so nothing here trusts its free-form parts (power, conditions).
"""

import math
from collections.abc import Callable
from functools import partial

import msgspec

from edgeperf.agent.decide.names import RIGHT, Asked
from edgeperf.agent.result import Performance, Result

#: Figure of latency -> its field in ``Percentiles``.
PERCENTILES = {"p99.9": "p99_9"} | {
    name: name for name in ("p50", "p90", "p95", "p97", "p99", "mean", "min", "max")
}
_NO_METER = "no meter: measure with --meter"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A value and where it may really lie.

    Attributes:
        value: In the base unit of its kind.
        low: Lower end of its interval; None where nothing tells.
        high: Upper end.
        again: Whether it was scored again from kept predictions.
        no_interval: Why the raw times, which would tell the interval, could not be read.
    """

    value: float
    low: float | None = None
    high: float | None = None
    again: bool = False
    no_interval: str = ""


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that a result does not have, and why."""

    why: str


Read = Figure | Missing


def read(result: Result, asked: Asked) -> Read:
    """Return what *result* says of *asked*."""
    if asked.quality:
        return _quality(result, asked.name)
    if asked.name in PERCENTILES:
        return _latency(result, PERCENTILES[asked.name])
    try:
        return _READ[asked.name](result)
    except OverflowError:  # JSON knows whole numbers of any size
        return Missing(why="the result holds no number that can be compared")


def _quality(result: Result, name: str) -> Read:
    accuracy = result.accuracy
    if not accuracy.measured:
        return Missing(why=f"accuracy was not measured: {accuracy.why_not or 'no reason given'}")
    for called in (name, RIGHT.get(name, name)):
        if called in accuracy.metrics:
            low, high = accuracy.intervals.get(called, (None, None))
            return Figure(value=accuracy.metrics[called], low=low, high=high)
    return Missing(why=f"no such metric in the result of task {result.task}")


def _performance(result: Result) -> Performance | Missing:
    return result.performance or Missing(why="no performance test: see the verdict")


def _latency(result: Result, field: str) -> Read:
    performance = _performance(result)
    if isinstance(performance, Missing):
        return performance
    if performance.latency_ns is None:
        return Missing(why="Offline has one query; ask for samples_per_second")
    return Figure(value=getattr(performance.latency_ns, field))


def _headline_latency(result: Result) -> Read:
    performance = _performance(result)
    if isinstance(performance, Missing):
        return performance
    head = performance.headline
    if head is None or head.unit != "ns":
        return Missing(why="only SingleStream and MultiStream have an early-stopping estimate")
    return Figure(value=head.value)


def _qps(result: Result) -> Read:
    performance = _performance(result)
    if isinstance(performance, Missing):
        return performance
    if performance.latency_ns is None:
        return Missing(why="Offline has one query; ask for samples_per_second")
    if not performance.duration_ns:
        return Missing(why="the test has no duration")
    return Figure(value=performance.queries * 1e9 / performance.duration_ns)


def _samples_per_second(result: Result) -> Read:
    performance = _performance(result)
    if isinstance(performance, Missing):
        return performance
    head = performance.headline
    if head is not None and head.name == "samples_per_second":
        return Figure(value=head.value)
    return Figure(value=performance.throughput_sps)


def _energy(part: str, field: str, result: Result) -> Read:
    power = result.power
    if power is None:
        return Missing(why=_NO_METER)
    metrics = power.get(part)
    if not isinstance(metrics, dict):
        share = _number(power.get("coverage"))
        if part == "net" and isinstance(power.get("gross"), dict):
            return Missing(why="idle power was not measured")
        seen = "" if share is None else f": the meter saw {share:.1%} of the window"
        return Missing(why=f"no joules{seen}")
    return _estimate(metrics.get(field), field)


def _idle_w(result: Result) -> Read:
    if result.power is None:
        return Missing(why=_NO_METER)
    idle = result.power.get("idle")
    if not isinstance(idle, dict):
        return Missing(why="idle power was not measured")
    return _estimate(idle.get("average_w"), "average_w")


def _peak_w(result: Result) -> Read:
    if result.power is None:
        return Missing(why=_NO_METER)
    return _estimate(result.power.get("peak_w"), "peak_w")


def _estimate(given: object, field: str) -> Read:
    """Read a number with its k = 2 uncertainty, which is about a 95 % interval."""
    if not isinstance(given, dict):
        return Missing(why=f"the meter gave no {field}")
    value, off = _number(given.get("value")), _number(given.get("uncertainty"))
    if value is None:
        return Missing(why=f"the meter gave no {field}")
    if off is None:
        return Figure(value=value)
    return Figure(value=value, low=value - abs(off), high=value + abs(off))


def _peak_rss(result: Result) -> Read:
    workers = () if result.sut is None else result.sut.workers
    each = [worker.peak_rss_bytes for worker in workers]
    if not each or not all(each):
        return Missing(why="peak memory was not recorded")
    return Figure(value=float(sum(each)))


def _temperature(result: Result) -> Read:
    given = (result.conditions or {}).get("temperatures_max_c")
    zones = given.values() if isinstance(given, dict) else ()
    readings = [number for number in map(_number, zones) if number is not None]
    if not readings:
        return Missing(why="the board tells no temperature")
    return Figure(value=max(readings))


def _model_size(result: Result) -> Read:
    model = result.model
    parts = sum(part.size_bytes for part in (*model.parts, *model.companions))
    return Figure(value=float(result.model.size_bytes + parts))


def _number(given: object) -> float | None:
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    return float(given) if math.isfinite(given) else None


_READ: dict[str, Callable[[Result], Read]] = {
    "headline_latency": _headline_latency,
    "qps": _qps,
    "samples_per_second": _samples_per_second,
    "j_per_sample": partial(_energy, "gross", "energy_per_sample_j"),
    "j_per_query": partial(_energy, "gross", "energy_per_query_j"),
    "samples_per_joule": partial(_energy, "gross", "samples_per_joule"),
    "net_j_per_sample": partial(_energy, "net", "energy_per_sample_j"),
    "average_w": partial(_energy, "gross", "average_w"),
    "peak_w": _peak_w,
    "idle_w": _idle_w,
    "peak_rss": _peak_rss,
    "temperature": _temperature,
    "model_size": _model_size,
}
