"""Which figure a name means: serving figures by a table, metrics by what the results have.

A metric with a number in its name is the same however the number is written, and need not
be in any result: it can be had from kept predictions (:mod:`edgeperf.agent.decide.again`).
"""

import difflib
import re
from collections.abc import Collection
from typing import Literal

import msgspec

from edgeperf.agent.decide.errors import DecideError
from edgeperf.agent.decide.units import Kind
from edgeperf.datasets.metrics.names import bare, falls, is_about_samples

Better = Literal["lower", "higher"]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that was asked for.

    Attributes:
        name: Its one name.
        kind: What it is.
        better: Which way is better; None where neither is.
        quality: Whether it says what answers are worth, else how they are served.
        most_1: Whether a share of it cannot be above 1.
    """

    name: str
    kind: Kind
    better: Better | None
    quality: bool = False
    most_1: bool = False


#: Serving figures: kind and which way is better. How each is read: ``figures.py``.
SERVING: dict[str, tuple[Kind, Better]] = {
    **dict.fromkeys(
        ("p50", "p90", "p95", "p97", "p99", "p99.9", "mean", "min", "max"), (Kind.TIME, "lower")
    ),
    "headline_latency": (Kind.TIME, "lower"),
    "qps": (Kind.RATE, "higher"),
    "samples_per_second": (Kind.RATE, "higher"),
    "j_per_sample": (Kind.ENERGY, "lower"),
    "j_per_query": (Kind.ENERGY, "lower"),
    "net_j_per_sample": (Kind.ENERGY, "lower"),
    "samples_per_joule": (Kind.NUMBER, "higher"),
    "average_w": (Kind.POWER, "lower"),
    "peak_w": (Kind.POWER, "lower"),
    "idle_w": (Kind.POWER, "lower"),
    "peak_rss": (Kind.MEMORY, "lower"),
    "model_size": (Kind.MEMORY, "lower"),
    "temperature": (Kind.TEMPERATURE, "lower"),
}
_ALSO = {
    "p99_9": "p99.9",
    "p999": "p99.9",
    "median": "p50",
    "latency": "mean",
    "throughput": "samples_per_second",
    "sps": "samples_per_second",
    "power": "average_w",
    "memory": "peak_rss",
    "rss": "peak_rss",
    "size": "model_size",
    "energy_per_sample": "j_per_sample",
    "latency_p90_early_stopping": "headline_latency",
    "query_latency_p99_early_stopping": "headline_latency",
}
_LATENCY = re.compile(r"latency_(.+?)(?:_ns)?|(.+)_latency")
#: Metrics that take a number: they can be had for any, where answers have scores.
_AT = re.compile(r"(recall@precision|precision@recall)=([0-9.eE+-]+)(\[.*\])?")
COSTS = ("cost", "least_cost")
#: Metrics that are no shares.
_NUMBERS = ("bleu", "chrf", "tokens_per_sample", *COSTS)
_ERRORS = ("wer", "cer")
#: The share of right answers has two names: with scores of classes, and with yes or no.
RIGHT = {"accuracy": "top1", "top1": "accuracy"}


def serving(name: str) -> Asked:
    """Return the serving figure called *name*."""
    kind, better = SERVING[name]
    return Asked(name=name, kind=kind, better=better)


def metric(name: str) -> Asked:
    """Return the metric called *name*."""
    number = bare(name) in _NUMBERS or is_about_samples(name)
    undirected = is_about_samples(name) or bare(name) == "tokens_per_sample"
    direction: Better = "lower" if falls(name) else "higher"
    return Asked(
        name=name,
        kind=Kind.NUMBER if number else Kind.SHARE,
        better=None if undirected else direction,
        quality=True,
        most_1=not number and bare(name) not in _ERRORS,
    )


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """What the results at hand have.

    Attributes:
        serving: Serving figures that at least one has, in the order of the table.
        metrics: Metrics that at least one has.
    """

    serving: tuple[str, ...]
    metrics: frozenset[str]


def resolve(text: str, names: Names, *, where: str) -> Asked:
    """Return the figure that *text* means.

    Args:
        text: As written.
        names: What the results have.
        where: The option or constraint, for messages.

    Raises:
        DecideError: No figure is called that; the message has the nearest name, and all.
    """
    name = _ALSO.get(text, text)
    latency = _LATENCY.fullmatch(name)
    if latency is not None and (inner := latency[1] or latency[2]):
        inner = _ALSO.get(inner, inner)
        name = inner if SERVING.get(inner, (None,))[0] is Kind.TIME else name
    if name in SERVING:
        return serving(name)
    found = _metric(name, names.metrics)
    if found is not None:
        return metric(found)
    raise DecideError(f"{where}: {_unknown(text, names)}")


def _metric(name: str, metrics: Collection[str]) -> str | None:
    at = _AT.fullmatch(name)
    if at is not None:
        number = _share(at[2])
        return None if number is None else f"{at[1]}={number:g}{at[3] or ''}"
    if name in metrics or bare(name) in COSTS:
        return name
    if RIGHT.get(name) in metrics:
        return name
    alike = [one for one in metrics if one.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def _share(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 < number <= 1 else None


def _unknown(text: str, names: Names) -> str:
    at = _AT.fullmatch(text)
    if at is not None:
        return f"{text}: {at[2]} is no share between 0 and 1"
    known = [*names.serving, *sorted(names.metrics)]
    near = difflib.get_close_matches(text, [*SERVING, *known, *_ALSO, *RIGHT], n=1)
    meant = f"; did you mean {near[0]}?" if near else "."
    shown = [name for name in known if "[" not in name]
    more = len(known) - len(shown)
    classes = f" and {more} of single classes" if more else ""
    return f"no figure {text!r}{meant} These results have {', '.join(shown)}{classes}"
