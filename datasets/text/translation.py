"""``translation``: sentences from one language into another (MLPerf's GNMT asked the same).

The model is an encoder and a decoder with a tokenizer; all of it is timed, from the text to
the text. The catalogue's samples are 500 short English sentences with German references
(Tatoeba): their BLEU is not comparable with WMT16's newstest, which a user may name with
``--data``: two files of one sentence a line.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.assets import resolve
from edgeperf.datasets.base import Array, DatasetError, SampleLibrary
from edgeperf.datasets.catalogue import data_for
from edgeperf.datasets.lines import lines_of
from edgeperf.datasets.metrics.bootstrap import mean_of, with_intervals
from edgeperf.datasets.metrics.scoring import gated
from edgeperf.datasets.metrics.text import bleu, require_package
from edgeperf.datasets.score import Decoding, Gate, Remark, Score, Shown
from edgeperf.datasets.tensors import TensorSpec
from edgeperf.datasets.text.strings import get_text, put_text

#: Names of a list of sentences in a folder.
LISTS = ("test500.json", "test.json")
#: Endings of a pair of files, source first.
PAIR = ("src", "ref"), ("en", "de")


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """One sample: a sentence and its right translations."""

    src: str
    refs: tuple[str, ...]


class Translation:
    """Say it in another language. Metric: BLEU, 0 to 100; also chrF."""

    name = "translation"
    title = "sentences from English into German, encoder and decoder"
    metric = "bleu"
    performance_count = 1024
    server_latency_ns = 250_000_000  # MLPerf's bound for GNMT
    reference: float | None = None
    timed_postprocessing = False  # it is part of the session already
    loadgen_model = "gnmt"
    gate = Gate()
    decoding: Decoding | None = Decoding(most_tokens=39)

    def __init__(self) -> None:
        """Know of no reference: each model of the catalogue has its own."""
        self.reference_metrics: dict[str, float] = {}

    def open(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        *,
        data: Path | None = None,
    ) -> SampleLibrary:
        """Open the sentences for a model that looks like this.

        Args:
            inputs: The model's inputs: one text.
            outputs: The model's outputs: one text, and how many tokens it has.
            data: The user's own: a JSON list of ``{"src": ..., "refs": [...]}``, or a
                folder with that or with ``NAME.en`` and ``NAME.de``, a sentence a line.

        Raises:
            DatasetError: The data is missing or damaged, the model takes no text, or
                sacrebleu is not installed.
        """
        require_package(self.name, "sacrebleu", "BLEU")
        if [spec.dtype for spec in (*inputs, *outputs)] != ["uint8", "uint8", "int32"]:
            raise DatasetError(
                "task translation takes an encoder with --part decoder=FILE and --part"
                " tokenizer=FILE, which together take text and give text"
            )
        sentences = read_sentences(data or resolve(data_for(self.name).asset))
        return Sentences(sentences, inputs[0].sample_size, outputs[0].sample_size)


class Sentences:
    """Sentences and their references."""

    def __init__(self, sentences: Sequence[Sentence], room: int, answer_room: int) -> None:
        """Take the sentences, and how many bytes model and answer have for one."""
        self._sentences = sentences
        self._room = room
        self._answer_room = answer_room

    def __len__(self) -> int:
        """Return how many sentences there are."""
        return len(self._sentences)

    def write(self, index: int, out: Sequence[Array]) -> None:
        """Write sentence *index* as UTF-8."""
        put_text(self._sentences[index].src, out[0])

    @property
    def prediction_shape(self) -> tuple[int, ...]:
        """The bytes of the answer, and how many tokens it had."""
        return (self._answer_room + 1,)

    @property
    def payload_bytes(self) -> int:
        """The answer as UTF-8."""
        return self._answer_room

    def predict(self, index: int, outputs: Sequence[Array], out: Array) -> None:
        """Keep the text and the number of its tokens."""
        del index
        out[:-1] = outputs[0].reshape(-1)
        out[-1] = outputs[1].reshape(-1)[0]

    def payload(self, index: int, prediction: Array, out: NDArray[np.uint8]) -> int:
        """Write the answer as UTF-8, which MLPerf's ``process_accuracy.py`` reads."""
        del index
        raw = get_text(prediction[:-1]).encode()
        out[: len(raw)] = np.frombuffer(raw, np.uint8)
        return len(raw)

    def score(self, predictions: NDArray[np.float32]) -> Score:
        """Return BLEU and chrF of all answers, and how long those are."""
        texts = [get_text(prediction[:-1]) for prediction in predictions]
        metrics, intervals = bleu(texts, [sentence.refs for sentence in self._sentences])
        length, around = with_intervals(
            mean_of("tokens_per_sample", predictions[:, -1].astype(np.float64)), len(texts)
        )
        score = gated("bleu", metrics | length, intervals | around, len(texts))
        cut = sum(len(sentence.src.encode()) > self._room for sentence in self._sentences)
        if not cut:
            return score
        text = f"{cut} sentences are longer than {self._room} bytes and were cut"
        return msgspec.structs.replace(score, remarks=(Remark(code="cut-texts", text=text),))

    def shown(self, index: int, prediction: Array) -> Shown:
        """Put sentence *index* and its answer into words."""
        sentence = self._sentences[index]
        return Shown(
            name=sentence.src,
            truth=" | ".join(sentence.refs),
            answer=get_text(prediction[:-1]),
            right=None,
        )


def read_sentences(data: Path) -> tuple[Sentence, ...]:
    """Read sentences and references.

    Raises:
        DatasetError: They are missing, damaged, or do not match.
    """
    if data.is_dir():
        for name in LISTS:
            if (data / name).is_file():
                return _from_json(data / name)
        return _from_pair(data)
    return _from_json(data)


def _from_json(path: Path) -> tuple[Sentence, ...]:
    expected = 'a JSON list of {"src": "...", "refs": ["..."]}'
    try:
        sentences = msgspec.convert(
            json.loads(path.read_bytes()), tuple[Sentence, ...], strict=False
        )
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror}; expected {expected}") from error
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: expected {expected}: {error}") from error
    return _checked(path, sentences)


def _from_pair(folder: Path) -> tuple[Sentence, ...]:
    for source, target in PAIR:
        found = sorted(folder.glob(f"*.{source}"))
        if found:
            paths = found[0], found[0].with_suffix(f".{target}")
            first, second = map(_lines, paths)
            if len(first) != len(second):
                raise DatasetError(
                    f"{paths[0]}: {len(first)} sentences, but {len(second)} in {paths[1].name}"
                )
            pairs = zip(first, second, strict=True)
            return _checked(folder, tuple(Sentence(src=a, refs=(b,)) for a, b in pairs))
    raise DatasetError(
        f"{folder}: expected {LISTS[0]}, or two files of one sentence a line, NAME.en and NAME.de"
    )


def _lines(path: Path) -> list[str]:
    try:
        return lines_of(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path}: cannot be read as text: {error}") from error


def _checked(where: Path, sentences: tuple[Any, ...]) -> tuple[Sentence, ...]:
    if not sentences:
        raise DatasetError(f"{where}: holds no sentence")
    for number, sentence in enumerate(sentences):
        if not sentence.refs or not all(sentence.refs):
            raise DatasetError(f"{where}: sentence {number} has no reference")
    return sentences
