"""A task that is a file: the user's own, or one of those that edgeperf brings along."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from edgeperf.datasets.assets import resolve
from edgeperf.datasets.base import DatasetError, SampleLibrary
from edgeperf.datasets.catalogue import data_for
from edgeperf.datasets.detection.library import Detection
from edgeperf.datasets.own.classify import OwnClassification
from edgeperf.datasets.own.guess import guess_task
from edgeperf.datasets.own.segment import OwnSegments
from edgeperf.datasets.own.source import open_source
from edgeperf.datasets.own.taskfile import TaskFile, read_task
from edgeperf.datasets.own.transcribe import OwnTexts
from edgeperf.datasets.score import Decoding, Gate
from edgeperf.datasets.tensors import TensorSpec


class FileTask:
    """A task as a task file says it."""

    decoding: Decoding | None = None

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            DatasetError: It is not a task file.
        """
        self.name = path.stem
        self._folder = path.resolve().parent
        self._set(_from_here(read_task(path), self._folder))

    def _set(self, task: TaskFile) -> None:
        self.file = task
        self.title = task.title
        self.metric = task.gate
        self.performance_count = task.performance_samples
        self.server_latency_ns = round(task.server_latency_ms * 1e6)
        self.reference = task.metric.reference or task.reference.get(task.gate)
        self.timed_postprocessing = task.detects or task.output.read == "text"
        self.loadgen_model = task.mlperf or self.name
        floor = task.metric.at_least if task.metric.at_most is None else task.metric.at_most
        self.gate = Gate(share=task.metric.share, floor=floor)
        self.reference_metrics = dict(task.reference)

    def open(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        *,
        data: Path | None = None,
    ) -> SampleLibrary:
        """Open the samples for a model that looks like this.

        Args:
            inputs: The model's inputs.
            outputs: The model's outputs.
            data: The user's samples; None for those that the file names.

        Raises:
            DatasetError: There are none, or they do not fit the model.
        """
        return open_library(self.name, self.file, data or self.data(), inputs, outputs)

    def data(self) -> Path:
        """Return the samples that the file names.

        Raises:
            DatasetError: It names none.
        """
        named = self.file.data
        if named.catalogue is not None:
            return resolve(data_for(named.catalogue).asset)
        if named.path is not None:
            return self._folder / named.path
        raise DatasetError(
            f"task {self.name}: names no samples; give --data, or [data] path in the task file"
            + (f" ({named.source})" if named.source else "")
        )


class GuessedTask(FileTask):
    """The user's samples without a task file: what the model's description suggests."""

    def __init__(self) -> None:
        self.name = "own"
        self._folder = Path.cwd()
        self._set(TaskFile(title="your own samples, read as the model's description suggests"))

    def open(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        *,
        data: Path | None = None,
    ) -> SampleLibrary:
        """Guess a task file and open *data* by it.

        Raises:
            DatasetError: A guess would not do: it needs a task file.
        """
        guessed = guess_task(inputs, outputs, data)
        if guessed.detects or guessed.output.read == "text":
            raise DatasetError(
                "answers of this model are no classes: write a task file with edgeperf task new,"
                " look it over, and give it with --task"
            )
        self._set(guessed)
        return open_library(self.name, guessed, data or self.data(), inputs, outputs)


def _from_here(task: TaskFile, folder: Path) -> TaskFile:
    """Return *task* with its vocabulary named from wherever we are."""
    named = task.output.vocabulary
    if named is None or not (folder / named).is_file():
        return task
    output = msgspec.structs.replace(task.output, vocabulary=str(folder / named))
    return msgspec.structs.replace(task, output=output)


def open_library(
    name: str,
    task: TaskFile,
    data: Path,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
) -> SampleLibrary:
    """Open *data* as *task* says.

    Raises:
        DatasetError: Data, task and model do not fit.
    """
    if task.detects:
        return Detection(name, task, data, inputs, outputs)
    source = open_source(data)
    if task.output.read == "text":
        return OwnTexts(name, task, source, inputs, outputs)
    if task.output.read == "segments":
        return OwnSegments(name, task, source, inputs, outputs)
    return OwnClassification(name, task, source, inputs, outputs)
