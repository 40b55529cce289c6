"""What texts are worth: BLEU and chrF by sacrebleu, word errors by jiwer."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from edgeperf.datasets.base import DatasetError
from edgeperf.datasets.metrics.bootstrap import Interval

RESAMPLES = 1000


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
    """Return BLEU and chrF, 0 to 100, with BLEU's interval.

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
    score = metrics.BLEU().corpus_score(texts, streams, n_bootstrap=RESAMPLES)
    chrf = metrics.CHRF().corpus_score(texts, streams)
    return (
        {"bleu": float(score.score), "chrf": float(chrf.score)},
        {"bleu": (float(score._mean - score._ci), float(score._mean + score._ci))},  # noqa: SLF001 - sacrebleu has no public name for them
    )
