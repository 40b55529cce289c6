"""``edgeperf fleet run``, ``watch``, ``cancel``, ``clone``, ``logs``: one run on one board.

Exits with the run's own exit status, so a script can treat a board far away like this one.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeperf import EdgeperfError
from edgeperf.agent.cli.allow import allow_option
from edgeperf.agent.cli.fleet_specs import asked_spec, frozen_of, put
from edgeperf.agent.spec import Preset, Scenario, SpecError

if TYPE_CHECKING:
    from edgeperf.coordinator.client import Client

#: Model files that travel as one file.
_FILES = (".tflite", ".onnx")


def _choice(kind: type[Scenario] | type[Preset]) -> click.Choice[str]:
    return click.Choice([member.value for member in kind], case_sensitive=False)


_json = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
_detach = click.option("--detach", is_flag=True, help="Print the run's id and do not wait.")
_set = click.option(
    "--set", "fields", multiple=True, metavar="FIELD=VALUE", help="Any field of the run's spec."
)


@click.command()
@click.argument("board")
@click.argument("model", required=False)
@click.option("--backend", help="Runtime.  [what fits the model]")
@click.option("--scenario", type=_choice(Scenario), help="How queries arrive.  [SingleStream]")
@click.option("--preset", type=_choice(Preset), help="How long the run lasts.  [fast]")
@click.option("--meter", help="One of the board's meters, by the name its own file gives it.")
@_set
@click.option("--spec", "spec_file", help="The whole spec as JSON, or a frozen one.")
@allow_option
@click.option("--timeout", "timeout_s", type=float, metavar="S", help="Stop it after so long.")
@click.option("--cool-to", "cool_to_c", type=float, metavar="C", help="Start no warmer than this.")
@click.option(
    "--within", "within_s", type=float, default=3600, metavar="S", help="Give up if the board"
    " has not begun.  [3600]",
)  # fmt: skip
@_detach
@_json
@click.pass_obj
def run(
    connect: Callable[[], "Client"], /, board: str, *, detach: bool, as_json: bool, **given: Any
) -> int:
    """Run MODEL on BOARD, a name or label:NAME, and wait for the result.

    MODEL is a name of the catalogue, or a .tflite or .onnx file, which is sent along.
    """
    client = connect()
    asked = {name: given.pop(name) for name in ("timeout_s", "cool_to_c", "within_s")}
    body = {name: value for name, value in asked.items() if value is not None}
    frozen, allowed = frozen_of(given["spec_file"]), given.pop("allowed")
    if frozen is None and allowed:
        raise SpecError("--allow: means nothing without a frozen spec (edgeperf spec freeze)")
    if frozen is not None:
        body["hold_to"] = {"spec": frozen, "allow": list(dict.fromkeys(allowed))}
    spec = asked_spec(**given, frozen=frozen)
    model = _send_along(client, spec["model"])
    if model is not None:
        spec["model"] = f"sha256:{model['sha256']}"
        body["model"] = model
    view = client.post("/v1/runs", {"board": board, "spec": spec, **body})
    _warn_if_away(client, view["board"])
    return _finish(client, view, detach=detach, as_json=as_json)


@click.command()
@click.argument("run_id", metavar="RUN")
@_set
@click.option("--board", help="Another board.  [the same]")
@_detach
@_json
@click.pass_obj
def clone(
    connect: Callable[[], "Client"],
    run_id: str,
    fields: tuple[str, ...],
    board: str | None,
    *,
    detach: bool,
    as_json: bool,
) -> int:
    """Run what RUN ran again, with some fields set to other values."""
    client = connect()
    view = client.get(f"/v1/runs/{quoted(run_id)}", log_after=2**53)
    request = view["request"] or {}
    spec = request.get("spec") or view["spec"]
    for text in fields:
        put(spec, text)
    kept = ["model", "timeout_s", "cool_to_c", "cool_timeout_s", "files"]
    if not fields:  # with another field it is no repeat any more
        kept.append("hold_to")
    body = {name: request[name] for name in kept if request.get(name) is not None}
    if body.get("model") and spec["model"] != f"sha256:{body['model']['sha256']}":
        del body["model"]
    made = client.post("/v1/runs", {"board": board or view["board"], "spec": spec, **body})
    return _finish(client, made, detach=detach, as_json=as_json)


@click.command()
@click.argument("run_id", metavar="RUN")
@_json
@click.pass_obj
def watch(connect: Callable[[], "Client"], run_id: str, *, as_json: bool) -> int:
    """Follow RUN until it is over."""
    client = connect()
    view = client.get(f"/v1/runs/{quoted(run_id)}", log_after=2**53)
    return _finish(client, view, detach=False, as_json=as_json)


@click.command()
@click.argument("run_id", metavar="RUN")
@click.pass_obj
def cancel(connect: Callable[[], "Client"], run_id: str) -> None:
    """Stop RUN, wherever it is."""
    view = connect().post(f"/v1/runs/{quoted(run_id)}/cancel", {})
    if view["over"]:
        click.echo(f"run {view['run']} is over already: {view['state']}")
    else:
        click.echo(f"{view['board']} was asked to stop run {view['run']}")


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--follow", "-f", is_flag=True, help="Go on until the run is over.")
@click.pass_obj
def logs(connect: Callable[[], "Client"], run_id: str, *, follow: bool) -> None:
    """Print what RUN wrote."""
    client = connect()
    if not follow:
        sys.stdout.write(client.download(f"/v1/runs/{quoted(run_id)}/log").decode())
        return
    for view in client.watch(run_id, log=True):
        for line in view["log"]:
            click.echo(line["line"])


def quoted(text: str) -> str:
    """Return *text* as a part of a URL's path."""
    from urllib.parse import quote  # noqa: PLC0415

    return quote(text, safe="")


def report(view: dict[str, Any], *, as_json: bool) -> int:
    """Print a run; returns what the command exits with."""
    if as_json:
        click.echo(json.dumps(view, indent=2))
    elif view["result"] is not None:
        _summary(view)
    elif view["error"]:
        click.echo(f"{view['state']}: {view['error']}")
    else:
        click.echo(f"run {view['run']} on {view['board']}: {view['state']}")
    return int(view["exit_code"] or 0)


def _warn_if_away(client: "Client", name: str) -> None:
    """Say what a person would otherwise wonder about: why nothing happens."""
    board = client.get(f"/v1/boards/{quoted(name)}")
    if board["state"] not in {"online", "busy", "draining"}:
        seen = f", last heard of at {board['seen'][:19]}Z" if board["seen"] else ""
        click.echo(f"edgeperf: {name} is {board['state']}{seen}; the run waits for it", err=True)


def _finish(
    client: "Client",
    view: dict[str, Any],
    *,
    detach: bool,
    as_json: bool,
) -> int:
    if detach:
        click.echo(json.dumps(view, indent=2) if as_json else view["run"])
        return 0
    from edgeperf.agent.cli.fleet_progress import followed  # noqa: PLC0415 - rich

    view = followed(client, view)
    code = report(view, as_json=as_json)
    asked = ((view.get("request") or {}).get("hold_to") or {}).get("spec", {}).get("digest")
    held = ((view["result"] or {}).get("repeat") or {}).get("digest")
    if asked is not None and view["result"] is not None and held != asked:
        raise EdgeperfError(
            f"{view['board']} ran it, but did not hold it to the frozen spec: its edgeperf is"
            " older and knows none; upgrade it there"
        )
    return code


def _summary(view: dict[str, Any]) -> None:
    from edgeperf.agent.cli.summary import print_summary  # noqa: PLC0415 - rich
    from edgeperf.agent.result import result_from_json  # noqa: PLC0415

    raw = json.dumps(view["result"]).encode()
    click.echo(f"board {view['board']}, run {view['run']}")
    print_summary(result_from_json(raw, where=f"run {view['run']}"), Path(f"run {view['run']}"))


def _send_along(client: "Client", model: str) -> dict[str, Any] | None:
    """Upload a model file; None for a name of the catalogue or a digest."""
    path = Path(model)
    if path.suffix.lower() not in _FILES:
        if path.exists() or "/" in model:
            raise SpecError(
                f"model {model}: expected a .tflite or .onnx file; others are more than one file"
            )
        return None
    ref = client.upload_model(path)
    return {
        "sha256": ref.sha256, "size_bytes": ref.size_bytes, "format": ref.format, "name": ref.name,
    }  # fmt: skip
