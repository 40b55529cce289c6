"""``kws``: which spoken word is it, from MFCC features (MLPerf Tiny keyword spotting).

The samples are the 1000 official stimuli: 49 frames of 10 coefficients, stored as the
reference model's int8 input takes them. A float model takes them dequantised.
"""

from edgeperf.datasets.encoding import Meaning
from edgeperf.datasets.labelled import ArrayTask
from edgeperf.datasets.metrics.scoring import Question
from edgeperf.datasets.npz import Layout
from edgeperf.datasets.tensors import Quantisation

SCALE = 0.5847029089927673
ZERO_POINT = 83
YES = 9


class KeywordSpotting(ArrayTask):
    """Which word is it? Metric: top-1; also "yes" against all others."""

    name = "kws"
    title = "keyword spotting, 12 classes (MLPerf Tiny KWS)"
    layout = Layout(
        key="features",
        shape=(49, 10, 1),
        dtype="int8",
        classes=(
            "down",
            "go",
            "left",
            "no",
            "off",
            "on",
            "right",
            "stop",
            "up",
            "yes",
            "silence",
            "unknown",
        ),
    )
    meaning = Meaning(
        offset=(ZERO_POINT,),
        divisor=(1 / SCALE,),
        int8=Quantisation(scale=SCALE, zero_point=ZERO_POINT),
    )
    #: "Yes" is 8.9 % of the samples: a rare word to be told from the rest.
    question = Question(gate="top1", positive=YES, precisions=(0.95,))
