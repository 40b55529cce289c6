"""Opening a model and its samples in a worker, and answering one sample by its index."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeperf.agent.run.jobs import DataPlan, SutPlan
from edgeperf.agent.run.shared import Shared
from edgeperf.backends import open_backend
from edgeperf.backends.base import Array, Session, SessionOptions
from edgeperf.backends.generation import GenerationSession
from edgeperf.datasets import open_task
from edgeperf.datasets.base import InputLibrary, SampleLibrary
from edgeperf.datasets.generated import GeneratedInputs
from edgeperf.datasets.stored.build import Progress, Work, stored
from edgeperf.datasets.stored.shards import FromFiles
from edgeperf.datasets.tensors import TensorSpec
from edgeperf.datasets.text.tokenizer import Tokenizer

#: Generated inputs: as many as MLPerf's image tasks hold, where they are small ...
GENERATED_SAMPLES = 1024
#: ... and never more memory than this for data that means nothing.
GENERATED_BYTES = 64 << 20
_FEWEST_GENERATED = 8

#: What is done with the answer to a sample: its index, and one array per output.
Each = Callable[[int, Sequence[Array]], None]


def load_session(sut: SutPlan, *, batch: int = 1) -> Session:
    """Load the model as planned, for *batch* samples per inference.

    Raises:
        EdgeperfError: It cannot be loaded; the message says why.
    """
    options = SessionOptions(
        threads=sut.threads, shapes=sut.shapes, options=sut.options, batch=batch
    )
    backend = open_backend(sut.backend)
    session = backend.load(Path(sut.model), options)
    if sut.decoding is None:
        return session
    decoder = backend.load(Path(sut.parts["decoder"]), options)
    tokenizer = Tokenizer(Path(sut.parts["tokenizer"]))
    return GenerationSession(session, decoder, tokenizer, sut.decoding)


def open_samples(
    data: DataPlan, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> tuple[InputLibrary, SampleLibrary | None, int]:
    """Open the samples.

    Returns:
        The library, the same with labels (None without a task), and how many samples
        shall be in memory at a time.

    Raises:
        DatasetError: The data is missing, damaged or does not fit the model.
    """
    if data.task is None:
        file = None if data.inputs_file is None else Path(data.inputs_file)
        size = sum(spec.sample_size * np.dtype(spec.dtype).itemsize for spec in inputs)
        count = min(GENERATED_SAMPLES, max(_FEWEST_GENERATED, GENERATED_BYTES // max(size, 1)))
        library = GeneratedInputs(inputs, seed=data.seed, count=count, file=file)
        return library, None, len(library)
    task = open_task(data.task)
    path = None if data.data is None else Path(data.data)
    labelled = task.open(inputs, outputs, data=path)
    return labelled, labelled, min(len(labelled), task.performance_count)


def stored_inputs(
    data: DataPlan,
    library: InputLibrary,
    specs: tuple[Sequence[TensorSpec], Sequence[TensorSpec]],
    *,
    cores: Sequence[int] = (),
    progress: Progress | None = None,
) -> tuple[InputLibrary, str | None]:
    """Return *library*, preprocessed and read back from the disk where that is worth it.

    Args:
        data: Where samples come from.
        library: The samples.
        specs: The model's inputs and outputs.
        cores: Cores to preprocess with; none takes what is there.
        progress: Told how far it is.

    Returns:
        The inputs, and why they are not stored where a reader must know.

    Raises:
        EdgeperfError: A file is damaged, or preprocessing failed.
    """
    if data.store is None or data.task is None or not isinstance(library, FromFiles):
        return library, None
    inputs, outputs = map(tuple, specs)
    work = Work(
        task=data.task,
        data=data.data,
        inputs=inputs,
        outputs=outputs,
        folder=data.store,
        recipe=library.recipe.decode(),
    )
    found, why_not = stored(library, work, cores=cores, progress=progress)
    return found or library, why_not


def fill(library: InputLibrary, inputs: Sequence[NDArray[Any]], indices: Sequence[int]) -> None:
    """Write the samples *indices* into the slots 0, 1, 2, ... of the input block."""
    for slot, index in enumerate(indices):
        library.write(index, [block[slot] for block in inputs])


def answering(session: Session, shared: Shared, each: Each | None) -> Callable[[int], None]:
    """Return the timed call: infer a sample, and do *each* with what the session answers."""
    infer, slots, results = session.infer, shared.slots, session.results

    def answer(index: int) -> None:
        infer(slots[index])

    if each is None:
        return answer
    use = each

    def answer_and_use(index: int) -> None:
        infer(slots[index])
        use(index, results)

    return answer_and_use


def discarding(library: SampleLibrary) -> Each:
    """Return what makes the prediction, where that is timed, and forgets it."""
    prediction, predict = np.empty(library.prediction_shape, np.float32), library.predict

    def each(index: int, results: Sequence[Array]) -> None:
        predict(index, results, prediction)

    return each


def keeping(shared: Shared, library: SampleLibrary) -> Each:
    """Return what keeps the prediction for the metric and LoadGen's log."""
    answers = shared.answers
    if answers is None:
        raise ValueError("accuracy mode without a block for answers")
    predictions, payloads, sizes = answers.predictions, answers.payloads, answers.sizes

    def each(index: int, results: Sequence[Array]) -> None:
        prediction = predictions[index]
        library.predict(index, results, prediction)
        sizes[index] = library.payload(index, prediction, payloads[index])

    return each
