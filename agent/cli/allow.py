"""``--allow``, as `edgeperf run` and `edgeperf fleet run` have it."""

import click

from edgeperf.agent.freeze.findings import NAMES

allow_option = click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="NAME",
    type=click.Choice(NAMES),
    help="Frozen spec: a condition that need not be held; the result records it.",
)
