"""``edgeperf task`` and runs on the user's own samples, as a user calls them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from edgeperf.agent.events import Phase
from edgeperf.datasets.own.taskfile import parse_task

if TYPE_CHECKING:
    from conftest import Product

PIL = pytest.importorskip("PIL.Image")
QUICK = ("--preset", "smoke", "--min-duration", "0.3", "--min-queries", "64")


@pytest.fixture
def photographs(tmp_path: Path, models_dir: Path) -> Path:
    """Return a folder with a folder for each of the two classes of ``vww``."""
    with np.load(models_dir / "vww" / "data" / "vww01_open.npz") as arrays:
        for index, (pixels, label) in enumerate(
            zip(arrays["images"], arrays["labels"], strict=True)
        ):
            folder = tmp_path / "photographs" / ("non_person", "person")[label]
            folder.mkdir(parents=True, exist_ok=True)
            PIL.fromarray(pixels).save(folder / f"{index:03}.png")
    return tmp_path / "photographs"


@pytest.fixture
def model(models_dir: Path) -> str:
    """Return a float model of ``vww`` that wants pixels between 0 and 1."""
    pytest.importorskip("ai_edge_litert")
    return str(models_dir / "vww" / "models" / "vww_96_f32.tflite")


def test_from_a_model_to_a_gated_run(product: "Product", model: str, photographs: Path) -> None:
    """Write a task file, look at samples, mend it, and run by it: no code anywhere."""
    told = product.call("task", "new", model, "--data", str(photographs), "--output", "my.toml")
    assert told.code == 0, told.stderr
    path = product.folder / "my.toml"
    task = parse_task(path.read_bytes(), "my.toml")
    assert task.data.path == str(photographs)
    again = product.call("task", "new", model, "--output", "my.toml")
    assert again.code == 2
    assert "my.toml: is there already" in again.stderr

    seen = product.call("task", "check", "my.toml", model, "--pictures", "pictures")
    assert seen.code == 0, seen.stderr
    assert seen.stdout.count(".png") >= 5
    assert "non_person" in seen.stdout
    assert " of 5 right" in seen.stdout
    with PIL.open(product.folder / "pictures" / "0.png") as picture:
        assert picture.size == (96, 96)

    guessed = product.run(model, "--task", "my.toml", *QUICK)
    assert guessed.result.task == "my"
    assert (guessed.directory / "task.toml").read_bytes() == path.read_bytes()
    assert "task.toml" in guessed.result.files
    right = path.read_text().replace("mean = [127.5]", "mean = [0]").replace(
        "std = [127.5]", "std = [255]"
    ).replace("# at_least = 0.9 ", "at_least = 0.8 ")  # fmt: skip
    path.write_text(right + '[reference]\n"recall[person]" = 0.99\n')
    product.run(model, "--task", "my.toml", *QUICK)
    outcome = newest(product)
    accuracy = outcome["accuracy"]
    assert accuracy["value"] == pytest.approx(0.8674, abs=0.002)
    assert (accuracy["threshold"], accuracy["gate"], accuracy["passed"]) == (0.8, None, True)
    low, high = accuracy["intervals"]["top1"]
    assert low < accuracy["value"] < high
    assert [row["name"] for row in accuracy["classes"]] == ["non_person", "person"]
    assert np.sum(accuracy["confusion"]) == accuracy["samples"] == 264
    codes = {reason["code"]: reason for reason in outcome["verdict"]["reasons"]}
    assert "recall[person] " in codes["lost-against-reference"]["text"]
    assert codes["lost-against-reference"]["severity"] == "note"
    assert outcome["performance"] is not None


def newest(product: "Product") -> dict[str, Any]:
    """Return the result of the last run as plain data."""
    folder = max(product.output.iterdir(), key=lambda one: one.stat().st_mtime_ns)
    content: dict[str, Any] = json.loads((folder / "result.json").read_bytes())
    return content


def test_a_wrong_guess_is_named(product: "Product", model: str, photographs: Path) -> None:
    """Without a task file the input is guessed; the scale that does better is found."""
    outcome = product.run(model, "--data", str(photographs), *QUICK)
    assert outcome.result.task == "own"
    kept = parse_task((outcome.directory / "task.toml").read_bytes(), "task.toml")
    assert kept.input.mean == (127.5,)
    assert outcome.reasons["likely-cause"] == "suspect"
    text = next(r.text for r in outcome.result.verdict.reasons if r.code == "likely-cause")
    assert "mean = [0], std = [255]" in text
    assert outcome.reasons["no-reference"] == "note"


def test_answers_at_chance_are_flagged_with_the_cause(
    product: "Product", model: str, photographs: Path
) -> None:
    """Channels in the wrong order and a wrong scale; labels that are swapped."""
    (product.folder / "a.toml").write_text('[input]\ncolour = "BGR"\nmean = [127.5]\nstd = [0.5]\n')
    outcome = product.run(model, "--task", "a.toml", "--data", str(photographs), *QUICK)
    assert {"chance": "suspect", "likely-cause": "suspect"}.items() <= outcome.reasons.items()
    text = next(r.text for r in outcome.result.verdict.reasons if r.code == "likely-cause")
    assert 'colour = "RGB" and mean = [0], std = [255]' in text
    told = product.call("task", "reference", str(outcome.directory))
    assert (told.code, told.stdout) == (2, "")
    assert "no reference to judge by: " in told.stderr


def test_a_reference_comes_from_a_result(
    product: "Product", models_dir: Path, model: str, photographs: Path
) -> None:
    """What the float model reached is what the 8-bit one is judged by, metric by metric."""
    path = product.folder / "a.toml"
    path.write_text("[input]\nstd = [255]\n[metric]\nprecisions = [0.9]\n")
    first = product.run(model, "--task", "a.toml", "--data", str(photographs), *QUICK)
    value = first.result.accuracy.value
    told = product.call("task", "reference", str(first.directory))
    assert (told.code, told.stderr) == (0, "")
    path.write_text(path.read_text() + told.stdout)
    int8 = str(models_dir / "vww" / "models" / "vww_96_int8.tflite")
    product.run(int8, "--task", "a.toml", "--data", str(photographs), *QUICK)
    found = newest(product)
    accuracy = found["accuracy"]
    assert accuracy["reference"] == value
    assert accuracy["threshold"] == pytest.approx(0.99 * accuracy["reference"])
    assert accuracy["value"] == pytest.approx(0.8636, abs=0.004)
    made = max(product.output.iterdir(), key=lambda one: one.stat().st_mtime_ns)
    told = product.call("task", "reference", str(made))
    assert told.code == 0
    assert "note: vww_96_int8.tflite ran in int8, not in f32" in told.stderr
    gone = product.call("task", "reference", "gone")
    assert gone.code == 2
    assert "gone: No such file" in gone.stderr


def test_many_samples_are_made_once(product: "Product", model: str, photographs: Path) -> None:
    """From 500 on they are kept, and the second run answers the same from the disk."""
    for path in list(photographs.rglob("*.png")):
        path.with_stem(f"{path.stem}x").hardlink_to(path)
    (product.folder / "a.toml").write_text("performance_samples = 100\n[input]\nstd = [255]\n")
    call = (model, "--task", "a.toml", "--data", str(photographs), *QUICK)
    first = product.run(*call)
    prepared = [getattr(event, "percent", 0) for event in first.events if is_preparing(event)]
    assert max(prepared) == 100.0
    value = first.result.accuracy.value
    assert value == pytest.approx(0.8674, abs=0.002)
    kept = list(Path(product.environment["EDGEPERF_CACHE"]).glob("preprocessed/[0-9a-f]*"))
    assert sum(path.stat().st_size for path in kept) == 528 * (96 * 96 * 3 * 4 + 4)
    again = product.run(*call)
    assert not any(getattr(e, "percent", 0) for e in again.events if is_preparing(e))
    assert newest(product)["accuracy"]["value"] == value


def is_preparing(event: object) -> bool:
    """Say whether *event* tells how far preparing is."""
    return getattr(event, "phase", None) is Phase.PREPARE


def test_a_missed_floor_withholds_the_performance(
    product: "Product", model: str, photographs: Path
) -> None:
    """The user's own floor on any metric is a gate like MLPerf's."""
    (product.folder / "a.toml").write_text(
        "[input]\nstd = [255]\n"
        '[metric]\ngate = "recall@precision=0.95"\nat_least = 0.9\nprecisions = [0.95]\n'
    )
    outcome = product.run(model, "--task", "a.toml", "--data", str(photographs), *QUICK)
    assert outcome.code == 1
    assert outcome.reasons["accuracy-gate"] == "invalid"
    assert outcome.result.performance is None
    text = next(r.text for r in outcome.result.verdict.reasons if r.code == "accuracy-gate")
    assert "recall@precision=0.95" in text
    assert "asked 0.9000 (the task's own bound)" in text
    told = product.call("task", "reference", str(outcome.directory))
    assert told.code == 2
    assert "no reference to judge by: accuracy-gate: " in told.stderr


def test_a_share_does_not_replace_the_floor(
    product: "Product", model: str, photographs: Path
) -> None:
    """The stricter of the two decides; a share of a reference that is not there is refused."""
    text = "[input]\nstd = [255]\n[metric]\nat_least = 0.98\n"
    (product.folder / "a.toml").write_text(text)
    asked = (model, "--task", "a.toml", "--data", str(photographs), "--gate", "0.5", *QUICK)
    refused = product.run(*asked)
    assert refused.code == 2
    assert "--gate 0.5: no FP32 reference for top1" in refused.stderr
    assert "(the task's own bound is 0.98)" in refused.stderr
    assert not product.output.exists()
    (product.folder / "a.toml").write_text(f"{text}[reference]\ntop1 = 1.0\n")
    outcome = product.run(*asked)
    assert outcome.code == 1
    assert outcome.reasons["accuracy-gate"] == "invalid"
    assert (outcome.result.accuracy.threshold, outcome.result.accuracy.gate) == (0.98, None)
    assert outcome.result.performance is None


BAD = [
    (("task", "check", "kws", "gone.onnx"), "no such file"),
    (("task", "check", "gone.toml", "digits"), "task file gone.toml: No such file"),
    (("task", "check", "nothing", "digits"), "no task 'nothing'"),
    (("task", "new", "digits", "--input", "x"), "--input x: expected NAME=VALUE"),
    (("task", "new", "digits", "--data", "gone"), "--data gone: does not exist"),
    (("task", "new", "digits", "--data", "empty"), "--data empty: is an empty folder"),
    (("task", "new", "digits", "--output", "no/such/folder/a.toml"), "cannot be written"),
    (("task", "check", "digits", "digits", "--data", "gone.npz"), "gone.npz: does not exist"),
    (("run", "digits", "--part", "decoder=x"), "--part decoder=x: No such file"),
    (("run", "digits", "--task", "translation"), "needs its decoder too; --part decoder=FILE"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD, ids=[said for _, said in BAD])
def test_bad_calls_are_one_clear_line(
    product: "Product", arguments: tuple[str, ...], said: str
) -> None:
    """Exit status 2 and one line, without a traceback."""
    (product.folder / "empty").mkdir()
    told = product.call(*arguments)
    assert told.code == 2
    assert said in told.stderr
    assert len(told.stderr.splitlines()) == 1


def test_pictures_of_a_failure_leave_no_folder(product: "Product") -> None:
    """A folder that was made for pictures that never came is taken away; another one stays."""
    (product.folder / "mine").mkdir()
    for folder in ("new", "mine"):
        told = product.call("task", "check", "none.toml", "digits", "--pictures", folder)
        assert told.code == 2
    assert not (product.folder / "new").exists()
    assert (product.folder / "mine").is_dir()


def test_paths_that_are_too_long_for_a_table_stay_whole(
    product: "Product", photographs: Path, model: str
) -> None:
    """Each picture's path is on one line, to be copied."""
    folder = "p" * 190
    made = product.call("task", "new", model, "--data", str(photographs), "--output", "my.toml")
    assert made.code == 0, made.stderr
    seen = product.call("task", "check", "my.toml", model, "--pictures", folder, "--samples", "2")
    assert seen.code == 0, seen.stderr
    lines = seen.stdout.splitlines()
    assert [line for line in lines if folder in line] == [
        f"  picture {folder}/{place}.png" for place in range(2)
    ]
    assert sum(line.startswith("sample ") for line in lines) == 2


def test_samples_are_shown_for_any_task(product: "Product") -> None:
    """Also for those that are no file."""
    seen = product.call("task", "check", "digits", "digits", "--samples", "2")
    assert seen.code == 0, seen.stderr
    assert seen.stdout.count("float32 [1, 8, 8, 1]") == 2


@pytest.mark.slow
def test_a_translation_is_gated(product: "Product", models_dir: Path) -> None:
    """The 8-bit encoder that OpenVINO gets wrong misses the gate; nothing is shown of its speed."""
    for name in ("openvino", "sentencepiece", "sacrebleu"):
        pytest.importorskip(name)
    product.environment["EDGEPERF_MIRROR"] = str(models_dir)
    folder = models_dir / "mt_en_de"
    outcome = product.run(
        str(folder / "models" / "encoder_dyn8.tflite"), "--backend", "openvino",
        "--task", "translation",
        "--part", f"decoder={folder / 'models' / 'decoder_step_dyn8.tflite'}",
        "--part", f"tokenizer={folder / 'data' / 'sp.model'}", *QUICK,
    )  # fmt: skip
    result = outcome.result
    assert result.accuracy.value == pytest.approx(26.2, abs=0.1)
    assert [part.name for part in result.model.parts] == ["decoder", "tokenizer"]
    known = product.run("mt_en_de", "--backend", "openvino", "--precision", "int8", *QUICK)
    found = newest(product)
    assert known.code in (0, 1)
    assert found["accuracy"]["passed"] is True
    assert found["accuracy"]["value"] == pytest.approx(33.07, abs=0.1)
    assert found["sut"]["timed"][0] == "tokenizing"
    assert found["performance"]["tokens_per_s"] == pytest.approx(
        found["performance"]["throughput_sps"] * found["accuracy"]["metrics"]["tokens_per_sample"]
    )
    assert found["performance"] is not None


@pytest.mark.slow
def test_detection_with_timed_postprocessing(product: "Product", models_dir: Path) -> None:
    """Every scenario logs what MLPerf's own script makes the same mAP of."""
    for name in ("onnxruntime", "pycocotools"):
        pytest.importorskip(name)
    scripts = _mlperf_scripts()
    product.environment["EDGEPERF_MIRROR"] = str(models_dir)
    coco = product.folder / "coco" / "annotations"
    coco.mkdir(parents=True)
    data = models_dir / "coco_detection" / "data"
    (coco / "instances_val2017.json").write_bytes((data / "annotations.json").read_bytes())
    # Scoring takes longer than that: it is no hang.
    product.run("fastestdet", "--scenario", "MultiStream", "--stall", "4", *QUICK)
    (directory,) = product.output.iterdir()
    result = json.loads((directory / "result.json").read_bytes())
    assert "postprocessing (boxes or text out of the outputs, NMS)" in result["sut"]["timed"]
    assert result["accuracy"]["value"] == pytest.approx(0.16014, abs=1e-5)
    if scripts is None:
        return
    said = _official(
        scripts / "accuracy-coco.py", directory, "--coco-dir", str(coco.parent),
        "--output-file", str(product.folder / "found.json"),
    )  # fmt: skip
    assert f"mAP={100 * result['accuracy']['value']:.3f}%" in said


@pytest.mark.slow
def test_a_detector_of_your_own(product: "Product", models_dir: Path) -> None:
    """A new task file does as it is; classes that count otherwise are flagged and named."""
    for name in ("onnxruntime", "pycocotools"):
        pytest.importorskip(name)
    folder = models_dir / "coco_detection"
    yolox = str(folder / "models" / "yolox_nano_416_f32.onnx")
    data = ("--data", str(folder / "data"))
    assert product.call("task", "new", yolox, *data, "--output", "yolox.toml").code == 0
    seen = product.call("task", "check", "yolox.toml", yolox)
    assert "5 of 5 right" in seen.stdout
    model = str(folder / "models" / "fastestdet_352_f32.onnx")
    assert product.call("task", "new", model, *data, "--output", "my.toml").code == 0
    path = product.folder / "my.toml"
    path.write_text(path.read_text().replace("[metric]", "class_offset = 1\n[metric]"))
    outcome = product.run(model, "--task", "my.toml", *QUICK)
    assert {"chance": "suspect", "likely-cause": "suspect"}.items() <= outcome.reasons.items()
    text = next(r.text for r in outcome.result.verdict.reasons if r.code == "likely-cause")
    assert 'with class_offset = 0, class_is = "position" the model gets' in text
    assert "under [output]" in text


def _mlperf_scripts() -> Path | None:
    """Return the folder of MLPerf's accuracy scripts, where a checkout is named."""
    named = os.environ.get("EDGEPERF_MLPERF_INFERENCE")
    if named is None:
        return None
    return Path(named) / "vision" / "classification_and_detection" / "tools"


def _official(script: Path, directory: Path, *arguments: str) -> str:
    log = directory / "accuracy" / "mlperf_log_accuracy.json"
    return subprocess.run(
        [sys.executable, str(script), "--mlperf-accuracy-file", str(log), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout


@pytest.mark.slow
def test_mlperf_counts_the_same_right_answers(product: "Product", models_dir: Path) -> None:
    """``accuracy-imagenet.py`` on our log, where a checkout of mlcommons/inference is named."""
    scripts = _mlperf_scripts()
    if scripts is None:
        pytest.skip("EDGEPERF_MLPERF_INFERENCE names no checkout of mlcommons/inference")
    source = models_dir / "imagenet_cls" / "data"
    rows = (source / "labels.csv").read_text().splitlines()
    columns = rows[0].split(",")
    file, classes = columns.index("file"), columns.index("imagenet_indices_0based")
    folder = product.folder / "imagenet"
    (folder / "val").mkdir(parents=True)
    lines = []
    for row in rows[1:]:
        fields = row.split(",")
        (folder / "val" / fields[file]).write_bytes((source / "images" / fields[file]).read_bytes())
        lines.append(f"val/{fields[file]} {fields[classes].split()[0]}")
    (folder / "val_map.txt").write_text("\n".join(lines) + "\n")
    model = models_dir / "imagenet_cls" / "models" / "mobilenet_v2_10_224_u8.tflite"
    outcome = product.run(str(model), "--task", "imagenet-mobilenet", "--data", str(folder), *QUICK)
    said = _official(
        scripts / "accuracy-imagenet.py", outcome.directory,
        "--imagenet-val-file", str(folder / "val_map.txt"),
    )  # fmt: skip
    value = outcome.result.accuracy.value
    assert value is not None
    assert f"accuracy={100 * value:.3f}%" in said
