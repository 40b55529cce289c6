"""``edgeperf service``: users, udev rules and units, from wherever edgeperf is installed.

``deploy/install.sh`` does the same for the environment that it makes itself; the shell script
that both share comes with the package. What a service runs as root must belong to root, so the
tuner is left out where others may write to the environment.
"""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import click
import msgspec

from edgeperf import EdgeperfError, InputError, __version__
from edgeperf import service as package

_Folder = click.Path(path_type=Path, file_okay=False, exists=True)
_UNITS = (
    ("edgeperf-agent.service", "multi-user.target"),
    ("edgeperf-tuner.socket", "sockets.target"),
    ("edgeperf-tuner.service", None),
    ("edgeperf-coordinator.service", "multi-user.target"),
)
#: Hidden from services by ProtectHome.
_HIDDEN = ("/home", "/root", "/run/user")
_ELSEWHERE = "use deploy/install.sh, or sudo pipx install --global edgeperf"
_STAMP = "edgeperf-service"
_root = click.option("--root", type=_Folder, help="Work below this folder instead of /.")


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """One unit, as ``edgeperf service status --json`` prints it.

    Attributes:
        name: The unit.
        installed: Whether its file is there.
        enabled: Whether it starts at boot, or when it is needed.
        state: What systemd says of it; empty where there is no systemd.
    """

    name: str
    installed: bool
    enabled: bool
    state: str


@click.group()
def service() -> None:
    """Run edgeperf as a service of this system, from the environment it is installed in."""


@service.command()
@click.option("--coordinator", is_flag=True, help="The coordinator's service as well.")
@click.option("--no-tuner", is_flag=True, help="Not the one that holds clocks for a run.")
@_root
def install(root: Path | None, *, coordinator: bool, no_tuner: bool) -> None:
    """Add users, udev rules and services; doing it again changes nothing."""
    environment = Path(sys.prefix)
    _check_permission(root)
    _check_environment(environment)
    options = ["--coordinator"] if coordinator else []
    writable = _writable_by_others(environment)
    if no_tuner or writable:
        options.append("--no-tuner")
    if writable and not no_tuner:
        click.echo(
            f"tuner: left out, since not only root may write to {writable}; {_ELSEWHERE}", err=True
        )
    stamp = environment / _STAMP
    if not stamp.exists() or stamp.read_text("utf-8") != __version__:
        options.append("--changed")
    _set_up("install", environment, root, options)
    stamp.write_text(__version__, "utf-8")
    command = f"sudo -u edgeperf {environment}/bin/edgeperf agent enroll COORDINATOR --code CODE"
    click.echo(f"installed; to join a fleet: {command}")


@service.command()
@click.option("--keep-data", is_flag=True, help="Keep /etc/edgeperf and /var/lib/edgeperf.")
@_root
def uninstall(root: Path | None, *, keep_data: bool) -> None:
    """Take all of it away, results and identity of the board included."""
    environment = Path(sys.prefix)
    _check_permission(root)
    _set_up("uninstall", environment, root, ["--keep-data"] if keep_data else [])
    (environment / _STAMP).unlink(missing_ok=True)
    click.echo("removed; the command itself goes with the environment it is in")


@service.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_root
def status(root: Path | None, *, as_json: bool) -> None:
    """Say which services are installed, enabled and running."""
    units = [_unit(root or Path("/"), name, target) for name, target in _UNITS]
    if as_json:
        click.echo(msgspec.json.encode(units).decode())
        return
    for unit in units:
        words = ["installed" if unit.installed else "not installed"]
        words += ["enabled"] if unit.enabled else []
        words += [unit.state] if unit.installed and unit.state else []
        click.echo(f"{unit.name:30}{', '.join(words)}")


def _unit(root: Path, name: str, target: str | None) -> Unit:
    folder = root / "etc/systemd/system"
    wants = folder / f"{target}.wants" / name
    return Unit(
        name=name,
        installed=(folder / name).exists(),
        enabled=target is not None and wants.is_symlink(),
        state=_state(name) if root == Path("/") else "",
    )


def _state(name: str) -> str:
    if not Path("/run/systemd/system").is_dir() or shutil.which("systemctl") is None:
        return ""
    command = ["systemctl", "is-active", name]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _check_permission(root: Path | None) -> None:
    if root is None and os.geteuid() != 0:
        raise EdgeperfError("needs root to change the system; run it with sudo")


def _check_environment(environment: Path) -> None:
    """Refuse what a service could not start.

    Raises:
        InputError: edgeperf is not in an environment of its own, or services cannot see it.
    """
    if sys.prefix == sys.base_prefix:
        raise InputError(
            f"edgeperf runs from the system's own Python ({environment}), which upgrades of the"
            f" system change; {_ELSEWHERE}"
        )
    if str(environment).startswith(tuple(f"{folder}/" for folder in _HIDDEN)):
        raise InputError(f"{environment}: services do not see it; {_ELSEWHERE}")
    for place in (environment, *environment.parents):
        if not place.stat().st_mode & stat.S_IXOTH:
            raise InputError(f"{place}: the service's user may not enter it; {_ELSEWHERE}")


def _writable_by_others(environment: Path) -> Path | None:
    """Return what of the environment somebody other than root could change."""
    places = [environment, *environment.parents, Path(__file__), *Path(__file__).parents]
    for place in [*places, Path(sys.executable).resolve()]:
        seen = place.stat()
        # A sticky folder such as /tmp lets nobody replace what is another's.
        others = seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not seen.st_mode & stat.S_ISVTX
        if seen.st_uid != 0 or others:
            return place
    return None


def _set_up(action: str, environment: Path, root: Path | None, options: list[str]) -> None:
    command = [action, "--environment", str(environment), *options]
    if root is not None:
        command += ["--root", str(root.absolute())]
    script = Path(package.__file__).parent / "setup"
    done = subprocess.run(["bash", str(script), *command], check=False)
    if done.returncode:  # it has said why
        click.get_current_context().exit(done.returncode)
