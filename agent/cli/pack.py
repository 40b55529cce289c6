"""``edgeperf pack``: results with all their evidence in one archive, and checking one."""

from pathlib import Path

import click

from edgeperf import InputError
from edgeperf.agent.cli.console import say


@click.command()
@click.argument("results", nargs=-1, metavar="RESULT...", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write.  [ID.tar.gz, or edgeperf-pack.tar.gz]",
)
@click.option("--verify", "pack_file", type=click.Path(path_type=Path), help="Check a pack.")
def pack(results: tuple[Path, ...], output: Path | None, pack_file: Path | None) -> None:
    """Put each RESULT with spec, raw data and logs into one archive.

    The same results give the same bytes. Samples are never in it, only their digests.
    """
    if pack_file is not None:
        if results or output is not None:
            raise InputError("--verify: checks one pack; leave out everything else")
        _verify(pack_file)
        return
    if not results:
        raise InputError("RESULT: give one result directory or more, or --verify FILE")
    from edgeperf.agent.pack.archive import write_pack  # noqa: PLC0415 - numpy, only here
    from edgeperf.agent.pack.evidence import collect  # noqa: PLC0415

    evidence = [collect(path) for path in results]
    for one in evidence:
        if one.why_not:
            say(f"without a spec: {one.why_not}")
    if output is None:
        name = evidence[0].result.id if len(evidence) == 1 else "edgeperf-pack"
        output = Path(f"{name}.tar.gz")
    manifest = write_pack(evidence, output)
    click.echo(f"{output}  MANIFEST sha256:{manifest}")


def _verify(path: Path) -> None:
    from edgeperf.agent.pack.verify import verify  # noqa: PLC0415 - numpy, only here

    found = verify(path)
    for result in found.results.values():
        click.echo(f"{result.verdict.status.value}  {result.id}")
    click.echo(f"whole: {found.files} files  MANIFEST sha256:{found.manifest_sha256}")
