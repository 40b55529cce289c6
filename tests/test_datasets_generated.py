"""Inputs made from a model's own description, or read from the user's NPZ."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeperf.datasets.base import DatasetError, InputLibrary
from edgeperf.datasets.generated import GeneratedInputs
from edgeperf.datasets.tensors import Quantisation, TensorSpec


def tensor(name: str, shape: tuple[int, ...], dtype: str) -> TensorSpec:
    """Return an input's description."""
    return TensorSpec(name=name, shape=shape, dtype=dtype)


def read(library: InputLibrary, inputs: list[TensorSpec], index: int) -> list[NDArray[Any]]:
    """Return sample *index*, one array per input."""
    out = [np.empty(spec.sample_shape, spec.dtype) for spec in inputs]
    library.write(index, out)
    return out


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("float32", 0.0, 1.0),
        ("float64", 0.0, 1.0),
        ("float16", 0.0, 1.0),
        ("int8", -128, 127),
        ("uint8", 0, 255),
        ("int32", 0, 1),
        ("int64", 0, 1),
        ("uint16", 0, 1),
        ("bool", 0, 1),
    ],
)
def test_values_suit_the_type(dtype: str, low: float, high: float) -> None:
    """Floats lie in [0, 1], bytes take any value, wider integers are 0 or 1."""
    inputs = [tensor("x", (-1, 40, 50), dtype)]
    (values,) = read(GeneratedInputs(inputs, seed=1, count=2), inputs, 1)
    assert values.shape == (1, 40, 50)
    assert values.min() == pytest.approx(low, abs=0.01)
    assert values.max() == pytest.approx(high, abs=0.01)


def test_quantised_integers_take_any_value() -> None:
    """An int16 that stands for real numbers is no index."""
    quantisation = Quantisation(scale=0.1, zero_point=0)
    inputs = [TensorSpec(name="x", shape=(1, 5000), dtype="int16", quantisation=quantisation)]
    (values,) = read(GeneratedInputs(inputs, seed=1, count=2), inputs, 1)
    assert values.min() < -32000
    assert values.max() > 32000


def test_a_sample_depends_on_seed_and_index_alone() -> None:
    """Any worker makes the same sample in any order; other seeds and inputs differ."""
    inputs = [tensor("a", (1, 64), "float32"), tensor("b", (1, 64), "float32")]
    library = GeneratedInputs(inputs, seed=7, count=10)
    later, first = read(library, inputs, 9), read(library, inputs, 0)
    again = read(GeneratedInputs(inputs, seed=7, count=10), inputs, 9)
    other = read(GeneratedInputs(inputs, seed=8, count=10), inputs, 9)
    np.testing.assert_array_equal(later, again)
    for different in (first, other):
        assert not np.array_equal(later, different)
    assert not np.array_equal(later[0], later[1])
    assert len(library) == 10


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            tensor("img", (-1, 3, -1, -1), "float32"),
            r"'img' is \[-1, 3, -1, -1\].* --input img=1,224",
        ),
        (tensor("t", (1,), "str"), r"input 't' is str; inputs can be made and read for"),
        (tensor("t", (1,), "bfloat16"), r"input 't' is bfloat16; inputs can be made"),
    ],
)
def test_inputs_that_cannot_be_made_are_named(spec: TensorSpec, said: str) -> None:
    """One line names the input and what to do."""
    with pytest.raises(DatasetError, match=said):
        GeneratedInputs([spec], seed=0, count=1)


def test_inputs_from_a_file(tmp_path: Path) -> None:
    """Arrays are taken by name; a batch axis of 1 may be there or not."""
    inputs = [
        tensor("tokens", (-1, 4), "int32"),
        tensor("cache", (2, 3), "float32"),
        tensor("step", (1,), "int64"),
    ]
    tokens = np.arange(12, dtype=np.int32).reshape(3, 4)
    cache = np.arange(18, dtype=np.float32).reshape(3, 2, 3)
    step = np.arange(3)
    for axes in ((3, 4), (3, 1, 4)):
        np.savez(tmp_path / "in.npz", step=step, tokens=tokens.reshape(axes), cache=cache)
        library = GeneratedInputs(inputs, seed=0, count=99, file=tmp_path / "in.npz")
        assert len(library) == 3
        first, second, third = read(library, inputs, 2)
        np.testing.assert_array_equal(first, tokens[2:])
        np.testing.assert_array_equal(second, cache[2])
        assert third.tolist() == [2]


X = np.zeros((3, 4), np.float32)
BAD: list[tuple[dict[str, NDArray[Any]], str]] = [
    (
        {"x": X},
        r"holds \['x'\]; expected one array per input: 'x' \(n, 4\) float32, 'n' \(n,\) int64",
    ),
    ({"x": X, "n": np.arange(3), "z": X}, r"holds \['n', 'x', 'z'\]; expected one array per"),
    ({"x": X[:, :3], "n": np.arange(3)}, r"'x' is \[3, 3\] float32; expected 'x' \(n, 4\) float32"),
    ({"x": X.astype(float), "n": np.arange(3)}, r"'x' is \[3, 4\] float64; expected 'x' \(n, 4\)"),
    ({"x": X, "n": np.array(1)}, r"'n' is \[\] int64; expected 'n' \(n,\) int64"),
    ({"x": X, "n": np.arange(2)}, r"same number of samples in each, got 'x' has 3, 'n' has 2"),
    ({"x": X[:0], "n": np.arange(0)}, r"same number of samples in each, got 'x' has 0, 'n' has 0"),
]


@pytest.mark.parametrize(("arrays", "said"), BAD, ids=[said for _, said in BAD])
def test_files_that_do_not_fit_are_one_clear_line(
    arrays: dict[str, NDArray[Any]], said: str, tmp_path: Path
) -> None:
    """The array, what it is and what was expected are named."""
    path = tmp_path / "in.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    inputs = [tensor("x", (1, 4), "float32"), tensor("n", (1,), "int64")]
    with pytest.raises(DatasetError, match=said) as caught:
        GeneratedInputs(inputs, seed=0, count=1, file=path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_file_that_is_not_there(tmp_path: Path) -> None:
    """What the file should have held is said."""
    inputs = [tensor("x", (1, 4), "float32")]
    with pytest.raises(
        DatasetError, match=r"does not exist; expected an \.npz file with one array"
    ):
        GeneratedInputs(inputs, seed=0, count=1, file=tmp_path / "none.npz")
