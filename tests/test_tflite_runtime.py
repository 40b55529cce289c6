"""The old package: boards that only have tflite-runtime measure with it, and say so."""

from importlib import metadata
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Product


@pytest.fixture(autouse=True)
def _needs_tflite_runtime() -> None:
    """Skip where it is not installed: it has an environment of its own (see the Makefile)."""
    try:
        metadata.version("tflite_runtime")
    except metadata.PackageNotFoundError:
        pytest.skip("tflite-runtime is not installed in this environment")


@pytest.mark.parametrize("precision", ["float", "int8"])
def test_a_real_run_names_the_runtime(product: "Product", precision: str) -> None:
    """The accuracy is that of the other runtimes; the result warns of the speed."""
    outcome = product.run("digits", "--precision", precision, "--preset", "smoke")
    assert outcome.code in (0, 1), outcome.stderr
    result = outcome.result
    assert result.sut is not None
    assert result.sut.runtime == "tflite-runtime"
    assert result.accuracy.value == pytest.approx(0.9778, abs=0.002)
    assert any("slower" in note for note in result.sut.notes)
