"""The README keeps its promises: its commands run and print what it shows."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from edgeperf.agent.cli.main import edgeperf

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
MAKE = re.findall(r"^\$ make (\w+)$", README, re.MULTILINE)
COMMANDS = [shlex.split(line) for line in re.findall(r"^\$ edgeperf (.+)$", README, re.MULTILINE)]
#: Labels of the result table in the README's picture of a run.
LABELS = re.findall(
    r"^([a-z][a-z0-9 ]+?) {2,}\S", README.split("```text")[1].split("```")[0], re.MULTILINE
)


def test_the_two_commands_are_in_the_makefile() -> None:
    """A stranger types exactly these."""
    assert MAKE == ["run", "test"]
    makefile = (ROOT / "Makefile").read_text()
    for target in MAKE:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_each_command_runs(words: list[str], tmp_path: Path) -> None:
    """Status 1 is a measured but suspect result, as a busy machine gives."""
    safe = ["-P"] if sys.version_info >= (3, 11) else []
    done = subprocess.run(
        [sys.executable, *safe, "-m", "edgeperf", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode in (0, 1), done.stderr
    if words[0] == "run":
        shown = {line.split("  ")[0] for line in done.stdout.splitlines()}
        assert done.stdout.split()[0] in ("VALID", "SUSPECT", "INVALID")
        assert {"model", "runtime", "accuracy", "load"} <= shown


def test_the_demo_prints_the_lines_of_the_picture(tmp_path: Path) -> None:
    """Every label of the table that the README shows is printed by ``make run``'s command."""
    pytest.importorskip("starlette")
    safe = ["-P"] if sys.version_info >= (3, 11) else []
    done = subprocess.run(
        [sys.executable, *safe, "-m", "edgeperf", "demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode in (0, 1), done.stderr
    assert LABELS
    assert " (simulated): power at the" in done.stdout  # nobody takes its joules for real ones
    assert "a program plays it" in done.stdout
    shown = {line.split("  ")[0] for line in done.stdout.splitlines()}
    assert set(LABELS) <= shown


def _inline_commands() -> list[str]:
    pages = [README, *(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))]
    found = [text for page in pages for text in re.findall(r"`edgeperf ([a-z][^`]*)`", page)]
    return sorted({" ".join(text.split()) for text in found if "|" not in text and "…" not in text})


@pytest.mark.parametrize("text", _inline_commands())
def test_each_command_in_the_prose_exists_with_its_options(text: str) -> None:
    """Whatever the README and the pages call ``edgeperf ...`` is a command with those options."""
    command: click.Command = edgeperf
    context = click.Context(command)
    words = text.split()
    while words and isinstance(command, click.Group) and not words[0].startswith("-"):
        name = words.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"no command {name}"
        command = found
    options = {name for parameter in command.params for name in parameter.opts}
    for word in words:
        if word == "--":
            break
        if word.startswith("--"):
            assert word.split("=")[0].rstrip(",.;:)") in {*options, "--help", "--json"}, word


def test_every_page_that_it_names_is_there() -> None:
    """No link of the README leads nowhere."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert links
    assert not [link for link in links if not (ROOT / link).exists()]
