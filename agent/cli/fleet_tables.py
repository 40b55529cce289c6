"""Tables of ``edgeperf fleet``."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from edgeperf.agent.cli.console import say, stdout_console

_LONGEST = 400
#: "sha256:" and as many digits as tell models apart.
_DIGEST = 19
_WIDEST = 10_000
#: End of a field's name -> what one of the unit that people read is, and its name.
_UNITS = {"_bytes": (1e9, "GB"), "_hz": (1e6, "MHz"), "_c": (1, "°C")}
_COLOUR = {
    "online": "green", "busy": "cyan", "draining": "yellow", "lost": "red", "offline": "dim",
    "revoked": "dim", "succeeded": "green", "running": "cyan", "failed": "red",
    "VALID": "bold green", "SUSPECT": "bold yellow", "INVALID": "bold red",
    "done": "green", "cancelled": "yellow",
}  # fmt: skip


def print_table(table: Table) -> None:
    """Print on standard output."""
    stdout_console().print(table)


def board_table(boards: Iterable[dict[str, Any]]) -> Table:
    """One row a board."""
    table = _table(
        "board", "state", "run", "queued", "unsent", "°C", "labels", "last seen", "agent"
    )
    for board in boards:
        temperature = board["temperature_c"]
        table.add_row(
            board["name"],
            _word(board["state"]),
            (board["run"] or "")[-12:],
            _number(board["queued"]),
            _number(board["unsent"]),
            "" if temperature is None else f"{temperature:.0f}",
            Text(", ".join(board["labels"])),
            _moment(board["seen"]),
            board["agent"] or "",
        )
    return table


_BOARD_FACTS = {
    "name": "name",
    "state": "state",
    "reason": "because",
    "since": "since",
    "seen": "last seen",
    "run": "running",
    "queued": "runs queued",
    "unsent": "events unsent",
}


def board_facts(board: dict[str, Any]) -> Table:
    """What one board said of itself, a row a fact."""
    table = _facts()
    for name, words in _BOARD_FACTS.items():
        if board[name] not in (None, ""):
            table.add_row(words, _word(str(board[name])))
    if board["labels"]:
        table.add_row("labels", Text(", ".join(board["labels"])))
    for name, value in _described(board["description"] or {}):
        table.add_row(name, Text(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"))
    return table


def _described(description: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for runtime in description.get("runtimes", ()):
        problem = f"unusable: {runtime.get('problem')}"
        yield f"runtime {runtime['backend']}", runtime.get("version") or problem
    for name in ("meters", "data"):
        if description.get(name):
            yield name, ", ".join(description[name])
    for model in description.get("models", ()):
        yield "model cached", f"{model.get('name') or ''} {model['sha256'][:12]}"
    policy = {k: v for k, v in (description.get("policy") or {}).items() if v is not None}
    if policy:
        yield "policy", _told("policy", policy)
    for name, value in description.get("board", {}).items():
        if value not in (None, "", [], {}):
            yield _bare(name), _told(name, value)


def _bare(name: str) -> str:
    """Return a field's name as words, without the unit, which its value is told with."""
    for unit in _UNITS:
        name = name.removesuffix(unit)
    return name.replace("_", " ")


def _told(name: str, value: Any) -> str:
    """Return what a board says of itself in words and with units, whatever its shape."""
    if isinstance(value, dict):
        told = {
            key: each
            for key, each in value.items()
            if each is not False and each not in (None, "", [], {})
        }
        return ", ".join(f"{_bare(key)} {_told(key, each)}" for key, each in told.items())
    if isinstance(value, list | tuple):
        between = "; " if any(isinstance(each, dict) for each in value) else ", "
        return between.join(_told(name, each) for each in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    for unit, (size, shown) in _UNITS.items():
        if name.endswith(unit) and isinstance(value, int | float):
            return f"{value / size:.4g} {shown}"
    return str(value)


#: What is left out first where a terminal is too narrow.
_SPARE = ("created", "preset", "scenario", "backend")


def print_runs(runs: Sequence[dict[str, Any]]) -> None:
    """Print one row a run: its state, verdict and headline at any width."""
    console = stdout_console()
    unbounded = console.options.update(width=_WIDEST)
    for dropped in range(len(_SPARE) + 1):
        table = run_table(runs, _SPARE[:dropped])
        if Measurement.get(console, unbounded, table).maximum <= console.width:
            break
    console.print(table)
    if dropped:
        left_out = ", ".join(_SPARE[:dropped])
        say(f"left out in this width: {left_out}; --format csv has everything")


def run_table(runs: Iterable[dict[str, Any]], without: Collection[str] = ()) -> Table:
    """One row a run; what is named *without* is left out, run and model fold."""
    cells = [_run_cells(run) for run in runs]
    names = [name for name in _RUN_COLUMNS if name not in without]
    table = _table(*names)
    for column in table.columns:
        if column.header in ("run", "model"):
            column.no_wrap, column.overflow = False, "fold"
    for row in cells:
        table.add_row(*(row[name] for name in names))
    return table


_RUN_COLUMNS = (
    "run", "board", "model", "backend", "scenario", "preset", "state", "verdict", "headline",
    "created",
)  # fmt: skip


def _run_cells(run: dict[str, Any]) -> dict[str, str | Text]:
    model = run["model"] or ""
    return {
        "run": run["run"],
        "board": run["board"],
        "model": Text(model[:_DIGEST] if model.startswith("sha256:") else model),
        "backend": run["backend"] or "",
        "scenario": run["scenario"] or "",
        "preset": run["preset"] or "",
        "state": _word(run["state"]),
        "verdict": _word(run["verdict"] or ""),
        "headline": headline(run),
        "created": _moment(run["created"]),
    }


def cell_table(cells: Iterable[dict[str, Any]]) -> Table:
    """One row a cell of a campaign."""
    table = _table(
        "cell", "board", "model", "backend", "scenario", "state", "tries", "verdict", "run", "error"
    )
    for cell in cells:
        spec = cell["spec"]
        table.add_row(
            str(cell["number"]),
            cell["board"],
            Text(str(spec.get("model", ""))[:24]),
            spec.get("backend") or "",
            spec.get("scenario", "SingleStream"),
            _word(cell["state"]),
            str(cell["attempts"]),
            _word(cell["verdict"] or ""),
            (cell["run"] or "")[-12:] if cell["attempts"] else "",
            Text((cell["error"] or "")[:60]),
        )
    return table


def headline(run: dict[str, Any]) -> str:
    """Return the run's figure in a unit that people read; empty without one."""
    value, unit = run["headline_value"], run["headline_unit"]
    if value is None:
        return ""
    if unit == "ns":
        return f"{value / 1e6:.3f} ms" if value >= 1e6 else f"{value / 1e3:.2f} µs"  # noqa: PLR2004
    return f"{value:.1f} {unit}"


def _table(*names: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in names:
        table.add_column(name, no_wrap=True)
    return table


def _facts() -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    return table


def _word(text: str) -> Text:
    return Text(text, style=_COLOUR.get(text, ""))


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _moment(text: str | None) -> str:
    return "" if text is None else text[:19].replace("T", " ")
