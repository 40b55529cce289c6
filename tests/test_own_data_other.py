"""Your own recordings, volumes and tables: texts by word errors, segments by DICE, AUC."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeperf.datasets import open_task
from edgeperf.datasets.base import DatasetError, SampleLibrary
from edgeperf.datasets.metrics.volumes import dice, overlaps
from edgeperf.datasets.tensors import TensorSpec

TOKENS = ["_", "a", "b", "c", "|", "▁d"]


def tensor(*shape: int, name: str = "y", dtype: str = "float32") -> TensorSpec:
    """Return a tensor's description."""
    return TensorSpec(name=name, shape=shape, dtype=dtype)


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    """Return two recordings in LibriSpeech's layout, and a vocabulary."""
    soundfile = pytest.importorskip("soundfile")
    folder = tmp_path / "data" / "84" / "121"
    folder.mkdir(parents=True)
    for number, samples in enumerate((800, 1200)):
        tone = np.linspace(-0.5, 0.5, samples).astype(np.float32)
        soundfile.write(folder / f"84-121-{number}.flac", tone, 16000)
    (folder / "84-121.trans.txt").write_text("84-121-0 AB C\n84-121-1 A D\n")
    (tmp_path / "data" / "vocab.txt").write_text("\n".join(TOKENS), encoding="utf-8")
    return tmp_path / "data"


def open_speech(data: Path, *y: TensorSpec) -> SampleLibrary:
    """Open the recordings for a CTC model that takes 1000 samples."""
    pytest.importorskip("jiwer")
    task = open_task("librispeech-ctc")
    return task.open([tensor(1, 1000, name="x")], y or [tensor(1, 7, 6)], data=data)


def spell(library: SampleLibrary, *steps: list[int]) -> NDArray[np.float32]:
    """Return the predictions when the model likes these tokens best, step by step."""
    predictions = np.zeros((len(library), *library.prediction_shape), np.float32)
    for index, tokens in enumerate(steps):
        scores = np.zeros((1, 7, 6), np.float32)
        scores[0, np.arange(7), tokens + [0] * (7 - len(tokens))] = 1
        library.predict(index, [scores], predictions[index])
    return predictions


def test_a_token_may_be_what_ends_lines_elsewhere(speech: Path) -> None:
    """The model has six scores, and so many tokens the file must have."""
    path = speech / "vocab.txt"
    path.write_text("\n".join([*TOKENS[:2], "\u2028", *TOKENS[3:]]) + "\n", encoding="utf-8")
    library = open_speech(speech)
    prediction = spell(library, [1, 3, 5])[0]
    assert library.shown(0, prediction).answer == "ac d"  # type: ignore[attr-defined]


def test_speech(speech: Path) -> None:
    """Recordings become waveforms, the best tokens text, and text word errors."""
    library = open_speech(speech)
    out = np.full((1, 1000), 7, np.float32)
    library.write(0, [out])
    assert out[0, 0] == pytest.approx(-0.5, abs=1e-3)
    assert out[0, 799] == pytest.approx(0.5, abs=1e-3)
    assert (out[0, 800:] == 0).all()
    right = spell(library, [1, 1, 2, 0, 4, 3], [1, 0, 5])
    score = library.score(right)
    assert score.metrics == {"wer": 0.0, "word_accuracy": 1.0, "cer": 0.0}
    assert [remark.code for remark in score.remarks] == ["cut-audio"]
    wrong = library.score(spell(library, [1, 2, 4, 3, 0, 3], [1, 5]))
    assert wrong.value == pytest.approx(1 - 1 / 4)
    payload = np.zeros(library.payload_bytes, np.uint8)
    size = library.payload(0, right[0], payload)
    assert payload[:size].tobytes() == b"ab c"
    assert library.shown(0, right[0]).right  # type: ignore[attr-defined]


def test_tokens_instead_of_scores(speech: Path) -> None:
    """A model may give tokens; a stop ends them."""
    text = '[input]\nkind = "audio"\n[output]\nread = "text"\nvocabulary = "vocab.txt"\nstop = 0\n'
    (speech.parent / "t.toml").write_text(text)
    task = open_task(str(speech.parent / "t.toml"))
    library = task.open([tensor(1, 1000, name="x")], [tensor(1, 4, dtype="int32")], data=speech)
    prediction = np.zeros(library.prediction_shape, np.float32)
    library.predict(0, [np.array([[1, 2, 0, 3]], np.int32)], prediction)
    assert library.shown(0, prediction).answer == "ab"  # type: ignore[attr-defined]


def test_bad_speech_is_one_clear_line(speech: Path) -> None:
    """Rates, lists, vocabularies, damaged recordings."""
    soundfile = pytest.importorskip("soundfile")
    with pytest.raises(DatasetError, match="vocabulary has 6 tokens: expected a score for each"):
        open_speech(speech, tensor(1, 7, 5))
    folder = speech / "84" / "121"
    soundfile.write(folder / "84-121-0.flac", np.zeros(100), 8000)
    with pytest.raises(DatasetError, match=r"84-121-0.flac: has 8000 samples a second, the task"):
        open_speech(speech).write(0, [np.zeros((1, 1000), np.float32)])
    (folder / "84-121-0.flac").write_bytes(b"no flac")
    with pytest.raises(DatasetError, match=r"84-121-0.flac: cannot be read as audio"):
        open_speech(speech)
    (folder / "84-121.trans.txt").write_text("84-121-0\n")
    with pytest.raises(DatasetError, match=r"trans.txt: line 1: expected ID TEXT"):
        open_speech(speech)
    (speech / "vocab.txt").unlink()
    (folder / "84-121.trans.txt").write_text("84-121-1 A\n")
    with pytest.raises(DatasetError, match=r"vocabulary .*vocab.txt: cannot be read"):
        open_speech(speech)


def test_word_errors_are_jiwers(speech: Path) -> None:
    """The rate over all is jiwer's over all, case and blanks apart."""
    jiwer = pytest.importorskip("jiwer")
    (speech / "l.jsonl").write_text(
        "".join(
            json.dumps({"path": "84/121/84-121-0.flac", "text": text}) + "\n"
            for text in ("A b  C", "a a b", "c")
        )
    )
    library = open_speech(speech / "l.jsonl")
    predictions = spell(library, [1, 4, 2], [1, 4, 1, 4, 2], [0])
    score = library.score(predictions)
    right, said = ["a b c", "a a b", "c"], ["a b", "a a b", ""]
    assert score.metrics["wer"] == pytest.approx(jiwer.wer(right, said))
    assert score.metrics["cer"] == pytest.approx(jiwer.cer(right, said))
    low, high = score.intervals["wer"]
    assert low <= score.metrics["wer"] <= high
    (speech / "l.jsonl").write_text('{"path": "84/121/84-121-0.flac", "text": " "}\n')
    with pytest.raises(DatasetError, match="its text is empty"):
        open_speech(speech / "l.jsonl")


def test_dice_is_its_definition() -> None:
    """Twice the shared places over all, 1 where a class is neither found nor there."""
    random = np.random.default_rng(2)
    truth, found = random.integers(0, 3, (2, 5, 4, 4, 4))
    truth[0][truth[0] == 2] = 1
    found[0][found[0] == 2] = 0
    counts = np.stack([overlaps(f, t, 3) for f, t in zip(found, truth, strict=True)])
    metrics, intervals = dice(counts, ("none", "b", "c"))

    def plain(kind: int) -> float:
        each = []
        for f, t in zip(found == kind, truth == kind, strict=True):
            total = f.sum() + t.sum()
            each.append(2 * (f & t).sum() / total if total else 1.0)
        return float(np.mean(each))

    assert metrics["dice[b]"] == pytest.approx(plain(1))
    assert metrics["dice[c]"] == pytest.approx(plain(2))
    assert metrics["dice"] == pytest.approx((plain(1) + plain(2)) / 2)
    assert intervals["dice"][0] <= metrics["dice"] <= intervals["dice"][1]


@pytest.fixture
def volumes(tmp_path: Path) -> Path:
    """Return two volumes of 2 x 3 x 4 places with their classes, as files."""
    random = np.random.default_rng(3)
    np.save(tmp_path / "volumes.npy", random.normal(size=(2, 1, 2, 3, 4)).astype(np.float32))
    np.save(tmp_path / "labels.npy", random.integers(0, 3, (2, 2, 3, 4)))
    return tmp_path


def test_segments(volumes: Path) -> None:
    """Scores of classes at each place against the classes that are there."""
    task = open_task("kits19-segmentation")
    y = tensor(1, 3, 2, 3, 4)
    library = task.open([tensor(1, 1, 2, 3, 4, name="x")], [y], data=volumes)
    assert len(library) == 2
    out = np.zeros((1, 1, 2, 3, 4), np.float32)
    library.write(1, [out])
    assert (out == np.load(volumes / "volumes.npy")[1]).all()
    truth = np.load(volumes / "labels.npy")
    predictions = np.zeros((2, *library.prediction_shape), np.float32)
    for index in range(2):
        scores = np.eye(3, dtype=np.float32)[truth[index]].transpose(3, 0, 1, 2)[None]
        library.predict(index, [scores], predictions[index])
    score = library.score(predictions)
    assert score.metrics == {"dice": 1.0, "dice[kidney]": 1.0, "dice[tumour]": 1.0}
    broken = np.full(y.shape, np.nan, np.float32)
    library.predict(0, [broken], predictions[0])
    with pytest.raises(DatasetError, match="1 of 2 answers are not finite"):
        library.score(predictions)


def test_segments_that_do_not_fit(volumes: Path) -> None:
    """Places, classes and data must be the model's."""
    task = open_task("kits19-segmentation")
    x = [tensor(1, 1, 2, 3, 4, name="x")]
    with pytest.raises(DatasetError, match=r"its labels have \[2, 3, 4\] places, the output"):
        task.open(x, [tensor(1, 3, 2, 3, 5)], data=volumes)
    with pytest.raises(DatasetError, match="the task has 3 classes, the output 'y' 4"):
        task.open(x, [tensor(1, 4, 2, 3, 4)], data=volumes)
    np.save(volumes / "labels.npy", np.full((2, 2, 3, 4), 3))
    with pytest.raises(DatasetError, match="labels from 3 to 3; expected 0 to 2"):
        task.open(x, [tensor(1, 3, 2, 3, 4)], data=volumes)
    np.save(volumes / "labels.npy", np.zeros(2, int))
    with pytest.raises(DatasetError, match="has no class for each place"):
        task.open(x, [tensor(1, 3, 2, 3, 4)], data=volumes)


def test_tables_of_several_inputs(tmp_path: Path) -> None:
    """A file for each input and one of labels; the gate is the area under the ROC curve."""
    random = np.random.default_rng(4)
    labels = random.integers(0, 2, 200)
    np.save(tmp_path / "dense.npy", random.normal(size=(200, 13)).astype(np.float32))
    np.save(tmp_path / "sparse.npy", random.integers(0, 9, (200, 26)))
    np.save(tmp_path / "labels.npy", labels)
    task = open_task("criteo-dlrm")
    assert (task.metric, task.gate.share) == ("roc_auc", 0.999)
    inputs = [tensor(1, 13, name="dense"), tensor(1, 26, name="sparse", dtype="int64")]
    library = task.open(inputs, [tensor(1, 1)], data=tmp_path)
    out: list[Any] = [np.zeros((1, 13), np.float32), np.zeros((1, 26), np.int64)]
    library.write(3, out)
    assert (out[1][0] == np.load(tmp_path / "sparse.npy")[3]).all()
    scores = (labels + random.normal(0, 1, 200)).astype(np.float32)[:, None]
    metrics = pytest.importorskip("sklearn.metrics")
    assert library.score(scores).value == pytest.approx(metrics.roc_auc_score(labels, scores))
