"""``imagenet``: ImageNet-1k classifiers on photographs, at whatever size the model takes.

Of each photograph the central square of 0.875 of the shorter side is taken and resized
to the model's own size (PIL, bilinear). 8-bit models get the pixels as they are, float
models ``(pixel - 127) / 128``, as EfficientNet-Lite does. Models with 1001 classes have
"background" in front; one is taken off.

The catalogue's photographs carry *sets* of right classes, made from COCO's categories:
their top-1 ranks models but is not ImageNet's. The real validation set, which may not be
shared, is named with ``--data``: a folder with ``val_map.txt``, one ``FILE CLASS`` a line.

A prediction is small, two rows of five: the best classes and their scores. Its first
number is the answer, which is what MLPerf's ``accuracy-imagenet.py`` reads.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.assets import resolve
from edgeperf.datasets.base import Array, DatasetError, OneNumber, SampleLibrary
from edgeperf.datasets.catalogue import data_for
from edgeperf.datasets.classification import ScoreReader, best_classes, require_finite
from edgeperf.datasets.encoding import Encoder, Meaning, one_input
from edgeperf.datasets.labelled import PERFORMANCE_COUNT
from edgeperf.datasets.metrics.scoring import score_best
from edgeperf.datasets.own.images import recipe_of
from edgeperf.datasets.own.recipes import InputRecipe
from edgeperf.datasets.photographs import CLASSES, CROP, Decode, Photograph, decoder, read_folder
from edgeperf.datasets.score import Decoding, Gate, Score
from edgeperf.datasets.tensors import Quantisation, TensorSpec

WITH_BACKGROUND = 1001
KEPT = 5
CHANNELS = 3


#: 8-bit models get the bytes of the image, whatever scale they tell: they were made for
#: that, and their zero points (127 or 128 for the same scale) would shift every pixel.
PIXELS = Meaning(offset=(127.0,), divisor=(128.0,), int8=Quantisation(scale=1 / 128, zero_point=-1))


class ImageNet:
    """What is on the photograph? Metric: top-1; also top-5."""

    name = "imagenet"
    title = "ImageNet-1k classification of photographs"
    metric = "top1"
    performance_count = PERFORMANCE_COUNT
    server_latency_ns = 15_000_000  # MLPerf's bound for image classification
    reference: float | None = None
    timed_postprocessing = False
    loadgen_model = "imagenet"
    gate = Gate()
    decoding: Decoding | None = None

    def __init__(self) -> None:
        """Know of no reference: each model of the catalogue has its own."""
        self.reference_metrics: dict[str, float] = {}

    def open(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        *,
        data: Path | None = None,
    ) -> SampleLibrary:
        """Open the photographs for a model that looks like this.

        Args:
            inputs: The model's inputs.
            outputs: The model's outputs.
            data: The user's own folder, with ``labels.csv`` and ``images/`` as the
                catalogue's, or with ``val_map.txt``; None for the catalogue's.

        Raises:
            DatasetError: The folder does not hold that, the model does not fit, or no
                image decoder is installed.
            AssetError: The catalogue's folder is nowhere.
        """
        size = _image_size(inputs)
        untold = [msgspec.structs.replace(inputs[0], quantisation=None)]
        encoder = Encoder(self.name, untold, (*size, CHANNELS), PIXELS)
        reader = ScoreReader(self.name, outputs, (CLASSES, WITH_BACKGROUND))
        decode = decoder()
        photographs = read_folder(data or resolve(data_for(self.name).asset))
        recipe = recipe_of(InputRecipe(size=size, crop=CROP, mean=PIXELS.offset), inputs)
        return Photographs(photographs, size, decode, encoder, reader, recipe)


class Photographs(OneNumber):
    """Photographs on disk, decoded when written."""

    def __init__(
        self,
        photographs: Sequence[Photograph],
        size: tuple[int, int],
        decode: Decode,
        encoder: Encoder,
        reader: ScoreReader,
        recipe: bytes,
    ) -> None:
        """Join the parts; *size* is height and width of the model's input."""
        self.recipe = recipe
        self._photographs = photographs
        self._size = size
        self._decode = decode
        self._encoder = encoder
        self._reader = reader
        self._background = reader.count - CLASSES

    def __len__(self) -> int:
        """Return how many photographs there are."""
        return len(self._photographs)

    def files(self, index: int) -> tuple[Path, ...]:
        """Return the file of photograph *index*."""
        return (self._photographs[index].path,)

    def write(self, index: int, out: Sequence[Array]) -> None:
        """Decode, crop, resize and encode photograph *index*."""
        self._encoder.write(self._decode(self._photographs[index].path, self._size), out[0])

    def predict(self, index: int, outputs: Sequence[Array], out: Array) -> None:
        """Keep the five best classes and their scores; all NaN if a score is not finite."""
        del index
        scores = np.empty(self._reader.count, np.float32)
        self._reader.read(outputs, scores)
        if np.isfinite(scores).all():
            scores = scores[self._background :]
            out[0] = best_classes(scores, KEPT)
            out[1] = scores[out[0].astype(np.intp)]
        else:
            out[...] = np.nan

    def logged(self, prediction: Array) -> float:
        """Return the best class, as MLPerf's ``accuracy-imagenet.py`` reads it."""
        return float(prediction[0, 0])

    @property
    def prediction_shape(self) -> tuple[int, ...]:
        """Two rows: classes counted from 0, and their scores; best first."""
        return (2, KEPT)

    def score(self, predictions: NDArray[np.float32]) -> Score:
        """Count the photographs whose best class, or one of the best five, is right.

        Raises:
            DatasetError: A prediction is not finite.
        """
        require_finite("imagenet", predictions)
        right = np.array(
            [
                [int(guess) in photograph.classes for guess in best]
                for photograph, best in zip(self._photographs, predictions[:, 0], strict=True)
            ]
        )
        return score_best(predictions[:, 0].astype(np.int64), right, gate="top1")


def _image_size(inputs: Sequence[TensorSpec]) -> tuple[int, int]:
    """Return height and width of the model's input, whichever way its axes lie."""
    spec = one_input("imagenet", inputs)
    match spec.sample_shape:
        case (_, height, width, 3) | (_, 3, height, width):
            return height, width
    raise DatasetError(
        f"task imagenet does not fit this model: input {spec.name!r} is {list(spec.shape)}, "
        "expected [1, height, width, 3] or [1, 3, height, width]"
    )
