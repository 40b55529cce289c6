"""A frozen spec on a terminal."""

from rich.table import Table
from rich.text import Text

from edgeperf.agent.board import format_core_list
from edgeperf.agent.cli.console import stdout_console
from edgeperf.agent.cli.summary import counted
from edgeperf.agent.freeze.document import Clock, FrozenFile, FrozenSpec


def print_spec(file: FrozenFile) -> None:
    """Print what *file* holds a run to, on standard output."""
    console = stdout_console()
    spec = file.spec
    if file.is_intact:
        console.print(spec.digest)
    else:
        console.print(f"EDITED: {file.found_digest}, not {spec.digest}", markup=False)
    origin = f"{spec.origin.result}, {spec.origin.status}"
    console.print(f"from {origin} (a remark that the digest does not cover)", markup=False)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, value in [*_what(spec), *_where(spec)]:
        table.add_row(name, Text(value))
    console.print()
    console.print(table)


def _what(spec: FrozenSpec) -> list[tuple[str, str]]:
    run, model, data, execution = spec.run, spec.model, spec.data, spec.execution
    rows = [("model", f"{model.name} ({model.file}, sha256 {model.sha256})")]
    rows += [
        (part.name, f"{part.file}, sha256 {part.sha256}")
        for part in (*model.parts, *model.companions)
    ]
    own = "" if spec.task.file_sha256 is None else f", file sha256 {spec.task.file_sha256}"
    content = "made from the seed" if data.sha256 is None else f"sha256 {data.sha256}"
    load = f"{run.scenario.value}, preset {run.preset.value}, batch {execution.batch}"
    if run.target_qps is not None:
        load += f", {run.target_qps:g} queries/s"
    options = ", ".join(f"{name}={value}" for name, value in sorted(execution.options.items()))
    return [
        *rows,
        ("task", f"{spec.task.name or 'none'}{own}"),
        ("data", f"{data.samples} samples, {content}"),
        ("load", load),
        ("precision", f"{execution.precision} on {execution.device}"),
        ("options", options or "none"),
    ]


def _where(spec: FrozenSpec) -> list[tuple[str, str]]:
    software, machine = spec.software, spec.machine
    versions = {
        "edgeperf": software.edgeperf,
        software.runtime: software.runtime_version,
        "Python": software.python,
        **software.packages,
    }
    cores = " | ".join(map(format_core_list, spec.workers))
    memory = "" if machine.memory_bytes is None else f", {machine.memory_bytes / 1e9:.1f} GB"
    board = f"{machine.model or 'unnamed board'}, {machine.cpu or machine.arch} x {machine.cores}"
    clocks = [
        (
            "clock",
            _clock(clock),
        )
        for clock in spec.clocks
    ]
    return [
        ("software", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("system", f"{software.os}, Linux {software.kernel}, {software.libc}"),
        ("workers", f"{cores}; {counted(spec.run.threads, 'thread')} each"),
        ("board", f"{board}{memory}"),
        *(clocks or [("clock", "the kernel controls no frequency there")]),
    ]


def _clock(clock: Clock) -> str:
    lower, upper = (
        "unknown" if hz is None else f"{hz / 1e6:g} MHz" for hz in (clock.min_hz, clock.max_hz)
    )
    return f"cores {format_core_list(clock.cores)}: {clock.governor}, {lower} to {upper}"
