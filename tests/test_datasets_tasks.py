"""Every task: how samples become inputs, and one clear line for whatever does not fit."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeperf import InputError
from edgeperf.datasets import TASKS, open_task, task_names
from edgeperf.datasets.assets import resolve
from edgeperf.datasets.base import DatasetError, SampleLibrary
from edgeperf.datasets.catalogue import data_for, models
from edgeperf.datasets.own.taskfile import TaskFile
from edgeperf.datasets.tensors import Quantisation, TensorSpec

#: Task -> shape of its samples and number of scores, as its usual model has them.
USUAL: dict[str, tuple[tuple[int, ...], int]] = {
    "ai4i": ((1, 8), 1),
    "cifar10": ((1, 32, 32, 3), 10),
    "digits": ((1, 8, 8, 1), 10),
    "imagenet": ((1, 224, 224, 3), 1000),
    "kws": ((1, 49, 10, 1), 12),
    "vww": ((1, 96, 96, 3), 2),
}


@pytest.fixture(autouse=True)
def _mirror(models_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the catalogue's files from the folder of models."""
    monkeypatch.setenv("EDGEPERF_MIRROR", str(models_dir))


def tensor(
    shape: Sequence[int],
    dtype: str = "float32",
    *,
    name: str = "x",
    scale: float = 0,
    zero: int = 0,
) -> TensorSpec:
    """Return a tensor's description."""
    quantisation = Quantisation(scale=scale, zero_point=zero) if scale else None
    return TensorSpec(name=name, shape=tuple(shape), dtype=dtype, quantisation=quantisation)


def open_usual(
    task: str, *, x: TensorSpec | None = None, y: TensorSpec | None = None, data: Path | None = None
) -> SampleLibrary:
    """Open *task* for its usual float model, or for one with another input or output."""
    shape, scores = USUAL[task]
    inputs, outputs = [x or tensor(shape)], [y or tensor((1, scores), name="y")]
    return open_task(task).open(inputs, outputs, data=data)


def first_input(task: str, x: TensorSpec) -> NDArray[Any]:
    """Return sample 0 of *task* as the model's input *x*."""
    out = np.empty(x.sample_shape, x.dtype)
    open_usual(task, x=x).write(0, [out])
    return out


def stored(task: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a task's own NPZ file."""
    with np.load(resolve(data_for(task).asset)) as arrays:
        return {key: arrays[key] for key in arrays.files}


@pytest.mark.parametrize("name", sorted(USUAL))
def test_every_task_opens_with_its_usual_model(name: str) -> None:
    """Each task has its values, its data and at least one catalogue model."""
    task = open_task(name)
    library = open_usual(name)
    assert task.name == name
    assert task.title
    assert task.loadgen_model == name
    assert not task.timed_postprocessing
    assert task.server_latency_ns == (15_000_000 if name == "imagenet" else 10_000_000)
    assert len(library) > 100
    own = {model.name: model.reference for model in models() if model.task == name}
    assert own
    assert task.reference == own.get(name)


@pytest.mark.parametrize("name", sorted(set(task_names()) - set(TASKS)))
def test_every_profile_says_what_it_is(name: str) -> None:
    """A task file that comes along names its title, gate, source, licence and size."""
    task = open_task(name)
    assert task.name == name
    assert task.metric in ("mAP", "top1", "dice", "roc_auc", "word_accuracy")
    assert task.timed_postprocessing == (task.metric in ("mAP", "word_accuracy"))
    file = task.file  # type: ignore[attr-defined]
    assert file.title != TaskFile().title
    assert file.data.source
    assert file.data.licence
    assert file.data.samples >= 42
    if file.data.catalogue is None:
        inputs, outputs = [tensor((1, 8, 8, 3))], [tensor((1, 2))]
        with pytest.raises(DatasetError, match=f"task {name}: names no samples; give --data"):
            task.open(inputs, outputs)


def test_unknown_task_lists_the_known_ones() -> None:
    """A typo is answered with what there is."""
    with pytest.raises(InputError, match=r"^no task 'kwz'; known: ai4i, cifar10, .*, vww"):
        open_task("kwz")


def test_other_packages_bring_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package adds a task by an entry point; a broken one is one line."""
    (tmp_path / "theirs.py").write_text(
        "from edgeperf.datasets.digits import Digits\n\nclass Mine(Digits):\n    name = 'mine'\n"
    )
    (tmp_path / "theirs-1.0.dist-info").mkdir()
    (tmp_path / "theirs-1.0.dist-info" / "METADATA").write_text("Name: theirs\nVersion: 1.0\n")
    (tmp_path / "theirs-1.0.dist-info" / "entry_points.txt").write_text(
        "[edgeperf.tasks]\nmine = theirs:Mine\nbroken = theirs:Nothing\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert task_names()[: len(TASKS)] == tuple(TASKS)
    assert task_names()[-2:] == ("broken", "mine")
    task = open_task("mine")
    assert (task.name, task.reference) == ("mine", None)
    with pytest.raises(InputError, match=r"^task 'broken', from theirs:Nothing, does not load: "):
        open_task("broken")


@pytest.mark.parametrize(
    ("task", "key", "offset", "divisor"),
    [
        ("digits", "images", 0, 16),
        ("kws", "features", 83, 1 / 0.5847029089927673),
        ("vww", "images", 0, 255),
        ("cifar10", "images", 0, 1),
    ],
)
def test_float_models_get_real_numbers(task: str, key: str, offset: float, divisor: float) -> None:
    """A float input is (stored - offset) / divisor, channels last or first."""
    sample = (stored(task)[key][0].astype(float) - offset) / divisor
    shape = USUAL[task][0]
    np.testing.assert_allclose(first_input(task, tensor(shape))[0], sample, rtol=1e-6)
    first = np.moveaxis(sample, -1, 0)
    np.testing.assert_allclose(first_input(task, tensor((-1, *first.shape)))[0], first, rtol=1e-6)


@pytest.mark.parametrize(
    ("task", "key", "scale", "zero"),
    [
        ("digits", "images", 0.003921568859368563, -128),
        ("kws", "features", 0.5847029089927673, 83),
        ("vww", "images", 0.003921568859368563, -128),
        ("cifar10", "images", 1.0, -128),
    ],
)
def test_8_bit_models_get_their_own_numbers(task: str, key: str, scale: float, zero: int) -> None:
    """An int8 input comes out the same whether it tells its scale or not; uint8 is 128 more."""
    shape = USUAL[task][0]
    told = first_input(task, tensor(shape, "int8", scale=scale, zero=zero))
    untold = first_input(task, tensor(shape, "int8"))
    unsigned = first_input(task, tensor(shape, "uint8"))
    np.testing.assert_array_equal(told, untold)
    np.testing.assert_array_equal(unsigned.astype(int), untold.astype(int) + 128)
    sample = stored(task)[key][0].astype(int)
    if task in ("vww", "cifar10"):
        sample -= 128
    if task != "digits":
        np.testing.assert_array_equal(told[0], sample)


def test_another_scale_is_obeyed() -> None:
    """A model that stores the same real numbers in coarser steps gets those."""
    exact = first_input("vww", tensor((1, 96, 96, 3)))
    coarse = first_input("vww", tensor((1, 96, 96, 3), "uint8", scale=1 / 64, zero=10))
    np.testing.assert_array_equal(coarse, np.rint(exact.astype(float) * 64) + 10)


@pytest.mark.parametrize("zero", [127, 128, None])
def test_8_bit_imagenet_models_get_the_bytes_of_the_image(zero: int | None) -> None:
    """Whatever zero point they tell, 8-bit image models are fed pixels."""
    scale = 0 if zero is None else 1 / 128
    given = first_input("imagenet", tensor((1, 224, 224, 3), "uint8", scale=scale, zero=zero or 0))
    pixels = first_input("imagenet", tensor((1, 224, 224, 3))) * 128 + 127
    np.testing.assert_array_equal(given, pixels)
    channels_first = first_input("imagenet", tensor((1, 3, 224, 224), "int8"))
    np.testing.assert_array_equal(np.moveaxis(channels_first[0], 0, -1), given[0].astype(int) - 128)


def test_imagenet_crops_the_middle(tmp_path: Path) -> None:
    """Of a photograph of any shape, the central 0.875 of the shorter side is taken."""
    image = pytest.importorskip("PIL.Image")
    pixels = np.zeros((320, 400, 3), np.uint8)
    pixels[20:300, 60:340] = 255
    image.fromarray(pixels).save(tmp_path / "a.png")
    (tmp_path / "val_map.txt").write_text("a.png 5\n")
    out = np.empty((1, 128, 128, 3), np.uint8)
    open_usual("imagenet", x=tensor(out.shape, "uint8"), data=tmp_path).write(0, [out])
    assert out[0, 1:-1, 1:-1].min() == 255
    assert out.min() > 190  # at the edges PIL looks at the pixels beyond


def test_background_class_is_taken_off() -> None:
    """Of 1001 classes the first is none of ImageNet's."""
    scores = np.zeros((1, 1001), np.uint8)
    scores[0, [0, 285, 8]] = 255, 200, 100
    library = open_usual("imagenet", y=tensor((1, 1001), "uint8", name="y"))
    out = np.empty(library.prediction_shape, np.float32)
    library.predict(0, [scores], out)
    assert out[0].tolist() == [284, 7, 0, 1, 2]
    assert out[1].tolist() == [200 / 256, 100 / 256, 0, 0, 0]


@pytest.mark.parametrize(
    ("y", "stored_scores", "expected"),
    [
        (tensor((1, 2)), np.array([[0.25, 0.75]], np.float32), [0.25, 0.75]),
        (tensor((1, 2), "float64"), np.array([[1e300, 0.5]]), [np.inf, 0.5]),
        (tensor((1, 2), "int8"), np.array([[-128, 127]], np.int8), [0, 255 / 256]),
        (tensor((1, 2), "uint8"), np.array([[0, 64]], np.uint8), [0, 0.25]),
        (tensor((1, 2), "int8", scale=0.5, zero=3), np.array([[3, -1]], np.int8), [0, -2]),
        (tensor((-1, 1, 1, 2)), np.array([[[[1, 2]]]], np.float32), [1, 2]),
    ],
)
def test_predictions_are_real_numbers(
    y: TensorSpec, stored_scores: NDArray[Any], expected: list[float]
) -> None:
    """Scores are dequantised, whatever the output's type; too large ones become infinite."""
    library = open_usual("vww", y=y)
    out = np.empty(library.prediction_shape, np.float32)
    library.predict(0, [stored_scores], out)
    assert out.tolist() == expected


@pytest.mark.parametrize("task", sorted(USUAL))
def test_answers_that_are_no_numbers_are_refused(task: str) -> None:
    """A model that gives NaN gets no score."""
    library = open_usual(task)
    predictions = np.zeros((len(library), *library.prediction_shape), np.float32)
    nan = np.full((1, USUAL[task][1]), np.nan, np.float32)
    for index in range(7):
        library.predict(index, [nan], predictions[index])
    with pytest.raises(
        DatasetError, match=rf"task {task}: 7 of {len(library)} answers are not fin"
    ):
        library.score(predictions)


def test_wrong_labels_are_wrong_answers() -> None:
    """Perfect scores are worth 1; the same scores against shifted labels are worth 0."""
    labels = stored("digits")["labels"]
    library = open_usual("digits")
    perfect = np.eye(10, dtype=np.float32)[labels]
    assert library.score(perfect).value == 1.0
    assert library.score(np.roll(perfect, 1, axis=1)).value == 0.0


@pytest.mark.parametrize("task", sorted(USUAL))
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"x": tensor((1, 7, 7, 5))}, r"input 'x' is \[1, 7, 7, 5\]"),
        ({"x": tensor((-1, -1, -1, 3))}, r"--input x=1,224,224,3"),
        ({"x": tensor(())}, r"input 'x' is \[\]"),
        ({"y": tensor((1, 7), name="y")}, r"output 'y' is \[1, 7\], expected \d+.* scores"),
        ({"y": tensor((-1, -1), name="y")}, r"output 'y' is \[-1, -1\], expected"),
    ],
)
def test_models_that_do_not_fit_are_named(task: str, change: dict[str, Any], said: str) -> None:
    """One line names the task, the tensor, what it is and what was expected."""
    with pytest.raises(DatasetError, match=said) as caught:
        open_usual(task, **change)
    assert f"task {task}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("task", sorted(USUAL))
def test_types_that_cannot_be_fed_or_read_are_named(task: str) -> None:
    """Integers wider than 8 bits, batches, and several inputs or outputs are refused."""
    shape, scores = USUAL[task]
    with pytest.raises(DatasetError, match=f"task {task} .* input 'x' is int64; expected float16"):
        open_usual(task, x=tensor(shape, "int64"))
    with pytest.raises(DatasetError, match=f"task {task} .*expected a first axis for the batch"):
        open_usual(task, x=tensor((8, *shape[1:])))
    with pytest.raises(DatasetError, match=f"task {task} .* output 'y' is int64, expected scores"):
        open_usual(task, y=tensor((1, scores), "int64", name="y"))
    x, y = tensor(shape), tensor((1, scores), name="y")
    with pytest.raises(DatasetError, match=rf"task {task} .* the model has 2 \('x', 'x'\)"):
        open_task(task).open([x, x], [y])
    with pytest.raises(DatasetError, match=rf"task {task} .* the model has 0 \(none\)"):
        open_task(task).open([x], [])


def test_table_of_numbers_takes_no_bytes() -> None:
    """An int8 input of ai4i must tell its scale: nothing else gives it a meaning."""
    with pytest.raises(DatasetError, match=r"task ai4i .* is int8; expected float16"):
        open_usual("ai4i", x=tensor((1, 8), "int8"))
    given = first_input("ai4i", tensor((1, 8), "int8", scale=20, zero=0))
    assert given.tolist() == [[0, 0, 0, 15, 15, 70, 2, 0]]
