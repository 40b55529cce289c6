"""A run on another board, as it goes on: a bar on a terminal, a line a change elsewhere."""

import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

if TYPE_CHECKING:
    from edgeperf.coordinator.client import Client


def followed(client: "Client", view: dict[str, Any]) -> dict[str, Any]:
    """Wait until the run is over, showing how far it is on standard error; returns it."""
    console = Console(stderr=True)
    what = f"run {view['run']} on {view['board']}"
    newest = view
    if not console.is_terminal:
        return _lines(client, view, what)
    columns = (
        TextColumn("{task.description:32}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[more]}"),
    )
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as bar:
        console.print(f"edgeperf: {what}", markup=False)
        task = bar.add_task(view["state"], total=100, more="")
        for newest in client.watch(view["run"]):
            bar.update(
                task, description=_says(newest), completed=_percent(newest), more=_more(newest)
            )
    return newest


def _lines(client: "Client", view: dict[str, Any], what: str) -> dict[str, Any]:
    said, newest = "", view
    sys.stderr.write(f"edgeperf: {what}\n")
    for newest in client.watch(view["run"]):
        if (now := _says(newest)) != said:
            said = now
            sys.stderr.write(f"edgeperf: {said}\n")
            sys.stderr.flush()
    return newest


def _says(view: dict[str, Any]) -> str:
    phase = (view["progress"] or {}).get("phase")
    return f"{view['state']}: {phase}" if view["state"] == "running" and phase else view["state"]


def _percent(view: dict[str, Any]) -> float:
    return float((view["progress"] or {}).get("percent") or 0)


def _more(view: dict[str, Any]) -> str:
    progress = view["progress"] or {}
    parts = []
    if progress.get("eta_s") is not None:
        parts.append(f"{progress['eta_s']:.0f} s left")
    if progress.get("temperature_c") is not None:
        parts.append(f"{progress['temperature_c']:.0f} °C")
    return ", ".join(parts)
