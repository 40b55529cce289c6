"""``digits``: handwritten digits, 8x8 pixels; the task that edgeperf brings along.

The 360 images are a held-out part of the UCI digits that scikit-learn ships, chosen
by ``deploy/digits/train.py`` and never seen in training. A pixel is 0 (paper) to 16
(ink); models take ``pixel / 16``.
"""

from edgeperf.datasets.encoding import Meaning
from edgeperf.datasets.labelled import ArrayTask
from edgeperf.datasets.npz import Layout
from edgeperf.datasets.tensors import Quantisation


class Digits(ArrayTask):
    """Which digit is it? Metric: top-1."""

    name = "digits"
    title = "handwritten digits, 10 classes"
    layout = Layout(
        key="images", shape=(8, 8, 1), dtype="uint8", classes=tuple(map(str, range(10)))
    )
    meaning = Meaning(
        divisor=(16.0,), int8=Quantisation(scale=0.003921568859368563, zero_point=-128)
    )
