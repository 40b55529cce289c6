"""Beam search: several texts grow side by side, and the best of all that ended is the answer.

The decoder answers one token at a time, so every step costs one inference for each text that
is still growing: that is what a beam costs on such a model, and it is timed. Room for the
decoder's caches is made once; a text reads its parent's and writes its own, never a copy more.
"""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf.backends.base import Array

#: Takes a token and its position, gives a score for each token that may follow.
Step = Callable[[int, int], Array]


class _Growing(msgspec.Struct, frozen=True):
    """A text that has not ended: its tokens, the logarithm of its probability, its cache."""

    tokens: tuple[int, ...]
    log_probability: float
    room: int


class BeamSearch:
    """The search for the most probable text, a number of texts at a time."""

    def __init__(
        self,
        step: Step,
        cache: Sequence[tuple[Array, Array]],
        *,
        width: int,
        length_penalty: float,
    ) -> None:
        """Make room for the caches of all texts.

        Args:
            step: The decoder.
            cache: What it gives and takes again, pairs of arrays.
            width: Texts that grow at a time.
            length_penalty: Exponent by which longer texts are preferred; 0 for none.
        """
        self._step, self._cache = step, cache
        self._width, self._exponent = width, length_penalty
        self._rooms = [
            [[np.zeros_like(taken) for _, taken in cache] for _ in range(width)] for _ in range(2)
        ]

    def search(self, start: int, stop: int, most: int) -> tuple[int, ...]:
        """Return the best text's tokens, without *start* and *stop*.

        Args:
            start: Token that begins a text.
            stop: Token that ends it.
            most: Where texts are cut.
        """
        growing = [_Growing((), 0.0, 0)]
        for room in self._rooms[0][0]:
            room[...] = 0
        best: tuple[int, ...] = ()
        best_score = -np.inf
        for position in range(most):
            ranked = self._grow(growing, position, start)
            growing = []
            for text in ranked:
                if text.tokens[-1] != stop:
                    growing.append(text)
                elif (score := self._score(text)) > best_score:
                    best, best_score = text.tokens[:-1], score
                if len(growing) == self._width:
                    break
            # A text can only become less probable: at best it stays so up to the last token.
            if best_score >= growing[0].log_probability / self._penalty(most):
                return best
        cut = max(growing, key=self._score)
        return cut.tokens if self._score(cut) > best_score else best

    def _grow(self, growing: Sequence[_Growing], position: int, start: int) -> list[_Growing]:
        """Return ways to go on, the best first: enough of them to fill the beam if some end."""
        before, after = self._rooms[position % 2], self._rooms[1 - position % 2]
        found = []
        for place, text in enumerate(growing):
            for kept, (_, taken) in zip(before[text.room], self._cache, strict=True):
                taken[...] = kept
            scores = self._step(text.tokens[-1] if text.tokens else start, position)
            for kept, (given, _) in zip(after[place], self._cache, strict=True):
                kept[...] = given
            logarithms = text.log_probability + _log_softmax(scores)
            most = min(self._width, len(logarithms) - 1)  # one more than grow: one may end
            found += [
                _Growing((*text.tokens, token), float(logarithms[token]), place)
                for token in np.argpartition(-logarithms, most)[: most + 1].tolist()
            ]
        return sorted(found, key=lambda text: (-text.log_probability, text.tokens))

    def _score(self, text: _Growing) -> float:
        return text.log_probability / self._penalty(len(text.tokens))

    def _penalty(self, tokens: int) -> float:
        """Return what a logarithm is divided by, so that long texts are not at a loss.

        Source: Wu et al. 2016, "Google's Neural Machine Translation System", equation 14
        (without its coverage), which MLPerf's GNMT used with a beam of 10.
        """
        return float(((5 + tokens) / 6) ** self._exponent)


def _log_softmax(scores: Array) -> NDArray[np.float64]:
    """Return the logarithms of the probabilities that *scores* stand for."""
    shifted = scores.astype(np.float64) - float(scores.max())
    logarithms: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return logarithms
