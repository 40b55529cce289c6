"""Known misuses, said aloud: figures that look good and decide nothing, or the wrong thing."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.metrics.names import falls, is_about_samples
from edgeperf.datasets.score import Remark, Score

#: A class this frequent makes accuracy a matter of always naming it.
MAJORITY = 0.9
#: Fewer samples than this may be wrong by chance.
_FEWEST_FOR_CHANCE = 20
_USELESS = 0.05
#: This far from guessing to perfect, answers are no guesses, however few the samples are.
_USEFUL = 0.4
_SHARES = ("top1", "accuracy")


def class_remarks(
    labels: NDArray[np.int64], answers: NDArray[np.int64], names: Sequence[str], gate: str
) -> list[Remark]:
    """Return what a reader of class answers must know."""
    remarks = []
    counts = np.bincount(labels, minlength=len(names))
    commonest = int(counts.argmax())
    share = counts[commonest] / len(labels)
    if gate in _SHARES and share >= MAJORITY:
        remarks.append(
            Remark(
                code="imbalanced",
                text=f"{gate} decides little on these samples: {share:.1%} are"
                f" {names[commonest]!r}, so always saying that gives {share:.4f}; let pr_auc,"
                " balanced_accuracy or recall@precision decide",
            )
        )
    if len(np.unique(answers)) == 1 and len(np.unique(labels)) > 1:
        remarks.append(
            Remark(
                code="one-answer",
                text=f"the model gives every sample the same answer, {names[int(answers[0])]!r}",
                doubt=True,
            )
        )
    absent = [name for name, count in zip(names, counts, strict=True) if not count]
    if absent:
        some = ", ".join(map(repr, absent[:3])) + (", ..." if len(absent) > 3 else "")  # noqa: PLR2004 - a line's worth
        remarks.append(
            Remark(
                code="absent-classes",
                text=f"no sample of {len(absent)} of {len(names)} classes ({some}): averages"
                " over classes leave them out",
            )
        )
    return remarks


def chance_remarks(
    labels: NDArray[np.int64], answers: NDArray[np.int64], classes: int
) -> list[Remark]:
    """Return a word of doubt where answers are no better than guessing, or worse.

    Balanced accuracy is compared with one in *classes*, three standard deviations of that
    many samples of each class allowed, but not more than is of use; below 5 % it is no use in
    any case.
    """
    counts = np.bincount(labels, minlength=classes)
    occurs = counts > 0
    right = np.bincount(labels, weights=labels == answers, minlength=classes)
    found = float((right[occurs] / counts[occurs]).mean())
    guess = 1 / classes
    spread = guess * (1 - guess) * (1 / counts[occurs]).sum() / occurs.sum() ** 2
    allowed = min(3 * float(spread) ** 0.5, _USEFUL * (1 - guess))
    most = max(guess + allowed, _USELESS)
    if len(labels) < _FEWEST_FOR_CHANCE or found > most:
        return []
    how, asks = "about", "are samples and labels what the model was trained with?"
    if found < guess - allowed:
        how, asks = "far below", "are the classes in another order than the model has them?"
    text = (
        f"balanced accuracy {found:.3f} is {how} what guessing among {classes} classes gives"
        f" ({guess:.3f}): {asks}"
    )
    return [Remark(code="chance", text=text, doubt=True)]


def ranking_remarks(
    metrics: Mapping[str, float], precisions: Sequence[float], suffix: str
) -> list[Remark]:
    """Return what a reader of scores must know."""
    remarks = [
        Remark(
            code="unreached-precision",
            text=f"no threshold has a precision of {precision:g}: recall@precision is 0 there",
        )
        for precision in precisions
        if metrics.get(f"recall@precision={precision:g}{suffix}") == 0
    ]
    auc = metrics.get(f"roc_auc{suffix}", 1.0)
    if auc < 0.4:  # noqa: PLR2004 - clearly on the wrong side of chance
        remarks.append(
            Remark(
                code="reversed",
                text=f"roc_auc{suffix} is {auc:.3f}, below chance: are yes and no, or the sign of"
                " the score, the wrong way round?",
                doubt=True,
            )
        )
    return remarks


def lost_remarks(
    metrics: Mapping[str, float], reference: Mapping[str, float], gate: str, share: float
) -> tuple[Remark, ...]:
    """Return the metrics that fell below the reference's although the gate may have passed.

    Args:
        metrics: Of the model under test.
        reference: Of the FP32 model on the same samples.
        gate: The metric that decides, which is judged elsewhere.
        share: Share of the reference that is asked of every other metric too.
    """
    lost = []
    for name, before in reference.items():
        after = metrics.get(name)
        if after is None or name == gate or is_about_samples(name):
            continue
        worse = after > before / share if falls(name) else after < before * share
        if worse:
            lost.append(f"{name} {after:.4f} against {before:.4f}")
    if not lost:
        return ()
    text = f"{gate} decides, but against the FP32 reference this was lost: {'; '.join(lost)}"
    return (Remark(code="lost-against-reference", text=text),)


def floor_remarks(score: Score, floor: float) -> tuple[Remark, ...]:
    """Return a word of doubt where the samples are too few to tell which side of *floor* it is."""
    interval = score.intervals.get(score.metric)
    if interval is None or not interval[0] <= floor <= interval[1]:
        return ()
    text = (
        f"{score.metric} {score.value:.4f} has the 95 % interval {interval[0]:.4f} to"
        f" {interval[1]:.4f}, on both sides of the {floor:g} asked: more samples would decide"
    )
    return (Remark(code="few-samples", text=text),)


def share_remarks(score: Score, reference: float, threshold: float) -> tuple[Remark, ...]:
    """Return a word of doubt where one sample is worth more than the gate allows to lose."""
    allowed = abs(reference - threshold)
    if score.metric not in _SHARES or allowed * score.samples >= 1:
        return ()
    text = (
        f"one of {score.samples} samples is worth {1 / score.samples:.4f}, and the gate allows"
        f" to lose {allowed:.4f}: a single answer decides; take more samples"
    )
    return (Remark(code="few-samples", text=text),)
