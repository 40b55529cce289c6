"""What cannot be measured is refused in one line, and leaves nothing behind.

One line on standard error that starts with ``edgeperf:``, exit status 2 (the user's) or 3
(a part failed), no traceback, nothing on standard output, and the folder as it was.
"""

import contextlib
import gzip
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeperf.agent.events import Failed

if TYPE_CHECKING:
    from conftest import Outcome, Product

#: For runs that would be real ones if the input were not wrong.
QUICK = ("--preset", "smoke", "--min-duration", "0.2")
#: A copy of the bundled model, as a user's own file.
OWN = "own.tflite"

Prepare = Callable[["Product"], None]


def listing(folder: Path) -> set[str]:
    """Return everything in *folder* but edgeperf's cache, with size and time of change."""
    cache = folder / "home"
    return {
        f"{path} {path.lstat().st_size} {path.lstat().st_mtime_ns}"
        for path in folder.rglob("*")
        if path not in (cache, cache / "cache")
    }


def refused(product: "Product", *arguments: str, **options: Any) -> str:
    """Run something that must be refused; return the line that says why."""
    before = listing(product.folder)
    outcome = product.run(*arguments, **options)
    assert listing(product.folder) == before
    return line_of(outcome, 2)


def line_of(outcome: "Outcome", code: int) -> str:
    """Return the one line of a refusal; progress may come before it."""
    assert outcome.code == code, outcome.stderr
    assert outcome.stdout == ""
    assert "Traceback" not in outcome.stderr
    assert "a bug" not in outcome.stderr
    lines = outcome.stderr.splitlines()
    assert all(line.startswith("edgeperf: ") for line in lines), outcome.stderr
    return lines[-1].removeprefix("edgeperf: ")


@pytest.fixture
def own_model(product: "Product", digits_file: Callable[[str], Path]) -> "Product":
    """Return the product with model files of the user's own in its folder."""
    for name in ("digits_f32.tflite", "digits_f32.onnx"):
        shutil.copy(digits_file(name), product.folder / f"own{Path(name).suffix}")
    return product


# --- the command line ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "MODEL"),
        (("digits", "--fast"), "--fast"),
        (("digits", "kws"), "kws"),
        (("digits", "--scenario", "Interactive"), "Interactive"),
        (("digits", "--preset", "quick"), "quick"),
        (("digits", "--precision", "fp16"), "fp16"),
        (("digits", "--backend", "tensorrt"), "tensorrt"),
        (("digits", "--task", "mnist"), "mnist"),
        (("digits", "--workers", "two"), "two"),
        (("digits", "--workers", "0"), "--workers: expected a whole number >= 1"),
        (("digits", "--workers", "-1"), "workers"),
        (("digits", "--threads", "0"), "threads"),
        (("digits", "--samples-per-query", "0", "--scenario", "MultiStream"), "samples"),
        (("digits", "--samples-per-query", "100000", "--scenario", "MultiStream"), "samples"),
        (("digits", "--min-queries", "0"), "--min-queries"),
        (("digits", "--min-duration", "0"), "--min-duration"),
        (("digits", "--min-duration", "-1"), "--min-duration"),
        (("digits", "--min-duration", "nan"), "min"),
        (("digits", "--min-duration", "inf"), "min"),
        (("digits", "--gate", "0"), "gate"),
        (("digits", "--gate", "1.5"), "gate"),
        (("digits", "--gate", "nan"), "gate"),
        (("digits", "--stall", "0"), "stall"),
        (("digits", "--stall", "nan"), "stall"),
        (("digits", "--seed", "-1"), "seed"),
        (("digits", "--target-qps", "5"), "--target-qps: means nothing in"),
        (("digits", "--target-latency", "5"), "--target-latency (in the spec, ms): means"),
        (("digits", "--batch", "2"), "--batch: means nothing in scenario SingleStream"),
        (("digits", "--scenario", "Server", "--target-qps", "0"), "--target-qps"),
        (("digits", "--scenario", "Server", "--target-qps", "inf"), "target"),
        (("digits", "--scenario", "Server", "--target-qps", "1e-9"), "target"),
        (("digits", "--scenario", "Server", "--target-latency", "1e300"), "target"),
        (("digits", "--samples-per-query", "4"), "--samples-per-query: means nothing in"),
        (("digits", "--no-accuracy", "--gate", "0.9"), "--gate: means nothing without"),
        (("digits", "--no-accuracy", "--ungated"), "--ungated: means nothing without"),
        (("digits", "--seed", "5"), "--seed 5: means nothing; the task 'digits'"),
        (("digits", "--option", "xnnpack"), "NAME=VALUE"),
        (("digits", "--option", "colour=blue"), "colour"),
        (("digits", "--option", "xnnpack=perhaps"), "xnnpack"),
        (("digits", "--input", "image"), "NAME=VALUE"),
        (("digits", "--input", "image=1,x"), "image"),
        (("digits", "--input", "image=1,0"), "image"),
        (("digits", "--input", "image=1,8,8,1"), "no such input"),
        (("digits", "--input", "serving_default_image:0=1,9,9,1"), "does not fit"),
        (("digits", "--inputs", "inputs.npz"), "--data"),
        (("digits", "--meter", "crystal-ball:/dev/null"), "meter"),
        (("digits", "--workers", "2"), "SingleStream"),
        (("--spec", "missing.json"), "No such file"),
        (("--spec", "."), "directory"),
        (("digits", "--events", "987"), "--events 987"),
        (("digits", "--events", "-1"), "--events -1"),
        (("digits", "--events", "99999999999999999999"), "--events"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_wrong_command_line_is_refused(
    product: "Product", arguments: tuple[str, ...], says: str
) -> None:
    """Each wrong argument is named in one line, before anything is written."""
    before = listing(product.folder)
    quick = QUICK if "digits" in arguments[:1] else ()
    outcome = product.call("run", *quick, *arguments)
    assert says in line_of(outcome, 2)
    assert listing(product.folder) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("benchmark",),
        ("demo", "--preset", "quick"),
        ("demo", "--scenario", "x"),
        ("--quiet",),
        ("show",),
        ("show", "a", "b"),
        ("models", "digits"),
    ],
)
def test_wrong_command_is_refused(product: "Product", arguments: tuple[str, ...]) -> None:
    """An unknown command or a missing argument is one line too."""
    assert line_of(product.call(*arguments), 2)


@pytest.mark.parametrize(
    "command", [("show",), ("spec", "freeze"), ("pack", "-o", "p.tar.gz"), ("task", "reference")]
)
def test_what_is_no_result_is_named(product: "Product", command: tuple[str, ...]) -> None:
    """An empty folder is there; a pack is not cut JSON."""
    (product.folder / "empty").mkdir()
    (product.folder / "a.tar.gz").write_bytes(gzip.compress(b"pack"))
    line = line_of(product.call(*command, "empty"), 2)
    assert line == "result empty: no result.json in it; give the directory that a run left"
    assert line_of(product.call(*command, "a.tar.gz"), 2).startswith("result a.tar.gz: is a pack;")


def test_empty_argument_is_no_folder(product: "Product") -> None:
    """It would be the folder that one stands in."""
    assert line_of(product.call("decide", ""), 2).startswith("'': is neither a result nor")


def test_no_command_shows_the_help(product: "Product") -> None:
    """``edgeperf`` alone says how it is used and that it did nothing."""
    outcome = product.call()
    assert outcome.code == 2
    assert "Usage: edgeperf" in outcome.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("--scenario", "Server", "--target-qps", "1e6", "--min-duration", "80000"),
        ("--scenario", "Offline", "--min-duration", "80000"),
        ("--scenario", "SingleStream", "--min-duration", "80000"),
        ("--scenario", "MultiStream", "--min-duration", "80000"),
    ],
    ids=" ".join,
)
def test_load_that_no_memory_could_hold_is_refused(
    product: "Product", arguments: tuple[str, ...]
) -> None:
    """LoadGen makes all queries beforehand; more than fit are refused, not tried.

    The address space is limited here, so that a mistake costs a test and not the machine.
    """
    limited = ["prlimit", f"--as={12 << 30}"]
    if shutil.which(limited[0]) is None:
        pytest.skip("no prlimit")
    before = listing(product.folder)
    product.prefix = limited
    outcome = product.run("digits", "--preset", "smoke", "--no-accuracy", *arguments)
    assert outcome.code in (2, 3)
    assert "GB" in line_of(outcome, outcome.code)
    assert listing(product.folder) == before


# --- models --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["missing.tflite", "missing.onnx", "missing", "kws2"])
def test_missing_model(product: "Product", name: str) -> None:
    """Neither a file nor a name of the catalogue: the line lists the names."""
    line = refused(product, name, *QUICK)
    assert "digits" in line


def test_model_that_is_a_folder(product: "Product") -> None:
    """A folder is no model."""
    (product.folder / "saved_model").mkdir()
    assert "saved_model" in refused(product, "saved_model", *QUICK)


@pytest.mark.parametrize("name", ["empty.tflite", "empty.onnx", "empty.xml", "empty"])
def test_empty_model(product: "Product", name: str) -> None:
    """An empty file is called that, and not corrupt."""
    (product.folder / name).touch()
    assert "empty file" in refused(product, name, *QUICK)


@pytest.mark.parametrize("name", ["text.tflite", "text.onnx", "text.xml", "text.pt"])
def test_file_that_is_no_model(product: "Product", name: str) -> None:
    """The content counts, whatever the name promises."""
    (product.folder / name).write_text("#!/bin/sh\necho hello\n" * 10)
    assert name in refused(product, name, *QUICK)


def test_catalogue_model_that_is_nowhere(product: "Product") -> None:
    """Without cache, mirror and network a known model is missing, and how to get it is said."""
    product.environment |= {"https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    outcome = product.run("kws", *QUICK)
    line = line_of(outcome, outcome.code)
    assert outcome.code in (2, 3)
    assert "dscnn_dynrange.tflite" in line
    assert "EDGEPERF_MIRROR" in line


def test_damaged_file_in_the_mirror(product: "Product", tmp_path: Path) -> None:
    """A mirror that holds another file by that name is named, with both sums."""
    product.environment |= {"https_proxy": "http://127.0.0.1:9"}
    product.environment["EDGEPERF_MIRROR"] = str(tmp_path / "mirror")
    path = tmp_path / "mirror" / "kws_speech_commands" / "models" / "dscnn_dynrange.onnx"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not it")
    line = refused(product, "kws", "--backend", "onnxruntime", *QUICK)
    assert str(path) in line
    assert "sha256" in line


def _half(model: bytes) -> bytes:
    return model[: len(model) // 2]


def _holes(model: bytes) -> bytes:
    head, body = model[:64], bytearray(model[64:])
    for place in range(0, len(body) - 8, 97):
        body[place : place + 8] = b"\xff" * 8
    return head + bytes(body)


def _noise(model: bytes) -> bytes:
    return model[:16] + np.random.default_rng(3).bytes(len(model))


@pytest.mark.slow
@pytest.mark.parametrize("damage", [_half, _holes, _noise])
@pytest.mark.parametrize(
    ("file", "backend"),
    [
        ("digits_f32.tflite", "tflite"),
        ("digits_f32.tflite", "openvino"),
        ("digits_f32.onnx", "onnxruntime"),
        ("digits_f32.onnx", "openvino"),
        ("digits_int8.tflite", "tflite"),
        ("digits_int8.onnx", "onnxruntime"),
    ],
)
def test_corrupt_model(
    product: "Product",
    digits_file: Callable[[str], Path],
    file: str,
    backend: str,
    damage: Callable[[bytes], bytes],
) -> None:
    """A damaged file is refused, even one on which the runtime itself crashes."""
    model = product.folder / f"damaged{Path(file).suffix}"
    model.write_bytes(damage(digits_file(file).read_bytes()))
    before = listing(product.folder)
    outcome = product.run(model.name, "--backend", backend, *QUICK)
    assert outcome.code in (2, 3)
    assert "damaged" in line_of(outcome, outcome.code)
    assert listing(product.folder) == before


@pytest.mark.parametrize(
    ("model", "backend"),
    [("own.onnx", "tflite"), ("own.tflite", "onnxruntime")],
)
def test_wrong_format_for_the_backend(own_model: "Product", model: str, backend: str) -> None:
    """The line names a backend that takes the file."""
    line = refused(own_model, model, "--backend", backend, *QUICK)
    assert model in line
    assert "--backend" in line


def test_wrong_ending(own_model: "Product") -> None:
    """An ONNX file that is called .tflite is told apart by its content."""
    (own_model.folder / "own.onnx").rename(own_model.folder / "renamed.tflite")
    assert "ONNX" in refused(own_model, "renamed.tflite", *QUICK)


def test_backend_without_a_file_of_the_model(product_with_models: "Product") -> None:
    """A catalogue model that exists in one format only is refused elsewhere."""
    line = refused(product_with_models, "resnet_large", "--backend", "onnxruntime", *QUICK)
    assert "resnet_large" in line


def test_gate_with_nothing_to_judge(own_model: "Product") -> None:
    """A share of the accuracy of a model that nothing is asked of would gate nothing."""
    line = refused(own_model, OWN, "--gate", "0.9", *QUICK)
    assert line.startswith("--gate 0.9: there is no task")


def test_precision_of_a_file(own_model: "Product") -> None:
    """``--precision`` chooses among a catalogue model's files and means nothing for one."""
    assert "--precision" in refused(own_model, OWN, "--precision", "int8", *QUICK)


def test_unsupported_operator(product: "Product", models_dir: Path) -> None:
    """OpenVINO cannot load the SSD with its own postprocessing operator, and says which."""
    model = models_dir / "coco_detection" / "models" / "ssd_mobilenet_v1_coco_u8.tflite"
    line = refused(product, str(model), "--backend", "openvino", *QUICK)
    assert "TFLite_Detection_PostProcess" in line
    assert len(line) < 500


def _field(number: int, value: bytes | int) -> bytes:
    """Return one field of a protobuf message, shorter than 128 bytes."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def _onnx(operator: str, axes: tuple[str | int, ...]) -> bytes:
    """Return an ONNX model of one operator on an input ``x`` with *axes*.

    Source: onnx.proto, ``ModelProto``.
    """
    sizes = b"".join(
        _field(1, _field(1, axis) if isinstance(axis, int) else _field(2, axis.encode()))
        for axis in axes
    )
    kind = _field(1, _field(1, 1) + _field(2, sizes))
    node = _field(1, b"x") + _field(2, b"y") + _field(4, operator.encode())
    ends = [
        _field(place, _field(1, name) + _field(2, kind)) for place, name in ((11, b"x"), (12, b"y"))
    ]
    graph = _field(1, node) + _field(2, b"g") + b"".join(ends)
    return _field(1, 8) + _field(8, _field(1, b"") + _field(2, 13)) + _field(7, graph)


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_dynamic_shape_without_a_size(product: "Product", backend: str) -> None:
    """A model with free axes wants ``--input``; the line shows one that would do."""
    (product.folder / "dynamic.onnx").write_bytes(_onnx("Relu", ("batch", "time", 4)))
    line = refused(product, "dynamic.onnx", "--backend", backend, *QUICK)
    assert "--input x=" in line


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_operator_that_does_not_exist(product: "Product", backend: str) -> None:
    """An operator that the runtime does not know is named."""
    (product.folder / "odd.onnx").write_bytes(_onnx("Frobnicate", (1, 4)))
    line = refused(product, "odd.onnx", "--backend", backend, *QUICK)
    assert "Frobnicate" in line
    assert len(line) < 500


def test_ir_without_its_weights(product: "Product") -> None:
    """Half an OpenVINO model is named as such."""
    (product.folder / "half.xml").write_text('<?xml version="1.0"?>\n<net name="x"></net>\n')
    assert "half.bin" in refused(product, "half.xml", *QUICK)


def test_model_file_with_a_name_that_is_no_text(own_model: "Product", tmp_path: Path) -> None:
    """A name of any bytes, which Linux allows, works or is refused; it is never a bug."""
    name = os.fsdecode(b"\xff\xfe.tflite")
    (own_model.folder / OWN).rename(own_model.folder / name)
    outcome = own_model.run(name, *QUICK, "--output", str(tmp_path / "elsewhere"))
    if outcome.code not in (0, 1):
        assert line_of(outcome, 2)


# --- data ----------------------------------------------------------------------------


def _samples() -> dict[str, Any]:
    return {
        "images": np.zeros((20, 8, 8, 1), np.uint8),
        "labels": np.arange(20, dtype=np.int64) % 10,
    }


WRONG_DATA: dict[str, tuple[dict[str, Any], str]] = {
    "no labels": ({"labels": None}, "labels"),
    "no samples": ({"images": None}, "images"),
    "wrong shape": ({"images": np.zeros((20, 9, 8, 1), np.uint8)}, "[20, 9, 8, 1]"),
    "wrong rank": ({"images": np.zeros((20, 8, 8), np.uint8)}, "[20, 8, 8]"),
    "scalar": ({"images": np.uint8(0)}, "images"),
    "wrong type": ({"images": np.zeros((20, 8, 8, 1), np.float32)}, "float32"),
    "fewer labels": ({"labels": np.zeros(19, np.int64)}, "19 labels"),
    "more labels": ({"labels": np.zeros(21, np.int64)}, "21 labels"),
    "float labels": ({"labels": np.zeros(20)}, "float64"),
    "text labels": ({"labels": np.array(["seven"] * 20)}, "labels"),
    "label beyond the classes": ({"labels": np.full(20, 10)}, "label 10"),
    "negative label": ({"labels": np.full(20, -1)}, "label -1"),
    "one-hot labels": ({"labels": np.zeros((20, 10), np.int64)}, "[20, 10]"),
    "nothing at all": (
        {"images": np.zeros((0, 8, 8, 1), np.uint8), "labels": np.zeros(0, np.int64)},
        "no sample",
    ),
    "pickled objects": ({"labels": np.array([object()] * 20, dtype=object)}, "data.npz"),
}


@pytest.mark.parametrize("what", WRONG_DATA)
def test_data_that_does_not_fit_the_task(product: "Product", what: str) -> None:
    """Each thing that can be wrong with samples and labels has its own line."""
    changes, says = WRONG_DATA[what]
    arrays = {name: value for name, value in (_samples() | changes).items() if value is not None}
    np.savez(product.folder / "data.npz", **arrays)
    line = refused(product, "digits", "--data", "data.npz", *QUICK)
    assert "data.npz" in line
    assert says in line


@pytest.mark.parametrize("option", ["--data", "--inputs"])
@pytest.mark.parametrize("content", [None, b"", b"text", b"PK\x03\x04 not really"])
def test_data_file_that_is_none(own_model: "Product", option: str, content: bytes | None) -> None:
    """Missing, empty, of another kind or damaged: the file is named."""
    if content is not None:
        (own_model.folder / "data.npz").write_bytes(content)
    task = ("--task", "digits") if option == "--data" else ()
    assert "data.npz" in refused(own_model, OWN, option, "data.npz", *task, *QUICK)


def test_data_and_inputs_together(own_model: "Product") -> None:
    """One of the two, not both."""
    line = refused(own_model, OWN, "--data", "data.npz", "--inputs", "inputs.npz", *QUICK)
    assert line == "--data and --inputs: give one of them"


@pytest.mark.parametrize("task", ["kws", "vww", "ai4i", "cifar10"])
def test_task_that_does_not_fit_the_model(product_with_models: "Product", task: str) -> None:
    """Another task's samples are not the model's inputs; the line tells both shapes."""
    assert "does not fit" in refused(product_with_models, "digits", "--task", task, *QUICK)


INPUT = "image"
WRONG_INPUTS: dict[str, dict[str, Any]] = {
    "another name": {"picture": np.zeros((4, 1, 8, 8), np.float32)},
    "one too many": {INPUT: np.zeros((4, 8, 8, 1), np.float32), "mask": np.zeros((4, 1))},
    "wrong shape": {INPUT: np.zeros((4, 8, 9, 1), np.float32)},
    "wrong type": {INPUT: np.zeros((4, 8, 8, 1), np.float64)},
    "a scalar": {INPUT: np.float32(1)},
    "no sample": {INPUT: np.zeros((0, 8, 8, 1), np.float32)},
    "objects": {INPUT: np.array([object()] * 4, dtype=object)},
}


@pytest.mark.parametrize("what", WRONG_INPUTS)
def test_inputs_that_do_not_fit_the_model(own_model: "Product", what: str) -> None:
    """The file is named, what it holds and what was expected."""
    np.savez(own_model.folder / "inputs.npz", **WRONG_INPUTS[what])
    assert "inputs.npz" in refused(own_model, "own.onnx", "--inputs", "inputs.npz", *QUICK)


# --- cores ---------------------------------------------------------------------------


@contextlib.contextmanager
def only_cores(*cores: int) -> Iterator[None]:
    """Let what is started here run on *cores* only, as ``taskset`` does."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize(
    "cores", ["9999", "0-9999", "0-99999999999", "", "x", "0,0", "1-0", "-1", "0,", "0;1", "0-1-2"]
)
def test_cores_that_are_none(product: "Product", cores: str) -> None:
    """Numbers of no core, twice the same, or no numbers."""
    assert "cores" in refused(product, "digits", "--cores", cores, *QUICK)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_core_outside_the_affinity_mask(product: "Product") -> None:
    """A core that this process may not use is refused, and those it may are listed."""
    first, *others = sorted(os.sched_getaffinity(0))
    with only_cores(first):
        line = refused(product, "digits", "--cores", str(others[0]), *QUICK)
    assert f"usable here: {first}" in line


@pytest.mark.parametrize("asked", [("--workers", "2"), ("--threads", "2")])
def test_more_than_the_cores_there_are(product: "Product", asked: tuple[str, str]) -> None:
    """Each worker's thread has a core of its own, or the run does not begin."""
    with only_cores(min(os.sched_getaffinity(0))):
        line = refused(product, "digits", "--scenario", "Offline", *asked, *QUICK)
    assert "need 2 cores" in line


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["SingleStream", "MultiStream", "Offline", "Server"])
def test_one_core_is_enough(product: "Product", scenario: str) -> None:
    """A board with one core measures every scenario, if not at its best."""
    with only_cores(min(os.sched_getaffinity(0))):
        outcome = product.run("digits", "--scenario", scenario, *QUICK)
    assert outcome.code in (0, 1)
    assert outcome.result.performance is not None


# --- where results go ----------------------------------------------------------------


@pytest.mark.parametrize(
    "output", ["file", "file/results", "/dev/null", "/proc/results", "n" * 300]
)
def test_output_that_cannot_be_a_folder(product: "Product", output: str) -> None:
    """A file in the way, a file system that takes none, a name too long."""
    (product.folder / "file").write_text("mine")
    line = refused(product, "digits", "--output", output, *QUICK)
    assert output in line
    assert (product.folder / "file").read_text() == "mine"


@pytest.fixture
def ordinary_user(product: "Product") -> "Product":
    """Return the product without root's right to read and write everything."""
    if os.geteuid() == 0:
        rights = "-dac_override,-dac_read_search"
        product.prefix = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"]
        if shutil.which("setpriv") is None:
            pytest.skip("root may write everywhere, and setpriv is not here")
    return product


def test_output_folder_that_may_not_be_written(ordinary_user: "Product") -> None:
    """Without the right to write, the run does not begin."""
    locked = ordinary_user.folder / "locked"
    locked.mkdir()
    locked.chmod(0o555)
    for output in ("locked", "locked/results"):
        line = refused(ordinary_user, "digits", "--output", output, *QUICK)
        assert output in line
        assert "Permission denied" in line


@pytest.mark.parametrize("option", ["MODEL", "--data", "--spec"])
def test_file_that_may_not_be_read(
    ordinary_user: "Product", option: str, digits_file: Callable[[str], Path]
) -> None:
    """A file that belongs to somebody else is named, whatever it was to be."""
    file = ordinary_user.folder / "theirs.tflite"
    shutil.copy(digits_file("digits_f32.tflite"), file)
    file.chmod(0)
    arguments = {
        "MODEL": (file.name, *QUICK),
        "--data": ("digits", "--data", file.name, *QUICK),
        "--spec": ("--spec", file.name),
    }
    line = refused(ordinary_user, *arguments[option])
    assert file.name in line
    assert "Permission denied" in line


# --- specs and events ----------------------------------------------------------------


def test_plain_spec_holds_everything(product: "Product") -> None:
    """What stands in the file is not said a second time; a frozen one may be told places."""
    (product.folder / "spec.json").write_text('{"model": "digits"}')
    assert "leave out --no-accuracy, MODEL, --threads" in refused(
        product, "digits", "--threads", "2", "--no-accuracy", "--spec", "spec.json"
    )


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe\x00",
        b"{}",
        b'{"model": 3}',
        b'{"model": "digits", "fps": 10}',
        b'{"model": "digits", "threads": "2"}',
        b'{"model": "digits", "cores": []}',
        b'{"model": "digits", "shapes": {"x": ["1"]}}',
        b'{"model": "digits", "preset": "FAST"}',
        b'{"model": "digits", "target_qps": 10}',
        b'{"model": "digits", "data": "a", "inputs_file": "b"}',
        b'{"model": "digits\\u0000"}',
        b'{"model": "digits", "data": "\\u0000"}',
        b'{"model": "digits", "cores": [-1]}',
        b'{"model": "digits", "samples_per_query": 4}',
        b'{"model": "digits", "options": {"x": 1}}',
    ],
)
def test_wrong_spec_file_is_refused(product: "Product", text: bytes) -> None:
    """A spec file is checked like the command line: one line, with the field."""
    (product.folder / "spec.json").write_bytes(text)
    assert refused(product, "--spec", "spec.json")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty; expected a spec, such as edgeperf spec freeze makes"),
        ('{"frozen_spec": 1, "origin": {"result', "no JSON, or cut short ("),
        ('{"format_version": 1, "verdict": {}}', "is a result; freeze it with edgeperf spec"),
        ('["digits"]', "is no JSON object; expected a spec"),
    ],
)
def test_file_that_is_no_spec_says_what_it_is(product: "Product", text: str, says: str) -> None:
    """With its name, and what to do, wherever a spec is taken."""
    (product.folder / "spec.json").write_text(text)
    assert refused(product, "--spec", "spec.json").startswith(f"--spec spec.json: {says}")
    for command in ("check", "show"):
        line = line_of(product.call("spec", command, "spec.json"), 2)
        assert line.startswith(f"spec spec.json: {says}")


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(raw=st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes_as_spec_file_are_refused(product: "Product", raw: bytes) -> None:
    """Whatever a spec file holds, there is one line and never a traceback."""
    (product.folder / "spec.json").write_bytes(raw)
    assert line_of(product.call("run", "--spec", "spec.json"), 2)


def test_refusal_is_told_to_whoever_reads_the_events(product: "Product") -> None:
    """The last event holds the same line and the exit status."""
    outcome = product.run("missing.onnx")
    (last,) = outcome.events
    assert isinstance(last, Failed)
    assert last.exit_code == 2
    assert last.message == line_of(outcome, 2)


def test_events_without_a_reader(product: "Product") -> None:
    """A reader that goes away does not make a result out of nothing."""
    reading, writing = os.pipe()
    os.close(reading)
    outcome = product.call("run", "digits", *QUICK, "--events", str(writing), pass_fds=[writing])
    os.close(writing)
    if outcome.code in (0, 1):
        assert outcome.result.performance is not None
    else:
        assert line_of(outcome, 3)
        assert not outcome.output.exists()
