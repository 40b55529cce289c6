"""``toycar``: does the machine sound wrong (MLPerf Tiny anomaly detection, ToyADMOS)?

The model is an autoencoder of five frames of a log-mel spectrogram; how badly it gives
them back is how strange they are, and the mean over a clip is the clip's score. A sample
is one such window, so speed is that of one inference, and the metric is one of clips.

ToyADMOS may not be shared (CC BY-NC-SA 4.0): name your own with ``--data``, as MLPerf
Tiny's scripts write it: ``y_labels.csv`` (``FILE, bytes, bytes, label`` a line) and the
files, float32 spectrograms of 128 bands. A ``.csv`` of clip scores has its own column for
each: that is what the reference scores of mlcommons/tiny are, see :func:`score_clips`.
"""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.base import Array, DatasetError, OneNumber, SampleLibrary
from edgeperf.datasets.classification import require_finite
from edgeperf.datasets.encoding import Encoder, Meaning
from edgeperf.datasets.labelled import PERFORMANCE_COUNT, SERVER_LATENCY_NS
from edgeperf.datasets.metrics.bootstrap import Weights, with_intervals
from edgeperf.datasets.metrics.ranking import Ranking, has_both_classes
from edgeperf.datasets.metrics.scoring import gated
from edgeperf.datasets.score import Decoding, Gate, Score
from edgeperf.datasets.tensors import TensorSpec

BANDS, FRAMES = 128, 5
WINDOW = BANDS * FRAMES
LIST = "y_labels.csv"
#: MLPerf Tiny asks for this area over all clips.
TARGET = 0.85

_MACHINE = re.compile(r"_id_(\d+)_")


class Clip(msgspec.Struct, frozen=True):
    """One recording: its spectrogram (frames, bands), whether it is wrong, and which machine."""

    frames: NDArray[np.float32]
    wrong: bool
    machine: str

    @property
    def windows(self) -> int:
        """How many windows of five frames it has, one frame apart."""
        return len(self.frames) - FRAMES + 1


class ToyCar:
    """Does the machine sound wrong? Metric: ROC-AUC over clips."""

    name = "toycar"
    title = "anomalous sounds of toy cars (MLPerf Tiny AD)"
    metric = "roc_auc"
    performance_count = PERFORMANCE_COUNT
    server_latency_ns = SERVER_LATENCY_NS
    reference: float | None = None
    timed_postprocessing = False
    loadgen_model = "toycar"
    gate = Gate(floor=TARGET)
    decoding: Decoding | None = None

    def __init__(self) -> None:
        """Know of no reference: MLPerf Tiny's target is a floor."""
        self.reference_metrics: dict[str, float] = {}

    def open(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        *,
        data: Path | None = None,
    ) -> SampleLibrary:
        """Open the clips for a model that looks like this.

        Args:
            inputs: The model's inputs: one window.
            outputs: The model's outputs: the window as it is given back.
            data: The folder with ``y_labels.csv``.

        Raises:
            DatasetError: No folder is named, it is damaged, or the model does not fit.
        """
        if data is None:
            raise DatasetError(
                "task toycar: ToyADMOS may not be shared; name your own copy with --data: a folder"
                f" with {LIST} and spectrograms, as MLPerf Tiny's scripts write it"
            )
        if len(outputs) != 1 or outputs[0].sample_size != WINDOW:
            raise DatasetError(
                f"task toycar does not fit this model: it reads one output of {WINDOW} numbers"
            )
        encoder = Encoder(self.name, inputs, (WINDOW,), Meaning())
        return Windows(read_clips(data), encoder, outputs[0])


class Windows(OneNumber):
    """Every window of every clip."""

    def __init__(self, clips: Sequence[Clip], encoder: Encoder, output: TensorSpec) -> None:
        """Take the clips; windows are counted clip by clip."""
        self._clips = clips
        self._encoder = encoder
        self._output = output
        self._starts = np.cumsum([0, *(clip.windows for clip in clips)])

    def __len__(self) -> int:
        """Return how many windows there are."""
        return int(self._starts[-1])

    def _window(self, index: int) -> NDArray[np.float32]:
        clip = int(np.searchsorted(self._starts, index, side="right")) - 1
        first = index - int(self._starts[clip])
        return self._clips[clip].frames[first : first + FRAMES].reshape(-1)

    def write(self, index: int, out: Sequence[Array]) -> None:
        """Encode window *index*."""
        self._encoder.write(self._window(index), out[0])

    @property
    def prediction_shape(self) -> tuple[int, ...]:
        """How badly the window was given back."""
        return (1,)

    def predict(self, index: int, outputs: Sequence[Array], out: Array) -> None:
        """Keep the mean square of what is wrong with the window that came back."""
        given = outputs[0].reshape(-1).astype(np.float32)
        if self._output.quantisation is not None:
            quantisation = self._output.quantisation
            given = (given - quantisation.zero_point) * np.float32(quantisation.scale)
        out[0] = np.square(self._window(index) - given).mean()

    def score(self, predictions: NDArray[np.float32]) -> Score:
        """Score each clip by the mean over its windows.

        Raises:
            DatasetError: An answer is not finite, or clips are of one kind only.
        """
        require_finite("toycar", predictions)
        means = np.add.reduceat(predictions[:, 0].astype(np.float64), self._starts[:-1])
        means /= np.diff(self._starts)
        return score_clips(
            means,
            np.array([clip.wrong for clip in self._clips]),
            [clip.machine for clip in self._clips],
        )


def score_clips(
    scores: NDArray[np.floating], wrong: NDArray[np.bool_], machines: Sequence[str]
) -> Score:
    """Return the areas over all clips, and each machine's.

    Args:
        scores: Higher is stranger, shape ``(clips,)``.
        wrong: The truth, same shape.
        machines: Which machine each clip is of.

    Raises:
        DatasetError: All clips are of one kind.
    """
    if not has_both_classes(wrong):
        raise DatasetError(
            f"task toycar: {int(wrong.sum())} of {len(wrong)} clips are wrong; expected both kinds"
        )
    every = Ranking(scores, wrong)
    parts = {
        name: (np.array([machine == name for machine in machines]))
        for name in sorted(set(machines))
    }
    each = {
        name: (part, Ranking(scores[part], wrong[part]))
        for name, part in parts.items()
        if has_both_classes(wrong[part])
    }

    def measure(weights: Weights) -> dict[str, float]:
        values = every.curve(weights).areas()
        if not values:
            return {}
        for name, (part, ranking) in each.items():
            own = ranking.curve(weights[part])
            if own.positives and own.negatives:
                values[f"roc_auc[{name}]"] = own.roc_auc()
        return values

    return gated("roc_auc", *with_intervals(measure, len(scores)), len(scores))


def read_clips(folder: Path) -> tuple[Clip, ...]:
    """Read the clips that ``y_labels.csv`` names.

    Raises:
        DatasetError: The list or a clip is missing or damaged; the message names the file.
    """
    path = folder / LIST
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            rows = [row for row in csv.reader(stream) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from error
    if not rows:
        raise DatasetError(f"{path}: names no clip")
    return tuple(_clip(path, number, row) for number, row in enumerate(rows, start=1))


def _clip(path: Path, line: int, row: list[str]) -> Clip:
    name, label = row[0].strip(), row[-1].strip()
    if len(row) < 2 or label not in ("0", "1"):  # noqa: PLR2004 - a name and a label
        raise DatasetError(f"{path}: line {line}: expected FILE, ..., 0 or 1; found {row}")
    file = path.parent / name
    try:
        raw = np.load(file) if file.suffix == ".npy" else np.fromfile(file, "<f4")
    except (OSError, ValueError) as error:
        raise DatasetError(f"{file}: listed in {path}, and cannot be read: {error}") from error
    if raw.size % BANDS or raw.size < WINDOW or not np.isfinite(raw).all():
        raise DatasetError(
            f"{file}: holds {raw.size} numbers; expected float32, {BANDS} for each of at least"
            f" {FRAMES} frames, all finite"
        )
    machine = _MACHINE.search(name)
    frames = raw.astype(np.float32).reshape(-1, BANDS)
    return Clip(frames, label == "1", machine.group(1) if machine else "")
