"""Offline with several samples per inference: same answers, and what cannot be is refused."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeperf.agent.run.batch import Batch, ManyAnswers, alike
from edgeperf.backends import open_backend
from edgeperf.backends.base import ModelError, SessionOptions
from edgeperf.datasets.tensors import Quantisation, TensorSpec

if TYPE_CHECKING:
    from conftest import Product

QUICK = ("--preset", "smoke", "--min-duration", "0.3")
OFFLINE = (*QUICK, "--scenario", "Offline")


def batch_of(size: int, inputs: Sequence[NDArray[Any]]) -> Batch:
    """Return a batch on the null backend, whose answers have a place for each sample."""
    options = SessionOptions(batch=size, options={"input_shape": "1,3"})
    return Batch(open_backend("null").load(Path("none"), options), inputs, size)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 11])
def test_each_sample_of_a_batch_gets_its_own_place(count: int) -> None:
    """Also in the last batch, which may be short, each index is told of once, in order."""
    batch = batch_of(4, [np.zeros((20, 1, 3), np.float32)])
    told: list[tuple[int, int]] = []

    def each(index: int, results: Sequence[NDArray[Any]]) -> None:
        (place,) = [n for n, own in enumerate(batch.results) if own is results]
        told.append((index, place))

    indices = np.arange(100, 100 + count, dtype=np.int32)
    ManyAnswers(batch, np.arange(200, dtype=np.int32) % 20, each)(indices)
    assert told == [(index, place % 4) for place, index in enumerate(indices.tolist())]


def test_batch_gathers_the_samples_it_is_asked_for() -> None:
    """What the session is bound to holds exactly the slots of this batch."""
    inputs = np.arange(60, dtype=np.float32).reshape(20, 1, 3)
    options = SessionOptions(batch=3, options={"input_shape": "1,3"})
    session = open_backend("null").load(Path("none"), options)
    seen: list[NDArray[Any]] = []
    bind = session.bind

    def watch(blocks: Sequence[NDArray[Any]]) -> None:
        seen.extend(blocks)
        bind(blocks)

    session.bind = watch  # type: ignore[method-assign]
    batch = Batch(session, [inputs], 3)
    batch.infer(np.array([7, 0, 19], np.int32))
    np.testing.assert_array_equal(seen[0][0], inputs[[7, 0, 19], 0])


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tflite", "onnxruntime", "openvino"])
def test_answers_of_a_batch_are_those_of_single_inferences(
    product_with_models: "Product", backend: str
) -> None:
    """Accuracy over all samples is the same to the last digit that rounding leaves."""
    model = ("vww", "--precision", "float", "--backend", backend)
    outcome = product_with_models.run(*model, *OFFLINE, "--batch", "5")
    assert outcome.code in (0, 1), outcome.stderr
    result = outcome.result
    assert result.sut is not None
    assert result.sut.batch == 5
    assert "gathering a batch" in result.sut.timed
    assert result.accuracy.value == pytest.approx(0.8674, abs=0.004)
    assert result.performance is not None
    assert result.performance.samples > 0


@pytest.mark.slow
def test_auto_says_what_it_found(product: "Product") -> None:
    """A model with a fixed batch of one stays at one, and the result says why."""
    outcome = product.run("digits", *OFFLINE, "--batch", "auto", "--no-accuracy")
    sut = outcome.result.sut
    assert sut is not None
    assert sut.batch == 1
    assert any("first axis" in note for note in sut.notes)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("digits", *OFFLINE, "--batch", "8"), "free batch axis"),
        (("digits", *QUICK, "--batch", "8"), "means nothing in scenario SingleStream"),
        (("digits", *OFFLINE, "--batch", "many"), "neither a number nor auto"),
        (("digits", *OFFLINE, "--batch", "0"), ">= 1"),
    ],
)
def test_batch_that_cannot_be_is_refused(
    product: "Product", arguments: tuple[str, ...], words: str
) -> None:
    """One line that says why, and nothing is left behind."""
    outcome = product.run(*arguments)
    assert outcome.code == 2
    assert words in outcome.stderr.splitlines()[-1]
    assert not outcome.output.exists()


def test_output_without_a_place_for_each_sample_is_refused() -> None:
    """A model may leave its first axis free and still give one answer for all."""
    session = open_backend("null").load(Path("none"), SessionOptions(batch=2))
    session.results = (np.zeros((1, 1), np.float32),)
    with pytest.raises(ModelError, match="no answer for each sample"):
        Batch(session, [np.zeros((2, 1, 1), np.float32)], 2)


INF, NAN = np.inf, np.nan
QUANTISED = Quantisation(scale=0.1, zero_point=0)


@pytest.mark.parametrize(
    ("alone", "among", "dtype", "quantisation", "same"),
    [
        pytest.param([1.0, -2.0], [1.03, -2.03], "float32", None, True, id="rounding"),
        pytest.param([1.0, -2.0], [1.0, -2.05], "float32", None, False, id="other values"),
        pytest.param([1.0, -2.0], [1.0, -2.05], "float16", None, False, id="half precision"),
        pytest.param([0.0], [0.001], "float32", None, False, id="something for nothing"),
        pytest.param([INF, 1.0], [INF, 1.01], "float32", None, True, id="infinite alike"),
        pytest.param([INF, 1.0], [INF, 900.0], "float32", None, False, id="beside an infinity"),
        pytest.param([INF, 1.0], [1.0, INF], "float32", None, False, id="infinite elsewhere"),
        pytest.param([INF, 1.0], [-INF, 1.0], "float32", None, False, id="other infinity"),
        pytest.param([1.0, 2.0], [INF, 2.0], "float32", None, False, id="newly infinite"),
        pytest.param([NAN, 1.0], [NAN, 1.0], "float32", None, True, id="NaN alike"),
        pytest.param([NAN, 1.0], [1.0, NAN], "float32", None, False, id="NaN elsewhere"),
        pytest.param([7, -9], [9, -11], "int8", QUANTISED, True, id="two steps"),
        pytest.param([7, -9], [10, -9], "int8", QUANTISED, False, id="three steps"),
        pytest.param([200, 0], [203, 4], "uint8", QUANTISED, True, id="2 % of the largest"),
        pytest.param([3], [3], "int64", None, True, id="same class"),
        pytest.param([3], [5], "int64", None, False, id="other class"),
        pytest.param([900], [901], "int32", None, False, id="next class"),
        pytest.param([3], [4], "int32", QUANTISED, False, id="no quantised type"),
        pytest.param([0, 0, 0], [1, 1, 1], "uint8", None, False, id="other mask"),
        pytest.param([False], [True], "bool", None, False, id="other bit"),
        pytest.param([1.0], [1.0, 1.0], "float32", None, False, id="other shape"),
    ],
)
def test_answers_of_a_batch_are_held_to_single_ones(
    alone: list[float],
    among: list[float],
    dtype: str,
    quantisation: Quantisation | None,
    same: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Real values may be rounded otherwise; classes, masks and infinities are what they are."""
    spec = TensorSpec(name="y", shape=(1, len(alone)), dtype=dtype, quantisation=quantisation)
    assert alike(spec, np.array([alone], dtype), np.array([among], dtype)) is same
