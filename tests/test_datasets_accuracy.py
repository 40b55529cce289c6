"""Every model file of the catalogue, on every runtime that takes it, is as accurate as known.

The known values were measured apart from this project, with other code, and lie beside
the models (``expected.json``); those of the bundled ``digits`` are in its README.
"""

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeperf.datasets import open_task
from edgeperf.datasets.assets import resolve
from edgeperf.datasets.base import Array
from edgeperf.datasets.catalogue import CatalogueModel, ModelFile, models
from edgeperf.datasets.score import Score
from edgeperf.datasets.tensors import Quantisation, TensorSpec

#: Runtime -> the formats it takes, named as in expected.json.
RUNTIMES = {
    "litert": (".tflite",),
    "onnxruntime": (".onnx",),
    "openvino": (".tflite", ".onnx"),
}
#: What a runtime cannot load: OpenVINO has no TFLite_Detection_PostProcess.
UNREADABLE = {("ssd_mobilenet_v1_coco_u8.tflite", "openvino")}
CASES = [
    pytest.param(model, file, runtime, id=f"{model.name}-{file.precision}{file.format}@{runtime}")
    for model in models()
    if model.task != "translation"  # two models: see test_datasets_translation.py
    for file in model.files
    for runtime, formats in RUNTIMES.items()
    if file.format in formats and (file.asset.name, runtime) not in UNREADABLE
]
#: Metric in expected.json -> what it is called here, where the names differ.
RENAMED = {
    "top1_coco32": "top1",
    "recall_at_p95": "recall@precision=0.95",
    "recall_at_p80": "recall@precision=0.8",
    "yes_vs_rest_pr_auc": "pr_auc[yes]",
    "yes_vs_rest_roc_auc": "roc_auc[yes]",
    "yes_recall_at_p95": "recall@precision=0.95[yes]",
}
#: Known accuracy of the bundled model, all files and runtimes alike.
DIGITS = {"top1": 352 / 360}

#: Models with float files whose weights are float too: those of ``kws`` are int8, which
#: LiteRT computes with as such and the others do not. Boxes may change places.
AGREEING = [
    model
    for model in models()
    if model.name != "kws"
    and not model.task.startswith(("coco", "translation"))
    and any(file.precision == "float" for file in model.files)
]

Infer = Callable[[Array], Sequence[Array]]
Loaded = tuple[Sequence[TensorSpec], Sequence[TensorSpec], Infer]


def _load_litert(path: Path) -> Loaded:
    interpreter_class = pytest.importorskip("ai_edge_litert.interpreter").Interpreter
    interpreter = interpreter_class(str(path), num_threads=1)
    interpreter.allocate_tensors()
    taken, given = interpreter.get_input_details(), interpreter.get_output_details()

    def infer(sample: Array) -> Sequence[Array]:
        interpreter.set_tensor(taken[0]["index"], sample)
        interpreter.invoke()
        return [interpreter.get_tensor(output["index"]) for output in given]

    return _litert_specs(taken), _litert_specs(given), infer


def _litert_specs(details: list[dict[str, Any]]) -> list[TensorSpec]:
    return [
        TensorSpec(
            name=detail["name"],
            shape=tuple(map(int, detail["shape"])),
            dtype=np.dtype(detail["dtype"]).name,
            quantisation=Quantisation(
                scale=float(detail["quantization"][0]), zero_point=int(detail["quantization"][1])
            )
            if detail["quantization"][0]
            else None,
        )
        for detail in details
    ]


def _load_onnxruntime(path: Path) -> Loaded:
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    dtypes = {"tensor(float)": "float32", "tensor(int8)": "int8", "tensor(uint8)": "uint8"}

    def specs(nodes: Any) -> list[TensorSpec]:
        return [
            TensorSpec(
                name=node.name,
                shape=tuple(axis if isinstance(axis, int) else -1 for axis in node.shape),
                dtype=dtypes[node.type],
            )
            for node in nodes
        ]

    inputs, outputs = specs(session.get_inputs()), specs(session.get_outputs())
    return inputs, outputs, lambda sample: session.run(None, {inputs[0].name: sample})


def _load_openvino(path: Path) -> Loaded:
    openvino = pytest.importorskip("openvino")
    options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    model = openvino.Core().read_model(str(path))
    shape = model.input(0).partial_shape
    shape[0] = 1
    model.reshape(shape)
    compiled = openvino.compile_model(model, "CPU", options)
    request = compiled.create_infer_request()

    def specs(ports: Any) -> list[TensorSpec]:
        return [
            TensorSpec(
                name=port.any_name,
                shape=tuple(
                    axis.get_length() if axis.is_static else -1 for axis in port.partial_shape
                ),
                dtype=np.dtype(port.element_type.to_dtype()).name,
            )
            for port in ports
        ]

    def infer(sample: Array) -> Sequence[Array]:
        return list(request.infer({0: sample}).values())

    return specs(compiled.inputs), specs(compiled.outputs), infer


LOAD = {
    "litert": _load_litert,
    "onnxruntime": _load_onnxruntime,
    "openvino": _load_openvino,
}


@cache
def answer(task: str, path: Path, runtime: str) -> tuple[Score, NDArray[np.float32]]:
    """Return score and predictions of the model in *path* over the whole dataset of *task*."""
    inputs, outputs, infer = LOAD[runtime](path)
    library = open_task(task).open(inputs, outputs)
    sample = np.empty(inputs[0].sample_shape, inputs[0].dtype)
    predictions = np.empty((len(library), *library.prediction_shape), np.float32)
    for index, prediction in enumerate(predictions):
        library.write(index, [sample])
        library.predict(index, infer(sample), prediction)
    return library.score(predictions), predictions


def known_metrics(folder: Path, file: ModelFile, runtime: str) -> dict[str, float]:
    """Return what is known of a file on a runtime."""
    if file.asset.path.startswith("digits/"):
        return DIGITS
    expected = folder / file.asset.path.split("/")[0] / "expected.json"
    known: dict[str, float] = json.loads(expected.read_bytes())[f"{file.asset.name}@{runtime}"]
    return known


@pytest.fixture(autouse=True)
def _mirror(models_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the catalogue's files from the folder of models."""
    monkeypatch.setenv("EDGEPERF_MIRROR", str(models_dir))


@pytest.mark.parametrize(("model", "file", "runtime"), CASES)
def test_accuracy_is_the_known_one(
    model: CatalogueModel, file: ModelFile, runtime: str, models_dir: Path
) -> None:
    """Each metric of model@runtime comes out as it is known, within 0.2 points."""
    score, _ = answer(model.task, resolve(file.asset), runtime)
    known = known_metrics(models_dir, file, runtime)
    expected = {RENAMED.get(name, name): value for name, value in known.items()}
    judged = expected.keys() & score.metrics.keys()
    assert score.metric in judged
    assert {RENAMED[name] for name in known if name in RENAMED} <= judged
    found = {name: score.metrics[name] for name in judged}
    assert found == pytest.approx({name: expected[name] for name in judged}, abs=0.002)


@pytest.mark.parametrize("model", AGREEING, ids=lambda model: model.name)
def test_float_models_agree_on_all_runtimes(model: CatalogueModel) -> None:
    """The scores of all float files of a model, on all runtimes, differ by 1e-4 at most."""
    given = [
        answer(model.task, resolve(file.asset), runtime)[1]
        for file in model.files
        for runtime, formats in RUNTIMES.items()
        if file.precision == "float" and file.format in formats
    ]
    for other in given[1:]:
        np.testing.assert_allclose(other, given[0], atol=1e-4)


def _array(folder: Path, name: str) -> tuple[Array, Array]:
    with np.load(folder / name) as arrays:
        samples = next(arrays[key] for key in arrays.files if key != "labels")
        return samples, arrays["labels"].astype(int)


def _keywords(folder: Path) -> tuple[Array, Array]:
    return _array(folder, "kws_speech_commands/data/kws01_mfcc_int8.npz")


def _wake_words(folder: Path) -> tuple[Array, Array]:
    images, labels = _array(folder, "vww/data/vww01_open.npz")
    return images.astype(np.float32) / 255, labels


def _crops(folder: Path) -> tuple[Array, Array]:
    images, labels = _array(folder, "ic_cifar10/data/coco32.npz")
    return images.astype(np.float32), labels


def _failures(folder: Path) -> tuple[Array, Array]:
    table = np.loadtxt(folder / "pm_ai4i" / "data" / "test.csv", np.float32, delimiter=",",
                       skiprows=1)  # fmt: skip
    return table[:, 1:-1], table[:, -1].astype(int)


PLAIN = [
    ("kws", "kws_speech_commands/models/dscnn_int8.tflite", _keywords),
    ("vww", "vww/models/vww_96_f32.tflite", _wake_words),
    ("cifar10", "ic_cifar10/models/resnet8_f32.tflite", _crops),
    ("ai4i", "pm_ai4i/models/ai4i_mlp_f32.tflite", _failures),
]


@pytest.mark.parametrize(("task", "file", "read"), PLAIN, ids=[case[0] for case in PLAIN])
def test_plain_code_and_scikit_learn_find_the_same(
    sklearn_metrics: Any,
    models_dir: Path,
    task: str,
    file: str,
    read: Callable[[Path], tuple[Array, Array]],
) -> None:
    """Samples read with numpy, LiteRT's own interpreter, and scikit-learn: to the last digit."""
    ours, _ = answer(task, models_dir / file, "litert")
    samples, labels = read(models_dir)
    _, _, infer = _load_litert(models_dir / file)
    answers = np.stack([infer(sample[None])[0].reshape(-1) for sample in samples])
    found = {}
    if answers.shape[1] > 1:
        best = answers.argmax(axis=1)
        found["top1"] = sklearn_metrics.accuracy_score(labels, best)
        found["balanced_accuracy"] = sklearn_metrics.recall_score(
            labels, best, labels=np.unique(labels), average="macro"
        )
        found["macro_f1"] = sklearn_metrics.f1_score(labels, best, average="macro")
    if len(set(labels.tolist())) == 2:
        found["roc_auc"] = sklearn_metrics.roc_auc_score(labels, answers[:, -1])
        found["pr_auc"] = sklearn_metrics.average_precision_score(labels, answers[:, -1])
    assert {name: ours.metrics[name] for name in found} == pytest.approx(found, abs=1e-6)
