"""The user's own samples are found as they lie there, or refused in one clear line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf import InputError
from edgeperf.datasets import open_task
from edgeperf.datasets.base import DatasetError, SampleLibrary
from edgeperf.datasets.tensors import Quantisation, TensorSpec

PIL = pytest.importorskip("PIL.Image")


def tensor(*shape: int, dtype: str = "float32", name: str = "x", scale: float = 0) -> TensorSpec:
    """Return a tensor's description."""
    quantisation = Quantisation(scale=scale, zero_point=0) if scale else None
    return TensorSpec(name=name, shape=shape, dtype=dtype, quantisation=quantisation)


def image(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (8, 8)) -> Path:
    """Write a picture of one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.new("RGB", size, colour).save(path)
    return path


def open_own(
    data: Path,
    task: str = "",
    *,
    x: TensorSpec | None = None,
    scores: int = 2,
    tmp_path: Path | None = None,
) -> SampleLibrary:
    """Open *data* by a task file with the text *task*, for a model with so many scores."""
    file = (tmp_path or (data if data.is_dir() else data.parent)) / "mine.toml"
    file.write_text(task)
    outputs = [tensor(1, scores, name="y")]
    return open_task(str(file)).open([x or tensor(1, 8, 8, 3)], outputs, data=data)


def first(library: SampleLibrary, index: int = 0, x: TensorSpec | None = None) -> Any:
    """Return sample *index* as the model gets it."""
    x = x or tensor(1, 8, 8, 3)
    out = np.zeros(x.sample_shape, x.dtype)
    library.write(index, [out])
    return out


def truth(library: SampleLibrary) -> list[int]:
    """Return the right class of each sample, by what perfect answers are worth."""
    count, scores = len(library), library.prediction_shape[0]
    found = []
    for index in range(count):
        for place in range(scores):
            answer = np.zeros(scores, np.float32)
            answer[place] = 1
            if library.shown(index, answer).right:  # type: ignore[attr-defined]
                found.append(place)
    return found


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Return a folder with two folders of pictures, red cats and blue dogs."""
    data = tmp_path / "data"
    for number in range(3):
        image(data / "cat" / f"{number}.png", (255, 0, 0))
        image(data / "dog" / f"{number}.jpg", (0, 0, 255))
    (data / ".hidden").mkdir()
    (data / "dog" / "notes.txt").write_text("no picture")
    return data


def test_a_folder_per_class(folders: Path, tmp_path: Path) -> None:
    """Folders are classes, sorted by name; what is no picture is passed over."""
    library = open_own(folders, tmp_path=tmp_path)
    assert len(library) == 6
    assert truth(library) == [0, 0, 0, 1, 1, 1]
    assert first(library, 0)[0, 4, 4].tolist() == [255, 0, 0]


def test_classes_of_the_task_file_give_the_order(folders: Path, tmp_path: Path) -> None:
    """The model's scores may come in another order than the folders, and be more."""
    library = open_own(folders, 'classes = ["dog", "owl", "cat"]', scores=3, tmp_path=tmp_path)
    assert truth(library) == [2, 2, 2, 0, 0, 0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "path,label\ncat/0.png,cat\ndog/1.jpg,dog\n"),
        ("labels.csv", "\ufefflabel,other,file\ncat,1,cat/0.png\ndog,2,dog/1.jpg\n"),
        ("a.jsonl", '{"path": "cat/0.png", "label": 0}\n\n{"image": "dog/1.jpg", "class": 1}\n'),
        ("val_map.txt", "cat/0.png 0\ndog/1.jpg 1\n"),
    ],
)
def test_lists(folders: Path, tmp_path: Path, name: str, text: str) -> None:
    """CSV, JSON lines and MLPerf's list name paths from their own folder, and labels."""
    (folders / name).write_text(text, encoding="utf-8")
    library = open_own(folders / name, tmp_path=tmp_path)
    assert truth(library) == [0, 1]
    assert first(library, 1)[0, 4, 4].tolist() == pytest.approx([0, 0, 255], abs=2)
    if name in ("labels.csv", "val_map.txt"):
        assert len(open_own(folders, tmp_path=tmp_path)) == 2


def test_labels_that_count_from_one(folders: Path, tmp_path: Path) -> None:
    """An offset mends them; without it the message says so."""
    (folders / "a.csv").write_text("path,label\ncat/0.png,1\ndog/1.jpg,2\n")
    with pytest.raises(DatasetError, match=r"label 2 is out of range; .* label_offset = -1"):
        open_own(folders / "a.csv", tmp_path=tmp_path)
    library = open_own(folders / "a.csv", "[data]\nlabel_offset = -1\n", tmp_path=tmp_path)
    assert truth(library) == [0, 1]


def test_arrays(tmp_path: Path) -> None:
    """An NPZ with one array besides the labels, or an NPY with its labels beside it."""
    samples = np.arange(3 * 5, dtype=np.float32).reshape(3, 5)
    np.savez(tmp_path / "a.npz", features=samples, labels=[1, 0, 1])
    np.save(tmp_path / "b.npy", samples)
    np.save(tmp_path / "b_labels.npy", np.array([1, 0, 1]))
    for name in ("a.npz", "b.npy"):
        library = open_own(tmp_path / name, '[input]\nkind = "array"\n', x=tensor(1, 5))
        assert truth(library) == [1, 0, 1]
        assert first(library, 2, tensor(1, 5)).tolist() == [[10, 11, 12, 13, 14]]
    np.save(tmp_path / "labels.npy", np.array([0, 0, 1]))
    (tmp_path / "b_labels.npy").unlink()
    library = open_own(tmp_path / "b.npy", '[input]\nkind = "array"\n', x=tensor(1, 5))
    assert truth(library) == [0, 0, 1]


def test_arrays_for_several_inputs(tmp_path: Path) -> None:
    """One array named like each input of the model."""
    np.savez(tmp_path / "a.npz", p=np.ones((2, 3)), q=np.array([[7], [9]]), labels=[1, 0])
    inputs = [tensor(1, 1, dtype="int64", name="q"), tensor(1, 3, name="p")]
    (tmp_path / "mine.toml").write_text('[input]\nkind = "array"\n')
    task = open_task(str(tmp_path / "mine.toml"))
    library = task.open(inputs, [tensor(1, 2, name="y")], data=tmp_path / "a.npz")
    out: list[Any] = [np.zeros((1, 1), np.int64), np.zeros((1, 3), np.float32)]
    library.write(1, out)
    assert out[0].tolist() == [[9]]
    assert out[1].tolist() == [[1, 1, 1]]
    inputs[0] = tensor(1, 1, dtype="int64", name="r")
    with pytest.raises(DatasetError, match=r"holds 'p', 'q'; expected one array .*'r', 'p'"):
        task.open(inputs, [tensor(1, 2, name="y")], data=tmp_path / "a.npz")


SAMPLE = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("sample", "shape", "expected"),
    [
        (SAMPLE, (1, 2, 3, 4), SAMPLE),
        (SAMPLE[None], (1, 2, 3, 4), SAMPLE),
        (SAMPLE, (1, 4, 2, 3), SAMPLE.transpose(2, 0, 1)),
        (SAMPLE, (1, 3, 4, 2), SAMPLE.transpose(1, 2, 0)),
        (SAMPLE, (1, 24), SAMPLE),
        (SAMPLE.reshape(-1), (1, 2, 3, 4), SAMPLE),
        (SAMPLE, (1, 3, 2, 4), None),
        (SAMPLE, (1, 4, 3, 2), None),
        (SAMPLE, (1, 6, 4), None),
        (SAMPLE, (1, 2, 3, 5), None),
        (SAMPLE, (1, 25), None),
    ],
)
def test_axes_of_arrays(
    tmp_path: Path, sample: Any, shape: tuple[int, ...], expected: Any | None
) -> None:
    """Channels go where the model has them; numbers are never poured into another shape."""
    np.savez(tmp_path / "a.npz", x=np.stack([sample, sample]), labels=[0, 1])
    x = tensor(*shape)
    for task in ("", "mean = [1]\n", "std = [2]\n"):
        text = '[input]\nkind = "array"\n' + task
        if expected is None:
            with pytest.raises(DatasetError, match=r"is \[2, 3, 4\], and input 'x' \[1, .*same"):
                open_own(tmp_path / "a.npz", text, x=x)
            continue
        wanted = expected.reshape(shape) - ("mean" in task)
        made = first(open_own(tmp_path / "a.npz", text, x=x), 1, x)
        assert made.tolist() == (wanted / (2 if "std" in task else 1)).tolist()


def test_a_mean_of_each_channel_of_an_array(tmp_path: Path) -> None:
    """It is that of the channels, wherever the model has them; another number is refused."""
    np.savez(tmp_path / "a.npz", x=np.zeros((1, 5, 6, 3), np.float32), labels=[0])
    text = '[input]\nkind = "array"\nmean = [1, 2, 3]\n'
    last, before = tensor(1, 5, 6, 3), tensor(1, 3, 5, 6)
    made = first(open_own(tmp_path / "a.npz", text, x=last), 0, last)
    assert made[0, 4, 5].tolist() == [-1, -2, -3]
    made = first(open_own(tmp_path / "a.npz", text, x=before), 0, before)
    assert made[0, :, 4, 5].tolist() == [-1, -2, -3]
    for wrong in ("mean = [1, 2]", "mean = [1, 2, 3]\nstd = [1, 2]"):
        with pytest.raises(DatasetError, match="expected one, or one for each channel"):
            open_own(tmp_path / "a.npz", f'[input]\nkind = "array"\n{wrong}\n', x=last)


def _loose(data: Path) -> Path:
    image(data / "loose" / "0.png", (0, 0, 0))
    return data / "loose"


def test_arrays_are_quantised_by_the_model(tmp_path: Path) -> None:
    """Numbers become 8-bit ones by the model's scale; what is 8-bit already passes as it is."""
    np.savez(tmp_path / "a.npz", x=np.array([[1.0, -2.0]]), labels=[0])
    np.savez(tmp_path / "b.npz", x=np.array([[1, -2]], np.int8), labels=[0])
    x = tensor(1, 2, dtype="int8", scale=0.5)
    given = [
        first(open_own(tmp_path / name, '[input]\nkind = "array"\n', x=x), 0, x).tolist()
        for name in ("a.npz", "b.npz")
    ]
    assert given == [[[2, -4]], [[1, -2]]]


def test_images_in_an_npz(tmp_path: Path) -> None:
    """Pixels in memory are resized like files."""
    pixels = np.zeros((2, 16, 16, 3), np.uint8)
    pixels[1] = (1, 2, 3)
    np.savez(tmp_path / "a.npz", images=pixels, labels=[0, 1])
    task = '[input]\ncolour = "BGR"\n'
    assert first(open_own(tmp_path / "a.npz", task), 1)[0, 0, 0].tolist() == [3, 2, 1]
    np.savez(tmp_path / "a.npz", images=pixels / 2, labels=[0, 1])
    with pytest.raises(DatasetError, match=r"is \[16, 16, 3\] float64; expected an image"):
        open_own(tmp_path / "a.npz", task)


@pytest.mark.parametrize(
    "text",
    [
        "path,label\n{},cat\n",
        "\ufeffPath;Label\r\n{};cat\r\n",
        " FILE \tClass\n{}\tcat\n",
        "label,path\ncat,{}\n",
        'note,path,label\n"a; b; c",{},cat\n',
    ],
)
def test_tables_as_spreadsheets_write_them(folders: Path, tmp_path: Path, text: str) -> None:
    """Commas, semicolons or tabs, a mark before the first name, and any case of names."""
    (folders / "a.csv").write_text(text.format("cat/0.png"), encoding="utf-8")
    library = open_own(folders / "a.csv", 'classes = ["cat", "dog"]', tmp_path=tmp_path)
    assert truth(library) == [0]


def _missing(data: Path) -> Path:
    (data / "a.csv").write_text("path,label\ncat/0.png,cat\ncat/9.png,cat\ncat/8.png,dog\n")
    return data / "a.csv"


def _text(name: str, text: str) -> Callable[[Path], Path]:
    def make(data: Path) -> Path:
        (data / name).write_text(text)
        return data / name

    return make


def _empty_class(data: Path) -> Path:
    (data / "owl").mkdir()
    return data


def _nothing(data: Path) -> Path:
    (data / "none").mkdir()
    return data / "none"


def _npz(**arrays: Any) -> Callable[[Path], Path]:
    def make(data: Path) -> Path:
        np.savez(data / "a.npz", **arrays)
        return data / "a.npz"

    return make


BAD: list[tuple[Callable[[Path], Path], str]] = [
    (_missing, r"cat/9.png: listed in .*a.csv, but not there \(2 of 3 are missing\)"),
    (_empty_class, r"owl: holds no sample; remove it"),
    (_loose, r"loose: holds 1 samples but not their classes; expected a folder with one folder"),
    (_nothing, r"none: holds no sample; expected a folder with one folder per class"),
    (lambda data: data / "gone", r"gone: does not exist; expected a folder"),
    (_text("a.xyz", ""), r"a.xyz: cannot be read as samples; expected a folder"),
    (_text("a.csv", ""), r"expected a column 'path' or .*; found none"),
    (_text("a.csv", "path,label\n"), r"a.csv: lists no sample"),
    (_text("a.csv", "path,colour\n"), r"expected a column 'label' or .*; found 'path', 'colour'"),
    (_text("a.csv", "path,label\ncat/0.png,\n"), r"line 2: label is ''; expected a name"),
    (_text("a.csv", "path,label\n,cat\n"), r"line 2: names no file"),
    (_text("a.csv", "path,label\ncat/0.png,cow\n"), r"cat/0.png: label 'cow' is none of .*cat"),
    (
        _text("a.csv", "path,label\ncat/0.png,-1\n"),
        r"label -1 is out of range; expected 0 to 1",
    ),
    (_text("a.jsonl", '{"path": 3, "label": 1}\n'), r"a.jsonl: line 1: names no file"),
    (_text("a.jsonl", '{"path": "a", "label": 1.5}\n'), r"line 1: label is 1.5; expected a name"),
    (_text("a.jsonl", '{"path": "a", "label": true}\n'), r"line 1: label is True; expected"),
    (_text("a.jsonl", "[1]\n"), r"a.jsonl: line 1: expected a JSON object"),
    (_text("a.jsonl", "{\n"), r"a.jsonl: line 1: expected a JSON object"),
    (_text("val_map.txt", "cat/0.png\n"), r"line 1: expected FILE CLASS, found 'cat/0.png'"),
    (_npz(x=np.zeros(3)), r"a.npz: holds 'x'; expected 'labels' \(n,\) and the samples"),
    (_npz(labels=[1]), r"a.npz: holds 'labels'; expected 'labels' \(n,\) and the samples"),
    (_npz(x=np.zeros(3), labels=[1]), r"a.npz: 3 samples but 1 labels; expected one for each"),
    (_npz(x=np.zeros(0), labels=np.zeros(0, int)), r"a.npz: holds no sample"),
    (_npz(x=np.zeros(1), labels=[0.5]), r"labels are \[1\] float64; expected one whole number"),
    (_npz(x=np.zeros((1, 4)), labels=[0]), r"is \[4\] float64; expected an image"),
    (_text("a.npy", "no array"), r"a.npy: is no .npy file"),
]


@pytest.mark.parametrize(("make", "said"), BAD, ids=[said for _, said in BAD])
def test_bad_samples_are_one_clear_line(
    folders: Path, tmp_path: Path, make: Callable[[Path], Path], said: str
) -> None:
    """Each thing that can be wrong with the user's own samples has its own line."""
    with pytest.raises(DatasetError, match=said) as caught:
        open_own(make(folders), 'classes = ["cat", "dog"]', tmp_path=tmp_path)
    assert "\n" not in str(caught.value)


def test_class_counts_that_differ_from_the_models(folders: Path, tmp_path: Path) -> None:
    """Two folders and ten scores cannot be matched without names; nor can two names."""
    with pytest.raises(DatasetError, match=r"2 classes \(cat, dog\), but the model gives 10"):
        open_own(folders, scores=10, tmp_path=tmp_path)
    with pytest.raises(DatasetError, match=r"the task has 2 classes .* the model gives 10 scores"):
        open_own(folders, 'classes = ["cat", "dog"]', scores=10, tmp_path=tmp_path)


def test_a_damaged_picture_is_named(folders: Path, tmp_path: Path) -> None:
    """The file, and what to do."""
    whole = (folders / "dog" / "0.jpg").read_bytes()
    for content in (whole[: len(whole) // 2], b"no picture", b""):
        (folders / "dog" / "0.jpg").write_bytes(content)
        library = open_own(folders, tmp_path=tmp_path)
        with pytest.raises(DatasetError, match=r"dog/0.jpg: cannot be decoded as an image: .*"):
            first(library, 3)


def test_samples_of_another_shape_are_named(tmp_path: Path) -> None:
    """Arrays in files may differ: the first that does is named."""
    for place, shape in enumerate([(5,), (5,), (4,)]):
        (tmp_path / "data" / "ab"[place % 2]).mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / "data" / "ab"[place % 2] / f"{place}.npy", np.zeros(shape))
    task, x = '[input]\nkind = "array"\n', tensor(1, 5)
    library = open_own(tmp_path / "data", task, x=x, tmp_path=tmp_path)
    with pytest.raises(DatasetError, match=r"2.npy is \[4\] float64, and .*0.npy \[5\] float64"):
        first(library, 1, x)


def test_without_a_task_the_model_is_taken_at_its_word(folders: Path) -> None:
    """The task ``own`` guesses from shapes and types: enough for a first look."""
    x = tensor(1, 8, 8, 3, dtype="uint8", scale=1 / 128)
    library = open_task("own").open([x], [tensor(1, 2, name="y")], data=folders)
    assert first(library, 0, x)[0, 0, 0].tolist() == [255, 0, 0]
    with pytest.raises(InputError, match=r"write a task file with edgeperf task new"):
        open_task("own").open([x], [tensor(1, 3549, 85, name="y")], data=folders)
    with pytest.raises(InputError, match="names no samples; give --data"):
        open_task("own").open([x], [tensor(1, 2, name="y")])


@given(
    st.dictionaries(
        st.sampled_from(["path", "label", "text"]),
        st.none()
        | st.integers()
        | st.text("ab/.é\0", max_size=5)
        | st.lists(st.just("a"), max_size=2),
    )
)
def test_no_line_of_json_brings_down_the_reader(tmp_path_factory: Any, row: dict[str, Any]) -> None:
    """Whatever a line holds, it is a sample or one clear refusal."""
    folder = tmp_path_factory.mktemp("rows")
    (folder / "a.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(DatasetError):
        open_own(folder / "a.jsonl", scores=2)
