"""Names of metrics: which there are, which are better when lower, which say nothing of a model."""

import re
import sys

_FALLING = ("cost", "least_cost", "ece", "wer", "cer")
_UNBOUNDED = ("cost", "least_cost", "wer", "cer")
_ABOUT_SAMPLES = ("base_rate", "threshold@")
_CLASSES = (
    "balanced_accuracy", "macro_f1", "precision", "recall", "f1", "roc_auc", "pr_auc", "cost",
    "least_cost",
)  # fmt: skip
_BOXES = ("mAP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large", "AR1", "AR10", "AR100")
#: What answers may be judged by, as a task file reads them; the rest are boxes.
_KNOWN = {
    "argmax": ("top1", "top5", "ece", *_CLASSES),
    "softmax": ("top1", "top5", "ece", *_CLASSES),
    "threshold": ("accuracy", *_CLASSES),
    "text": ("word_accuracy", "wer", "cer"),
    "segments": ("dice",),
}
_POINT = re.compile(r"(recall@precision|precision@recall)=([0-9]+\.?[0-9]*|\.[0-9]+)(\[.*\])?")


def bare(name: str) -> str:
    """Return *name* without the class in brackets behind it."""
    return name.partition("[")[0]


def falls(name: str) -> bool:
    """Say whether lower is better."""
    return bare(name) in _FALLING


def is_possible(name: str, value: float) -> bool:
    """Say whether a metric of a task file can be *value*: shares go from 0 to 1, none below 0."""
    return 0 <= value <= (sys.float_info.max if bare(name) in _UNBOUNDED else 1)


def is_about_samples(name: str) -> bool:
    """Say whether *name* describes samples or a setting, so that no value of it is better."""
    return name.startswith(_ABOUT_SAMPLES)


def operating_point(name: str) -> tuple[str, float] | None:
    """Return the kind and the number of ``recall@precision=0.9``; None for other metrics."""
    found = _POINT.fullmatch(name)
    return None if found is None else (found[1], float(found[2]))


def gate_problem(gate: str, read: str) -> str | None:
    """Say what is wrong with a metric that shall decide; None if nothing is.

    Args:
        gate: Its name.
        read: How the task file reads the output.
    """
    known = _KNOWN.get(read, _BOXES)
    point = operating_point(gate) if "recall" in known else None
    if point is not None:
        kind, share = point
        if not 0 < share <= 1:
            return f"{gate}: expected a number above 0, up to 1"
        plain = f"{kind}={share:g}"
        return None if bare(gate) == plain else f"{gate}: write {plain}"
    if bare(gate) in known:
        return None
    more = ", recall@precision=P, precision@recall=R" if "recall" in known else ""
    return f"{gate}: no metric of such answers; there are {', '.join(known)}{more}"
