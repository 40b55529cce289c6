"""``edgeperf fleet results``: what was measured, filtered, in the format that is wanted."""

import json
import re
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeperf import InputError

if TYPE_CHECKING:
    from edgeperf.coordinator.client import Client

_UNIT_S = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@click.command()
@click.option("--board", "device", help="Only this board.")
@click.option("--campaign", help="Only this campaign.")
@click.option("--model", help="A name or a sha256.")
@click.option("--backend", help="Only this runtime.")
@click.option("--scenario", help="Only this scenario.")
@click.option("--preset", help="Only this preset.")
@click.option("--task", help="Only this task.")
@click.option("--state", help="succeeded, failed, running, …")
@click.option("--verdict", help="VALID, SUSPECT or INVALID.")
@click.option("--since", metavar="WHEN", help="7d, 12h, 30m, or a date such as 2026-11-29.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["table", "csv", "json", "jsonl", "parquet"]),
    default="table",
    show_default=True,
)
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="A file.")
@click.pass_obj
def results(
    connect: Callable[[], "Client"],
    /,
    kind: str,
    output: Path | None,
    since: str | None,
    **filters: Any,
) -> None:
    """List runs and what they found, newest first.

    csv, jsonl and parquet have one row for each run and metric; json has each run with its
    whole result.
    """
    if since is not None:
        filters["since_ns"] = _moment_ns(since)
    client = connect()
    if kind == "table":
        from edgeperf.agent.cli.fleet_tables import print_runs  # noqa: PLC0415 - rich

        print_runs(json.loads(client.download("/v1/runs", format="list", **filters)))
        return
    if kind == "parquet" and output is None and sys.stdout.isatty():
        raise InputError("--format parquet: give --output FILE; it is no text")
    content = client.download("/v1/runs", format=kind, **filters)
    if output is None:
        sys.stdout.buffer.write(content)
        return
    try:
        output.write_bytes(content)
    except OSError as error:
        raise InputError(f"--output {output}: {error.strerror}") from error


def _moment_ns(text: str) -> int:
    """Return a moment, given as an age or a date, in nanoseconds since 1970."""
    age = re.fullmatch(r"(\d{1,6})([mhdw])", text)
    if age:
        return time.time_ns() - int(age[1]) * _UNIT_S[age[2]] * 1_000_000_000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"--since {text}: expected 7d, 12h, 30m or a date as 2026-11-29") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return int(moment.timestamp() * 1e9)
