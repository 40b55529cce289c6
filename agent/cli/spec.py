"""``edgeperf spec``: freeze a run's conditions, read them, and lay them beside this board."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from edgeperf import InputError

if TYPE_CHECKING:
    from edgeperf.agent.freeze.document import FrozenFile
    from edgeperf.agent.freeze.findings import Finding


@click.group()
def spec() -> None:
    """Freeze a run's conditions into a file that a repeat is held to."""


@spec.command()
@click.argument("result", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="File to write; default: print."
)
def freeze(result: Path, output: Path | None) -> None:
    """Write everything that a repeat of RESULT must hold, with a digest.

    RESULT is a result directory or its result.json.
    """
    from edgeperf.agent.freeze.document import frozen_to_json  # noqa: PLC0415 - numpy, only here
    from edgeperf.agent.freeze.freezing import freeze as freeze_result  # noqa: PLC0415
    from edgeperf.agent.result import read_result  # noqa: PLC0415

    found, file = read_result(result)
    frozen = freeze_result(found, where=str(file))
    text = frozen_to_json(frozen)
    if output is None:
        sys.stdout.write(text.decode())
        return
    try:
        with output.open("xb") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise InputError(f"{output}: is there already; give another --output") from error
    except OSError as error:
        raise InputError(f"{output}: cannot be written: {error.strerror}") from error
    click.echo(f"wrote {output}, {frozen.digest}; now: edgeperf run --spec {output}", err=True)


@spec.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--run", "only_run", is_flag=True, help="Print only the run, as a plain spec.")
def show(file: Path, only_run: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """Show what FILE, a frozen spec, holds a run to."""
    found = _read(file)
    if only_run:
        text = msgspec.json.format(msgspec.json.encode(found.spec.run), indent=2)
        sys.stdout.write(text.decode() + "\n")
        return
    from edgeperf.agent.cli.spec_table import print_spec  # noqa: PLC0415 - rich, only here

    print_spec(found)


@spec.command()
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> int:
    """Say line by line what of FILE, a frozen spec, this board holds.

    Exit status: 0 a run of it would begin, 1 it would be refused.
    """
    from edgeperf.agent.freeze.repeating import inspect  # noqa: PLC0415 - numpy, only here

    found = _read(file)
    findings = inspect(found, found.spec.run)
    for finding in findings:
        click.echo(_line(finding))
    refused = [finding for finding in findings if not finding.is_held and finding.matters]
    if not refused:
        click.echo("\nall that matters is held here; options in force are looked at in the run")
        return 0
    click.echo(f"\n{len(refused)} not held: edgeperf run --spec {file} would refuse")
    return 1


def _line(finding: "Finding") -> str:
    if finding.is_held:
        return f"held      {finding.name}: {finding.where}: {finding.expected}"
    return f"{'NOT HELD' if finding.matters else 'differs ':<8}  {finding.line()}"


def _read(path: Path) -> "FrozenFile":
    from edgeperf.agent.freeze.document import (  # noqa: PLC0415 - light, but not for --help
        check_is_spec,
        frozen_from_json,
        is_frozen,
        read_file,
    )

    raw = read_file(path)
    check_is_spec(raw, f"spec {path}")
    if not is_frozen(raw):
        raise InputError(
            f"spec {path}: not a frozen spec; make one from a result with edgeperf spec freeze"
        )
    return frozen_from_json(raw, where=str(path))
