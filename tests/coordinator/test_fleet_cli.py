"""``edgeperf fleet`` and ``edgeperf coordinator`` as a person types them."""

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgeperf.agent.freeze.document import digest_of
from edgeperf.coordinator.client import Client
from edgeperf.coordinator.service import Coordinator


class Typed:
    """What a command did."""

    def __init__(self, done: "subprocess.CompletedProcess[bytes]") -> None:
        self.status = done.returncode
        self.raw = done.stdout
        self.out = done.stdout.decode("utf-8", "replace")
        self.err = done.stderr.decode("utf-8", "replace")


@pytest.fixture
def typed(coordinator: Coordinator, tmp_path: Path) -> Callable[..., Typed]:
    """Return what runs ``edgeperf …`` beside the running coordinator."""
    del coordinator
    environment = {
        **os.environ,
        "PYTHONSAFEPATH": "1",
        "EDGEPERF_COORDINATOR_DATA": str(tmp_path / "coordinator"),
        "COLUMNS": "200",
    }

    def run(*words: str) -> Typed:
        command = [sys.executable, "-m", "edgeperf", *words]
        return Typed(
            subprocess.run(
                command,
                env=environment,
                cwd=tmp_path,
                capture_output=True,
                check=False,
                timeout=110,
            )
        )

    return run


@pytest.fixture
def shelf(client: Client, simulate: Any, until: Any) -> None:
    """Put two boards on the shelf, one with the label ``fast``."""
    simulate(client, "pi5-01", "pi5-02", run_s=0.1)
    until(lambda: all(board["state"] == "online" for board in client.get("/v1/boards")))
    client.post("/v1/boards/pi5-01/labels", {"add": ["fast", "desk"]})
    client.post("/v1/boards/pi5-02/labels", {"add": ["desk"]})


def test_ls_and_show(typed: Any, shelf: None) -> None:
    """Boards with their state and labels; one board with what it said of itself."""
    del shelf
    listed = typed("fleet", "ls")
    assert listed.status == 0
    assert "pi5-01" in listed.out
    assert "online" in listed.out
    assert "desk" in listed.out
    boards = json.loads(typed("fleet", "ls", "--json").out)
    assert [board["name"] for board in boards] == ["pi5-01", "pi5-02"]
    shown = typed("fleet", "show", "pi5-01")
    assert "simulated" in shown.out
    assert json.loads(typed("fleet", "show", "pi5-01", "--json").out)["description"]["fleet"]


def test_run_waits_and_exits_with_the_runs_status(typed: Any, shelf: None) -> None:
    """The verdict is printed, invalid is 1; progress goes to standard error."""
    del shelf
    done = typed("fleet", "run", "label:fast", "digits", "--preset", "smoke")
    assert done.status == 1
    assert "INVALID" in done.out
    assert "no model ran" in done.out
    assert done.err.startswith("edgeperf: run ")
    assert done.err.endswith("edgeperf: succeeded\n")
    nothing = typed("fleet", "run", "pi5-01", "digits", "--set", "samples_per_query=4")
    assert nothing.status == 2
    assert "samples_per_query: means nothing in scenario SingleStream" in nothing.err
    as_json = typed("fleet", "run", "pi5-02", "digits", "--set", "threads=2", "--json")
    view = json.loads(as_json.out)
    assert (view["board"], view["spec"]["threads"], as_json.status) == ("pi5-02", 2, 1)


def test_detach_watch_clone_logs(typed: Any, shelf: None) -> None:
    """Only the id on standard output; a clone changes what it is told and nothing else."""
    del shelf
    run = typed("fleet", "run", "pi5-01", "digits", "--detach", "--set", "seed=7").out.strip()
    assert typed("fleet", "watch", run).status == 1
    assert typed("fleet", "show", run).status == 1
    cloned = typed("fleet", "clone", run, "--set", "threads=3", "--set", "seed=", "--json")
    spec = json.loads(cloned.out)["spec"]
    assert (spec["model"], spec["threads"], spec.get("seed")) == ("digits", 3, None)
    assert typed("fleet", "logs", run).status == 0
    assert typed("fleet", "cancel", run).out.startswith(f"run {run} is over already")


def test_model_file_is_sent_along(typed: Any, shelf: None, client: Client, tmp_path: Path) -> None:
    """By its digest; the second time nothing is sent."""
    del shelf
    (tmp_path / "net.tflite").write_bytes(os.urandom(3_000_000))
    for _ in range(2):
        run = typed("fleet", "run", "pi5-01", "net.tflite", "--detach").out.strip()
    view = client.get(f"/v1/runs/{run}")
    assert view["request"]["model"]["name"] == "net.tflite"
    assert view["spec"]["model"] == f"sha256:{view['request']['model']['sha256']}"


def test_results_in_every_format(typed: Any, shelf: None, tmp_path: Path) -> None:
    """The same metrics in CSV, JSONL and Parquet; JSON has the whole result; filters filter."""
    del shelf
    for board in ("pi5-01", "pi5-02"):
        typed("fleet", "run", board, "digits")
    assert "pi5-01" in typed("fleet", "results").out
    rows = list(csv.DictReader(io.StringIO(typed("fleet", "results", "--format", "csv").out)))
    lines = [
        json.loads(line) for line in typed("fleet", "results", "--format", "jsonl").out.splitlines()
    ]
    assert [(row["run"], row["metric"]) for row in rows] == [
        (line["run"], line["metric"]) for line in lines
    ]
    assert {row["unit"] for row in rows if row["metric"] == "latency_p99_ns"} == {"ns"}
    whole = json.loads(typed("fleet", "results", "--format", "json", "--board", "pi5-02").out)
    assert [view["board"] for view in whole] == ["pi5-02"]
    assert whole[0]["result"]["performance"]["latency_ns"]["p99"]
    parquet = pytest.importorskip("pyarrow.parquet")
    assert typed("fleet", "results", "--format", "parquet", "-o", "r.parquet").status == 0
    table = parquet.read_table(tmp_path / "r.parquet")
    assert table.num_rows == len(rows)
    assert table.column("value").to_pylist() == [float(row["value"]) for row in rows]
    assert typed("fleet", "results", "--since", "2099-01-01", "--format", "jsonl").out == ""
    assert typed("fleet", "results", "--verdict", "valid", "--format", "jsonl").out == ""


def test_export_is_decided_upon(typed: Any, shelf: None) -> None:
    """``edgeperf decide`` takes it; simulated results are INVALID and so refused, each by board."""
    del shelf
    for board in ("pi5-01", "pi5-02"):
        typed("fleet", "run", board, "digits")
    assert typed("fleet", "results", "--format", "json", "-o", "shelf.json").status == 0
    done = typed("decide", "shelf.json", "p99<1s")
    assert (done.status, done.err) == (1, "")
    assert done.out.startswith("0 of 2 configurations pass")
    assert {"pi5-01", "pi5-02"} <= set(done.out.split())
    assert done.out.count("made by edgeperf fleet simulate") == 2
    typed("fleet", "results", "--format", "jsonl", "-o", "shelf.jsonl")
    refused = typed("decide", "shelf.jsonl", "p99<1s")
    assert refused.status == 2
    assert "export with edgeperf fleet results --format json" in refused.err


def test_campaign(typed: Any, shelf: None, tmp_path: Path) -> None:
    """Runs to its end, exits by its verdicts, and shows how far it is."""
    del shelf
    file = tmp_path / "shelf.toml"
    file.write_text('name = "shelf"\nboards = ["label:desk"]\nmodels = ["digits"]\nrepeats = 2\n')
    done = typed("fleet", "campaign", "run", str(file))
    assert done.status == 1
    assert "4 done" in done.err
    assert "shelf  done" in typed("fleet", "campaign", "status").out
    assert typed("fleet", "campaign", "status", "shelf").out.count("pi5-0") == 4
    again = typed("fleet", "campaign", "run", str(file))
    assert again.status == 2
    assert "shelf.toml:1: name: a campaign 'shelf' is there already" in again.err


def test_label_and_drain(typed: Any, shelf: None, client: Client, until: Any) -> None:
    """Labels come and go; a draining board says so."""
    del shelf
    changed = typed("fleet", "label", "pi5-02", "new", "--", "-desk")
    assert changed.out == "pi5-02: new, kind=simulated\n"
    assert typed("fleet", "drain", "pi5-02", "--reason", "moving it").status == 0
    until(lambda: client.get("/v1/boards/pi5-02")["state"] == "draining")


@pytest.mark.parametrize(
    ("words", "status", "expected"),
    [
        (("fleet", "run", "pi5", "digits"), 2, "board 'pi5': not enrolled"),
        (("fleet", "run", "label:desk", "digits"), 2, "2 boards (pi5-01, pi5-02); name one"),
        (("fleet", "run", "label:zzz", "digits"), 2, "label 'zzz': no board carries it"),
        (("fleet", "run", "pi5-01"), 2, "MODEL: give a model file or a catalogue name"),
        (("fleet", "run", "pi5-01", "missing.tflite"), 2, "model missing.tflite: No such file"),
        (("fleet", "run", "pi5-01", "./net.bin"), 2, "expected a .tflite or .onnx file"),
        (("fleet", "run", "pi5-01", "digits", "--set", "thread=2"), 2, "unknown field `thread`"),
        (("fleet", "run", "pi5-01", "digits", "--set", "x"), 2, "expected FIELD=VALUE"),
        (("fleet", "run", "pi5-01", "digits", "--meter", "ppk2:/dev/x"), 2, "no file"),
        (("fleet", "run", "pi5-01", "digits", "--scenario", "Sever"), 2, "'Sever' is not one of"),
        (("fleet", "watch", "nope"), 2, "run 'nope': no such run"),
        (("fleet", "campaign", "run", "nope.toml"), 2, "nope.toml: No such file"),
        (("fleet", "campaign", "status", "nope"), 2, "campaign 'nope': there is none"),
        (("fleet", "results", "--campaign", "nope"), 2, "campaign 'nope': there is none"),
        (("fleet", "results", "--board", "nope"), 2, "board 'nope'"),
        (("fleet", "results", "--since", "yesterday"), 2, "--since yesterday: expected 7d"),
        (("fleet", "--coordinator", "http://127.0.0.1:1", "ls"), 3, "is it running?"),
        (("fleet", "--coordinator", "x", "ls"), 2, "expected http://HOST:PORT"),
        (("fleet", "--data", "/nowhere", "ls"), 2, "No such file or directory"),
        (("coordinator", "--broker", "amqtt"), 2, "--broker 'amqtt'"),
        (("coordinator", "--broker", "mqtt://a:b@c"), 2, "the URL holds a password"),
        (("coordinator", "--broker", "mqtt://127.0.0.1:1"), 3, "nobody answers"),
        (("coordinator", "--store", "mysql://x"), 2, "unknown kind 'mysql'"),
        (("coordinator", "--store", "postgresql://u@127.0.0.1:1/d"), 3, "store postgresql"),
        (("coordinator", "enroll", "No Good"), 2, "a name is 1 to 40"),
    ],
)
def test_bad_input_is_one_line_and_the_right_status(
    typed: Any, shelf: None, tmp_path: Path, words: tuple[str, ...], status: int, expected: str
) -> None:
    """Every mistake says what, where, what was expected; never a traceback."""
    del shelf
    if words[0] == "coordinator" and "enroll" not in words:
        other = ("--data", str(tmp_path / "other"), "--broker-port", "0", "--http-port", "0")
        words = (words[0], *other, *words[1:])
    done = typed(*words)
    assert done.status == status, done.err
    assert expected in done.err
    assert done.err.count("\n") == 1
    assert done.err.startswith("edgeperf: ")


def test_enroll_prints_what_to_type(typed: Any, client: Client) -> None:
    """The code and the command for the board."""
    done = typed("coordinator", "enroll", "pi5")
    assert "edgeperf agent enroll http://127.0.0.1:" in done.out
    assert "--name pi5" in done.out
    code = json.loads(typed("coordinator", "enroll", "--json").out)["code"]
    assert len(code) == 11
    admitted = json.loads(typed("coordinator", "admit", "pi7").out)
    assert admitted["device"] == "pi7"
    assert typed("coordinator", "revoke", "pi7").status == 0
    assert client.get("/v1/boards/pi7")["state"] == "revoked"


def test_simulate_is_a_load_test_of_a_fleet(typed: Any) -> None:
    """Sixty boards for five seconds: everything is acknowledged, and the times are reported."""
    done = typed(
        "fleet", "simulate", "--boards", "60", "--every", "2", "--seconds", "5",
        "--run-time", "0.5", "--json",
    )  # fmt: skip
    assert done.status == 0, done.err
    report = json.loads(done.out)
    assert report["unsent"] == 0
    assert report["results"] == report["results_acked"] >= 60
    listed = json.loads(typed("fleet", "results", "--format", "json", "--limit", "10000").out)
    assert len(listed) == report["results"]


def test_help_loads_neither_server_nor_database() -> None:
    """``edgeperf --help``, and that of the fleet, start without them."""
    code = (
        "import sys; from edgeperf.agent.cli.main import main; main(['fleet', '--help']);"
        "main(['coordinator', '--help']); main(['demo', '--help']);"
        "heavy = {'starlette', 'uvicorn', 'sqlalchemy', 'paho', 'rich', 'numpy'};"
        "heavy &= set(sys.modules);"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture
def frozen(typed: Callable[..., Typed], tmp_path: Path) -> Path:
    """Return the frozen spec of a real run on this machine."""
    pytest.importorskip("ai_edge_litert")
    ran = typed("run", "digits", "--preset", "smoke", "--min-duration", "0.2")
    assert ran.status in {0, 1}, ran.err
    (result,) = (tmp_path / "edgeperf-results").iterdir()
    assert typed("spec", "freeze", str(result), "-o", "spec.json").status == 0
    return tmp_path / "spec.json"


@pytest.fixture
def real_board(client: Client, tmp_path: Path, until: Any) -> Iterator[str]:
    """Return the name of a board whose agent serves on this machine.

    Its folder is given as a person in it would, by a relative path.
    """
    state = tmp_path / "agent"
    state.mkdir(mode=0o700)
    code = client.post("/v1/codes", {"board": "real"})["code"]
    agent = [sys.executable, "-m", "edgeperf", "agent", "--state", state.name]
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    join = [*agent, "enroll", client.url, "--code", code, "--name", "real"]
    joined = subprocess.run(
        join, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True, timeout=60
    )
    assert f"Start it: edgeperf agent --state {state}" in joined.stdout
    with subprocess.Popen(
        agent, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL
    ) as process:
        until(lambda: client.get("/v1/boards/real")["state"] == "online")
        yield "real"
        process.terminate()


def test_a_board_holds_a_frozen_spec(
    typed: Callable[..., Typed], frozen: Path, real_board: str
) -> None:
    """It runs what it holds, says so in the result, and refuses the rest with every reason."""
    spec = json.loads(frozen.read_text())
    held = json.loads(typed("fleet", "run", real_board, "--spec", str(frozen), "--json").out)
    assert held["state"] == "succeeded", held["error"]
    repeat = held["result"]["repeat"]
    assert repeat["digest"] == spec["digest"]
    for name, said in (("preset", ("--preset", "fast")), ("threads", ("--set", "threads=2"))):
        beside = typed("fleet", "run", real_board, "--spec", str(frozen), *said)
        assert beside.status == 2
        assert f"is frozen; leave out {name}" in beside.err
    assert not [one for one in repeat["differs"] if one["matters"]]

    spec["software"] |= {"runtime_version": "0.1", "edgeperf": "0.0.1"}
    spec["digest"] = digest_of(spec)
    frozen.write_text(json.dumps(spec))
    refused = typed("fleet", "run", real_board, "--spec", str(frozen))
    assert refused.status == 2
    assert "runtime-version: ai-edge-litert: expected 0.1" in refused.out
    assert "edgeperf-version: edgeperf: expected 0.0.1" in refused.out
    names = ("--allow", "runtime-version", "--allow", "edgeperf-version")
    allowed = typed("fleet", "run", real_board, "--spec", str(frozen), *names)
    assert allowed.status == 1
    assert "not as in the frozen spec (allowed)" in allowed.out


@pytest.mark.usefixtures("shelf")
def test_a_board_that_knows_no_frozen_spec_is_noticed(
    typed: Callable[..., Typed], frozen: Path
) -> None:
    """A result that does not say that it was held is not passed off as one that was."""
    done = typed("fleet", "run", "pi5-01", "--spec", str(frozen))
    assert done.status == 3
    assert "did not hold it to the frozen spec" in done.err
    run = typed("fleet", "run", "pi5-01", "--spec", str(frozen), "--detach").out.strip()
    for again in (typed("fleet", "watch", run), typed("fleet", "clone", run)):
        assert again.status == 3
        assert "did not hold it to the frozen spec" in again.err
    plain = typed("fleet", "run", "pi5-01", "digits", "--allow", "kernel")
    assert plain.status == 2
    assert "means nothing without a frozen spec" in plain.err
