"""``edgeperf ptdaemon``: MLPerf's ranging run and testing run around a command."""

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from edgeperf import EdgeperfError, InputError
from edgeperf.agent.cli.meter import seconds_of

if TYPE_CHECKING:
    from edgeperf.power.ptd_session import PtdSession

#: Standard output is for the report; what the command prints goes beside it.
_STDERR = 2


@click.command("ptdaemon", context_settings={"ignore_unknown_options": True})
@click.argument("host", metavar="HOST[:PORT]")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Folder.")
@click.option("--for", "length", metavar="TIME", help="Measure so long, instead of a COMMAND.")
@click.option("--session", metavar="NAME", help="Name of the session; else the time.")
@click.option("--settle", default="10s", metavar="TIME", help="Pause around each run.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ptdaemon(  # noqa: PLR0913 - one parameter per option
    host: str,
    *,
    command: tuple[str, ...],
    output: Path,
    length: str | None,
    session: str | None,
    settle: str,
    as_json: bool,
) -> int:
    """Run COMMAND twice, under automatic and then under fixed ranges of a power analyzer.

    Leaves ranging/spl.txt and run_1/spl.txt in the output folder, as MLPerf's checker reads
    them. Exit status 1 means that the two runs do not go together.
    """
    from edgeperf.power.ptd_client import PtdClient  # noqa: PLC0415 - only where needed
    from edgeperf.power.ptd_session import PtdSession  # noqa: PLC0415 - likewise

    if bool(command) == bool(length):
        raise InputError("ptdaemon: expected either -- COMMAND or --for TIME")
    length_s = seconds_of(length) if length else 0.0
    name = session or time.strftime("%Y-%m-%d_%H-%M-%S")
    client = PtdClient(host)
    runs = PtdSession(client, output, name, settle_s=seconds_of(settle))
    try:
        identity = client.identify()
        sys.stderr.write(f"{identity.model}: ranging run\n")
        runs.ranging(lambda: _work(command, length_s))
        sys.stderr.write("testing run\n")
        runs.testing(lambda: _work(command, length_s))
    finally:
        runs.close()
    return _report(name, runs, as_json=as_json)


def _work(command: tuple[str, ...], length_s: float) -> None:
    if not command:
        time.sleep(length_s)
        return
    try:
        done = subprocess.run(command, stdout=_STDERR, check=False)
    except OSError as error:
        raise InputError(f"{command[0]}: cannot be run: {error.strerror}") from error
    if done.returncode:
        raise EdgeperfError(f"{command[0]}: ended with status {done.returncode}; nothing measured")


def _report(name: str, runs: "PtdSession", *, as_json: bool) -> int:
    problems = runs.problems()
    told = {
        "session": name,
        "volts": runs.ranges.voltage_v if runs.ranges else None,
        "amps": runs.ranges.current_a if runs.ranges else None,
        **{f"{phase}_w": run.mean_w for phase, run in runs.runs.items()},
        **{f"{phase}_s": run.length_s for phase, run in runs.runs.items()},
        "problems": problems,
    }
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(told), indent=2).decode() + "\n")
    else:
        rows = {**told, "problems": "; ".join(problems) or "none"}
        for key, value in rows.items():
            shown = f"{value:.6g}" if isinstance(value, float) else value
            sys.stdout.write(f"{key:<9}  {shown}\n")
    return 1 if problems else 0
