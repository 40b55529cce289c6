"""``edgeperf simulate-meter``: a port that speaks a real meter's protocol."""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from edgeperf import InputError
from edgeperf.agent.cli.meter import seconds_of


@click.command("simulate-meter")
@click.argument("kind")
@click.option(
    "--waveform",
    default="constant:6",
    show_default=True,
    help="constant:W, step:LOW,HIGH,PERIOD_S, sine:MEAN,AMPLITUDE,PERIOD_S, file:PATH, "
    "cpu:IDLE,FULL (this machine's load).",
)
@click.option("--voltage", default=5.0, show_default=True, help="Of the load.")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="KIND@START+LENGTH[:SHARE]",
    help="drop, crc, stall, freeze, over or unplug, in seconds from now.",
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="The device's own.")
@click.option("--link", type=click.Path(path_type=Path), help="Where the port shall appear.")
@click.option("--for", "length", metavar="TIME", help="Stop by itself after so long.")
def simulate_meter(  # noqa: PLR0913 - one parameter per option
    kind: str,
    *,
    waveform: str,
    voltage: float,
    faults: tuple[str, ...],
    settings: tuple[str, ...],
    link: Path | None,
    length: str | None,
) -> None:
    """Play a meter: a port that speaks the real protocol. Ends with Ctrl-C.

    The first line on standard output is the port, to give to --meter.
    """
    from edgeperf.power.simulate.server import open_simulated  # noqa: PLC0415 - numpy

    length_s = seconds_of(length) if length else float("inf")
    with tempfile.TemporaryDirectory(prefix=f"edgeperf-{kind}-") as folder:
        server = open_simulated(
            kind,
            link or Path(folder) / kind,
            waveform,
            voltage_v=voltage,
            faults=faults,
            **_settings(settings),
        )
        with server:
            sys.stdout.write(f"{server.port}\n")
            sys.stdout.flush()
            end_s = time.monotonic() + length_s
            while (left_s := end_s - time.monotonic()) > 0:
                time.sleep(min(left_s, 0.5))


def _settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Turn ``NAME=VALUE`` into arguments: numbers and booleans where they look so."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise InputError(f"--set {pair}: expected NAME=VALUE")
        try:
            found[name] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            found[name] = text
    return found
