"""What answers are worth and what they must be worth, as plain data.

No numpy: the coordinator reads it too, and a result carries it.
"""

import msgspec


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """Something about the answers that a reader must know.

    Attributes:
        code: Stable name for scripts.
        text: One plain sentence with the figures.
        doubt: Whether it speaks against the run itself, not only against a hasty reading.
    """

    code: str
    text: str
    doubt: bool = False


class ClassScore(msgspec.Struct, frozen=True, kw_only=True):
    """How well one class is told from the rest; 0 where a quotient does not exist.

    Attributes:
        name: Of the class.
        samples: How many samples are of it.
        precision: Of the answers that name it, the share that is right.
        recall: Of its samples, the share that is found.
        f1: Their harmonic mean.
    """

    name: str
    samples: int
    precision: float
    recall: float
    f1: float


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """What a model's answers are worth.

    Attributes:
        metric: The name of the metric that the gate looks at (``top1``, ``pr_auc``).
        value: Its value: shares from 0 to 1, BLEU from 0 to 100.
        metrics: Every metric that the task computes, the gate's among them.
        samples: Number of distinct samples answered.
        intervals: 95 % bootstrap interval of each metric that has one.
        classes: Each class, where answers are classes.
        confusion: How often each class (row) was answered with each (column); empty where
            there are too many, or none.
        remarks: What a reader must know.
    """

    metric: str
    value: float
    metrics: dict[str, float]
    samples: int
    intervals: dict[str, tuple[float, float]] = msgspec.field(default_factory=dict)
    classes: tuple[ClassScore, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()
    remarks: tuple[Remark, ...] = ()


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One sample and its answer, in words.

    Attributes:
        name: Which sample.
        truth: What is right.
        answer: What the model says.
        right: Whether they agree; None where that is no yes or no.
        label: Number of the right class, -1 where answers are no classes.
        given: Number of the class answered, likewise.
    """

    name: str
    truth: str
    answer: str
    right: bool | None
    label: int = -1
    given: int = -1


class Decoding(msgspec.Struct, frozen=True, kw_only=True):
    """How a decoder that gives one token at a time is driven.

    Attributes:
        most_tokens: Where an answer is cut.
        beam: How many texts grow at a time; 1 is greedy.
        length_penalty: Of a beam: exponent by which longer texts are preferred.
    """

    most_tokens: int
    beam: int = 1
    length_penalty: float = 1.0


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """What a model must reach: a share of the FP32 reference, the user's own floor, or both.

    Attributes:
        share: Of the reference, MLPerf's 0.99 or 0.999; None asks for 0.99.
        floor: Value that must be reached whatever the reference is; None asks for a share.
            With both the stricter decides.
    """

    share: float | None = None
    floor: float | None = None
