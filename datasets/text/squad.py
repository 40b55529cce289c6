"""``squad``: find the answer to a question in a text (SQuAD v1.1, MLPerf's BERT).

Name your own copy with ``--data``: a folder with ``dev-v1.1.json`` (CC BY-SA 4.0, from
rajpurkar.github.io/SQuAD-explorer) and the model's ``vocab.txt``. A text that does not
fit is asked in parts that overlap; each part is a sample, as in MLPerf (10,833 of them
for 10,570 questions).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.base import Array, DatasetError, SampleLibrary
from edgeperf.datasets.classification import require_finite
from edgeperf.datasets.metrics.scoring import gated
from edgeperf.datasets.metrics.text import answer_overlap
from edgeperf.datasets.score import Decoding, Gate, Score
from edgeperf.datasets.tensors import TensorSpec
from edgeperf.datasets.text.questions import Question, read_questions
from edgeperf.datasets.text.wordpiece import Piece, WordPiece

FILE, VOCABULARY = "dev-v1.1.json", "vocab.txt"
#: MLPerf's: the longest question, how far the next part begins, the longest answer, and how
#: many begins and ends of an answer are looked at.
MOST_QUESTION, STRIDE, MOST_ANSWER, BEST = 64, 128, 30, 20

_ROLES = {
    "ids": ("input_ids", "ids"),
    "mask": ("mask",),
    "segments": ("segment", "token_type"),
}


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One sample: a question with a part of its text.

    Attributes:
        question: Number of the question.
        head: Tokens of the question.
        pieces: Of the part of the text.
        best: Whether this part has the most around each piece, of all that have it.
    """

    question: int
    head: list[int]
    pieces: list[Piece]
    best: list[bool]


class Squad:
    """Where in the text is the answer? Metric: F1; also exact match."""

    name = "squad"
    title = "answers to questions about a text (SQuAD v1.1, BERT)"
    metric = "f1"
    performance_count = 10_833
    server_latency_ns = 130_000_000
    reference: float | None = 0.90874  # MLPerf Inference, BERT-large in FP32
    timed_postprocessing = False
    loadgen_model = "bert"
    gate = Gate()
    decoding: Decoding | None = None

    def __init__(self) -> None:
        """Know of no other metric of the reference."""
        self.reference_metrics: dict[str, float] = {}

    def open(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        *,
        data: Path | None = None,
    ) -> SampleLibrary:
        """Open the questions for a model that looks like this.

        Args:
            inputs: The model's inputs: tokens, mask and segments of one length.
            outputs: Its outputs: a score for each token to begin and to end the answer.
            data: The folder with questions and vocabulary.

        Raises:
            DatasetError: No folder is named, it is damaged, or the model does not fit.
        """
        if data is None:
            raise DatasetError(
                f"task squad: name your own copy with --data: a folder with {FILE} and the model's"
                f" {VOCABULARY}"
            )
        roles = _roles(inputs)
        length = inputs[0].sample_size
        _require_scores(outputs, length)
        questions = read_questions(data / FILE if data.is_dir() else data)
        folder = data if data.is_dir() else data.parent
        return Parts(questions, WordPiece(folder / VOCABULARY), roles, length)


class Parts:
    """Questions, each with its text in parts that fit the model."""

    def __init__(
        self,
        questions: Sequence[Question],
        vocabulary: WordPiece,
        roles: Sequence[str],
        length: int,
    ) -> None:
        """Cut all texts to fit *length* tokens; *roles* says what each input takes."""
        self._questions = questions
        self._vocabulary = vocabulary
        self._roles = roles
        self._length = length
        self._parts = [
            part
            for number, question in enumerate(questions)
            for part in _parts(number, question, vocabulary, length)
        ]

    def __len__(self) -> int:
        """Return how many parts there are."""
        return len(self._parts)

    def write(self, index: int, out: Sequence[Array]) -> None:
        """Write tokens, mask and segments of part *index*."""
        part, sep = self._parts[index], self._vocabulary.sep
        head = [self._vocabulary.cls, *part.head, sep]
        tokens = [*head, *(piece.token for piece in part.pieces), sep]
        rows = {
            "ids": tokens,
            "mask": [1] * len(tokens),
            "segments": [0] * len(head) + [1] * (len(tokens) - len(head)),
        }
        for role, target in zip(self._roles, out, strict=True):
            flat = target.reshape(-1)
            flat[: len(tokens)] = rows[role]
            flat[len(tokens) :] = 0

    @property
    def prediction_shape(self) -> tuple[int, ...]:
        """Scores of each token to begin and to end the answer."""
        return (self._length, 2)

    @property
    def payload_bytes(self) -> int:
        """All of it."""
        return 4 * 2 * self._length

    def predict(self, index: int, outputs: Sequence[Array], out: Array) -> None:
        """Keep both scores of each token."""
        del index
        if len(outputs) == 1:
            out[...] = outputs[0].reshape(out.shape)
        else:
            out[:, 0], out[:, 1] = (values.reshape(-1) for values in outputs)

    def payload(self, index: int, prediction: Array, out: NDArray[np.uint8]) -> int:
        """Write all scores as float32, which ``accuracy-squad.py`` reads."""
        del index
        raw = np.ascontiguousarray(prediction, np.float32).view(np.uint8).reshape(-1)
        out[: raw.size] = raw
        return raw.size

    def score(self, predictions: NDArray[np.float32]) -> Score:
        """Return mean F1 and exact match over questions.

        Raises:
            DatasetError: An answer is not finite.
        """
        require_finite("squad", predictions)
        texts = self._texts(predictions)
        metrics, intervals = answer_overlap(texts, [asked.answers for asked in self._questions])
        return gated("f1", metrics, intervals, len(predictions))

    def _texts(self, predictions: NDArray[np.float32]) -> list[str]:
        """Return the best answer to each question over all its parts."""
        best = [(-np.inf, "")] * len(self._questions)
        for part, scores in zip(self._parts, predictions, strict=True):
            context = self._questions[part.question].context
            for worth, begin, end in _spans(part, scores):
                if worth > best[part.question][0]:
                    text = context[part.pieces[begin].begin : part.pieces[end].end]
                    best[part.question] = worth, text
        return [text for _, text in best]


def _spans(part: Part, scores: NDArray[np.float32]) -> Iterator[tuple[float, int, int]]:
    """Yield what each possible answer in a part is worth, and its first and last piece."""
    first = len(part.head) + 2
    begins, ends = (np.argsort(-scores[:, side], kind="stable")[:BEST] for side in (0, 1))
    for begin in (begins - first).tolist():
        if not 0 <= begin < len(part.pieces) or not part.best[begin]:
            continue
        for end in (ends - first).tolist():
            if begin <= end < min(len(part.pieces), begin + MOST_ANSWER):
                worth = scores[begin + first, 0] + scores[end + first, 1]
                yield float(worth), begin, end


def _parts(number: int, question: Question, vocabulary: WordPiece, length: int) -> Iterator[Part]:
    head = [piece.token for piece in vocabulary.pieces(question.question)][:MOST_QUESTION]
    pieces = vocabulary.pieces(question.context)
    room = length - len(head) - 3
    starts = [0]
    while starts[-1] + room < len(pieces):
        starts.append(starts[-1] + min(room, STRIDE))
    spans = [(start, min(start + room, len(pieces))) for start in starts]
    for start, end in spans:
        best = [_around(spans, place) == (start, end) for place in range(start, end)]
        yield Part(question=number, head=head, pieces=pieces[start:end], best=best)


def _around(spans: Sequence[tuple[int, int]], place: int) -> tuple[int, int]:
    """Return the part that has the most around a piece: the lesser of both sides counts."""

    def context(span: tuple[int, int]) -> float:
        start, end = span
        return min(place - start, end - 1 - place) + 0.01 * (end - start)

    return max((span for span in spans if span[0] <= place < span[1]), key=context)


def _roles(inputs: Sequence[TensorSpec]) -> list[str]:
    """Return what each input takes, by its name."""
    roles = []
    for spec in inputs:
        name = spec.name.lower()
        fitting = [
            role for role in ("mask", "segments", "ids") if any(w in name for w in _ROLES[role])
        ]
        if not fitting or spec.is_dynamic or spec.sample_size != inputs[0].sample_size:
            listed = ", ".join(f"{one.name!r} {list(one.shape)}" for one in inputs)
            raise DatasetError(
                "task squad does not fit this model: expected inputs like input_ids, input_mask"
                f" and segment_ids of one fixed length; it has {listed}"
            )
        roles.append(fitting[0])
    if sorted(roles) not in (["ids", "mask", "segments"], ["ids", "mask"], ["ids"]):
        raise DatasetError("task squad does not fit this model: two inputs for the same thing")
    return roles


def _require_scores(outputs: Sequence[TensorSpec], length: int) -> None:
    sizes = [spec.sample_size for spec in outputs if not spec.is_dynamic]
    if sizes not in ([length, length], [2 * length]):
        listed = ", ".join(f"{spec.name!r} {list(spec.shape)}" for spec in outputs)
        raise DatasetError(
            "task squad does not fit this model: expected scores of begin and end for"
            f" {length} tokens; it gives {listed}"
        )
