"""Describe a model and answer a few samples, untimed, in a process of its own."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeperf.agent.run.answer import load_session, open_samples
from edgeperf.agent.run.jobs import Examined, ExamineJob
from edgeperf.agent.run.seen import Seen, SeenInput, SeenSample
from edgeperf.backends.base import Session
from edgeperf.datasets.base import SampleLibrary
from edgeperf.datasets.own.images import pillow
from edgeperf.datasets.own.task import open_library
from edgeperf.datasets.score import Shown
from edgeperf.datasets.tensors import TensorSpec

Block = NDArray[Any]
_CHANNELS = (1, 3)
#: Samples to see how long one takes, and how many are answered however long.
_TRIED, _FEWEST = 3, 24


def examine(job: ExamineJob) -> Examined:
    """Do the job.

    Raises:
        EdgeperfError: The model cannot be loaded, or samples, task and model do not fit.
    """
    os.sched_setaffinity(0, job.cores)
    session = load_session(job.sut)
    examined = _Examination(job, session)
    seen = []
    until = time.monotonic() + job.most_s
    for library in _libraries(job, session):
        if time.monotonic() > until:
            break
        seen.append(examined.see(library))
    return Examined(inputs=session.inputs, outputs=session.outputs, seen=tuple(seen))


def _libraries(job: ExamineJob, session: Session) -> Iterator[SampleLibrary]:
    """Yield the samples by each of the task files, or by the task that is named."""
    data = job.data.data
    for task in job.tasks:
        yield open_library(
            job.data.task or "own", task, Path(data or "."), session.inputs, session.outputs
        )
    if not job.tasks and job.data.task is not None:
        _, labelled, _ = open_samples(job.data, session.inputs, session.outputs)
        if labelled is not None:
            yield labelled


class _Examination:
    def __init__(self, job: ExamineJob, session: Session) -> None:
        self._job = job
        self._session = session
        self._blocks = [
            np.zeros((1, *spec.sample_shape), spec.dtype)
            for spec in session.inputs
            if job.data.task is not None
        ]
        self._samples: int | None = None
        if self._blocks:
            session.bind(self._blocks)

    def see(self, library: SampleLibrary) -> Seen:
        """Answer samples spread over the library."""
        count = self._count(library)
        indices = np.linspace(0, len(library) - 1, count).round().astype(int).tolist()
        shown, samples = [], []
        prediction = np.empty(library.prediction_shape, np.float32)
        for number, index in enumerate(indices):
            library.write(index, [block[0] for block in self._blocks])
            self._session.infer(0)
            library.predict(index, self._session.results, prediction)
            words = _words(library, index, prediction)
            shown.append(words)
            if self._job.details:
                samples.append(self._describe(number, words))
        return Seen(
            right=sum(words.right is True for words in shown),
            asked=count,
            answers=tuple(words.given for words in shown),
            labels=tuple(words.label for words in shown),
            samples=tuple(samples),
        )

    def _count(self, library: SampleLibrary) -> int:
        """Return how many samples of each task file there is time for, the same for all."""
        if self._samples is None:
            began = time.monotonic()
            for index in range(min(_TRIED, len(library))):
                library.write(index, [block[0] for block in self._blocks])
                self._session.infer(0)
            each = (time.monotonic() - began) / _TRIED
            fits = int(self._job.most_s / max(len(self._job.tasks), 1) / max(each, 1e-6))
            self._samples = min(self._job.samples, max(_FEWEST, fits))
        return min(self._samples, len(library))

    def _describe(self, number: int, words: Shown) -> SeenSample:
        picture = None
        if self._job.pictures is not None and len(self._blocks) == 1:
            picture = _draw(self._blocks[0][0], Path(self._job.pictures) / f"{number}.png")
        return SeenSample(
            name=words.name,
            truth=words.truth,
            answer=words.answer,
            right=words.right,
            inputs=tuple(
                _numbers(spec, block[0])
                for spec, block in zip(self._session.inputs, self._blocks, strict=True)
            ),
            picture=picture,
        )


def _words(library: SampleLibrary, index: int, prediction: NDArray[np.float32]) -> Shown:
    show = getattr(library, "shown", None)
    if show is not None:
        words: Shown = show(index, prediction)
        return words
    return Shown(name=f"sample {index}", truth="-", answer=_brief(prediction), right=None)


def _brief(prediction: NDArray[np.float32]) -> str:
    return " ".join(f"{value:.3g}" for value in prediction.reshape(-1)[:6])


def _numbers(spec: TensorSpec, sample: Block) -> SeenInput:
    return SeenInput(
        name=spec.name,
        dtype=spec.dtype,
        shape=tuple(sample.shape),
        least=float(sample.min()),
        mean=float(sample.mean(dtype=np.float64)),
        most=float(sample.max()),
    )


def _draw(sample: Block, path: Path) -> str | None:
    """Draw an input as a picture, its numbers stretched to 0 to 255; None if it is no image."""
    image = _as_image(sample.shape)
    if image is None:
        return None
    pixels = sample.reshape(sample.shape[-3:])
    if image == "first":
        pixels = np.moveaxis(pixels, 0, -1)
    low, high = float(pixels.min()), float(pixels.max())
    levels = ((pixels - low) * (255 / max(high - low, 1e-9))).astype(np.uint8)
    pillow("drawing inputs").fromarray(levels.squeeze()).save(path)
    return str(path)


def _as_image(shape: Sequence[int]) -> str | None:
    if len(shape) < 3:  # noqa: PLR2004 - height, width, channels
        return None
    if shape[-1] in _CHANNELS:
        return "last"
    return "first" if shape[-3] in _CHANNELS else None
