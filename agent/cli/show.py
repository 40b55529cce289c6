"""``edgeperf show``: a stored result, as the run printed it."""

import sys
from pathlib import Path

import click
import msgspec

from edgeperf.agent.result import ResultError, read_result, result_schema, result_to_json


@click.command()
@click.argument("result", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print result.json.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of result.json.")
def show(result: str | None, as_json: bool, schema: bool) -> None:  # noqa: FBT001 - click's flags
    """Show RESULT: a result directory, or the result.json in it."""
    if schema:
        text = msgspec.json.format(msgspec.json.encode(result_schema()), indent=2)
        sys.stdout.write(text.decode() + "\n")
        return
    if result is None:
        raise ResultError("RESULT: give a result directory or its result.json")
    found, file = read_result(Path(result))
    if as_json:
        sys.stdout.write(result_to_json(found).decode())
        return
    from edgeperf.agent.cli.summary import print_summary  # noqa: PLC0415 - rich, only here

    print_summary(found, file.parent)
