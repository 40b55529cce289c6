"""``cifar10``: which of CIFAR-10's ten things is on a 32x32 photograph.

The catalogue's images are 117 crops of openly licensed COCO photographs, since CIFAR-10
itself has no licence: expect some 57 % where CIFAR-10 gives 88 %, and one image is worth
0.85 points. For MLPerf Tiny's figure, name your own NPZ of CIFAR-10 with ``--data``.
Models take raw pixels, 0 to 255, unscaled.
"""

from edgeperf.datasets.encoding import Meaning
from edgeperf.datasets.labelled import ArrayTask
from edgeperf.datasets.npz import Layout
from edgeperf.datasets.tensors import Quantisation


class Cifar10(ArrayTask):
    """Which of ten things is it? Metric: top-1."""

    name = "cifar10"
    title = "image classification, 32x32, 10 classes (MLPerf Tiny IC)"
    layout = Layout(
        key="images",
        shape=(32, 32, 3),
        dtype="uint8",
        classes=(
            "airplane",
            "automobile",
            "bird",
            "cat",
            "deer",
            "dog",
            "frog",
            "horse",
            "ship",
            "truck",
        ),
    )
    meaning = Meaning(int8=Quantisation(scale=1.0, zero_point=-128))
