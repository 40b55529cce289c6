"""The comparison with other harnesses runs through; what it finds is judged by people."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import edgeperf

TESTS = Path(__file__).parent
ROOT = TESTS.parent
TARGET = "digits@openvino"
PEERS = {"edgeperf", "reference", "queue", "pipe"}
#: Scenario -> contestants, and the ratios that each of them has.
EXPECTED = {
    "SingleStream": (PEERS | {"bare", "plain", "benchmark_app"}, {"p50_ns", "sps", "cpu"}),
    "MultiStream": (PEERS | {"bare"}, {"p50_ns", "p90_ns", "p99_ns", "cpu"}),
    "Offline": (PEERS | {"bare", "benchmark_app"}, {"sps", "cpu"}),
    "Server": (PEERS, {"sps"}),
}

pytestmark = pytest.mark.slow


def called(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the benchmark to its end."""
    paths = [str(TESTS), str(Path(edgeperf.__path__[0]).parent)]
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"},
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def bench(*arguments: str) -> str:
    """Run the benchmark and return what it printed."""
    done = called(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def estimates(node: Any) -> list[dict[str, float]]:
    """Return every ratio with its interval, wherever it is."""
    if isinstance(node, dict):
        own = [node] if set(node) == {"value", "low", "high"} else []
        return own + [found for value in node.values() for found in estimates(value)]
    if isinstance(node, list):
        return [found for value in node for found in estimates(value)]
    return []


def test_short_form_compares_everything_with_everything(tmp_path: Path) -> None:
    """Every ratio is there and a number; tables and chart hold what the file holds."""
    file, words = tmp_path / "bench.json", tmp_path / "performance.md"
    text = bench(TARGET, "--short", "--json", str(file))
    kept = json.loads(file.read_text())
    lines = kept["analysis"]["lines"]
    for scenario, (contestants, ratios) in EXPECTED.items():
        own = {line["contestant"]: line for line in lines if line["scenario"] == scenario}
        assert set(own) == contestants
        for line in own.values():
            assert ratios <= set(line["ratios"])
    found = estimates(kept["analysis"])
    assert len(found) > 40
    assert all(math.isfinite(number) for one in found for number in one.values())
    assert all(
        row["figures"]["samples"] > 0 and not row["figures"]["error"] for row in kept["rows"]
    )
    assert {row["grows"] for row in kept["growth"]} == {"queries", "samples", "workers"}
    assert len(kept["memory"]) >= 4
    assert all(goal["text"] in text for goal in kept["analysis"]["goals"])

    words.write_text((ROOT / "docs/performance.md").read_text())
    assert bench("--from", str(file), "--document", str(words)) == text
    assert text in words.read_text()
    assert words.with_suffix(".svg").read_text().count("<circle") > 20

    del kept["analysis"]
    file.write_text(json.dumps(kept))
    assert bench(TARGET, "--short", "--json", str(file)) == text  # goes on: nothing is missing


def test_files_that_do_not_serve_are_named_in_one_line(tmp_path: Path) -> None:
    """A record that is none, and a document without a place for the tables."""
    record, words = tmp_path / "bench.json", tmp_path / "words.md"
    record.write_text("{}")
    done = called("--from", str(record))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    record.write_text('{"settings": {}, "machine": {}}')
    words.write_text("# No place\n")
    done = called("--from", str(record), "--document", str(words))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert words.read_text() == "# No place\n"
    assert list(tmp_path.glob("*.svg")) == []
