"""Every task: how samples become inputs, and one clear line for whatever does not fit."""

import csv
import shutil
from collections.abc import Callable, Sequence
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


@pytest.mark.parametrize("name", sorted(TASKS))
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
    assert task_names() == (*TASKS, "broken", "mine")
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
    library.predict([scores], out)
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
    library.predict([stored_scores], out)
    assert out.tolist() == expected


@pytest.mark.parametrize("task", sorted(TASKS))
def test_answers_that_are_no_numbers_are_refused(task: str) -> None:
    """A model that gives NaN gets no score."""
    library = open_usual(task)
    predictions = np.zeros((len(library), *library.prediction_shape), np.float32)
    nan = np.full((1, USUAL[task][1]), np.nan, np.float32)
    for index in range(7):
        library.predict([nan], predictions[index])
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


@pytest.mark.parametrize("task", sorted(TASKS))
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


@pytest.mark.parametrize("task", sorted(TASKS))
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


def _save(**arrays: Any) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **arrays)


IMAGES = np.zeros((4, 8, 8, 1), np.uint8)
LABELS = np.arange(4)
BAD_NPZ: list[tuple[Callable[[Path], Any], str]] = [
    (_save(labels=LABELS), r"no array 'images'; expected arrays 'images' \(n, 8, 8, 1\) uint8"),
    (_save(images=IMAGES), r"no array 'labels'; .* found 'images'"),
    (_save(images=IMAGES[:, :7], labels=LABELS), r"'images' is \[4, 7, 8, 1\] uint8; expected"),
    (_save(images=IMAGES / 2, labels=LABELS), r"'images' is \[4, 8, 8, 1\] float64; expected"),
    (_save(images=np.uint8(1), labels=LABELS), r"'images' is \[\] uint8; expected"),
    (_save(images=IMAGES, labels=LABELS / 2), r"'labels' is \[4\] float64; expected"),
    (_save(images=IMAGES, labels=LABELS[:, None]), r"'labels' is \[4, 1\] int64; expected"),
    (_save(images=IMAGES, labels=LABELS[:3]), r"4 samples but 3 labels"),
    (_save(images=IMAGES[:0], labels=LABELS[:0]), r"holds no sample; expected"),
    (
        _save(images=IMAGES, labels=LABELS * 4),
        r"label 12 of sample 3 is out of range; expected 0 to",
    ),
    (_save(images=IMAGES, labels=-LABELS), r"label -1 of sample 1 is out of range; .* \(3 such"),
    (_save(images=IMAGES, labels=np.array([None] * 4)), r"cannot be read as .npz: Object arrays"),
    (lambda path: path.write_text("hello"), r"not an .npz file; expected arrays 'images'"),
    (lambda path: path.write_bytes(b""), r"not an .npz file; expected"),
    (lambda path: path.mkdir(), r"is a folder; expected an .npz file with arrays 'images'"),
    (lambda _: None, r"does not exist; expected an .npz file with arrays 'images'"),
]


@pytest.mark.parametrize(("make", "said"), BAD_NPZ, ids=[said for _, said in BAD_NPZ])
def test_bad_npz_is_one_clear_line(make: Callable[[Path], Any], said: str, tmp_path: Path) -> None:
    """Each thing that can be wrong with the user's own samples has its own line."""
    path = tmp_path / "mine.npz"
    make(path)
    with pytest.raises(DatasetError, match=said) as caught:
        open_usual("digits", data=path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_damaged_npz_is_one_clear_line(tmp_path: Path) -> None:
    """A flipped byte inside a compressed array is found by its checksum."""
    path = tmp_path / "mine.npz"
    content = bytearray(resolve(data_for("digits").asset).read_bytes())
    content[3000:3010] = bytes(10)
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"mine\.npz: .*(damaged|cannot be read as .npz)"):
        open_usual("digits", data=path)
    path.write_bytes(content[:4000])
    with pytest.raises(DatasetError, match=r"mine\.npz: not an .npz file"):
        open_usual("digits", data=path)


def test_own_samples_replace_the_catalogue_s(tmp_path: Path) -> None:
    """A file in the task's format is taken as it is, any integer type of labels."""
    np.savez(tmp_path / "mine.npz", images=IMAGES + 16, labels=LABELS.astype(np.int32))
    library = open_usual("digits", data=tmp_path / "mine.npz")
    out = np.zeros((1, 8, 8, 1), np.float32)
    library.write(3, [out])
    assert len(library) == 4
    assert (out == 1).all()
    assert library.score(np.eye(10, dtype=np.float32)[:4]).metrics == {"top1": 1.0}


def test_metrics_of_two_classes_need_both(tmp_path: Path) -> None:
    """The tasks vww and kws leave out what does not exist when a class is missing."""
    np.savez(tmp_path / "v.npz", images=np.zeros((2, 96, 96, 3), np.uint8), labels=[1, 1])
    np.savez(tmp_path / "k.npz", features=np.zeros((2, 49, 10, 1), np.int8), labels=[1, 2])
    vww = open_usual("vww", data=tmp_path / "v.npz")
    kws = open_usual("kws", data=tmp_path / "k.npz")
    assert set(vww.score(np.zeros((2, 2), np.float32)).metrics) == {"top1"}
    assert set(kws.score(np.zeros((2, 12), np.float32)).metrics) == {"top1"}


HEADER = (
    "type_L,type_M,type_H,air_temp_K,process_temp_K,rot_speed_rpm,torque_Nm,tool_wear_min,failure"
)
GOOD = "1,0,0,298.2,308.7,1408,46.3,3,"
BAD_CSV = [
    ("", "no column 'type_L'; expected type_L, type_M"),
    (HEADER.replace(",failure", ""), "no column 'failure'"),
    (HEADER, "0 rows, 0 with failure 1; expected rows of both kinds"),
    (f"{HEADER}\n{GOOD}0\n", "1 rows, 0 with failure 1"),
    (
        f"{HEADER}\n{GOOD}0\n{GOOD}1\n1,0,0,hot,1,1,1,1,0\n",
        "line 4: air_temp_K is 'hot', expected a n",
    ),
    (
        f"{HEADER}\n{GOOD}0\n{GOOD}1\n1,0,0,nan,1,1,1,1,0\n",
        "line 4: air_temp_K is 'nan', expected a n",
    ),
    (f"{HEADER}\n{GOOD}0\n{GOOD}2\n", "line 3: failure is 2, expected 0 or 1"),
    (f"{HEADER}\n{GOOD}0\n1,0\n", "line 3: type_H is None, expected a number"),
    ("\0\udcff", "cannot be read as CSV"),
]


@pytest.mark.parametrize(("text", "said"), BAD_CSV, ids=[said for _, said in BAD_CSV])
def test_bad_csv_is_one_clear_line(text: str, said: str, tmp_path: Path) -> None:
    """Column, line and value are named."""
    path = tmp_path / "mine.csv"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DatasetError, match=said) as caught:
        open_usual("ai4i", data=path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_csv_that_is_no_file(tmp_path: Path) -> None:
    """A folder or nothing at all is said to be that."""
    with pytest.raises(DatasetError, match="is a folder; expected a CSV file"):
        open_usual("ai4i", data=tmp_path)
    with pytest.raises(DatasetError, match=r"cannot be read as CSV: .*No such file"):
        open_usual("ai4i", data=tmp_path / "none.csv")


LIST = "file,imagenet_indices_0based"
BAD_FOLDERS = [
    ({}, "expected a folder with labels.csv and images/, or with val_map.txt"),
    ({"labels.csv": "file,label\n"}, "labels.csv: expected columns 'file' and 'imagenet_indices"),
    ({"labels.csv": f"{LIST}\n"}, "its list names no photograph"),
    ({"labels.csv": f"{LIST}\na.jpg,1\n"}, "a.jpg: listed in .*, but not there"),
    ({"labels.csv": f"{LIST}\na.jpg,\n"}, "line 2: classes are '', expected numbers from 0 to 999"),
    ({"labels.csv": f"{LIST}\na.jpg,1 1000\n"}, "line 2: classes are '1 1000', expected numbers"),
    ({"labels.csv": f"{LIST}\na.jpg,cat\n"}, "line 2: classes are 'cat', expected numbers"),
    ({"val_map.txt": "a.jpg 3\n\n"}, "line 2: expected FILE CLASS, found ''"),
    ({"val_map.txt": "a.jpg -1\n"}, "line 1: classes are '-1', expected numbers"),
    ({"val_map.txt": "a.jpg 3\n"}, "a.jpg: listed in .*, but not there"),
]


@pytest.mark.parametrize(("files", "said"), BAD_FOLDERS, ids=[said for _, said in BAD_FOLDERS])
def test_bad_folder_is_one_clear_line(files: dict[str, str], said: str, tmp_path: Path) -> None:
    """The list, its line and the missing photograph are named."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(DatasetError, match=said) as caught:
        open_usual("imagenet", data=tmp_path)
    assert "\n" not in str(caught.value)


def test_photograph_that_cannot_be_decoded(models_dir: Path, tmp_path: Path) -> None:
    """A truncated or foreign file is named when its turn comes."""
    photograph = next((models_dir / "imagenet_cls" / "data" / "images").glob("*.jpg"))
    (tmp_path / "cut.jpg").write_bytes(photograph.read_bytes()[:5000])
    (tmp_path / "text.jpg").write_text("hello")
    (tmp_path / "val_map.txt").write_text("cut.jpg 1\ntext.jpg 2\n")
    library = open_usual("imagenet", data=tmp_path)
    out = np.empty((1, 224, 224, 3), np.float32)
    for index, name in enumerate(("cut.jpg", "text.jpg")):
        with pytest.raises(DatasetError, match=f"{name}: cannot be decoded as an image"):
            library.write(index, [out])


def test_own_photographs_replace_the_catalogue_s(models_dir: Path, tmp_path: Path) -> None:
    """The two kinds of list mean the same."""
    source = models_dir / "imagenet_cls" / "data"
    with (source / "labels.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))[:2]
    lines = []
    for row in rows:
        shutil.copy(source / "images" / row["file"], tmp_path)
        lines.append(f"{row['file']} {row['imagenet_indices_0based'].split()[0]}")
    (tmp_path / "val_map.txt").write_text("\n".join(lines))
    mine, theirs = open_usual("imagenet", data=tmp_path), open_usual("imagenet")
    out = np.empty((2, 1, 224, 224, 3), np.float32)
    mine.write(1, [out[0]])
    theirs.write(1, [out[1]])
    assert len(mine) == 2
    np.testing.assert_array_equal(out[0], out[1])
    predictions = np.zeros((2, 2, 5), np.float32)
    predictions[0, 0, 0] = float(lines[0].split()[1])
    predictions[1, 0, 4] = float(lines[1].split()[1])
    assert mine.score(predictions).metrics == {"top1": 0.5, "top5": 1.0}
