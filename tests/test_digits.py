"""The bundled model: small, complete, and good enough to be the first thing anybody runs."""

from pathlib import Path

import numpy as np
import pytest

from edgeperf.datasets import open_task
from edgeperf.datasets.assets import BUNDLED
from edgeperf.datasets.catalogue import find_model
from edgeperf.datasets.tensors import TensorSpec


def test_bundle_is_small_and_complete() -> None:
    """Four model files and the test data, well under 1 MB."""
    sizes = {path.name: path.stat().st_size for path in BUNDLED.iterdir()}
    assert sorted(sizes) == [
        "digits_f32.onnx",
        "digits_f32.tflite",
        "digits_int8.onnx",
        "digits_int8.tflite",
        "digits_test.npz",
    ]
    assert sum(sizes.values()) < 500_000


def test_test_data_is_even_over_the_digits() -> None:
    """360 distinct images, 35 to 37 of each digit, pixels 0 to 16."""
    with np.load(BUNDLED / "digits_test.npz") as arrays:
        images, labels = arrays["images"], arrays["labels"]
    assert len({image.tobytes() for image in images}) == 360
    assert set(np.bincount(labels)) <= {35, 36, 37}
    assert (images.min(), images.max()) == (0, 16)


def test_digits_open_without_network_or_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No variable, no cache, no mirror: the data is in the package."""
    monkeypatch.delenv("EDGEPERF_MIRROR", raising=False)
    monkeypatch.setenv("EDGEPERF_CACHE", str(tmp_path / "cache"))
    inputs = [TensorSpec(name="image", shape=(1, 8, 8, 1), dtype="float32")]
    outputs = [TensorSpec(name="scores", shape=(1, 10), dtype="float32")]
    assert len(open_task("digits").open(inputs, outputs)) == 360
    assert not (tmp_path / "cache").exists()


def test_reference_is_what_the_task_says() -> None:
    """The gate's FP32 value is at least 97 %."""
    model = find_model("digits")
    assert model is not None
    assert open_task("digits").reference == model.reference
    assert model.reference >= 0.97
