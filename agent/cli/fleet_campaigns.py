"""``edgeperf fleet campaign``: many runs over many boards, from one file."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeperf import InputError
from edgeperf.agent.cli.fleet_runs import quoted

if TYPE_CHECKING:
    from edgeperf.coordinator.campaign import Campaign
    from edgeperf.coordinator.client import Client

_FILES = (".tflite", ".onnx")
_POLL_S = 1.0
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def campaign() -> None:
    """Run every combination of models, backends, scenarios and boards that a file names."""


@campaign.command("run")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--detach", is_flag=True, help="Begin it and do not wait.")
@_json
@click.pass_obj
def run_campaign(
    connect: Callable[[], "Client"], file: Path, *, detach: bool, as_json: bool
) -> int:
    """Begin the campaign in FILE and wait for its end.

    It goes on whether you wait or not, also after a restart of anything.
    """
    from edgeperf.coordinator.campaign import parse_campaign  # noqa: PLC0415

    try:
        source = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text"
        raise InputError(f"campaign {file}: {reason}") from error
    parsed = parse_campaign(source, where=str(file))
    client = connect()
    models = _upload(client, parsed, file)
    view = client.post("/v1/campaigns", {"source": source, "where": str(file), "models": models})
    click.echo(f"campaign {view['name']}: {len(view['cells'])} runs", err=True)
    if not detach:
        view = _follow(client, view)
    return _report(view, as_json=as_json, over=not detach)


@campaign.command()
@click.argument("name", required=False)
@_json
@click.pass_obj
def status(connect: Callable[[], "Client"], name: str | None, *, as_json: bool) -> None:
    """Show how far the campaign NAME is, or list all."""
    client = connect()
    if name is None:
        every = client.get("/v1/campaigns")
        lines = [f"{c['name']}  {c['state']}  {c['created'][:19]}" for c in every]
        click.echo(json.dumps(every, indent=2) if as_json else "\n".join(lines))
        return
    _report(client.get(f"/v1/campaigns/{quoted(name)}"), as_json=as_json, over=False)


@campaign.command()
@click.argument("name")
@click.pass_obj
def cancel(connect: Callable[[], "Client"], name: str) -> None:
    """Stop the campaign NAME and its runs."""
    done = connect().post(f"/v1/campaigns/{quoted(name)}/cancel", {})
    click.echo(f"campaign {name}: {done['cancelled']} runs were cancelled")


def _upload(client: "Client", parsed: "Campaign", file: Path) -> dict[str, Any]:
    """Send model files along, found beside the campaign file; returns entry -> reference."""
    sent = {}
    for model in parsed.models:
        if model.lower().endswith(_FILES):
            ref = client.upload_model(file.parent / model)
            sent[model] = {
                "sha256": ref.sha256, "size_bytes": ref.size_bytes, "format": ref.format,
                "name": ref.name,
            }  # fmt: skip
    return sent


def _follow(client: "Client", view: dict[str, Any]) -> dict[str, Any]:
    said = ""
    while view["state"] == "running":
        time.sleep(_POLL_S)
        view = client.get(f"/v1/campaigns/{quoted(view['name'])}", cells="false")
        now = ", ".join(f"{count} {state}" for state, count in sorted(view["counts"].items()))
        if now != said:
            said = now
            sys.stderr.write(f"edgeperf: {view['name']}: {now}\n")
            sys.stderr.flush()
    whole: dict[str, Any] = client.get(f"/v1/campaigns/{quoted(view['name'])}")
    return whole


def _report(view: dict[str, Any], *, as_json: bool, over: bool) -> int:
    """Print a campaign; 0 all valid, 1 some suspect or invalid, 3 some without a result."""
    if as_json:
        click.echo(json.dumps(view, indent=2))
    else:
        from edgeperf.agent.cli.fleet_tables import cell_table, print_table  # noqa: PLC0415

        click.echo(f"campaign {view['name']}: {view['state']}")
        print_table(cell_table(view["cells"]))
    if not over:
        return 0
    if any(cell["state"] != "done" for cell in view["cells"]):
        return 3
    return int(any(cell["verdict"] != "VALID" for cell in view["cells"]))
