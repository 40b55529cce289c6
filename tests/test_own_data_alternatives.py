"""What may be wrong where answers are at chance: other inputs to try, and what labels show."""

import re

import numpy as np
import pytest

from edgeperf.datasets.metrics.misuse import chance_remarks
from edgeperf.datasets.own.alternatives import alternatives, label_trouble
from edgeperf.datasets.own.recipes import InputRecipe, OutputRecipe
from edgeperf.datasets.own.taskfile import TaskFile


def said(dtype: str = "float32", **recipe: object) -> list[str]:
    """Return what would be tried instead of this recipe."""
    task = TaskFile(input=InputRecipe(**recipe))  # type: ignore[arg-type]
    return [other.said for other in alternatives(task, dtype)]


def test_one_change_comes_first_then_two() -> None:
    """Every usual scale and both orders of channels, but the one that was used."""
    tried = said(mean=(127.5,), std=(127.5,))
    assert len(tried) == 3 + 1 + 3
    assert tried[:2] == ["mean = [0], std = [1]", "mean = [0], std = [255]"]
    assert tried[2] == "mean = [123.675, 116.28, 103.53], std = [58.395, 57.12, 57.375]"
    assert tried[3] == 'colour = "BGR"'
    assert all(text.startswith('colour = "BGR" and mean') for text in tried[4:])


def test_bytes_and_grey_and_numbers() -> None:
    """8-bit inputs may want pixels; grey has no order; arrays only another scale."""
    assert 'bytes = "pixels"' in said("uint8", std=(255.0,))
    assert 'bytes = "quantised", mean = [0], std = [255]' in said("int8", bytes="pixels")
    assert not any("colour" in text for text in said(colour="grey"))
    assert not any("103.53" in text for text in said(colour="grey"))
    assert said(kind="array")[0] == "mean = [0], std = [255]"
    assert "mean = [0], std = [1]" in said(kind="array", std=(255.0,))
    assert said("int32", kind="array") == []
    assert said(kind="audio") == []


def test_classes_of_a_detector_may_count_otherwise() -> None:
    """From elsewhere, or as COCO's own numbers: tried before the input is."""
    task = TaskFile(output=OutputRecipe(read="ssd"))
    tried = [(other.table, other.said) for other in alternatives(task, "uint8")]
    assert tried[:2] == [
        ("[output]", 'class_offset = -1, class_is = "position"'),
        ("[output]", 'class_offset = 1, class_is = "position"'),
    ]
    assert ("[output]", 'class_offset = 1, class_is = "id"') in tried
    assert ("[input]", 'colour = "BGR"') in tried
    named = TaskFile(output=OutputRecipe(read="ssd"), classes=("cat", "dog"))
    assert not any('"id"' in other.said for other in alternatives(named, "uint8"))


def test_another_order_of_channels_has_its_own_mean() -> None:
    """Mean and deviation stay with their channel."""
    task = TaskFile(input=InputRecipe(mean=(1.0, 2.0, 3.0)))
    swapped = next(o.task for o in alternatives(task, "float32") if o.said == 'colour = "BGR"')
    assert swapped.input.mean == (3.0, 2.0, 1.0)


LABELS = np.repeat(np.arange(5), 10).tolist()


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([label + 1 for label in LABELS], "one class too high: shifted, 50 of 50 .* background"),
        ([label - 1 for label in LABELS], "one class too low: .* label_offset = -1"),
        ([(2 * label) % 5 for label in LABELS], "in another order: the model answers '1' as '2'"),
        (LABELS, None),
        ([3] * 50, None),
        (np.random.default_rng(0).integers(0, 5, 50).tolist(), None),
    ],
)
def test_what_labels_show(answers: list[int], expected: str | None) -> None:
    """A shift, another order, or nothing."""
    trouble = label_trouble(LABELS, answers, tuple("01234"))
    if expected is None:
        assert trouble is None
    else:
        assert trouble is not None
        assert re.search(expected, trouble)


def test_two_classes_that_are_swapped() -> None:
    """Of two classes a shift means nothing: their order is wrong."""
    labels = [0] * 10 + [1] * 10
    trouble = label_trouble(labels, [1 - label for label in labels], ("cat", "dog"))
    assert trouble is not None
    assert "the model answers 'cat' as 'dog', 'dog' as 'cat'" in trouble


def test_far_below_chance_is_not_called_chance() -> None:
    """Classes the wrong way round are nearly always wrong; guessing is not."""
    labels = np.arange(200) % 2
    (swapped,) = chance_remarks(labels, 1 - labels, 2)
    assert "0.000 is far below what guessing among 2 classes gives (0.500)" in swapped.text
    assert "in another order" in swapped.text
    (guessed,) = chance_remarks(labels, labels * 0, 2)
    assert "0.500 is about what guessing" in guessed.text


def test_chance_depends_on_how_many_samples_there_are() -> None:
    """A half right of two classes is chance, also 60 % of few; not 60 % of many."""
    random = np.random.default_rng(1)
    for count, share, flagged in ((100, 0.5, True), (40, 0.6, True), (4000, 0.6, False)):
        labels = np.arange(count) % 2
        right = random.permutation(count) < share * count
        answers = np.where(right, labels, 1 - labels)
        assert bool(chance_remarks(labels, answers, 2)) == flagged
    few = np.array([0] * 12 + [1] * 12)
    assert chance_remarks(few, few ^ (np.arange(24) == 3), 2) == []
    labels = np.arange(1000) % 100
    answers = np.where(np.arange(1000) < 20, labels, (labels + 1) % 100)
    assert chance_remarks(labels, answers, 1000)[0].doubt
    assert chance_remarks(labels[:10], answers[:10] * 0 + 5, 1000) == []
