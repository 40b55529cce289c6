"""What a model made of a few samples, as plain data."""

import msgspec


class SeenInput(msgspec.Struct, frozen=True, kw_only=True):
    """One input of one sample as the model gets it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    least: float
    mean: float
    most: float


class SeenSample(msgspec.Struct, frozen=True, kw_only=True):
    """One sample as the model sees it, and what it answers.

    Attributes:
        name: Which one.
        truth: What is right.
        answer: What the model says.
        right: Whether they agree; None where that is no yes or no.
        inputs: The numbers that it gets.
        picture: File with the input as a picture.
    """

    name: str
    truth: str
    answer: str
    right: bool | None
    inputs: tuple[SeenInput, ...] = ()
    picture: str | None = None


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What the model made of the samples by one task file.

    Attributes:
        right: How many answers were right.
        asked: How many were given.
        answers: Class answered to each sample, -1 where answers are no classes.
        labels: Class that is right.
        samples: Each sample, where that was asked.
    """

    right: int
    asked: int
    answers: tuple[int, ...]
    labels: tuple[int, ...]
    samples: tuple[SeenSample, ...] = ()
