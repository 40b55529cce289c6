"""``vww``: is there a person in the picture (MLPerf Tiny visual wake words).

The samples are the openly licensed part of MLPerf Tiny's own 1000, 96x96 RGB. Models
take ``pixel / 255`` and give two scores, no person and person.
"""

from edgeperf.datasets.encoding import Meaning
from edgeperf.datasets.labelled import ArrayTask
from edgeperf.datasets.metrics.scoring import Question
from edgeperf.datasets.npz import Layout
from edgeperf.datasets.tensors import Quantisation

PERSON = 1


class VisualWakeWords(ArrayTask):
    """Is there a person? Metric: top-1; also ROC-AUC and PR-AUC of the person's score."""

    name = "vww"
    title = "person or no person, 96x96 (MLPerf Tiny VWW)"
    layout = Layout(
        key="images", shape=(96, 96, 3), dtype="uint8", classes=("non_person", "person")
    )
    meaning = Meaning(
        divisor=(255.0,), int8=Quantisation(scale=0.003921568859368563, zero_point=-128)
    )
    question = Question(gate="top1", positive=PERSON, precisions=(0.95,))
