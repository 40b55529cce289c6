"""How a text is searched for, token by token: what a run asks, and what a reader is told."""

import math

import msgspec

from edgeperf import InputError
from edgeperf.agent.spec import RunSpec
from edgeperf.datasets.base import Task
from edgeperf.datasets.score import Decoding

#: More texts at a time make answers worse, not better, and a board slow.
MOST_TEXTS = 64
_MOST_PENALTY = 10.0


def decoding_of(spec: RunSpec, task: Task | None) -> tuple[Decoding | None, dict[str, str]]:
    """Take what is about the search out of the options of *spec*.

    Returns:
        How a decoder is driven, None where there is none, and the backend's own options.

    Raises:
        InputError: An option cannot be that.
    """
    if task is None or task.decoding is None:
        return None, dict(spec.options)
    options, decoding = dict(spec.options), task.decoding
    beam, penalty = options.pop("beam", None), options.pop("length_penalty", None)
    if beam is not None:
        width = _number("beam", beam)
        if not (1 <= width <= MOST_TEXTS and width == int(width)):
            raise InputError(f"option beam={beam}: expected a whole number from 1 to {MOST_TEXTS}")
        decoding = msgspec.structs.replace(decoding, beam=int(width))
    if penalty is not None and decoding.beam == 1:
        raise InputError(
            f"option length_penalty={penalty}: means nothing without beam=N, 2 or more"
        )
    if penalty is not None:
        exponent = _number("length_penalty", penalty)
        if not 0 <= exponent <= _MOST_PENALTY:
            raise InputError(
                f"option length_penalty={penalty}: expected a number from 0 to {_MOST_PENALTY:g}"
            )
        decoding = msgspec.structs.replace(decoding, length_penalty=exponent)
    return decoding, options


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"option {name}={text}: expected a number")
    return value


def timed_generation(decoding: Decoding) -> tuple[str, ...]:
    """Say in words what the latency of a text contains."""
    search = "greedy"
    if decoding.beam > 1:
        search = f"beam of {decoding.beam}, length penalty {decoding.length_penalty:g}"
    return ("tokenizing", "encoder", f"decoder for each token ({search})", "detokenizing")
