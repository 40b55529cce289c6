"""What the files of models say, read without a runtime."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("hypothesis", reason="the fuzz tests need hypothesis")

from hypothesis import given, settings
from hypothesis import strategies as st

from edgeperf.backends import tflite_graph
from edgeperf.backends.base import ModelError
from edgeperf.backends.onnx_graph import read_onnx
from edgeperf.backends.precision import summarise
from edgeperf.backends.tflite_graph import parse_tflite, read_tflite
from edgeperf.datasets.tensors import Quantisation, TensorSpec

KWS = "kws_speech_commands/models/dscnn_int8"


@pytest.fixture(scope="module")
def kws_tflite(models_dir: Path) -> bytes:
    """Return a small real TFLite model."""
    return (models_dir / f"{KWS}.tflite").read_bytes()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_tflite_file_parses_or_is_damaged(kws_tflite: bytes, data: st.DataObject) -> None:
    """Bytes changed and the end cut off a real model: our error or a graph, nothing else."""
    raw = bytearray(kws_tflite[: data.draw(st.integers(1, len(kws_tflite)))])
    for place in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=8)):
        raw[place] = data.draw(st.integers(0, 255))
    try:
        parse_tflite(bytes(raw))
    except tflite_graph.DamagedError:
        return


@given(st.binary(min_size=1, max_size=300))
def test_any_bytes_are_no_tflite_model(raw: bytes) -> None:
    """Random bytes are refused with our error."""
    try:
        parse_tflite(raw)
    except tflite_graph.DamagedError:
        return


# TFLite, and both formats of the same model


def test_both_formats_of_a_model_say_the_same(models_dir: Path) -> None:
    """The int8 keyword spotter, whose figures are in its README."""
    tflite = read_tflite(models_dir / f"{KWS}.tflite")
    onnx = read_onnx(models_dir / f"{KWS}.onnx")
    assert tflite.inputs == onnx.inputs
    assert tflite.outputs == onnx.outputs
    assert tflite.inputs[0].shape == (-1, 49, 10, 1)
    assert tflite.inputs[0].quantisation == Quantisation(scale=0.5847029089927673, zero_point=83)


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("kws_speech_commands/models/dscnn_int8", "int8"),
        ("kws_speech_commands/models/dscnn_dynrange", "mixed"),
        ("vww/models/vww_96_f32", "f32"),
        ("mt_en_de/models/encoder_fp16", "f32"),
        ("imagenet_cls/models/mobilenet_v2_10_224_u8", "int8"),
    ],
)
def test_precision_of_tflite_models(models_dir: Path, name: str, precision: str) -> None:
    """Whole int8, int8 weights only, float, and half-precision storage are told apart."""
    assert summarise(read_tflite(models_dir / f"{name}.tflite").arithmetic)[0] == precision


def test_custom_operators_are_named(models_dir: Path) -> None:
    """The detection model carries one that only some runtimes have."""
    graph = read_tflite(models_dir / "coco_detection/models/ssd_mobilenet_v1_coco_u8.tflite")
    assert graph.custom_operators == ("TFLite_Detection_PostProcess",)


def test_every_shared_model_is_read(models_dir: Path) -> None:
    """Each has inputs and outputs with names and types that numpy knows."""
    ends: list[TensorSpec] = []
    for path in models_dir.glob("*/models/*.tflite"):
        ends += [*read_tflite(path).inputs, *read_tflite(path).outputs]
    for path in models_dir.glob("*/models/*.onnx"):
        ends += [*read_onnx(path).inputs, *read_onnx(path).outputs]
    assert len(ends) > 60
    assert all(spec.name for spec in ends)
    assert {spec.dtype for spec in ends} <= {"float32", "int8", "uint8", "int32"}


@pytest.mark.parametrize(("read", "ending"), [(read_tflite, ".tflite"), (read_onnx, ".onnx")])
def test_a_damaged_file_names_itself(
    read: Callable[[Path], object], ending: str, models_dir: Path, tmp_path: Path
) -> None:
    """The message has the path, for people with many files."""
    half = tmp_path / f"half{ending}"
    half.write_bytes((models_dir / f"{KWS}{ending}").read_bytes()[:2000])
    with pytest.raises(ModelError, match=f"half{ending}: damaged"):
        read(half)


# Precision in words


@pytest.mark.parametrize(
    ("counts", "precision", "note"),
    [
        ({}, "f32", None),
        ({"int8": 3}, "int8", None),
        (
            {"f32": 1, "int8": 9},
            "mixed",
            "Of 10 convolutions and matrix products, 9 in int8, 1 in f32.",
        ),
        ({"dynamic int8": 4}, "mixed", "Weights are int8; activations are quantised on the fly."),
    ],
)
def test_precision_in_words(counts: dict[str, int], precision: str, note: str | None) -> None:
    """One word, and a sentence where one word would hide something."""
    assert summarise(counts) == (precision, (note,) if note else ())
