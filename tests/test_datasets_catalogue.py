"""The catalogue is consistent, and finds names and files."""

import hashlib
from pathlib import Path

import pytest

from edgeperf.datasets import TASKS, task_names
from edgeperf.datasets.assets import BUNDLED, Places, digest, resolve
from edgeperf.datasets.catalogue import (
    Asset,
    CatalogueError,
    CatalogueModel,
    data_for,
    find_model,
    models,
    pick_file,
    task_data,
)

ASSETS = [file.asset for model in models() for file in model.files]
ASSETS += [data.asset for data in task_data()]


def test_names_are_unique() -> None:
    """A name or alias means one model; a path, one file; a task has one dataset."""
    names = [name for model in models() for name in (model.name, *model.aliases)]
    assert len(set(names)) == len(names)
    assert len({asset.path for asset in ASSETS}) == len(ASSETS)
    assert len({asset.sha256 for asset in ASSETS}) == len(ASSETS)
    assert {model.task for model in models()} <= set(task_names())
    without = {name for name in TASKS if name not in {data.task for data in task_data()}}
    assert without == {"squad", "toycar"}  # theirs may not be shared


@pytest.mark.parametrize("asset", ASSETS, ids=lambda asset: asset.path)
def test_every_name_resolves_offline(asset: Asset, models_dir: Path, tmp_path: Path) -> None:
    """With a mirror every file is found, where it is, with nothing written anywhere."""
    places = Places(cache=tmp_path / "cache", mirrors=(models_dir,))
    path = resolve(asset, places=places)
    assert path in (BUNDLED / asset.name, models_dir / asset.path)
    assert digest(path) == (asset.sha256, asset.size_bytes)
    assert not (tmp_path / "cache").exists()


def test_bundled_files_need_no_mirror() -> None:
    """The model ``digits`` and its data come with the package."""
    bundled = [asset for asset in ASSETS if asset.path.startswith("digits/")]
    assert len(bundled) == 5
    for asset in bundled:
        assert resolve(asset, places=Places(cache=None)) == BUNDLED / asset.name


def test_upstream_addresses_name_a_commit() -> None:
    """A public address is only given for unmodified copies, at a fixed commit."""
    with_url = [asset for asset in ASSETS if asset.url]
    assert len(with_url) == 14
    for asset in with_url:
        assert asset.url is not None
        parts = asset.url.split("/")
        assert parts[:3] == ["https:", "", "raw.githubusercontent.com"]
        assert len(parts[5]) == 40
        assert asset.source.endswith(", unmodified")


def test_folder_digest_is_that_of_sha256sum(tmp_path: Path) -> None:
    """Names and content count; hidden files and the order on disk do not."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x").write_bytes(b"two")
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / ".hidden").write_bytes(b"no")
    lines = [
        f"{hashlib.sha256(b'one').hexdigest()}  a\n",
        f"{hashlib.sha256(b'two').hexdigest()}  b/x\n",
    ]
    assert digest(tmp_path) == (hashlib.sha256("".join(lines).encode()).hexdigest(), 6)


def test_models_are_found_by_name_and_alias() -> None:
    """An unknown name is not an error here: it may be a file."""
    kws = find_model("kws")
    assert kws is not None
    assert find_model("dscnn") is kws
    assert find_model("my.onnx") is None


def _model(name: str) -> CatalogueModel:
    model = find_model(name)
    assert model is not None
    return model


@pytest.mark.parametrize(
    ("name", "formats", "precision", "expected"),
    [
        ("kws", (".tflite",), None, "dscnn_dynrange.tflite"),
        ("kws", (".onnx", ".tflite"), None, "dscnn_dynrange.onnx"),
        ("kws", (".xml", ".tflite", ".onnx"), "int8", "dscnn_int8.tflite"),
        ("efficientnet_lite0", (".tflite", ".onnx"), None, "efficientnet_lite0_f32.onnx"),
        ("efficientnet_lite0", (".tflite",), None, "efficientnet_lite0_u8.tflite"),
        ("mobilenet_v2", (".onnx",), None, "mobilenet_v2_10_224_u8.onnx"),
    ],
)
def test_the_best_file_is_picked(
    name: str, formats: tuple[str, ...], precision: str | None, expected: str
) -> None:
    """Without a precision, that of the model's first fitting file; then the backend's order."""
    assert pick_file(_model(name), formats=formats, precision=precision).asset.name == expected


@pytest.mark.parametrize(
    ("name", "formats", "precision", "said"),
    [
        (
            "ai4i",
            (".onnx",),
            "int8",
            "model 'ai4i': no int8 .onnx file; .* float .tflite, float .onnx",
        ),
        ("resnet_large", (".onnx",), None, "no .onnx file; .* has float .tflite, int8 .tflite"),
        ("mobilenet_v2", (".onnx", ".xml"), "float", "no float .onnx or .xml file; .*int8 .onnx"),
    ],
)
def test_missing_combinations_list_those_there_are(
    name: str, formats: tuple[str, ...], precision: str | None, said: str
) -> None:
    """The message is enough to choose another."""
    with pytest.raises(CatalogueError, match=said):
        pick_file(_model(name), formats=formats, precision=precision)


def test_task_without_data_lists_those_with() -> None:
    """A task of the user's own has no dataset in the catalogue."""
    with pytest.raises(CatalogueError, match=r"task 'mine': the catalogue has no dataset .* d"):
        data_for("mine")


def test_a_float_file_with_8_bit_weights_says_so() -> None:
    """No FP32 weights of ``kws`` are published; no other file is named as if it were that one."""
    found = {model.name: [file.label for file in model.files] for model in models()}
    assert found["kws"][:2] == ["float .tflite (int8 weights)", "float .onnx (int8 weights)"]
    assert found["digits"][0] == "float .tflite"
    for model in models():
        for file in model.files:
            assert (file.weights is not None) == ("dynrange" in file.asset.path)
