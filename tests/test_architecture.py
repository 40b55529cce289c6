"""Imports run one way, modules stay small, and the light parts stay light."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

#: Which siblings each top-level package may import.
MAY_IMPORT: dict[str, set[str]] = {
    "datasets": set(),
    "power": set(),
    "backends": {"datasets"},
    "agent": {"backends", "datasets", "power"},
    "coordinator": {"agent", "datasets"},
}
#: Of the agent, the coordinator may know what is plain data.
COORDINATOR_MAY = {"agent.spec", "agent.result", "agent.messages", "agent.events"}
#: The command line stands above everything: its commands may start a coordinator.
ABOVE = ROOT / "agent" / "cli"

LONGEST_MODULE = 300
LONGEST_FUNCTION = 60


def _modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


ALL = [path for package in MAY_IMPORT for path in _modules(package)]


def _imported_by(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    ours = {name for name in names if name.startswith("edgeperf.")}
    return {name.removeprefix("edgeperf.") for name in ours}


def _id(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_downwards(package: str) -> None:
    """No module imports a sibling package that its own package may not know."""
    allowed = MAY_IMPORT[package] | {package}
    wrong = {
        _id(path): strangers
        for path in _modules(package)
        if ABOVE not in path.parents
        and (
            strangers := {name.split(".")[0] for name in _imported_by(path)}
            & MAY_IMPORT.keys() - allowed
        )
    }
    assert not wrong


def test_the_coordinator_knows_only_plain_data_of_the_agent() -> None:
    """It must run where no board part is installed."""
    wrong = {
        _id(path): names
        for path in _modules("coordinator")
        if (
            names := {
                name
                for name in _imported_by(path)
                if name.startswith("agent.")
                and not any(name == door or name.startswith(f"{door}.") for door in COORDINATOR_MAY)
            }
        )
    }
    assert not wrong


@pytest.mark.parametrize("path", ALL, ids=_id)
def test_modules_and_functions_fit_their_budget(path: Path) -> None:
    """A module can be read in one sitting, a function on one screen."""
    text = path.read_text()
    assert len(text.splitlines()) <= LONGEST_MODULE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, f"{node.name} has {length} lines"
