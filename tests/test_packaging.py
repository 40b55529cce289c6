"""What a board gets: a wheel with ``edgeperf`` and nothing else, that runs by itself."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the files that git tracks: what a stranger's clone holds."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    copy = tmp_path_factory.mktemp("tree") / "any.name"
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, target = ROOT / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(source.readlink())
        elif source.exists():
            target.write_bytes(source.read_bytes())
    return copy


@pytest.fixture(scope="module")
def built(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the sdist, and the wheel that was built from it."""
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(out), str(tree)],
        cwd=out,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def _wheel(built: Path) -> Path:
    (wheel,) = built.glob("*.whl")
    return wheel


def test_the_wheel_holds_edgeperf_only(built: Path, tree: Path) -> None:
    """Every module and data file once, under ``edgeperf/``, none forgotten."""
    names = set(zipfile.ZipFile(_wheel(built)).namelist())
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"edgeperf"}
    folders = ("agent", "backends", "coordinator", "datasets", "power")
    ours = {
        f"edgeperf/{path.relative_to(tree).as_posix()}"
        for folder in folders
        for path in (tree / folder).rglob("*")
        if path.is_file() and path.suffix != ".md"
    }
    assert ours <= names, sorted(ours - names)
    assert "edgeperf/py.typed" in names


def test_the_sdist_holds_what_the_wheel_is_built_from(built: Path) -> None:
    """No folder is lost on the way, as links would be."""
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    for needed in ("agent/run/team.py", "datasets/bundled/digits_test.npz", "LICENSE"):
        assert any(name.endswith(f"/{needed}") for name in names), needed


def test_the_installed_wheel_runs_a_real_model(built: Path, tmp_path: Path) -> None:
    """From another folder, with nothing of the checkout on the path."""
    site = tmp_path / "site"
    with zipfile.ZipFile(_wheel(built)) as wheel:
        wheel.extractall(site)  # noqa: S202 - we built it
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"}
    where = subprocess.run(
        [sys.executable, "-c", "import edgeperf; print(edgeperf.__file__)"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(site))
    done = subprocess.run(
        [sys.executable, "-m", "edgeperf", "run", "digits", "--preset", "smoke"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    assert "top1 0.97" in done.stdout
