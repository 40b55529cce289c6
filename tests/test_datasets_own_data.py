"""The user's own samples (``--data``): taken as they are, or refused in one clear line."""

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeperf.datasets import open_task
from edgeperf.datasets.assets import resolve
from edgeperf.datasets.base import DatasetError, SampleLibrary
from edgeperf.datasets.catalogue import data_for
from edgeperf.datasets.tensors import TensorSpec

#: Task -> shape of its samples and number of scores, as its usual model has them.
USUAL: dict[str, tuple[tuple[int, ...], int]] = {
    "ai4i": ((1, 8), 1),
    "digits": ((1, 8, 8, 1), 10),
    "imagenet": ((1, 224, 224, 3), 1000),
    "kws": ((1, 49, 10, 1), 12),
    "vww": ((1, 96, 96, 3), 2),
}


def open_usual(task: str, data: Path | None = None) -> SampleLibrary:
    """Open *task* for its usual float model, on *data* or the catalogue's samples."""
    shape, scores = USUAL[task]
    inputs = [TensorSpec(name="x", shape=shape, dtype="float32")]
    outputs = [TensorSpec(name="y", shape=(1, scores), dtype="float32")]
    return open_task(task).open(inputs, outputs, data=data)


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
    assert library.score(np.eye(10, dtype=np.float32)[:4]).value == 1.0


def test_metrics_of_two_classes_need_both(tmp_path: Path) -> None:
    """The tasks vww and kws leave out what does not exist when a class is missing."""
    np.savez(tmp_path / "v.npz", images=np.zeros((2, 96, 96, 3), np.uint8), labels=[1, 1])
    np.savez(tmp_path / "k.npz", features=np.zeros((2, 49, 10, 1), np.int8), labels=[1, 2])
    vww = open_usual("vww", data=tmp_path / "v.npz")
    kws = open_usual("kws", data=tmp_path / "k.npz")
    for library, scores in ((vww, 2), (kws, 12)):
        metrics = library.score(np.zeros((2, scores), np.float32)).metrics
        assert "top1" in metrics
        assert not any("auc" in name or "@" in name for name in metrics)


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


def test_own_photographs_replace_the_catalogue_s(
    models_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two kinds of list mean the same."""
    monkeypatch.setenv("EDGEPERF_MIRROR", str(models_dir))
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
