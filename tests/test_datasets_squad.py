"""SQuAD: BERT's tokens with their places, texts in parts, and F1 as SQuAD counts it."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.datasets import open_task
from edgeperf.datasets.base import DatasetError, SampleLibrary
from edgeperf.datasets.metrics.text import answer_overlap
from edgeperf.datasets.tensors import TensorSpec
from edgeperf.datasets.text.wordpiece import WordPiece

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "un",
    "##able",
    "##a",
    "##s",
    "a",
    "b",
    "c",
    "the",
    "cat",
    "sat",
    "on",
    "mat",
    "who",
    "did",
    "it",
    "?",
    ".",
    ",",
    "'",
    "ü",
    "e",
]


def tensor(*shape: int, name: str, dtype: str = "int64") -> TensorSpec:
    """Return a tensor's description."""
    return TensorSpec(name=name, shape=shape, dtype=dtype)


def inputs(length: int) -> list[TensorSpec]:
    """Return BERT's inputs, in an order of its own."""
    return [tensor(1, length, name=name) for name in ("input_ids", "input_mask", "segment_ids")]


def outputs(length: int) -> list[TensorSpec]:
    """Return BERT's outputs."""
    return [tensor(1, length, name=name, dtype="float32") for name in ("start", "end")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a vocabulary and two questions about one text."""
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    text = "The cat sat on the mat. " * 3
    asked = [
        {"id": "1", "question": "Who sat?", "answers": [{"text": "The cat", "answer_start": 0}]},
        {"id": "2", "question": "On?", "answers": [{"text": "the mat"}, {"text": "mat"}]},
    ]
    write(tmp_path, [{"context": text, "qas": asked}])
    return tmp_path


def write(folder: Path, paragraphs: Any) -> None:
    """Write SQuAD's file."""
    content = {"version": "1.1", "data": [{"title": "x", "paragraphs": paragraphs}]}
    (folder / "dev-v1.1.json").write_text(json.dumps(content))


def open_squad(folder: Path, length: int = 40) -> SampleLibrary:
    """Open the questions for a model of so many tokens."""
    return open_task("squad").open(inputs(length), outputs(length), data=folder)


def test_pieces_know_their_places(folder: Path) -> None:
    """Lower case, accents off, punctuation alone, the longest pieces; characters of each."""
    vocabulary = WordPiece(folder / "vocab.txt")
    text = "Unable cats, Zebra  ÜE!\u200b"
    pieces = [(WORDS[p.token], text[p.begin : p.end]) for p in vocabulary.pieces(text)]
    assert pieces == [
        ("un", "Un"), ("##able", "able"), ("cat", "cat"), ("##s", "s"), (",", ","),
        ("[UNK]", "Zebra"), ("[UNK]", "ÜE"), ("[UNK]", "!"),
    ]  # fmt: skip


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\x85", "\x0c", "\x1c"])
def test_a_piece_may_be_what_ends_lines_elsewhere(tmp_path: Path, odd: str) -> None:
    """Only a line feed ends a piece, so the pieces behind such a one keep their numbers."""
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([odd, *WORDS]) + "\n", encoding="utf-8")
    assert WordPiece(path).sep == WORDS.index("[SEP]") + 1


@given(st.text(max_size=30))
def test_pieces_are_in_order_and_apart(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Whatever the text, places rise and every piece has some."""
    path = tmp_path_factory.getbasetemp() / "vocab.txt"
    if not path.is_file():
        path.write_text("\n".join(WORDS), encoding="utf-8")
    ends = [(piece.begin, piece.end) for piece in WordPiece(path).pieces(text)]
    assert all(begin < end for begin, end in ends)
    assert all(first[1] <= second[0] + 1 for first, second in pairwise(ends))


def test_inputs(folder: Path) -> None:
    """Question and text between their marks, mask and segments, filled up with nought."""
    library = open_squad(folder)
    out = [np.full((1, 40), 7, np.int64) for _ in range(3)]
    library.write(0, out)
    words = [WORDS[token] for token in out[0][0]]
    assert words[:9] == ["[CLS]", "who", "sat", "?", "[SEP]", "the", "cat", "sat", "on"]
    assert words[26] == "[SEP]"
    assert words[27:] == ["[PAD]"] * 13
    assert out[1][0].tolist() == [1] * 27 + [0] * 13
    assert out[2][0].tolist() == [0] * 5 + [1] * 22 + [0] * 13


def test_long_texts_are_asked_in_parts(folder: Path) -> None:
    """What does not fit is asked in parts that overlap; each piece counts once."""
    assert len(open_squad(folder, 40)) == 2
    write(folder, [{"context": "cat sat " * 200, "qas": [{"question": "Who?", "answers": [
        {"text": "cat"}]}]}])  # fmt: skip
    library = open_squad(folder, 384)
    assert len(library) == 2
    parts = library._parts  # type: ignore[attr-defined]
    assert [len(part.pieces) for part in parts] == [384 - 5, 400 - 128]
    best = [sum(part.best) for part in parts]
    assert sum(best) == 400
    assert min(best) > 0


def answer(library: SampleLibrary, *spans: tuple[int, int]) -> float:
    """Return F1 when the model marks these tokens of each part."""
    predictions = np.zeros((len(library), *library.prediction_shape), np.float32)
    for index, (begin, end) in enumerate(spans):
        start, stop = np.zeros((1, 40), np.float32), np.zeros((1, 40), np.float32)
        start[0, begin], stop[0, end] = 5, 5
        library.predict(index, [start, stop], predictions[index])
    return library.score(predictions).value


def test_answers_are_cut_out_of_the_text(folder: Path) -> None:
    """Marked tokens are characters of the text; nonsense spans are passed over."""
    library = open_squad(folder)
    assert answer(library, (5, 6), (8, 9)) == 1.0
    assert answer(library, (5, 7), (8, 9)) == pytest.approx((2 * 1 / (2 + 1) + 1) / 2)
    backwards = answer(library, (6, 5), (1, 2))
    assert 0 <= backwards < 1
    payload = np.zeros(library.payload_bytes, np.uint8)
    prediction = np.arange(80, dtype=np.float32).reshape(40, 2)
    assert library.payload(0, prediction, payload) == 320
    assert payload.view(np.float32).reshape(40, -1)[:, 1].tolist() == list(range(1, 80, 2))
    with pytest.raises(DatasetError, match="2 of 2 answers are not finite"):
        library.score(np.full((2, 40, 2), np.nan, np.float32))


def test_f1_and_exact_match() -> None:
    """Case, punctuation and articles do not count; the nearest right answer does."""
    metrics, _ = answer_overlap(
        ["The cat.", "a b c", "x", ""], [["cat"], ["b d", "b c d"], ["y"], ["z"]]
    )
    assert metrics["exact_match"] == 0.25
    # Of "b c" and "b c d" (the article is gone), two of two and two of three are shared.
    assert metrics["f1"] == pytest.approx((1 + 0.8 + 0 + 0) / 4)


def test_what_does_not_fit_is_one_clear_line(folder: Path) -> None:
    """Model, folder and file."""
    task = open_task("squad")
    with pytest.raises(DatasetError, match="name your own copy with --data"):
        task.open(inputs(40), outputs(40))
    with pytest.raises(DatasetError, match=r"expected inputs like input_ids.*'x'"):
        task.open([tensor(1, 40, name="x")], outputs(40), data=folder)
    with pytest.raises(DatasetError, match="expected scores of begin and end for 40 tokens"):
        task.open(inputs(40), outputs(41), data=folder)
    (folder / "vocab.txt").write_text("cat\n")
    with pytest.raises(DatasetError, match=r"vocab.txt: has no \[UNK\]; expected BERT"):
        task.open(inputs(40), outputs(40), data=folder)
    write(folder, [{"context": "a", "qas": [{"question": "b", "answers": []}]}])
    with pytest.raises(DatasetError, match="question 'b' has no answer"):
        task.open(inputs(40), outputs(40), data=folder)
    write(folder, [])
    with pytest.raises(DatasetError, match="asks no question"):
        task.open(inputs(40), outputs(40), data=folder)
    (folder / "dev-v1.1.json").write_text("[]")
    with pytest.raises(DatasetError, match="not SQuAD's format"):
        task.open(inputs(40), outputs(40), data=folder)
    (folder / "dev-v1.1.json").unlink()
    with pytest.raises(DatasetError, match=r"dev-v1.1.json: cannot be read: No such file"):
        task.open(inputs(40), outputs(40), data=folder)
