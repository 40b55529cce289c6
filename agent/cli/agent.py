"""``edgeperf agent``: the service on a board, and how the board joins a fleet."""

from pathlib import Path

import click

_Folder = click.Path(path_type=Path, file_okay=False)
_File = click.Path(path_type=Path, dir_okay=False)

_state = click.option(
    "--state", type=_Folder, envvar="EDGEPERF_STATE", help="Folder with the agent's files."
)


@click.group(invoke_without_command=True)
@_state
@click.option(
    "--board-file",
    type=_File,
    help="What this board allows.  [/etc/edgeperf, else STATE: board.toml]",
)
@click.option("--check", is_flag=True, help="Connect to the broker once, say how it went, end.")
@click.pass_context
def agent(
    context: click.Context, state: Path | None, board_file: Path | None, *, check: bool
) -> None:
    """Serve a coordinator: take runs over MQTT, report what they find.

    Runs until it is stopped. `edgeperf agent enroll` comes first, once.
    """
    context.obj = _state_folder(state)
    if context.invoked_subcommand is None:
        _serve(context.obj, board_file, check=check)


@agent.command()
@click.argument("coordinator")
@click.option("--code", required=True, help="One-time code, as the coordinator printed it.")
@click.option("--name", help="Name of this board.  [host name and a part of its machine id]")
@click.option("--ca", type=_File, help="CA of an https COORDINATOR.  [the code is proof enough]")
@click.pass_obj
def enroll(state: Path, coordinator: str, code: str, name: str | None, ca: Path | None) -> None:
    """Join the fleet of COORDINATOR (HOST, HOST:PORT or URL)."""
    from edgeperf.agent.link.enrol import enrol  # noqa: PLC0415 - the service needs none of it

    identity = enrol(coordinator, code, state=state, device=name, ca=ca)
    broker = identity.broker
    start = "edgeperf agent" if state == _state_folder(None) else f"edgeperf agent --state {state}"
    click.echo(
        f"{identity.device} joined fleet {identity.fleet}; broker {broker.host}:{broker.port}"
        f"{' with TLS' if broker.tls else ''}. Start it: {start}"
    )


@agent.command()
@click.option("--broker", "url", required=True, help="mqtt://HOST[:PORT] or mqtts://HOST[:PORT].")
@click.option("--fleet", default="default", show_default=True, help="Name of the fleet.")
@click.option("--name", required=True, help="Name of this board.")
@click.option("--key", "keys", multiple=True, required=True, help="Coordinator's public key.")
@click.option("--username", help="For the broker.  [the board's name]")
@click.option("--password-file", type=_File, help="File with the password for the broker.")
@click.option("--ca", type=_File, help="Certificates to trust instead of the system's.")
@click.option("--certificate", type=_File, help="This board's certificate.")
@click.option("--private-key", type=_File, help="Its key.")
@click.option("--http", default="", help="Coordinator's URL for files.  [none: over MQTT]")
@click.option("--token-file", type=_File, help="File with the token for that URL.")
@click.pass_obj
def join(state: Path, /, **given: object) -> None:
    """Join by hand, where a broker and its accounts are already there."""
    from edgeperf.agent.link.identity import write_identity  # noqa: PLC0415
    from edgeperf.agent.link.join import identity_from  # noqa: PLC0415

    click.echo(f"wrote {write_identity(state, identity_from(given))}")


def _state_folder(state: Path | None) -> Path:
    if state is not None:
        return state.absolute()  # runs have working directories of their own
    import os  # noqa: PLC0415

    from edgeperf.agent.link.settings import default_state  # noqa: PLC0415

    return default_state(os.environ)


def _serve(state: Path, board_file: Path | None, *, check: bool) -> None:
    from edgeperf.agent.link import Service, check_broker, read_settings  # noqa: PLC0415

    settings = read_settings(state, board_file)
    if not check:
        Service(settings).run()
        return
    check_broker(settings.identity)
    broker = settings.identity.broker
    click.echo(f"{broker.host}:{broker.port} takes this board as {settings.identity.device}")
