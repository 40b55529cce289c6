"""Deciding among real runs: models, runtimes and precisions, and kept predictions scored again."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Product

from edgeperf.datasets.assets import resolve
from edgeperf.datasets.catalogue import data_for

QUICK = ("--preset", "smoke", "--min-duration", "0.3")
DIGITS = (
    ("--precision", "float"),
    ("--precision", "float"),
    ("--precision", "int8", "--backend", "onnxruntime"),
)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, models_dir: Path) -> Iterator[Product]:
    """Return a folder with runs of two models on two runtimes, one of them twice."""
    product = Product(tmp_path_factory.mktemp("desk"))
    product.environment["EDGEPERF_MIRROR"] = str(models_dir)
    for options in DIGITS:
        assert product.run("digits", *QUICK, *options).code in (0, 1)
    assert product.run("ai4i", *QUICK).code in (0, 1)
    yield product
    product.close()


def asked(desk: Product, *words: str) -> list[dict[str, Any]]:
    """Return every configuration of ``decide --json``, SUSPECT runs of a busy machine too."""
    done = desk.call("decide", "--accept-suspect", "--json", *words)
    assert done.code in (0, 1), done.stderr
    return [one for group in json.loads(done.stdout)["groups"] for one in group["configurations"]]


@pytest.mark.slow
def test_real_runs_are_grouped_and_judged(desk: Product) -> None:
    """Repeats are one configuration; figures are those of the results; status says it."""
    found = asked(desk, "p99<1s", "accuracy>=0.9", "peak_rss<4GB")
    assert sorted((one["backend"], len(one["runs"])) for one in found) == [
        ("onnxruntime", 1),
        ("tflite", 1),
        ("tflite", 2),
    ]
    for one in found:
        assert one["outcome"] == "passes"
        latency, accuracy, memory = one["lines"]
        assert latency["low"] <= latency["value"] <= (latency["high"] or float("inf"))
        assert accuracy["low"] <= accuracy["value"] <= accuracy["high"]
        assert 1e6 < memory["value"] < 4e9
    assert desk.call("decide", "p99<1ns", "--accept-suspect").code == 1
    assert desk.call("decide", "p99<1s", "--accept-suspect").code == 0


@pytest.mark.slow
def test_kept_predictions_answer_new_questions(desk: Product) -> None:
    """Recall at a precision nobody asked for, and costs, as scikit-learn and a count have them."""
    words = ("recall@precision=0.7>=0.1", "cost<9", "precision@recall=0.5>0", "--cost-miss", "20")
    found = asked(desk, *words, "--cost-false-alarm", "3")
    (tabular,) = [one for one in found if one["model"].startswith("ai4i")]
    recall, cost, precision = tabular["lines"]
    (directory,) = [Path(run["where"]).parent for run in tabular["runs"]]
    with np.load(desk.folder / directory / "predictions.npz") as arrays:
        scores = arrays["predictions"][:, 0]
    labels = labels_of(desk)
    metrics = pytest.importorskip("sklearn.metrics")
    precisions, recalls, _ = metrics.precision_recall_curve(labels, scores)
    assert recall["value"] == pytest.approx(recalls[:-1][precisions[:-1] >= 0.7].max())
    assert precision["value"] == pytest.approx(precisions[:-1][recalls[:-1] >= 0.5].max())
    said = scores >= 0.5
    total = 20 * (labels & ~said).sum() + 3 * (~labels & said).sum()
    assert cost["value"] == pytest.approx(total / len(labels))
    assert all(line["scored_again"] and line["low"] <= line["value"] for line in (recall, cost))
    assert {line["why"] for one in found for line in one["lines"] if one["model"] < "b"} == {None}
    digits = next(one for one in found if one["model"].startswith("digits"))
    assert "not yes or no" in digits["lines"][0]["why"]


def labels_of(desk: Product) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Read the truth of ai4i without the project's reader."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEPERF_MIRROR", desk.environment["EDGEPERF_MIRROR"])
        path = resolve(data_for("ai4i").asset)
    header, *rows = [line.split(",") for line in path.read_text().splitlines()]
    return np.array([row[header.index("failure")] == "1" for row in rows])


@pytest.mark.slow
def test_predictions_that_were_changed_are_not_scored(desk: Product, tmp_path: Path) -> None:
    """Another file under that name, or samples that give other figures, answer nothing."""
    (source,) = desk.output.glob("*ai4i*")
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("result.json", "predictions.npz"):
        (copy / name).write_bytes((source / name).read_bytes())
    line = "recall@precision=0.7>=0.1"
    assert asked(desk, str(copy), line)[0]["lines"][0]["value"] is not None
    np.savez(copy / "predictions.npz", predictions=np.zeros((4000, 1), np.float32))
    (wrong,) = asked(desk, str(copy), line)[0]["lines"]
    assert not wrong["met"]
    assert "is not the file that the result was made with" in wrong["why"]
    result = json.loads((source / "result.json").read_text())
    result["accuracy"]["metrics"]["roc_auc"] = 0.5
    (copy / "result.json").write_text(json.dumps(result))
    (copy / "predictions.npz").write_bytes((source / "predictions.npz").read_bytes())
    (wrong,) = asked(desk, str(copy), line)[0]["lines"]
    assert "not the run's samples" in wrong["why"]


OWN = """
[input]
kind = "array"
[output]
positive = 3
[metric]
gate = "top1"
at_least = 0.5
costs = {miss = 2, false_alarm = 1}
"""


@pytest.mark.slow
def test_own_task_answers_new_questions(
    desk: Product, digits_file: Callable[[str], Path], tmp_path: Path
) -> None:
    """By the user's file while it is there, else by the copy that the run kept."""
    with np.load(digits_file("digits_test.npz")) as arrays:
        np.savez(tmp_path / "mine.npz", images=arrays["images"], labels=arrays["labels"])
    task, output = tmp_path / "own.toml", tmp_path / "own-results"
    task.write_text(OWN)
    options = ("--task", str(task), "--data", str(tmp_path / "mine.npz"), "--output", str(output))
    ran = desk.run(str(digits_file("digits_f32.tflite")), *QUICK, *options)
    assert ran.code in (0, 1), ran.stderr
    lines = ("recall@precision=0.5[3]>0", "cost[3]<9", "cost[3]>=0")
    own = asked(desk, str(output), *lines)[0]["lines"]
    task.unlink()
    assert asked(desk, str(output), *lines)[0]["lines"] == own
    assert own[0]["value"] > 0.9
    assert [line["scored_again"] for line in own] == [True, False, False]
    costs = ("--cost-miss", "200", "--cost-false-alarm", "100")
    dearer = asked(desk, str(output), *lines, *costs)[0]["lines"]
    assert dearer[1]["value"] == pytest.approx(100 * own[1]["value"])


@pytest.mark.slow
def test_misuse_of_accuracy_is_said_aloud(desk: Product) -> None:
    """A share of right answers on 3.4 % positives passes, and the reader is told."""
    done = desk.call("decide", "edgeperf-results/*ai4i*", "accuracy>=0.9", "--accept-suspect")
    assert done.code == 0
    assert "accuracy decides little on these samples: always answering 'no' has 0.9660" in (
        " ".join(done.stdout.split())
    )


@pytest.mark.slow
def test_pattern_directory_and_folder_are_the_same(desk: Product) -> None:
    """However results are named, each counts once."""
    every = [str(path) for path in desk.output.iterdir()]
    one = desk.call("decide", "edgeperf-results", "--json").stdout
    assert json.loads(one)["results"] == len(DIGITS) + 1
    assert desk.call("decide", "edgeperf-results/*", "--json").stdout == one
    twice = json.loads(desk.call("decide", *every, "edgeperf-results", "--json").stdout)
    assert (twice["results"], twice["named_twice"]) == (len(DIGITS) + 1, len(DIGITS) + 1)
