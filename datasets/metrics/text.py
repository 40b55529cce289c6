"""What texts are worth: BLEU and chrF by sacrebleu, word errors by jiwer."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from edgeperf.datasets.base import DatasetError
from edgeperf.datasets.metrics.bootstrap import Interval, Weights, with_intervals

RESAMPLES = 1000
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def require_package(task: str, package: str, why: str) -> None:
    """Make sure, before anything is measured, that texts can be scored afterwards.

    Raises:
        DatasetError: *package* is not installed.
    """
    if find_spec(package) is None:
        raise DatasetError(f"task {task}: {why} needs {package}; pip install 'edgeperf[metrics]'")


def bleu(
    texts: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[dict[str, float], dict[str, Interval]]:
    """Return BLEU and chrF, 0 to 100, with their intervals.

    Args:
        texts: One for each sample.
        references: Right texts of each sample, one or more.

    Source:
        sacrebleu with its defaults (13a tokenizer, case kept, exponential smoothing); the
        interval is its own bootstrap over sentences.
    """
    metrics = import_module("sacrebleu.metrics")
    most = max(map(len, references))
    streams = [
        [given[place] if place < len(given) else None for given in references]
        for place in range(most)
    ]
    values, intervals = {}, {}
    for name, metric in {"bleu": metrics.BLEU(), "chrf": metrics.CHRF()}.items():
        values[name], around = _with_interval(metric, texts, streams)
        if around is not None:
            intervals[name] = around
    return values, intervals


def _with_interval(
    metric: Any, texts: Sequence[str], streams: Sequence[Sequence[str | None]]
) -> tuple[float, Interval | None]:
    """Return the score by one of sacrebleu's metrics, and its interval where it finds one.

    Where some draws have nothing in common with the references, its own mean of draws
    stumbles over two kinds of floats.
    """
    try:
        found = metric.corpus_score(texts, streams, n_bootstrap=RESAMPLES)
    except TypeError:
        return float(metric.corpus_score(texts, streams).score), None
    mean, half = float(found._mean), float(found._ci)  # noqa: SLF001 - sacrebleu has no public name for them
    low, high = np.clip((mean - half, mean + half), 0, 100).tolist()
    return float(found.score), (low, high)


def word_errors(
    references: Sequence[str], texts: Sequence[str]
) -> tuple[dict[str, float], dict[str, Interval]]:
    """Return word and character error rate, and one less the former, with intervals.

    Args:
        references: Right text of each sample, none empty.
        texts: What was written down.

    Source:
        jiwer: substitutions, deletions and insertions over the words of the references;
        MLPerf asks for ``1 - wer``.
    """
    jiwer = import_module("jiwer")
    counts = np.array(
        [
            [
                *_errors(jiwer.process_words(right, said)),
                *_errors(jiwer.process_characters(right, said)),
            ]
            for right, said in zip(references, texts, strict=True)
        ]
    )

    def measure(weights: Weights) -> dict[str, float]:
        wrong_words, words, wrong_letters, letters = weights @ counts
        wer = float(wrong_words / words)
        return {"wer": wer, "word_accuracy": 1 - wer, "cer": float(wrong_letters / letters)}

    return with_intervals(measure, len(texts))


def _errors(output: Any) -> tuple[int, int]:
    """Return errors and length of the reference, as jiwer counted them."""
    kept = output.hits + output.substitutions + output.deletions
    return output.substitutions + output.deletions + output.insertions, kept


def answer_overlap(
    texts: Sequence[str], answers: Sequence[Sequence[str]]
) -> tuple[dict[str, float], dict[str, Interval]]:
    """Return mean F1 over words and mean exact match, against the nearest right answer.

    Args:
        texts: One for each question.
        answers: Right answers to each, one or more.

    Source:
        SQuAD v1.1's evaluation: case, punctuation and articles do not count.
    """
    each = np.array(
        [
            (
                max(_shared_words(_plain(text), _plain(answer)) for answer in right),
                any(_plain(text) == _plain(answer) for answer in right),
            )
            for text, right in zip(texts, answers, strict=True)
        ],
        np.float64,
    )

    def measure(weights: Weights) -> dict[str, float]:
        f1, exact = weights @ each / weights.sum()
        return {"f1": float(f1), "exact_match": float(exact)}

    return with_intervals(measure, len(texts))


def _plain(text: str) -> list[str]:
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def _shared_words(said: list[str], right: list[str]) -> float:
    """Return the harmonic mean of precision and recall."""
    shared = sum((Counter(said) & Counter(right)).values())
    return 2 * shared / (len(said) + len(right)) if shared else 0.0
