"""The import package is exactly the top-level folders, however it was obtained."""

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
VIEW = ROOT / "deploy" / "package" / "edgeperf"
SETUPTOOLS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "setuptools"
]
FOLDERS = {name.removeprefix("edgeperf."): path for name, path in SETUPTOOLS["package-dir"].items()}
FOLDERS.pop("edgeperf")


def test_every_folder_is_linked_into_the_view() -> None:
    """Static tools see each mapped folder through a relative link of the same name."""
    links = {entry.name: entry for entry in VIEW.iterdir() if entry.is_symlink()}
    assert set(links) == set(FOLDERS)
    for name, link in links.items():
        assert not link.readlink().is_absolute()
        assert link.resolve() == ROOT / FOLDERS[name]


def test_every_package_is_listed_for_the_build() -> None:
    """A folder with an ``__init__.py`` that pyproject.toml forgets would not be installed."""
    found = {
        ".".join(("edgeperf", name, *path.parent.relative_to(ROOT / folder).parts))
        for name, folder in FOLDERS.items()
        for path in (ROOT / folder).rglob("__init__.py")
    }
    assert found | {"edgeperf"} == set(SETUPTOOLS["packages"])
