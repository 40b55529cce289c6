"""Your own samples with right texts, for a model that writes them down.

A prediction is the text as UTF-8, one number a byte.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeperf.datasets.base import Array, DatasetError
from edgeperf.datasets.lines import lines_of
from edgeperf.datasets.metrics.scoring import gated
from edgeperf.datasets.metrics.text import require_package, word_errors
from edgeperf.datasets.own.audio import duration
from edgeperf.datasets.own.images import recipe_of
from edgeperf.datasets.own.inputs import writer_for
from edgeperf.datasets.own.recipes import OutputRecipe
from edgeperf.datasets.own.source import Source
from edgeperf.datasets.own.taskfile import TaskFile
from edgeperf.datasets.score import Remark, Score, Shown
from edgeperf.datasets.tensors import TensorSpec
from edgeperf.datasets.text.strings import get_text, put_text

#: Room for one answer, bytes.
TEXT_BYTES = 2048
#: How tokens of the usual vocabularies write a blank.
_BLANKS = str.maketrans({"▁": " ", "|": " "})


class OwnTexts:
    """Samples and their right texts."""

    def __init__(
        self,
        name: str,
        task: TaskFile,
        source: Source,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
    ) -> None:
        """Check that samples, task and model fit.

        Raises:
            DatasetError: They do not, or something that scoring needs is not installed.
        """
        require_package(name, "jiwer", "the word error rate")
        self.source = source
        self._task = task
        self._inputs = tuple(inputs)
        if not source.texts:
            raise DatasetError(f"{source.where}: has labels and no texts, which this task needs")
        self._truth = [_plain(texts[0]) for texts in source.texts]
        for index, text in enumerate(self._truth):
            if not text:
                raise DatasetError(f"{source.name(index)}: its text is empty")
        self._tokens = read_vocabulary(task.output, source.where)
        self._read = text_reader(task.output, outputs, self._tokens)
        self._write = writer_for(task.input, source, inputs)
        self._cut = _cut(task, source, inputs)

    def __len__(self) -> int:
        """Return how many samples there are."""
        return len(self.source)

    def write(self, index: int, out: Sequence[Array]) -> None:
        """Make the model's input of sample *index*."""
        self._write(index, out)

    def files(self, index: int) -> tuple[Path, ...]:
        """Return the file of sample *index*; none where samples are in memory."""
        return self.source.paths[index : index + 1]

    @property
    def recipe(self) -> bytes:
        """Return what decides how a file becomes an input."""
        return recipe_of(self._task.input, self._inputs)

    @property
    def prediction_shape(self) -> tuple[int, ...]:
        """The bytes of the text."""
        return (TEXT_BYTES,)

    @property
    def payload_bytes(self) -> int:
        """The text as UTF-8."""
        return TEXT_BYTES

    def predict(self, index: int, outputs: Sequence[Array], out: Array) -> None:
        """Make text of what the model gives."""
        del index
        put_text(self._read(outputs), out)

    def payload(self, index: int, prediction: Array, out: NDArray[np.uint8]) -> int:
        """Write the text as UTF-8."""
        del index
        raw = get_text(prediction).encode()
        out[: len(raw)] = np.frombuffer(raw, np.uint8)
        return len(raw)

    def score(self, predictions: NDArray[np.float32]) -> Score:
        """Return the word error rate and its kin; case and blanks do not count."""
        texts = [_plain(get_text(prediction)) for prediction in predictions]
        metrics, intervals = word_errors(self._truth, texts)
        score = gated(self._task.gate, metrics, intervals, len(texts))
        if not self._cut:
            return score
        text = f"{self._cut} recordings are longer than the model's input and were cut"
        return msgspec.structs.replace(score, remarks=(Remark(code="cut-audio", text=text),))

    def shown(self, index: int, prediction: Array) -> Shown:
        """Put sample *index* and its answer into words."""
        truth, answer = self._truth[index], _plain(get_text(prediction))
        return Shown(
            name=self.source.name(index), truth=truth, answer=answer, right=truth == answer
        )


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _cut(task: TaskFile, source: Source, inputs: Sequence[TensorSpec]) -> int:
    if task.input.kind != "audio":
        return 0
    return sum(duration(path) > inputs[0].sample_size for path in source.paths)


def read_vocabulary(recipe: OutputRecipe, data: Path) -> tuple[str, ...]:
    """Return the tokens, one a line: beside the task file, or with the data.

    Raises:
        DatasetError: There is no such file, or it cannot be read.
    """
    named = Path(recipe.vocabulary or "")
    folder = data if data.is_dir() else data.parent
    path = named if named.is_file() else folder / named.name
    try:
        return tuple(lines_of(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"vocabulary {path}: cannot be read: {error}") from error


def text_reader(
    recipe: OutputRecipe, outputs: Sequence[TensorSpec], tokens: Sequence[str]
) -> Callable[[Sequence[Array]], str]:
    """Return what makes text of the model's outputs: tokens, or scores of every token.

    Raises:
        DatasetError: The model gives neither.
    """
    names = [spec.name for spec in outputs]
    if recipe.name is not None and recipe.name not in names:
        raise DatasetError(f"[output] name {recipe.name!r}: the model has {', '.join(names)}")
    place = names.index(recipe.name) if recipe.name is not None else 0
    spec = outputs[place]
    scored = spec.dtype.startswith("float")
    if scored and spec.shape[-1] != len(tokens):
        raise DatasetError(
            f"output {spec.name!r} is {list(spec.shape)}, and the vocabulary has {len(tokens)}"
            " tokens: expected a score for each in the last axis"
        )
    if not scored and not spec.dtype.startswith(("int", "uint")):
        raise DatasetError(f"output {spec.name!r} is {spec.dtype}; expected tokens or scores")

    def read(values: Sequence[Array]) -> str:
        given = values[place]
        steps = given.reshape(-1, len(tokens)).argmax(axis=1) if scored else given.reshape(-1)
        return _joined(recipe, tokens, steps.tolist())

    return read


def _joined(recipe: OutputRecipe, tokens: Sequence[str], steps: list[int]) -> str:
    if recipe.ctc:  # equal neighbours are one token, and blanks none
        steps = [token for token, _ in groupby(steps) if token != recipe.blank]
    if recipe.stop in steps:
        steps = steps[: steps.index(recipe.stop)]
    words = [tokens[token] for token in steps if 0 <= token < len(tokens)]
    return recipe.join.join(words).translate(_BLANKS)
