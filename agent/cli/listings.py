"""``edgeperf models``, ``tasks`` and ``backends``: what there is to choose from."""

import sys
from typing import Any

import click
import msgspec

from edgeperf.backends import backend_names, open_backend
from edgeperf.backends.base import BackendMissingError
from edgeperf.datasets.catalogue import models as catalogue_models

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _print(rows: list[dict[str, Any]], columns: dict[str, str], *, as_json: bool) -> None:
    if as_json:
        text = msgspec.json.format(msgspec.json.encode(rows), indent=2)
        sys.stdout.write(text.decode() + "\n")
        return
    from rich.table import Table  # noqa: PLC0415 - rich, only where something is drawn

    from edgeperf.agent.cli.console import stdout_console  # noqa: PLC0415

    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in columns.values():
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row[name]) for name in columns))
    stdout_console().print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4f}" if value < 1 else f"{value:g}"  # a share, or a time
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)


@click.command()
@_JSON
def models(as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """List the models that can be named instead of a file."""
    rows = [
        {
            "name": model.name,
            "task": model.task,
            "files": [file.label for file in model.files],
            "reference": model.reference,
            "title": model.title,
            "sha256": [file.asset.sha256 for file in model.files],
            "licences": sorted({file.asset.licence for file in model.files}),
        }
        for model in catalogue_models()
    ]
    columns = {
        "name": "name",
        "task": "task",
        "files": "files",
        "reference": "reference",
        "title": "what",
    }
    _print(rows, columns, as_json=as_json)


@click.command()
@_JSON
def tasks(as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """List the tasks: dataset, preprocessing, metric, target."""
    from edgeperf.datasets import open_task, task_names  # noqa: PLC0415 - numpy, only here

    rows = []
    for name in task_names():
        task = open_task(name)
        rows.append(
            {
                "name": name,
                "metric": task.metric,
                "server_latency_ms": task.server_latency_ns / 1e6,
                "performance_samples": task.performance_count,
                "title": task.title,
            }
        )
    columns = {
        "name": "name",
        "metric": "metric of the gate",
        "server_latency_ms": "Server bound, ms",
        "title": "what",
    }
    _print(rows, columns, as_json=as_json)


@click.command()
@_JSON
def backends(as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """List the runtimes: which are here, and why one is not."""
    rows = []
    for name in backend_names():
        backend = open_backend(name)
        runtime = version = missing = None
        try:
            runtime, version = backend.version()
        except BackendMissingError as error:
            missing = str(error)
        rows.append(
            {
                "name": name,
                "takes": list(backend.formats),
                "runtime": runtime,
                "version": version,
                "missing": missing,
            }
        )
    columns = {
        "name": "name",
        "takes": "takes",
        "runtime": "runtime",
        "version": "version",
        "missing": "why it is missing",
    }
    _print(rows, columns, as_json=as_json)
