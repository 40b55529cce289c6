"""The scripts and units that put edgeperf on a board.

The whole way, from a wheelhouse to a measurement and away again, is
``deploy/test/install-check``; here is what needs no packages.
"""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from edgeperf.agent.link.database import Database

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
SERVICE = DEPLOY / "service"
SCRIPTS = (
    "install.sh",
    "install-checks.sh",
    "service/setup",
    "service/system.sh",
    "build-wheelhouse",
    "copy-source",
    "containers/prepare",
    "mosquitto/make-certificates",
    "test/booted",
    "test/steps.sh",
    "test/userland",
    "test/install-check",
)
UNITS = ("edgeperf-agent.service", "edgeperf-coordinator.service", "edgeperf-tuner.service")


def tool(name: str) -> str:
    """Return the path of a checking tool; without it a test is skipped, but not in CI."""
    path = shutil.which(name)
    if path is None:
        reason = f"{name} is not installed"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def script(
    name: str, *arguments: str, environment: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run one of the scripts."""
    return subprocess.run(
        [str(DEPLOY / name), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
    )


@pytest.fixture
def bare_root(tmp_path: Path) -> Path:
    """Return a root with users and groups and nothing else."""
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    (root / "etc/group").write_text("root:x:0:\n")
    return root


def pretend(folder: Path, command: str, output: str) -> dict[str, str]:
    """Return an environment in which *command* prints *output*, as on another board."""
    folder.mkdir(exist_ok=True)
    (folder / command).write_text(
        f"#!/bin/sh\ncase $1 in -s) echo Linux ;; *) printf '%s\\n' '{output}' ;; esac\n"
    )
    (folder / command).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_clean(name: str) -> None:
    """shellcheck finds nothing."""  # noqa: D403 - the tool's name
    done = subprocess.run(
        [tool("shellcheck"), str(DEPLOY / name)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("unit", UNITS)
def test_units_are_sound_and_hardened(unit: str) -> None:
    """systemd understands every line, and rates the exposure at 3.0 or better."""  # noqa: D403
    systemd = tool("systemd-analyze")
    path = DEPLOY / "service" / unit
    verify = [systemd, "verify", "--man=no", *map(str, SERVICE.glob("edgeperf-*.*"))]
    checked = subprocess.run(verify, capture_output=True, text=True, check=False)
    # The command itself is on boards only.
    complaints = [line for line in checked.stderr.splitlines() if "is not executable" not in line]
    assert complaints == []
    rate = [systemd, "security", "--offline=yes", "--threshold=30", "--no-pager", str(path)]
    rated = subprocess.run(rate, capture_output=True, text=True, check=False)
    assert rated.returncode == 0, rated.stdout


def test_the_agent_may_compile_at_run_time() -> None:
    """OpenVINO dies where memory may not be both written and executed."""
    lines = (DEPLOY / "service/edgeperf-agent.service").read_text().splitlines()
    assert not [line for line in lines if line.startswith("MemoryDenyWriteExecute")]


@pytest.mark.parametrize("name", ["install.sh", "build-wheelhouse"])
def test_help_is_there(name: str) -> None:
    """Help goes to stdout and ends well; an unknown option is status 2 and one line."""
    shown = script(name, "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("Usage:")
    wrong = script(name, "--frobnicate")
    assert wrong.returncode == 2
    assert wrong.stderr == f"{name}: unknown option --frobnicate; see --help\n"


@pytest.mark.parametrize(
    ("command", "output", "says"),
    [
        ("uname", "armv7l", "armv7l is 32-bit and no runtime is made for it; install a 64-bit OS"),
        ("uname", "riscv64", "riscv64: the runtimes have no packages for it; use aarch64 or"),
        ("getconf", "32", "32-bit system on a 64-bit kernel; install the 64-bit OS image"),
        ("df", "h h h h h\nd 9 9 12 1% /", "12 MB free at .* 1000 MB are needed; make room"),
    ],
)
def test_a_board_that_does_not_fit_is_refused(
    bare_root: Path, tmp_path: Path, command: str, output: str, says: str
) -> None:
    """One line says what is wrong and the way round, before anything is touched."""
    environment = pretend(tmp_path / "bin", command, output)
    done = script("install.sh", "--root", str(bare_root), environment=environment)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert re.search(says, done.stderr)
    assert not (bare_root / "opt").exists()


def test_a_board_without_a_compiler_is_told_before_anything_is_begun(
    bare_root: Path, tmp_path: Path
) -> None:
    """On Arm LoadGen has to be compiled, unless there is a wheelhouse."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for path in (*Path("/usr/bin").iterdir(), *Path("/bin").iterdir()):
        if "g++" not in path.name and not (tools / path.name).is_symlink():
            (tools / path.name).symlink_to(path)
    arm = pretend(tmp_path / "bin", "uname", "aarch64")
    arm["PATH"] = f"{tmp_path / 'bin'}:{tools}"
    options = ("--root", str(bare_root), "--python", sys.executable)
    done = script("install.sh", *options, environment=arm)
    assert done.returncode == 3
    assert done.stderr == (
        "install.sh: LoadGen has to be compiled here and there is no compiler;"
        " sudo apt install g++ python3-dev, or use --wheelhouse\n"
    )
    assert not (bare_root / "opt").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("--python", "/bin/false"), 3, "--python /bin/false: not a Python of 3.10 or newer"),
        (("--wheelhouse", "/nowhere"), 2, "--wheelhouse /nowhere: no such folder"),
        (("--backends", "tflite,coral"), 2, "no backend coral; known: tflite, onnxruntime"),
        (("--index", "desk"), 2, "--index desk: give a URL, such as https://DESK:8484/simple/"),
        (("--ca", "/nowhere"), 2, "--ca /nowhere: no such file"),
        (("--index", "http://x", "--wheelhouse", "/"), 2, "--wheelhouse or --index, not both"),
        (("--prefix", "opt"), 2, "--prefix opt: give a path from the root"),
        (("--prefix",), 2, "--prefix needs a value"),
    ],
)
def test_options_that_cannot_be_used(
    bare_root: Path, arguments: tuple[str, ...], status: int, says: str
) -> None:
    """Each names the option, what is wrong with it, and what is expected."""
    done = script("install.sh", "--root", str(bare_root), *arguments)
    assert done.returncode == status
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


def test_an_empty_wheelhouse_is_refused(bare_root: Path, tmp_path: Path) -> None:
    """Without LoadGen's wheel nothing is begun."""
    (tmp_path / "wheels").mkdir()
    done = script("install.sh", "--root", str(bare_root), "--wheelhouse", str(tmp_path / "wheels"))
    assert done.returncode == 3
    assert "has no LoadGen wheel; make it anew with deploy/build-wheelhouse" in done.stderr
    assert not (bare_root / "opt").exists()


def test_a_read_only_root_is_refused(bare_root: Path) -> None:
    """A root mounted read-only is named, with the way round."""
    inside = 'mount -t tmpfs -o ro none "$1" && exec "$2" --root "$1"'
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", inside, "sh"]
    command += [str(bare_root), str(DEPLOY / "install.sh")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mount name space here: {done.stderr.strip()}")
    assert done.returncode == 3
    assert "cannot be written to (a read-only root?)" in done.stderr


def test_without_network_and_wheelhouse_the_way_round_is_named(bare_root: Path) -> None:
    """pip's pages of errors become one line, and uninstalling takes the rest away."""  # noqa: D403
    unreachable = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1"}
    unreachable |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}
    done = script("install.sh", "--root", str(bare_root), "--no-service", environment=unreachable)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "no network; connect the board, or use --wheelhouse" in done.stderr
    assert script("install.sh", "--root", str(bare_root), "--uninstall").returncode == 0
    assert sorted(path.name for path in bare_root.iterdir()) == ["etc"]


def test_build_wheelhouse_refuses_what_it_does_not_know() -> None:
    """An unknown target, none, or two are one line and status 2."""
    for arguments, says in (
        (("jetpack9",), "no target jetpack9"),
        ((), "no target; see --help"),
        (("jetpack6", "jetpack7"), "one target at a time"),
        (("jetpack6", "--backends", "coral"), "no backend coral"),
    ):
        done = script("build-wheelhouse", *arguments)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert says in done.stderr


def test_the_tuner_is_never_in_the_way_of_the_knobs() -> None:
    """What would make /sys read-only for it must not be in its unit."""
    lines = (SERVICE / "edgeperf-tuner.service").read_text().splitlines()
    assert not [line for line in lines if line.startswith("ProtectKernelTunables")]
    assert "ReadWritePaths=-/sys/devices" in lines


def test_the_journal_is_put_back_only_where_its_form_has_changed(tmp_path: Path) -> None:
    """An older agent can go on with it, and numbers no event as a newer one has."""
    previous, state = tmp_path / "previous", tmp_path / "state"
    for folder in (previous, state):
        folder.mkdir()
        Database(folder / "agent.db").close()
    script = DEPLOY / "ansible/roles/edgeperf/files/journal_back.py"
    command = [sys.executable, str(script), str(previous), str(state)]

    def put_back() -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert put_back() == "the journal goes on\n"
    newer = sqlite3.connect(state / "agent.db", isolation_level=None)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    assert put_back() == "the journal is put back\n"
    older = Database(state / "agent.db")
    assert int(older.value("next_seq") or 0) > 1000
    older.close()


def test_compose_files_are_sound() -> None:
    """docker-compose reads them and fills in what `prepare` writes."""
    compose = shutil.which("docker-compose")
    if compose is None:
        pytest.skip("docker-compose is not installed")
    given = {**os.environ, "POSTGRES_PASSWORD": "word", "BROKER_NAME": "broker.lab"}
    for name in ("compose.yaml", "compose.agent.yaml"):
        command = [compose, "-f", str(DEPLOY / name), "config"]
        done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "broker.lab" in done.stdout or name == "compose.agent.yaml"
    given.pop("BROKER_NAME")
    command = [compose, "-f", str(DEPLOY / "compose.yaml"), "config"]
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    assert "run deploy/containers/prepare first" in done.stderr


@pytest.mark.parametrize("name", ["coordinator", "agent"])
def test_containers_get_every_folder_of_the_package(name: str) -> None:
    """A folder that pyproject.toml names and the Containerfile forgets would break the build."""
    text = (DEPLOY / f"containers/{name}.Containerfile").read_text()
    project = (DEPLOY.parent / "pyproject.toml").read_text()
    table = project.partition("[tool.setuptools.package-dir]")[2].partition("\n\n")[0]
    for folder in re.findall(r'= "(.+)"', table):
        place = "deploy/package" if folder.startswith("deploy/package") else folder
        assert f"COPY {place} {place}\n" in text


def test_the_ansible_role_is_clean() -> None:
    """ansible-lint finds nothing, by its strictest profile."""
    lint = shutil.which("ansible-lint")
    if lint is None:
        pytest.skip("ansible-lint is not installed")
    command = [lint, "--offline", "--profile=production", "-c", os.devnull, "deploy/ansible"]
    done = subprocess.run(command, cwd=DEPLOY.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_prepare_wants_a_name() -> None:
    """None, or one that is none, is status 2 and one line."""
    for arguments in ((), ("x;id",)):
        done = script("containers/prepare", *arguments)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
