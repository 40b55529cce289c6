"""Anomaly detection: windows of a clip, how badly they come back, and areas over clips."""

from pathlib import Path

import numpy as np
import pytest

from edgeperf.backends import open_backend
from edgeperf.backends.base import SessionOptions
from edgeperf.datasets import open_task
from edgeperf.datasets.base import DatasetError, SampleLibrary
from edgeperf.datasets.tensors import Quantisation, TensorSpec
from edgeperf.datasets.toycar import score_clips

X = TensorSpec(name="x", shape=(1, 640), dtype="float32")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return two clips of 7 frames: one quiet, one loud and wrong."""
    random = np.random.default_rng(1)
    for name, loudness in (("normal_id_01_0.bin", 1), ("anomaly_id_01_0.bin", 3)):
        (random.normal(0, loudness, (7, 128)).astype("<f4")).tofile(tmp_path / name)
    (tmp_path / "y_labels.csv").write_text(
        "normal_id_01_0.bin, 2560, 512, 0\nanomaly_id_01_0.bin, 2560, 512, 1\n"
    )
    return tmp_path


def open_clips(folder: Path, y: TensorSpec = X) -> SampleLibrary:
    """Open the clips for a model that gives back what it takes."""
    return open_task("toycar").open([X], [y], data=folder)


def test_windows_of_five_frames(folder: Path) -> None:
    """A clip of 7 frames has 3 windows, one frame apart."""
    library = open_clips(folder)
    assert len(library) == 6
    frames = np.fromfile(folder / "anomaly_id_01_0.bin", "<f4").reshape(-1, 128)
    out = np.zeros((1, 640), np.float32)
    library.write(4, [out])
    assert out[0].tolist() == frames[1:6].reshape(-1).tolist()


def test_the_error_is_the_score(folder: Path) -> None:
    """What comes back as silence is as strange as it was loud; clips are means of windows."""
    library = open_clips(folder)
    frames = np.fromfile(folder / "normal_id_01_0.bin", "<f4").reshape(-1, 128)
    predictions = np.zeros((6, 1), np.float32)
    for index in range(6):
        library.predict(index, [np.zeros((1, 640), np.float32)], predictions[index])
    assert predictions[2, 0] == pytest.approx(np.square(frames[2:7]).mean(), rel=1e-5)
    score = library.score(predictions)
    assert score.metrics["roc_auc"] == 1.0
    assert score.metrics["roc_auc[01]"] == 1.0
    quantised = TensorSpec(
        name="y", shape=(1, 640), dtype="int8", quantisation=Quantisation(scale=0.5, zero_point=3)
    )
    out = np.zeros(1, np.float32)
    open_clips(folder, quantised).predict(0, [np.full((1, 640), 5, np.int8)], out)
    assert out[0] == pytest.approx(np.square(frames[:5] - 1).mean(), rel=1e-5)


def test_a_real_autoencoder(folder: Path, models_dir: Path) -> None:
    """MLPerf Tiny's model, float and int8, on any runtime: the same error of the same window."""
    errors = []
    for name, backend in (
        ("ad01_f32.tflite", "tflite"), ("ad01_f32.onnx", "onnxruntime"),
        ("ad01_int8.tflite", "tflite"), ("ad01_int8.onnx", "onnxruntime"),
    ):  # fmt: skip
        session = open_backend(backend).load(
            models_dir / "ad_toycar" / "models" / name, SessionOptions()
        )
        library = open_task("toycar").open(session.inputs, session.outputs, data=folder)
        block = np.zeros((1, *session.inputs[0].sample_shape), session.inputs[0].dtype)
        session.bind([block])
        library.write(0, [block[0]])
        session.infer(0)
        out = np.zeros(1, np.float32)
        library.predict(0, session.results, out)
        errors.append(float(out[0]))
        session.close()
    assert errors[1] == pytest.approx(errors[0], rel=1e-4)
    assert errors[2:] == pytest.approx([errors[0]] * 2, rel=0.1)


def test_published_scores(models_dir: Path) -> None:
    """2459 clip scores of mlcommons/tiny give the areas that their README states."""
    rows = np.genfromtxt(
        models_dir / "ad_toycar" / "data" / "toycar_reference_scores.csv",
        delimiter=",", names=True, dtype=None, encoding="utf-8",
    )  # fmt: skip
    machines = [f"{number:02}" for number in rows["machine_id"]]
    score = score_clips(rows["score_f32"], rows["label"] == 1, machines)
    stated = {"01": 0.9066, "02": 0.9206, "03": 0.7238, "04": 0.9530}
    for machine, area in stated.items():
        assert score.metrics[f"roc_auc[{machine}]"] == pytest.approx(area, abs=5e-5)
    low, high = score.intervals["roc_auc"]
    assert low < score.value < high


BAD = [
    ("", "names no clip"),
    ("a.bin, 1, 1, 2\n", "line 1: expected FILE, ..., 0 or 1"),
    ("a.bin\n", "line 1: expected FILE"),
    ("a.bin, 1, 1, 0\n", "a.bin: listed in .*, and cannot be read"),
    ("short.bin, 1, 1, 0\n", "short.bin: holds 128 numbers; expected float32, 128 for each"),
    ("odd.bin, 1, 1, 0\n", "odd.bin: holds 641 numbers"),
    ("nan.bin, 1, 1, 0\n", "nan.bin: holds 640 numbers; .* all finite"),
]


@pytest.mark.parametrize(("text", "said"), BAD)
def test_bad_clips_are_one_clear_line(folder: Path, text: str, said: str) -> None:
    """The message names the file."""
    np.zeros(128, "<f4").tofile(folder / "short.bin")
    np.zeros(641, "<f4").tofile(folder / "odd.bin")
    np.full(640, np.nan, "<f4").tofile(folder / "nan.bin")
    (folder / "y_labels.csv").write_text(text)
    with pytest.raises(DatasetError, match=said):
        open_clips(folder)


def test_what_does_not_fit_is_said(folder: Path) -> None:
    """Data that may not be shared, another model, clips of one kind."""
    with pytest.raises(DatasetError, match="ToyADMOS may not be shared; name your own copy"):
        open_task("toycar").open([X], [X])
    with pytest.raises(DatasetError, match="reads one output of 640 numbers"):
        open_task("toycar").open([X], [X, X], data=folder)
    with pytest.raises(DatasetError, match="2 of 2 clips are wrong; expected both kinds"):
        score_clips(np.array([1.0, 2.0]), np.array([True, True]), ["1", "1"])
