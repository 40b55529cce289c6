"""OpenVINO: precision that is stated, files that it takes, and what it says about both."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeperf import InputError
from edgeperf.backends import open_backend
from edgeperf.backends.base import BackendError, BackendMissingError, ModelError, SessionOptions
from edgeperf.backends.openvino import OpenVinoSession
from edgeperf.backends.openvino_graph import kernel_precision

KWS = "kws_speech_commands/models/dscnn_int8"
VWW = "vww/models/vww_96_f32"


@pytest.fixture(autouse=True)
def _here() -> None:
    """Skip where OpenVINO is not installed."""
    try:
        open_backend("openvino").version()
    except BackendMissingError as error:
        pytest.skip(str(error))


def load(path: Path, **options: Any) -> OpenVinoSession:
    """Load a model."""
    return OpenVinoSession(path, SessionOptions(**options))


def test_precision_is_f32_unless_asked_otherwise(models_dir: Path) -> None:
    """Left alone, a CPU with bf16 would use it; here it is stated and read back."""
    info = load(models_dir / f"{VWW}.onnx").info()
    assert info.precision == "f32"
    assert info.options["inference_precision"] == "f32"
    assert info.options["INFERENCE_PRECISION_HINT"] == "f32"


def test_another_precision_is_taken_or_noted(models_dir: Path) -> None:
    """What the device cannot do is not claimed."""
    for asked in ("bf16", "f16"):
        info = load(models_dir / f"{VWW}.onnx", options={"inference_precision": asked}).info()
        got = info.options["INFERENCE_PRECISION_HINT"]
        noted = any(f"Precision {asked} was asked for" in note for note in info.notes)
        assert noted == (got != asked)


def test_what_was_set_is_read_back(models_dir: Path) -> None:
    """One stream, our thread count, no pinning of its own."""
    told = load(models_dir / f"{KWS}.onnx").info().options
    assert told["NUM_STREAMS"] == "1"
    assert told["INFERENCE_NUM_THREADS"] == "1"
    assert told["ENABLE_CPU_PINNING"] == "False"


def test_fewer_threads_than_asked_are_noted(models_dir: Path) -> None:
    """On one core OpenVINO uses one thread, whatever it is told."""
    code = (
        "import os, sys\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from pathlib import Path\n"
        "from edgeperf.backends import open_backend\n"
        "from edgeperf.backends.base import SessionOptions\n"
        "session = open_backend('openvino').load(Path(sys.argv[1]), SessionOptions(threads=2))\n"
        "print(*session.info().notes)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(models_dir / f"{VWW}.onnx")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=dict(os.environ),
    )
    assert "2 threads were asked for; OpenVINO uses 1." in done.stdout


def test_inputs_are_the_block_itself(models_dir: Path) -> None:
    """The tensor handed to the runtime has the address of the slot."""
    session = load(models_dir / f"{VWW}.onnx")
    block = np.zeros((3, 1, 96, 96, 3), np.float32)
    session.bind([block])
    assert session._tensors[2].data.ctypes.data == block[2].ctypes.data
    assert session.info().input_copy == "none"


def test_an_operator_that_it_lacks_is_named(models_dir: Path) -> None:
    """The known case: SSD with its postprocessing inside the TFLite file."""
    model = models_dir / "coco_detection/models/ssd_mobilenet_v1_coco_u8.tflite"
    expected = r"OpenVINO has no operator TFLite_Detection_PostProcess; use another backend$"
    with pytest.raises(ModelError, match=expected) as caught:
        load(model)
    assert "\n" not in str(caught.value)


@pytest.fixture
def ir(models_dir: Path, tmp_path: Path) -> Path:
    """Convert a model to OpenVINO's own format."""
    openvino = pytest.importorskip("openvino")
    target = tmp_path / "net.xml"
    model = openvino.Core().read_model(str(models_dir / f"{VWW}.onnx"))
    openvino.serialize(model, str(target), str(target.with_suffix(".bin")))
    return target


def test_ir_runs_like_its_source(ir: Path, models_dir: Path) -> None:
    """Same names, same answer."""
    block = np.full((1, 1, 96, 96, 3), 0.25, np.float32)
    answers = []
    for path in (ir, models_dir / f"{VWW}.onnx"):
        session = load(path)
        assert session.inputs[0].name == "input_1"
        session.bind([block])
        session.infer(0)
        answers.append(np.array(session.results[0]))
    np.testing.assert_allclose(answers[0], answers[1], atol=1e-6)


def test_ir_without_its_weights_says_so(ir: Path) -> None:
    """The second file was not copied to the board."""
    ir.with_suffix(".bin").unlink()
    with pytest.raises(ModelError, match=r"net\.xml: its weights, net\.bin, are not beside it"):
        load(ir)


def test_damaged_ir_is_one_line(ir: Path) -> None:
    """Half of the graph."""
    ir.write_text(ir.read_text()[:3000])
    with pytest.raises(ModelError, match=r"net\.xml: OpenVINO cannot load it") as caught:
        load(ir)
    assert "\n" not in str(caught.value)


def test_a_device_that_is_not_here_is_one_line(models_dir: Path) -> None:
    """The message lists those that are."""
    with pytest.raises(InputError, match=r"device=GPU.9: OpenVINO sees .*CPU"):
        load(models_dir / f"{VWW}.onnx", options={"device": "GPU.9"})


def test_a_precision_that_is_none_lists_the_known_ones(models_dir: Path) -> None:
    """Nothing is guessed."""
    with pytest.raises(InputError, match="inference_precision=int8: expected one of f32, bf16"):
        load(models_dir / f"{VWW}.onnx", options={"inference_precision": "int8"})


def test_inferring_an_unbound_slot_is_no_crash(models_dir: Path) -> None:
    """An error of ours."""
    with pytest.raises(BackendError, match="no samples are bound"):
        load(models_dir / f"{VWW}.onnx").infer(0)


@pytest.mark.parametrize(
    ("kernel", "declared", "precision"),
    [
        ("brgconv_avx512_1x1_I8", "u8", "int8"),
        ("brgconv_avx512_dw_f32", "f32", "f32"),
        ("brgemm_avx512_f32", "i8", "f32"),
        ("jit_avx512_amx_bf16", "bf16", "bf16"),
        ("gemm_acl_f16", "f16", "f16"),
        ("undef", "f32", "f32"),
    ],
)
def test_a_kernels_name_tells_its_precision(kernel: str, declared: str, precision: str) -> None:
    """The declared one may be that of compressed weights."""
    assert kernel_precision(kernel, declared) == precision
