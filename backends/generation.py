"""Two models and a tokenizer as one session: text in, text out, one token at a time.

The encoder runs once, the decoder once for each token, fed with what it gave (its cache of
keys and values) and with the token it liked best; with a beam, once for each token of each
text that grows. Which output goes into which input is told by name, else by shape. Everything
counts as inference: tokenizing, every step of the decoder, and making text of its tokens.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from edgeperf.backends.base import Array, ModelError, RuntimeInfo, Session
from edgeperf.backends.beam import BeamSearch
from edgeperf.backends.shapes import check_blocks
from edgeperf.datasets.score import Decoding
from edgeperf.datasets.tensors import TensorSpec
from edgeperf.datasets.text.strings import get_text, put_text
from edgeperf.datasets.text.tokenizer import Tokenizer

#: Room for one text, bytes of UTF-8.
TEXT_BYTES = 1024
TEXT = TensorSpec(name="text", shape=(1, TEXT_BYTES), dtype="uint8")
COUNT = TensorSpec(name="tokens", shape=(1,), dtype="int32")
_INTEGERS = ("int32", "int64")


class GenerationSession:
    """An encoder, a decoder that gives one token at a time, and their tokenizer."""

    def __init__(
        self, encoder: Session, decoder: Session, tokenizer: Tokenizer, decoding: Decoding
    ) -> None:
        """Connect the two.

        Args:
            encoder: Takes tokens, gives what the decoder needs to know of them.
            decoder: Takes that, a token, its position and its own cache; gives a score for
                each token and the cache.
            tokenizer: Of both.
            decoding: How the answer is searched, and where it is cut.

        Raises:
            ModelError: Their inputs and outputs do not fit together.
        """
        self.inputs: tuple[TensorSpec, ...] = (TEXT,)
        self.outputs: tuple[TensorSpec, ...] = (TEXT, COUNT)
        self.results: tuple[Array, ...] = (
            np.zeros(TEXT.shape, np.uint8),
            np.zeros(COUNT.shape, np.int32),
        )
        self._encoder, self._decoder = encoder, decoder
        self._tokenizer, self._most = tokenizer, decoding.most_tokens
        self._texts: Array = np.empty(0)
        self._source = np.zeros((1, *_only(encoder).sample_shape), _only(encoder).dtype)
        self._blocks = [np.zeros((1, *spec.sample_shape), spec.dtype) for spec in decoder.inputs]
        places = _Wiring(encoder, decoder)
        self._token, self._position = (
            self._blocks[place].reshape(-1) for place in (places.token, places.position)
        )
        self._memory = [(encoder.results[a], self._blocks[b][0]) for a, b in places.memory]
        self._cache = [(decoder.results[a], self._blocks[b][0]) for a, b in places.cache]
        self._scores = decoder.results[places.scores].reshape(-1)
        self._beam = self._beam_search(decoding)
        encoder.bind([self._source])
        decoder.bind(self._blocks)

    def info(self) -> RuntimeInfo:
        """Say what really runs: both models, where they differ."""
        first, second = self._encoder.info(), self._decoder.info()
        notes = [f"Encoder: {note}" for note in first.notes]
        notes += [f"Decoder: {note}" for note in second.notes]
        same = first.precision == second.precision
        return msgspec.structs.replace(
            first,
            precision=first.precision if same else f"{first.precision}, {second.precision}",
            notes=tuple(notes),
        )

    def bind(self, blocks: Sequence[Array]) -> None:
        """Prepare to read texts from the one block.

        Raises:
            ModelError: It does not fit.
        """
        check_blocks(self.inputs, blocks)
        self._texts = blocks[0]

    def infer(self, slot: int) -> None:
        """Answer the text in *slot*.

        Raises:
            BackendError: A runtime failed.
        """
        self._read(get_text(self._texts[slot]))
        self._encoder.infer(0)
        for given, taken in self._memory:
            taken[...] = given
        for _, taken in self._cache:
            taken[...] = 0
        tokens = self._generate() if self._beam is None else self._search(self._beam)
        put_text(self._tokenizer.decode(tokens), self.results[0])
        self.results[1][0] = len(tokens)

    def _read(self, text: str) -> None:
        """Write the tokens of *text* for the encoder, ended and filled up."""
        source = self._source.reshape(-1)
        tokens = self._tokenizer.encode(text)[: source.size - 1]
        source[: len(tokens)] = tokens
        source[len(tokens)] = self._tokenizer.stop
        source[len(tokens) + 1 :] = self._tokenizer.pad

    def _generate(self) -> list[int]:
        """Return the tokens that the decoder likes best, one after the other (greedy)."""
        infer, stop = self._decoder.infer, self._tokenizer.stop
        token, tokens = self._tokenizer.start, list[int]()
        for position in range(self._most):
            self._token[0], self._position[0] = token, position
            infer(0)
            for given, taken in self._cache:
                taken[...] = given
            token = int(self._scores.argmax())
            if token == stop:
                break
            tokens.append(token)
        return tokens

    def _beam_search(self, decoding: Decoding) -> BeamSearch | None:
        if decoding.beam == 1:
            return None
        if self._scores.dtype.kind != "f" or self._scores.size <= decoding.beam:
            raise ModelError(
                f"beam={decoding.beam}: the decoder gives {self._scores.size} scores of"
                f" {self._scores.dtype}; expected more than that, as floats"
            )
        return BeamSearch(
            self._step,
            self._cache,
            width=decoding.beam,
            length_penalty=decoding.length_penalty,
        )

    def _step(self, token: int, position: int) -> Array:
        self._token[0], self._position[0] = token, position
        self._decoder.infer(0)
        return self._scores

    def _search(self, beam: BeamSearch) -> list[int]:
        """Return the tokens of the most probable text that a beam finds."""
        return list(beam.search(self._tokenizer.start, self._tokenizer.stop, self._most))

    def close(self) -> None:
        """Release both runtimes."""
        self.results = ()
        self._memory = self._cache = []
        self._beam = None
        self._encoder.close()
        self._decoder.close()


def _only(encoder: Session) -> TensorSpec:
    if len(encoder.inputs) != 1 or encoder.inputs[0].dtype not in _INTEGERS:
        raise ModelError(
            f"an encoder takes tokens, one input of int32 or int64; this model takes"
            f" {_listed(encoder.inputs)}"
        )
    return encoder.inputs[0]


class _Wiring:
    """Which output of encoder and decoder goes into which input of the decoder.

    Attributes:
        token: Place of the input for the token.
        position: Place of the input for its position.
        memory: Output of the encoder and input of the decoder, pairs.
        cache: Output and input of the decoder, pairs.
        scores: Output of the decoder with a score for each token.
    """

    def __init__(self, encoder: Session, decoder: Session) -> None:
        small = [
            place
            for place, spec in enumerate(decoder.inputs)
            if spec.sample_size == 1 and spec.dtype in _INTEGERS
        ]
        if len(small) != 2:  # noqa: PLR2004 - token and position
            raise ModelError(
                "a decoder takes one token and its position, integers; this one takes"
                f" {_listed(decoder.inputs)}"
            )
        first, second = small
        swapped = "pos" in decoder.inputs[first].name.lower()
        self.token, self.position = (second, first) if swapped else (first, second)
        rest = [place for place in range(len(decoder.inputs)) if place not in small]
        self.memory = _matches(encoder.outputs, decoder.inputs, rest)
        rest = [place for place in rest if place not in {taken for _, taken in self.memory}]
        self.cache = _matches(decoder.outputs, decoder.inputs, rest)
        left = [
            place
            for place in range(len(decoder.outputs))
            if place not in {given for given, _ in self.cache}
        ]
        fed = {taken for _, taken in self.memory + self.cache}
        if len(left) != 1 or fed | set(small) != set(range(len(decoder.inputs))):
            raise ModelError(
                f"encoder and decoder do not fit: the encoder gives {_listed(encoder.outputs)},"
                f" the decoder takes {_listed(decoder.inputs)} and gives"
                f" {_listed(decoder.outputs)}"
            )
        self.scores = left[0]


def _matches(
    given: Sequence[TensorSpec], taken: Sequence[TensorSpec], places: Sequence[int]
) -> list[tuple[int, int]]:
    """Pair outputs with the inputs at *places*: the same name, else the only same shape."""
    pairs: list[tuple[int, int]] = []
    for number, spec in enumerate(given):
        free = [place for place in places if place not in {used for _, used in pairs}]
        same = [
            place
            for place in free
            if (taken[place].shape, taken[place].dtype) == (spec.shape, spec.dtype)
        ]
        named = [place for place in same if taken[place].name == spec.name]
        if len(named or same) == 1:
            pairs.append((number, (named or same)[0]))
    return pairs


def _listed(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(f"{spec.name!r} {spec.dtype} {list(spec.shape)}" for spec in specs)
