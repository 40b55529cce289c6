"""``edgeperf fleet simulate``: boards without hardware, against a real broker and coordinator."""

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

if TYPE_CHECKING:
    from edgeperf.coordinator.client import Client
    from edgeperf.coordinator.simulation import Report


@click.command()
@click.option("--boards", type=click.IntRange(1, 5000), default=10, show_default=True)
@click.option(
    "--every", type=click.FloatRange(0), default=20, show_default=True, metavar="S",
    help="Each reports a result so often by itself; 0: only when asked.",
)  # fmt: skip
@click.option(
    "--seconds", type=click.FloatRange(0.1), default=300, show_default=True, help="For so long."
)
@click.option("--run-time", type=click.FloatRange(0), default=1, show_default=True, metavar="S")
@click.option("--prefix", default="sim", show_default=True, help="Of the boards' names.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def simulate(
    connect: Callable[[], "Client"], /, boards: int, prefix: str, *, as_json: bool, **load: float
) -> int:
    """Let simulated boards speak the real protocol, and time the acknowledgements.

    They join the fleet, connect to its broker, report invented results marked INVALID, and
    obey commands. Ends with status 1 when an event was never acknowledged.
    """
    import asyncio  # noqa: PLC0415

    import msgspec  # noqa: PLC0415

    from edgeperf.agent.messages import EnrolReply  # noqa: PLC0415
    from edgeperf.coordinator.simulation import Load, SimulatedFleet  # noqa: PLC0415

    client = connect()
    names = [f"{prefix}-{number:04d}" for number in range(1, boards + 1)]
    admitted = client.post("/v1/boards", {"names": names})
    identities = msgspec.convert(admitted, list[EnrolReply])
    asked = Load(every_s=load["every"], duration_s=load["seconds"], run_s=load["run_time"])
    host = urlsplit(client.url).hostname or "127.0.0.1"
    fleet = SimulatedFleet(identities, host, asked, on_second=_Shown())
    report = asyncio.run(fleet.run())
    click.echo(json.dumps(report._asdict()) if as_json else _text(report))
    return int(report.unsent > 0)


class _Shown:
    """Says on standard error how far it is, every ten seconds."""

    def __init__(self) -> None:
        self._seconds = 0

    def __call__(self, results: int, unsent: int) -> None:
        self._seconds += 1
        if self._seconds % 10 == 0:
            sys.stderr.write(f"edgeperf: {self._seconds} s: {results} results, {unsent} unsent\n")
            sys.stderr.flush()


def _text(report: "Report") -> str:
    def spread(values: tuple[float, float, float]) -> str:
        return "p50 {:.0f} ms, p99 {:.0f} ms, longest {:.0f} ms".format(*values)

    lines: list[tuple[str, Any]] = [
        ("boards", report.boards),
        ("results", f"{report.results} made, {report.results_acked} acknowledged"),
        ("events", f"{report.events} acknowledged, {report.unsent} never"),
        ("result to acknowledgement", spread(report.result_ms)),
        ("event to acknowledgement", spread(report.event_ms)),
        ("reconnects", report.reconnects),
        ("simulation's own lag", f"{report.loop_lag_ms:.0f} ms at most"),
    ]
    return "\n".join(f"{name:26} {value}" for name, value in lines)
