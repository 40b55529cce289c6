"""A task file says how inputs are made and outputs are read; what makes no sense is refused."""

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeperf.datasets import PROFILES, open_task
from edgeperf.datasets.base import DatasetError, SampleLibrary
from edgeperf.datasets.own.guess import guess_task
from edgeperf.datasets.own.images import placement
from edgeperf.datasets.own.recipes import InputRecipe
from edgeperf.datasets.own.resample import resampled
from edgeperf.datasets.own.taskfile import TaskFile, parse_task, read_task
from edgeperf.datasets.own.write import task_text
from edgeperf.datasets.tensors import Quantisation, TensorSpec

PIL = pytest.importorskip("PIL.Image")


def tensor(
    *shape: int, dtype: str = "float32", name: str = "x", scale: float = 0, zero: int = 0
) -> TensorSpec:
    """Return a tensor's description."""
    quantisation = Quantisation(scale=scale, zero_point=zero) if scale else None
    return TensorSpec(name=name, shape=shape, dtype=dtype, quantisation=quantisation)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """Return a folder of one class with a picture: left half red, right half blue, 40 x 20."""
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:, :20, 0] = 200
    pixels[:, 20:, 2] = 100
    (tmp_path / "data" / "a").mkdir(parents=True)
    (tmp_path / "data" / "b").mkdir(parents=True)
    for name in "ab":
        PIL.fromarray(pixels).save(tmp_path / "data" / name / "0.png")
    return tmp_path / "data"


def library(data: Path, text: str, x: TensorSpec, y: TensorSpec | None = None) -> SampleLibrary:
    """Open *data* by the task file *text*."""
    (data.parent / "t.toml").write_text(text)
    outputs = [y or tensor(1, 2, name="y")]
    return open_task(str(data.parent / "t.toml")).open([x], outputs, data=data)


def made(data: Path, recipe: str, x: TensorSpec) -> NDArray[Any]:
    """Return the first sample as the model gets it."""
    out: NDArray[Any] = np.zeros(x.sample_shape, x.dtype)
    library(data, f"[input]\n{recipe}", x).write(0, [out])
    first: NDArray[Any] = out[0]
    return first


def test_colour_mean_and_std(picture: Path) -> None:
    """Numbers are (pixel - mean) / std in the order of the model's channels."""
    recipe = 'colour = "BGR"\nmean = [1, 2, 3]\nstd = [1, 2, 4]\n'
    out = made(picture, recipe, tensor(1, 10, 10, 3))
    assert out[5, 0].tolist() == [-1, -1, (200 - 3) / 4]
    assert out[5, 9].tolist() == [99, -1, -0.75]


def test_channels_first(picture: Path) -> None:
    """The model's shape says where the channels are."""
    out = made(picture, "std = [2]", tensor(1, 3, 10, 10))
    assert out[:, 5, 0].tolist() == [100, 0, 0]
    assert out[:, 5, 9].tolist() == [0, 0, 50]


def test_grey(picture: Path) -> None:
    """One channel, with or without an axis of its own."""
    for shape in ((1, 10, 10, 1), (1, 1, 10, 10), (1, 10, 10)):
        out = made(picture, 'colour = "grey"', tensor(*shape)).reshape(10, 10)
        assert out[5, 0] == pytest.approx(200 * 0.299, abs=1)


@pytest.mark.parametrize(
    ("x", "recipe", "expected"),
    [
        (tensor(1, 10, 10, 3, dtype="uint8"), 'bytes = "pixels"', 200),
        (tensor(1, 10, 10, 3, dtype="int8"), 'bytes = "pixels"', 72),
        (tensor(1, 10, 10, 3, dtype="int8", scale=1 / 255, zero=-128), "std = [255]", 72),
        (tensor(1, 10, 10, 3, dtype="uint8", scale=0.5, zero=3), "std = [2]", 203),
        (tensor(1, 10, 10, 3, dtype="int8"), "std = [2]\nscale = 1.0\nzero_point = 5", 105),
        (tensor(1, 10, 10, 3, dtype="uint8"), "std = [2]\nscale = 1.0\nzero_point = 5", 105),
        (tensor(1, 10, 10, 3, dtype="float16"), "std = [2]", 100),
    ],
)
def test_types(picture: Path, x: TensorSpec, recipe: str, expected: float) -> None:
    """8-bit inputs get stored numbers by the model's scale or the task's, or the pixels."""
    assert made(picture, recipe, x)[5, 0, 0] == expected


def test_untold_scales_are_asked_for(picture: Path) -> None:
    """An 8-bit input that does not tell its scale is not guessed at."""
    with pytest.raises(DatasetError, match=r'int8 and does not tell its scale: set .*"pixels"'):
        made(picture, "std = [2]", tensor(1, 10, 10, 3, dtype="int8"))


def test_resizing(picture: Path) -> None:
    """Stretched, cut to the middle, letterboxed, or as it is."""
    x = tensor(1, 10, 10, 3)
    stretched = made(picture, 'resize = "stretch"', x)
    assert stretched[0, 0, 0] == 200
    cut = made(picture, 'resize = "shorter_side"', x)
    assert (cut[:, 2, 0] == 200).all()
    assert (cut[:, 7, 2] == 100).all()
    wider = made(picture, 'resize = "shorter_side"\ncrop = 0.5', x)
    assert (wider[:, 4, 0] == 200).all()  # of 20 x 40, the middle 10 x 10
    assert (wider[:, 5, 2] == 100).all()
    boxed = made(picture, 'resize = "letterbox"\npad = 9', x)
    assert (boxed[:2] == 9).all()
    assert (boxed[8:] == 9).all()
    assert boxed[5, 0, 0] == 200
    boxed = made(picture, 'resize = "letterbox"\npad_at = "top-left"', x)
    assert boxed[0, 0, 0] == 200
    assert (boxed[5:] == 114).all()
    cropped = made(picture, "crop = 0.5", x)
    assert cropped[0, 0, 0] == 200
    assert cropped[0, 9, 2] == 100
    with pytest.raises(DatasetError, match=r"0.png is 20x40, the model's input 10x10: set"):
        made(picture, 'resize = "none"', x)
    assert made(picture, 'resize = "none"', tensor(1, 20, 40, 3))[0, 0, 0] == 200


@pytest.mark.parametrize("name", ["bilinear", "bicubic", "box", "nearest", "linear", "area"])
def test_filters(picture: Path, name: str) -> None:
    """Every filter keeps what is one colour."""
    out = made(picture, f'filter = "{name}"', tensor(1, 10, 10, 3))
    assert out[5, 0].tolist() == [200, 0, 0]
    assert out[5, 9].tolist() == [0, 0, 100]


def test_opencvs_filters() -> None:
    """Values that OpenCV gives: areas are averages, linear takes the two nearest."""
    row = np.arange(0, 80, 10, dtype=np.uint8)[None, :]
    assert resampled(row, (1, 4), "area").tolist() == [[5, 25, 45, 65]]
    assert resampled(row[:, :3], (1, 2), "area").tolist() == [[3, 17]]
    assert resampled(row, (1, 4), "linear").tolist() == [[5, 25, 45, 65]]
    assert resampled(row[:, :2], (1, 4), "linear").tolist() == [[0, 2, 8, 10]]
    assert resampled(row, (1, 2), "linear").tolist() == [[15, 55]]


@given(st.tuples(st.integers(1, 60), st.integers(1, 60)), st.sampled_from(["centre", "top-left"]))
def test_a_letterbox_can_be_undone(size: tuple[int, int], pad_at: Any) -> None:
    """The corners of the photograph lie where the placement says, inside the input."""
    recipe = InputRecipe(resize="letterbox", pad_at=pad_at)
    place = placement(recipe, size, (32, 48))
    for axis, most in enumerate((32, 48)):
        end = size[axis] * place.scale[axis] + place.start[axis]
        assert 0 <= place.start[axis] < most
        assert end <= most + 1e-9


def _predict(lib: SampleLibrary, *scores: float) -> NDArray[np.float32]:
    out = np.zeros(lib.prediction_shape, np.float32)
    lib.predict(0, [np.array([scores], np.float32)], out)
    return out


def test_reading_scores(picture: Path) -> None:
    """As they are, as probabilities, without the background, or one score with a threshold."""
    x, y3 = tensor(1, 10, 10, 3), tensor(1, 3, name="y")
    assert _predict(library(picture, "", x), 2, 4).tolist() == [2, 4]
    soft = _predict(library(picture, '[output]\nread = "softmax"', x), 0, np.log(3))
    assert soft.tolist() == pytest.approx([0.25, 0.75])
    plain = library(picture, "[output]\nbackground = true", x, y3)
    assert _predict(plain, 9, 1, 2).tolist() == [1, 2]
    one = library(
        picture, '[output]\nread = "threshold"\nsigmoid = true', x, tensor(1, 1, name="y")
    )
    assert _predict(one, 0).tolist() == [0.5]
    assert one.payload_bytes == 4
    payload = np.zeros(4, np.uint8)
    assert one.payload(0, np.array([0.5], np.float32), payload) == 4
    assert payload.view(np.float32).tolist() == [0.5]


def test_of_many_classes_the_best_are_kept(picture: Path) -> None:
    """A prediction of a thousand classes is ten numbers, and scores the same."""
    (picture.parent / "a.csv").write_text("path,label\ndata/a/0.png,7\ndata/b/0.png,3\n")
    text = '[output]\nread = "softmax"'
    lib = library(picture.parent / "a.csv", text, tensor(1, 10, 10, 3), tensor(1, 1000, name="y"))
    scores = np.zeros(1000, np.float32)
    scores[[7, 3]] = 5, 4
    out = _predict(lib, *scores.tolist())
    assert out[0].tolist() == [7, 3, 0, 1, 2]
    assert lib.score(np.stack([out, out])).metrics["top1"] == 0.5
    assert lib.score(np.stack([out, out])).metrics["top5"] == 1.0
    scores[4] = np.nan
    assert np.isnan(_predict(lib, *scores.tolist())).all()


def test_the_gate_is_the_tasks(picture: Path) -> None:
    """A floor on any metric, a share of a reference, and the reference's other metrics."""
    text = (
        '[output]\nread = "threshold"\npositive = "a"\n'
        '[metric]\ngate = "recall@precision=0.5"\nat_least = 0.8\nprecisions = [0.5]\n'
        "[reference]\nroc_auc = 0.9\n"
    )
    (picture.parent / "t.toml").write_text(text)
    task = open_task(str(picture.parent / "t.toml"))
    assert (task.name, task.metric, task.gate.floor) == ("t", "recall@precision=0.5", 0.8)
    assert task.reference_metrics == {"roc_auc": 0.9}
    lib = task.open([tensor(1, 10, 10, 3)], [tensor(1, 1, name="y")], data=picture)
    score = lib.score(np.array([[0.9], [0.2]], np.float32))
    assert score.value == 1.0


BAD = [
    ("colour = 3", r"task file .*t.toml: Object contains unknown field `colour`"),
    ("[input]\ncolour = 'XYZ'", r"value 'XYZ'; expected BGR, RGB or grey - at `\$.input"),
    ("[input]\nmean = [1, 2]", r"\[input\] mean: give 1 number, or 3 for RGB"),
    ("[input]\nstd = [0]", r"Expected `float` > 0"),
    ("[input]\nmean = [nan]", r"\[input\] mean: expected numbers that are finite"),
    ("[metric]\nat_least = 1\nshare = 0.9", r"\[metric\] at_least and share: give one"),
    ("[metric]\nat_least = 95", r"\[metric\] at_least: top1 is never 95; a share is from 0 to 1"),
    ("[metric]\nat_least = nan", r"\[metric\] at_least: top1 is never nan"),
    ("[metric]\nreference = 84", r"\[metric\] reference: top1 is never 84"),
    ("[reference]\ntop1 = 84", r"\[reference\] top1: is never 84"),
    ("[metric]\nat_least = 0.8\nreference = 0.9", r"at_least and reference: give one"),
    ("[metric]\nshare = 0.9", r"\[metric\] share: of what\? give reference"),
    ("[metric]\ncosts = {miss = -1, false_alarm = 1}", r">= 0.0 - at `\$.metric.costs.miss`"),
    ("[metric]\ncosts = {miss = 0, false_alarm = 0}", r"costs: expected finite numbers, and one"),
    ("[metric]\ncosts = {miss = inf, false_alarm = 0}", r"costs: expected finite numbers"),
    ("[metric]\nat_most = 0.1", r"top1 is better the other way; give at_least"),
    ("[metric]\ngate = 'ece'\nat_least = 0.1", r"ece is better the other way; give at_most"),
    ("classes = ['a', 'a']", r"classes: the same name twice"),
    ("[output]\nread = 'yolo'\n[input]\ncrop = 0.5", r"crop, shorter_side: cut boxes off"),
    ("[output]\nread = 'text'", r"\[output\] vocabulary: name the file with the tokens"),
    ("[data]\npath = 'a'\ncatalogue = 'b'", r"\[data\] path and catalogue: give one"),
    ("not toml", r"task file .*t.toml: "),
    ("[output]\nname = 'z'", r"\[output\] name 'z': the model has 'y'"),
    ("[output]\nread = 'threshold'", r'read = "threshold" takes one score'),
    ("[input]\nlayout = 'NCHW'", r"input 'x' is \[1, 10, 10, 3\], and the task makes NCHW"),
    ("[input]\nsize = [9, 9]", r"input 'x' is .*\[input\] size is \[9, 9\]: leave it out"),
    (
        "[input]\nresize = 'shorter_side'\nshorter_side = 9",
        r"shorter_side = 9 is less",
    ),
    ("[output]\npositive = 'c'", r"positive = 'c': none of the classes a, b"),
]


@pytest.mark.parametrize(("text", "said"), BAD)
def test_nonsense_is_one_clear_line(picture: Path, text: str, said: str) -> None:
    """The message names the file and the field."""
    with pytest.raises(DatasetError, match=said) as caught:
        library(picture, text, tensor(1, 10, 10, 3))
    assert "\n" not in str(caught.value)


def test_pictures_are_no_arrays(picture: Path) -> None:
    """The line says what to write; of Python objects it says that they are no numbers."""
    with pytest.raises(DatasetError, match=r'0.png: is no .npy file; .* kind = "image"'):
        made(picture, "kind = 'array'", tensor(1, 10, 10, 3))
    for path in picture.rglob("*.png"):
        np.save(path.with_suffix(".npy"), np.array([{}]))
        path.unlink()
    with pytest.raises(DatasetError, match=r"0.npy: .* Python objects; expected numbers"):
        made(picture, "kind = 'array'", tensor(1, 10, 10, 3))


def test_a_missing_task_file(tmp_path: Path) -> None:
    """It says which."""
    with pytest.raises(DatasetError, match=r"task file .*gone.toml: No such file"):
        open_task(str(tmp_path / "gone.toml"))


@given(st.binary(max_size=200))
def test_no_bytes_bring_down_the_reader(raw: bytes) -> None:
    """Whatever is in a task file, it is a task or one refusal."""
    with contextlib.suppress(DatasetError):
        parse_task(raw, "x.toml")


LOOKS = [
    ([tensor(1, 224, 224, 3)], [tensor(1, 10)], "image", "argmax"),
    ([tensor(1, 3, 224, 224)], [tensor(1, 10)], "image", "argmax"),
    ([tensor(1, 28, 28, 1)], [tensor(1, 10)], "image", "argmax"),
    ([tensor(1, 96, 96, 3, dtype="int8", scale=0.1)], [tensor(1, 2)], "image", "argmax"),
    ([tensor(1, 8)], [tensor(1, 1)], "array", "threshold"),
    ([tensor(1, 3, 640, 640)], [tensor(1, 84, 8400)], "image", "yolo"),
    ([tensor(1, 3, 640, 640)], [tensor(1, 25200, 85)], "image", "yolo"),
    ([tensor(1, 416, 416, 3)], [tensor(1, 3549, 85)], "image", "yolox"),
    ([tensor(1, 3, 352, 352)], [tensor(1, 85, 22, 22)], "image", "fastestdet"),
    (
        [tensor(1, 300, 300, 3, dtype="uint8")],
        [tensor(1, 10, 4), tensor(1, 10), tensor(1, 10), tensor(1)],
        "image",
        "ssd",
    ),
    ([tensor(1, 4), tensor(1, 9, name="z")], [tensor(1, 2)], "array", "argmax"),
]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('gate = "recal"', "gate = recal: no metric of such answers; there are top1, .*recall@"),
        ('gate = "mAP"', "gate = mAP: no metric of such answers"),
        ('gate = "recall@precision=0.90"', "write recall@precision=0.9"),
        ('gate = "recall@precision=0.9.1"', "no metric of such answers"),
        ('gate = "recall@precision=."', "no metric of such answers"),
        ('gate = "precision@recall=1.5"', "expected a number above 0, up to 1"),
        ('gate = "cost"', r"\[metric\] costs: say what a miss"),
    ],
)
def test_a_gate_that_cannot_be_is_refused_at_once(text: str, said: str) -> None:
    """Not after an accuracy test of minutes."""
    with pytest.raises(DatasetError, match=said):
        parse_task(f"[metric]\n{text}\n".encode(), "x.toml")


def test_a_bound_may_be_above_one_where_the_metric_may_be() -> None:
    """Costs and word error rates are no shares; a share may be of a reference that is listed."""
    costs = "costs = {miss = 10, false_alarm = 1}"
    task = parse_task(f"[metric]\ngate = 'cost'\nat_most = 3\n{costs}\n".encode(), "x.toml")
    assert task.metric.at_most == 3
    task = parse_task(b"[metric]\nshare = 0.999\n[reference]\ntop1 = 0.9\ncost = 4\n", "x.toml")
    assert task.metric.share == 0.999


def test_the_point_of_a_gate_need_not_be_said_twice() -> None:
    """A recall at a precision that decides is measured without being listed."""
    task = parse_task(b'[metric]\ngate = "recall@precision=0.95[dog]"\n', "x.toml")
    assert task.precisions == (0.9, 0.95)
    assert task.recalls == (0.9,)
    task = parse_task(b'[metric]\ngate = "precision@recall=0.9"\nrecalls = [0.9]\n', "x.toml")
    assert (task.precisions, task.recalls) == ((0.9,), (0.9,))


@pytest.mark.parametrize(
    ("size", "output", "profile"),
    [
        (416, (1, 3549, 85), "coco-yolox"),
        (640, (1, 84, 8400), "coco-yolo"),
        (352, (1, 85, 22, 22), "coco-fastestdet"),
    ],
)
def test_well_known_detectors_are_guessed_as_their_tasks_say(
    size: int, output: tuple[int, ...], profile: str
) -> None:
    """Colour, scale and letterbox of a YOLO are those of our own task for it."""
    for shape in ((1, 3, size, size), (1, size, size, 3)):
        guessed = guess_task([tensor(*shape)], [tensor(*output)]).input
        known = read_task(PROFILES / f"{profile}.toml").input
        assert msgspec.structs.replace(guessed, layout=None) == known


@pytest.mark.parametrize(("inputs", "outputs", "kind", "read"), LOOKS)
def test_what_is_guessed_is_written_and_read_again(
    inputs: list[TensorSpec], outputs: list[TensorSpec], kind: str, read: str
) -> None:
    """A new task file says what was guessed, word for word."""
    guessed = guess_task(inputs, outputs, Path("my data"))
    assert (guessed.input.kind, guessed.output.read) == (kind, read)
    text = task_text(guessed, inputs, outputs, "model.onnx")
    again = parse_task(text.encode(), "x.toml")
    assert again.input == guessed.input
    assert again.output == guessed.output
    assert again.data == guessed.data
    assert again.gate == TaskFile(output=guessed.output).gate
