"""The command line itself: what it loads, how long that takes, and what it lists."""

import json
import os
import shlex
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from edgeperf import __version__
from edgeperf.agent.cli.main import COMMANDS
from edgeperf.backends import backend_names
from edgeperf.datasets import task_names
from edgeperf.datasets.catalogue import models

if TYPE_CHECKING:
    from conftest import Product

RUNTIMES = {
    *("ai_edge_litert", "tflite_runtime", "tensorflow", "onnxruntime", "openvino"),
    "mlperf_loadgen",
}
#: What takes long to load, and what help does not need.
HEAVY = RUNTIMES | {
    *("numpy", "rich", "paho", "serial", "cryptography", "PIL", "sqlalchemy"),
    *("starlette", "uvicorn", "jinja2", "asyncio"),
}
#: Prints the heavy modules that are loaded, when a program ends in whatever way.
REPORT = (
    "import atexit, sys; atexit.register(lambda: print('LOADED', *sorted("
    f"{HEAVY!r} & {{name.partition('.')[0] for name in sys.modules}}), file=sys.stderr))"
)
HELP = "; import sys; sys.argv = ['edgeperf', *{!r}]; from edgeperf.agent.cli import main; main()"


def loaded(product: "Product", program: str) -> set[str]:
    """Return which of :data:`HEAVY` a fresh process loads that runs *program*."""
    command = [sys.executable, "-c", REPORT + program]
    done = subprocess.run(
        command, cwd=product.folder, env=product.environment, capture_output=True, check=True
    )
    (line,) = [text for text in done.stderr.decode().splitlines() if text.startswith("LOADED")]
    return set(line.split()[1:])


def test_importing_the_package_loads_nothing_heavy(product: "Product") -> None:
    """``import edgeperf`` is an error tree and a version."""
    assert loaded(product, "; import edgeperf") == set()


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--version"], []])
def test_help_loads_nothing_heavy(product: "Product", arguments: list[str]) -> None:
    """``edgeperf --help`` needs no runtime, no numpy and no rich."""
    assert loaded(product, HELP.format(arguments)) == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_loads_no_runtime(product: "Product", command: str) -> None:
    """Each command says how it is used without loading the runtimes that it will use."""
    assert not loaded(product, HELP.format([command, "--help"])) & RUNTIMES


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(product: "Product", command: str) -> None:
    """The list of commands and each command's own page: no traceback, no empty page."""
    outcome = product.call(command, "--help")
    assert outcome.code == 0
    assert outcome.stdout.startswith(f"Usage: edgeperf {command}")
    assert outcome.stderr == ""
    assert COMMANDS[command][1] in " ".join(product.call("--help").stdout.split())


def cpu_s(command: list[str], environment: dict[str, str]) -> float:
    """Return the CPU time of *command*: on a busy machine steadier than the clock."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


def test_help_is_as_quick_as_the_libraries_it_stands_on(product: "Product") -> None:
    """``edgeperf --help`` takes at most 1.3 times of ``import click, rich``.

    Both in turn, so that whatever slows the machine slows both.
    """
    bare, ours = [], []
    for _ in range(15):
        bare.append(cpu_s([sys.executable, "-c", "import click, rich"], product.environment))
        ours.append(cpu_s([*product.command, "--help"], product.environment))
    assert statistics.median(ours) <= 1.3 * statistics.median(bare)


def test_version(product: "Product") -> None:
    """``--version`` prints name and version, and nothing else."""
    outcome = product.call("--version")
    assert (outcome.code, outcome.stdout) == (0, f"edgeperf {__version__}\n")


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("models", [model.name for model in models()]),
        ("tasks", list(task_names())),
        ("backends", list(backend_names())),
    ],
)
def test_listings(product: "Product", command: str, names: list[str]) -> None:
    """Each list is complete, as a table for people and as JSON for programs."""
    table = product.call(command)
    assert table.code == 0
    assert all(name in table.stdout for name in names)
    rows = json.loads(product.call(command, "--json").stdout)
    assert [row["name"] for row in rows] == names


@pytest.mark.parametrize("command", [["models"], ["models", "--json"], ["run", "--help"]])
def test_reader_that_goes_away_is_no_error(product: "Product", command: list[str]) -> None:
    """``edgeperf models | head -1`` says nothing on standard error."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(
            [*product.command, *command],
            cwd=product.folder,
            env=product.environment,
            stdout=closed,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.stderr == b""
    assert done.returncode in (0, 1)


@pytest.mark.slow
def test_verdict_is_the_exit_status_even_without_a_reader(product: "Product") -> None:
    """A run whose output nobody reads still ends with its verdict, and leaves its result."""
    reading, writing = os.pipe()
    os.close(reading)
    quick = ("--preset", "smoke", "--min-duration", "0.2", "--json")
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(
            [*product.command, "run", "digits", *quick],
            cwd=product.folder,
            env=product.environment,
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert "Traceback" not in done.stderr
    (directory,) = product.output.iterdir()
    status = json.loads((directory / "result.json").read_bytes())["verdict"]["status"]
    assert done.returncode == (0 if status == "VALID" else 1)


QUICK = ("run", "digits", "--preset", "smoke", "--min-duration", "0.2")


def through_shell(product: "Product", redirection: str) -> "subprocess.CompletedProcess[str]":
    """Make a short run from a shell that redirects its standard streams."""
    line = shlex.join([*product.command, *QUICK]) + " " + redirection
    return subprocess.run(
        ["sh", "-c", line],
        cwd=product.folder,
        env=product.environment,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("redirection", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams(product: "Product", redirection: str) -> None:
    """A caller that closes streams gets the same run; nothing of ours takes their place."""
    done = through_shell(product, redirection)
    assert done.returncode in (0, 1), done.stderr
    (directory,) = product.output.iterdir()
    result = json.loads((directory / "result.json").read_bytes())
    assert result["accuracy"]["value"] == pytest.approx(352 / 360)
    assert result["performance"]["headline"] is not None
    if ">&-" not in redirection.replace("2>&-", ""):
        assert done.stdout.startswith(result["verdict"]["status"])


@pytest.mark.slow
@pytest.mark.parametrize("redirection", [">/dev/full", "2>/dev/full"])
def test_output_that_cannot_be_written(product: "Product", redirection: str) -> None:
    """A full disk behind a redirection is told in one line, if there is anywhere to tell it."""
    done = through_shell(product, redirection)
    assert "a bug" not in done.stderr
    assert "Traceback" not in done.stderr
    (directory,) = product.output.iterdir()
    assert (directory / "result.json").is_file()
    if redirection.startswith("2"):
        assert directory.name in done.stdout
    else:
        assert "No space left on device" in done.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_terminal_of_any_encoding(product: "Product", encoding: str) -> None:
    """What a terminal cannot show is replaced; the run and its exit status are the same."""
    product.environment["PYTHONIOENCODING"] = encoding
    done = through_shell(product, "--min-queries 20 --min-duration 0.001")  # LoadGen: invalid
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("INVALID")
    assert "latency" in done.stdout
