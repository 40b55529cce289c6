"""``ai4i``: will the machine fail? Tabular data in which 3.4 % of the rows are failures.

The case where accuracy says nothing: "never" is right 96.6 % of the time. The gate looks
at PR-AUC. Samples are the rows of a CSV file, raw numbers; the model scales them itself.
"""

import csv
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from edgeperf.datasets.base import Array, DatasetError
from edgeperf.datasets.encoding import Meaning
from edgeperf.datasets.labelled import LabelledTask, Labels, Predictions
from edgeperf.datasets.metrics.ranking import has_both_classes
from edgeperf.datasets.metrics.scoring import Question, score_yes_no
from edgeperf.datasets.score import Score

#: The model's eight inputs, in order.
FEATURES = (
    "type_L",
    "type_M",
    "type_H",
    "air_temp_K",
    "process_temp_K",
    "rot_speed_rpm",
    "torque_Nm",
    "tool_wear_min",
)
LABEL = "failure"


class MachineFailure(LabelledTask):
    """Will the machine fail? Metric: PR-AUC; also ROC-AUC and recall at precision 0.8."""

    name = "ai4i"
    title = "machine failures in tabular data, 3.4 % positive"
    metric = "pr_auc"
    sample_shape = (len(FEATURES),)
    score_count = 1
    meaning = Meaning()
    question = Question(gate="pr_auc", precisions=(0.8,))

    def read(self, path: Path) -> tuple[Array, Labels]:
        """Read the CSV file: columns by name, others ignored."""
        rows = np.array(list(_rows(path)), np.float64).reshape(-1, len(FEATURES) + 1)
        labels = rows[:, -1].astype(np.int64)
        if not has_both_classes(labels == 1):
            raise DatasetError(
                f"{path}: {len(labels)} rows, {labels.sum()} with {LABEL} 1; "
                "expected rows of both kinds"
            )
        return rows[:, :-1].astype(np.float32), labels

    def score(self, predictions: Predictions, labels: Labels) -> Score:
        """Return what a decision under imbalance is judged by."""
        return score_yes_no(predictions[:, 0], labels == 1, self.question)


def _rows(path: Path) -> Iterator[list[float]]:
    """Yield features and label of each row.

    Raises:
        DatasetError: The file cannot be read, or a field is missing or is no number.
    """
    if path.is_dir():
        raise DatasetError(f"{path}: is a folder; expected a CSV file")
    columns = (*FEATURES, LABEL)
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            table = csv.DictReader(stream)
            missing = [name for name in columns if name not in (table.fieldnames or ())]
            if missing:
                raise DatasetError(
                    f"{path}: no column {missing[0]!r}; expected {', '.join(columns)}"
                )
            for row in table:
                yield [_number(path, table.line_num, name, row[name]) for name in columns]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path}: cannot be read as CSV: {error}") from error


def _number(path: Path, line: int, name: str, text: str | None) -> float:
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise DatasetError(f"{path}: line {line}: {name} is {text!r}, expected a number")
    if name == LABEL and number not in (0, 1):
        raise DatasetError(f"{path}: line {line}: {name} is {text}, expected 0 or 1")
    return number
