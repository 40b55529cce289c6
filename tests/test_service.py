"""``edgeperf service``: the same units, users and rules from an installed package.

The environment is a real one, made for the test; the system is a folder.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import edgeperf

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes users, which only root can")


class Installed:
    """edgeperf in a virtual environment, and a bare system below a folder.

    Attributes:
        environment: The virtual environment.
        root: The system.
    """

    def __init__(self, folder: Path) -> None:
        self.environment = folder / "venv"
        self.root = folder / "root"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(self.environment)], check=True
        )
        (site,) = self.environment.glob("lib/python3*/site-packages")
        places = [Path(edgeperf.__path__[0]).parent, *map(Path, sys.path)]
        (site / "edgeperf.pth").write_text("\n".join(str(p) for p in places if p.is_dir()))
        (self.root / "etc").mkdir(parents=True)
        for name, text in (
            ("passwd", "root:x:0:0:root:/root:/bin/bash\n"),
            ("group", "root:x:0:\ndialout:x:20:\n"),
            ("shadow", "root:*:19000:0:99999:7:::\n"),
            ("gshadow", "root:*::\ndialout:*::\n"),
        ):
            (self.root / "etc" / name).write_text(text)
        shutil.copy("/etc/login.defs", self.root / "etc/login.defs")

    def call(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run ``edgeperf service``."""
        python = str(self.environment / "bin/python")
        command = [python, "-I", "-m", "edgeperf", "service", *arguments, "--root", str(self.root)]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")

    def listing(self) -> dict[str, tuple[int, int, int]]:
        """Return mode, owner and time of change of everything in the system."""
        return {
            str(path.relative_to(self.root)): (seen.st_mode, seen.st_uid, seen.st_mtime_ns)
            for path in self.root.rglob("*")
            if not path.name.endswith("-")  # useradd's backups
            for seen in [path.lstat()]
        }


@pytest.fixture
def installed() -> Iterator[Installed]:
    """Return a fresh environment, where a service could see it: not in pytest's own folder."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Installed(Path(folder))


def test_install_twice_and_uninstall(installed: Installed) -> None:
    """All is there, the second time changes nothing, and in the end nothing is left."""
    before = set(installed.listing())
    done = installed.call("install", "--coordinator")
    assert done.returncode == 0, done.stderr
    units = installed.root / "etc/systemd/system"
    unit = (units / "edgeperf-agent.service").read_text()
    assert f"ExecStart={installed.environment}/bin/edgeperf agent" in unit
    tuner = (units / "edgeperf-tuner.service").read_text()
    assert f"ExecStart={installed.environment}/bin/python -I -m edgeperf.agent.tuner" in tuner
    assert (installed.root / "etc/udev/rules.d/70-edgeperf.rules").exists()
    users = (installed.root / "etc/passwd").read_text()
    assert "edgeperf:" in users
    assert "edgeperf-coordinator:" in users
    once = installed.listing()
    assert installed.call("install", "--coordinator").returncode == 0
    assert installed.listing() == once
    assert installed.call("uninstall").returncode == 0
    assert set(installed.listing()) == before
    assert "edgeperf" not in (installed.root / "etc/passwd").read_text()
    assert not list(installed.environment.glob("edgeperf-*"))


def test_data_can_be_kept(installed: Installed) -> None:
    """The identity and the board's file stay, and their user with them."""
    installed.call("install")
    (installed.root / "var/lib/edgeperf/identity.json").write_text("{}")
    assert installed.call("uninstall", "--keep-data").returncode == 0
    assert (installed.root / "var/lib/edgeperf/identity.json").exists()
    assert (installed.root / "etc/edgeperf/board.toml").exists()
    assert not (installed.root / "etc/systemd/system/edgeperf-agent.service").exists()
    assert "edgeperf:" in (installed.root / "etc/passwd").read_text()


def test_status_tells_what_is_there(installed: Installed) -> None:
    """In words, and as JSON."""
    assert "edgeperf-agent.service        not installed\n" in installed.call("status").stdout
    installed.call("install")
    units = {unit["name"]: unit for unit in json.loads(installed.call("status", "--json").stdout)}
    assert units["edgeperf-agent.service"]["enabled"]
    assert units["edgeperf-tuner.socket"]["enabled"]
    assert units["edgeperf-tuner.service"] == {
        "name": "edgeperf-tuner.service",
        "installed": True,
        "enabled": False,
        "state": "",
    }
    assert not units["edgeperf-coordinator.service"]["installed"]


def test_root_runs_nothing_that_others_may_change(installed: Installed) -> None:
    """The tuner is left out and the reason is told; the rest, which is not root, is installed."""
    installed.environment.chmod(0o777)
    done = installed.call("install")
    assert done.returncode == 0
    assert (
        f"not only root may write to {installed.environment}; use deploy/install.sh" in done.stderr
    )
    units = installed.root / "etc/systemd/system"
    assert (units / "edgeperf-agent.service").exists()
    assert not (units / "edgeperf-tuner.socket").exists()


def test_an_environment_that_services_cannot_enter_is_refused(installed: Installed) -> None:
    """One line with the way round, and nothing is touched."""
    before = installed.listing()
    installed.environment.parent.chmod(0o700)
    done = installed.call("install")
    assert done.returncode == 2
    assert done.stderr == (
        f"edgeperf: {installed.environment.parent}: the service's user may not enter it;"
        " use deploy/install.sh, or sudo pipx install --global edgeperf\n"
    )
    assert installed.listing() == before
