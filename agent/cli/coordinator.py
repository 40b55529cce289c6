"""``edgeperf coordinator``: the broker, the store and the HTTP interface of a fleet."""

import contextlib
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeperf import EdgeperfError

if TYPE_CHECKING:
    from edgeperf.coordinator.client import Client
    from edgeperf.coordinator.settings import Settings

_Folder = click.Path(path_type=Path, file_okay=False)
_File = click.Path(path_type=Path, dir_okay=False)


@click.group(invoke_without_command=True)
@click.option("--data", type=_Folder, envvar="EDGEPERF_COORDINATOR_DATA", help="Its directory.")
@click.option("--fleet", default="default", show_default=True, help="Name of the fleet.")
@click.option(
    "--listen",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Where boards may come from: 0.0.0.0 is every network, with TLS.",
)
@click.option(
    "--broker",
    default="auto",
    show_default=True,
    help="mosquitto, embedded, auto (the first of them that is installed), or mqtt[s]://HOST.",
)
@click.option("--broker-port", type=click.IntRange(0, 65535), help="Of our broker.  [1884]")
@click.option("--broker-password-file", type=_File, help="Our password at a broker by URL.")
@click.option("--broker-ca", type=_File, help="CA of a broker by URL.  [the system's]")
@click.option("--broker-cert", type=_File, help="Our certificate at a broker by URL.")
@click.option("--broker-key", type=_File, help="Its key.")
@click.option(
    "--board-credentials", type=_File, help="Lines BOARD USER PASSWORD, for a broker by URL."
)
@click.option("--mtls", is_flag=True, help="Ask boards for a certificate too; with --listen.")
@click.option("--http-port", type=click.IntRange(0, 65535), help="Of the HTTP interface.  [8484]")
@click.option(
    "--store",
    metavar="URL",
    envvar="EDGEPERF_STORE",
    help="postgresql://… instead of SQLite; then several coordinators may share a fleet.",
)
@click.option("--keys", type=_Folder, help="Keys shared by several coordinators.  [DATA/keys]")
@click.option("--blobs", type=_Folder, help="Files shared by them.  [DATA/blobs]")
@click.option(
    "--board-space",
    "board_space_gib",
    type=click.FloatRange(min=0, min_open=True),
    metavar="GIB",
    help="What each board may fill of the disk with files.  [20]",
)
@click.option(
    "--packages", type=_Folder, help="Wheels that boards may install from.  [DATA/packages]"
)
@click.pass_context
def coordinator(context: click.Context, /, data: Path | None, **given: Any) -> None:
    """Collect what a fleet of boards measures, and give it work.

    Runs until it is stopped. Boards join with a code: edgeperf coordinator enroll.
    """
    from edgeperf.coordinator.files import default_directory  # noqa: PLC0415

    context.obj = data or default_directory()
    if context.invoked_subcommand is None:
        _serve(_settings(context.obj, given))


@coordinator.command()
@click.argument("board", required=False)
@click.option(
    "--minutes", type=click.FloatRange(0.1, 1440), default=15, show_default=True, help="Its life."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def enroll(data: Path, board: str | None, minutes: float, *, as_json: bool) -> None:
    """Print a one-time code with which BOARD, or any board, may join."""
    client = _client(data)
    made = client.post("/v1/codes", {"board": board, "ttl_s": minutes * 60})
    if as_json:
        click.echo(json.dumps(made))
        return
    host = _name_for_boards(client.url)
    name = f" --name {board}" if board else ""
    click.echo(f"code {made['code']}, good once within {minutes:g} minutes. On the board:")
    click.echo(f"  edgeperf agent enroll {host} --code {made['code']}{name}")


@coordinator.command()
@click.argument("boards", nargs=-1, required=True)
@click.pass_obj
def admit(data: Path, boards: tuple[str, ...]) -> None:
    """Take BOARDS in without a code and print what each needs to know, a JSON object a line.

    For boards that are set up by hand or by a script; keep the lines secret.
    """
    for reply in _client(data).post("/v1/boards", {"names": list(boards)}):
        click.echo(json.dumps(reply))


@coordinator.command()
@click.argument("board")
@click.pass_obj
def revoke(data: Path, board: str) -> None:
    """Shut BOARD out; its results stay."""
    _client(data).delete(f"/v1/boards/{board}")
    click.echo(f"{board} is shut out; let it back in with: edgeperf coordinator enroll {board}")


def _client(data: Path) -> "Client":
    from edgeperf.coordinator.client import find_coordinator  # noqa: PLC0415

    return find_coordinator(url=None, token_file=None, ca_file=None, data=data)


def _settings(data: Path, given: dict[str, Any]) -> "Settings":
    from edgeperf.coordinator.settings import Settings, read_secret  # noqa: PLC0415

    password_file = given.pop("broker_password_file")
    password = os.environ.get("EDGEPERF_BROKER_PASSWORD")
    if password_file is not None:
        password = read_secret(password_file, option="--broker-password-file")
    given["credentials"] = given.pop("board_credentials")
    known = {name: value for name, value in given.items() if value is not None}
    return Settings(data=data, broker_password=password, **known)


def _serve(settings: "Settings") -> None:
    try:
        from edgeperf.coordinator.service import Coordinator  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("edgeperf"):
            raise
        raise EdgeperfError(
            f"coordinator: needs {error.name}; pip install 'edgeperf[coordinator]'"
        ) from error

    from edgeperf.agent.board.supervision import Supervisor  # noqa: PLC0415

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    supervisor = Supervisor()  # before the broker starts, which would speak to systemd as well
    with Coordinator(settings) as running, _ended_by_signals(running.end):
        click.echo(f"fleet {settings.fleet} at {running.url}", err=True)
        click.echo(f"broker: {running.broker_name}; data: {settings.data}", err=True)
        join = f"edgeperf coordinator --data {settings.data} enroll"
        click.echo(f"boards join with a code from: {join}", err=True)
        supervisor.ready()
        supervisor.status(f"fleet {settings.fleet} at {running.url}")
        while not running.wait(supervisor.alive_period_s):
            if running.is_working:
                supervisor.alive()
        supervisor.stopping()


@contextlib.contextmanager
def _ended_by_signals(end: Any) -> Any:
    """Make Ctrl+C and SIGTERM an orderly end: nothing is lost, so nothing is an error."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, lambda *_: end()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _name_for_boards(url: str) -> str:
    """Return this machine's address as boards would type it."""
    from urllib.parse import urlsplit  # noqa: PLC0415

    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" and host == "127.0.0.1":
        import socket  # noqa: PLC0415

        host = socket.gethostname()
    return f"{parts.scheme}://{host}:{parts.port}"
