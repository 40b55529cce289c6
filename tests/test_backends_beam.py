"""Beam search over small decoders whose every text can be tried, and what a run may ask of it."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeperf import InputError
from edgeperf.agent.run.decoding import decoding_of, timed_generation
from edgeperf.agent.spec import RunSpec
from edgeperf.backends.beam import BeamSearch
from edgeperf.datasets import open_task

START, STOP, TOKENS = 0, 1, 4
Numbers = NDArray[Any]


class Remembering:
    """A decoder that scores by all tokens it was fed: what it remembers goes through its cache."""

    def __init__(self, weights: Sequence[float]) -> None:
        self.given, self.taken = np.zeros(1), np.zeros(1)
        self._weights = np.array(weights).reshape(TOKENS, TOKENS)
        self.steps = 0

    def step(self, token: int, position: int) -> Numbers:
        """Return the scores of what may follow."""
        self.steps += 1
        self.given[0] = (self.taken[0] * 0.7 + token) % 3
        return np.asarray(self._weights[token] + np.sin(self.given[0] + position))

    def log_probability(self, text: Sequence[int]) -> float:
        """Score a whole text by itself."""
        self.taken[0], total, token = 0, 0.0, START
        for position, following in enumerate(text):
            scores = self.step(token, position)
            total += scores[following] - np.log(np.exp(scores).sum())
            self.taken[0], token = self.given[0], following
        return float(total)

    def search(self, width: int, penalty: float, most: int) -> tuple[int, ...]:
        """Return what a beam finds."""
        beam = BeamSearch(
            self.step, [(self.given, self.taken)], width=width, length_penalty=penalty
        )
        return beam.search(START, STOP, most)


WEIGHTS = st.lists(st.floats(-3, 3), min_size=TOKENS**2, max_size=TOKENS**2)


def penalised(decoder: Remembering, text: Sequence[int], penalty: float) -> float:
    """Return what a text is worth, by the formula of the paper."""
    divisor: float = ((5 + len(text)) / 6) ** penalty
    return decoder.log_probability(text) / divisor


@settings(deadline=None, max_examples=60)
@given(WEIGHTS, st.sampled_from([0.0, 0.6, 1.0]))
def test_a_wide_beam_finds_the_best_of_all_texts(weights: list[float], penalty: float) -> None:
    """A beam that drops nothing is the same as trying every text up to the length."""
    most, others = 3, [token for token in range(TOKENS) if token != STOP]
    decoder = Remembering(weights)
    texts = [
        (*text, *end)
        for length in range(most + 1)
        for text in itertools.product(others, repeat=length)
        for end in ([(STOP,)] if length < most else [()])
    ]
    worth = {text: penalised(decoder, text, penalty) for text in texts}
    # No probability is lost: the texts are all that there are.
    total = sum(np.exp(decoder.log_probability(text)) for text in texts)
    assert total == pytest.approx(1.0)
    decoder.taken[0] = 0
    found = decoder.search(len(others) ** most, penalty, most)
    ended = (*found, STOP) if len(found) < most else found
    assert worth[ended] == pytest.approx(max(worth.values()))


@settings(deadline=None, max_examples=60)
@given(WEIGHTS, st.integers(2, 4), st.integers(1, 6))
def test_a_beam_costs_at_most_its_width(weights: list[float], width: int, most: int) -> None:
    """One step for each growing text and token, whatever the decoder says."""
    decoder = Remembering(weights)
    found = decoder.search(width, 1.0, most)
    assert len(found) <= most
    assert STOP not in found
    assert decoder.steps <= width * most


def test_a_beam_is_not_greedy() -> None:
    """The likeliest first token may lead to a worse text."""
    weights = np.full((TOKENS, TOKENS), -9.0)
    weights[START, [2, 3]] = np.log([0.6, 0.4])
    weights[2] = 0  # what follows it may be anything
    weights[3, STOP] = 9  # and that one ends for certain
    decoder = Remembering(weights.reshape(-1).tolist())
    assert decoder.search(2, 0.0, 5) == (3,)


def asked(**options: str) -> RunSpec:
    """Return a run with these options."""
    return RunSpec(model="mt_en_de", options=options)


def test_a_run_asks_for_a_beam() -> None:
    """The search takes its own options, the backend gets the rest, and the result says it."""
    task = open_task("translation")
    decoding, rest = decoding_of(asked(beam="4", length_penalty="0.6", graph="all"), task)
    assert decoding is not None
    assert (decoding.beam, decoding.length_penalty, decoding.most_tokens) == (4, 0.6, 39)
    assert rest == {"graph": "all"}
    assert "decoder for each token (beam of 4, length penalty 0.6)" in timed_generation(decoding)
    greedy, _ = decoding_of(asked(), task)
    assert greedy is not None
    assert "decoder for each token (greedy)" in timed_generation(greedy)
    assert decoding_of(asked(beam="4"), None) == (None, {"beam": "4"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"beam": "0"}, "beam=0: expected a whole number from 1 to 64"),
        ({"beam": "2.5"}, "beam=2.5: expected a whole number"),
        ({"beam": "many"}, "beam=many: expected a number"),
        ({"beam": "nan"}, "beam=nan: expected a number"),
        ({"beam": "2", "length_penalty": "-1"}, "length_penalty=-1: expected a number from 0"),
        ({"length_penalty": "1"}, "length_penalty=1: means nothing without beam=N"),
    ],
)
def test_what_is_no_beam_is_refused(options: dict[str, str], said: str) -> None:
    """One line names the option."""
    with pytest.raises(InputError, match=said):
        decoding_of(asked(**options), open_task("translation"))
