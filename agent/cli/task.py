"""``edgeperf task``: write a task file for a model, and see samples as the model sees them."""

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeperf import InputError
from edgeperf.agent.cli.console import say

if TYPE_CHECKING:
    from edgeperf.agent.run.jobs import Examined
    from edgeperf.agent.run.seen import SeenSample

_WIDEST = 10_000
_MODEL = click.argument("model")
_BACKEND = click.option("--backend", help="Runtime; default: what fits the file.")
_SHAPES = click.option(
    "--input", "shapes", multiple=True, metavar="NAME=SHAPE", help="Shape of a dynamic input."
)


#: Reasons that speak against the answers themselves, not against how fast they came.
_IN_DOUBT = (
    "chance", "likely-cause", "no-detections", "one-answer", "reversed", "strange-classes",
)  # fmt: skip


@click.group()
def task() -> None:
    """Write and check task files: how your own samples are asked and judged."""


@task.command()
@_MODEL
@click.option("--data", type=click.Path(path_type=Path), help="Your samples; named in the file.")
@click.option("--output", type=click.Path(path_type=Path), help="File to write; default: print.")
@_BACKEND
@_SHAPES
def new(
    model: str, data: Path | None, output: Path | None, backend: str | None, shapes: tuple[str, ...]
) -> None:
    """Write a task file for MODEL, guessed from its own description."""
    from edgeperf.datasets.own.guess import guess_task  # noqa: PLC0415 - numpy, only here
    from edgeperf.datasets.own.write import task_text  # noqa: PLC0415

    if output is not None and output.exists():
        raise InputError(f"{output}: is there already; give another --output")
    if data is not None:
        _check_samples(data)
    found = _examined(model, backend=backend, shapes=shapes)
    guessed = guess_task(found.inputs, found.outputs, None if data is None else data.resolve())
    text = task_text(guessed, found.inputs, found.outputs, Path(model).name)
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text)
    except OSError as error:
        raise InputError(f"{output}: cannot be written: {error.strerror}") from error
    click.echo(f"wrote {output}; now: edgeperf task check {output} {model}", err=True)


def _check_samples(data: Path) -> None:
    """Refuse to write a file about samples that are not there."""
    if not data.exists():
        raise InputError(f"--data {data}: does not exist; expected your samples there")
    if data.is_dir() and not any(path.is_file() for path in data.rglob("*")):
        raise InputError(f"--data {data}: is an empty folder; put your samples there first")


@task.command()
@click.argument("task_name", metavar="TASK")
@_MODEL
@click.option("--data", help="Your samples; default: those that TASK names.")
@click.option("--samples", type=click.IntRange(1, 1000), default=5, show_default=True)
@click.option("--pictures", type=click.Path(path_type=Path), help="Folder for inputs as pictures.")
@_BACKEND
@_SHAPES
def check(task_name: str, model: str, pictures: Path | None, **given: Any) -> None:
    """Show a few samples of TASK as MODEL sees them, and what it answers."""
    with _folder(pictures):
        found = _examined(model, pictures=pictures, task=task_name, **given)
    seen = found.seen[0]
    _show(seen.samples)
    judged = [sample.right for sample in seen.samples if sample.right is not None]
    if judged:
        click.echo(f"\n{sum(judged)} of {len(judged)} right")


@task.command()
@click.argument("result", type=click.Path(path_type=Path))
def reference(result: Path) -> None:
    """Print what the model of RESULT reached, as the [reference] of a task file.

    Of the FP32 model's result: edgeperf task reference RESULT >> my.toml. Refused where the
    result is INVALID or its answers are in doubt.
    """
    from edgeperf.agent.result import Severity, read_result  # noqa: PLC0415 - loads nothing more
    from edgeperf.datasets.metrics.names import is_about_samples  # noqa: PLC0415

    found, path = read_result(result)
    accuracy = found.accuracy
    if not accuracy.measured:
        raise InputError(f"{path}: accuracy was not measured: {accuracy.why_not}")
    for reason in found.verdict.reasons:
        in_doubt = reason.code in _IN_DOUBT and reason.severity is Severity.SUSPECT
        if reason.severity is Severity.INVALID or in_doubt:
            raise InputError(f"{path}: no reference to judge by: {reason.code}: {reason.text}")
    if found.sut is not None and found.sut.precision != "f32":
        ran = f"note: {found.model.file} ran in {found.sut.precision}, not in f32"
        say(f"{ran}: a reference is what the FP32 model reaches")
    click.echo(f"\n[reference]    # {path.parent.name}")
    for name, value in accuracy.metrics.items():
        if not is_about_samples(name):
            click.echo(f'"{name}" = {value!r}')


@contextlib.contextmanager
def _folder(pictures: Path | None) -> Iterator[None]:
    """Make the folder of pictures, and take it away where nothing came into it."""
    if pictures is None:
        yield
        return
    is_new = not pictures.exists()
    try:
        pictures.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--pictures {pictures}: {error.strerror}") from error
    try:
        yield
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):  # it is not empty
                pictures.rmdir()
        raise


def _examined(
    model: str,
    *,
    shapes: tuple[str, ...],
    samples: int = 5,
    pictures: Path | None = None,
    **given: str | None,
) -> "Examined":
    """Have MODEL described, and samples answered where a task is given."""
    from edgeperf.agent.cli.values import shapes_of  # noqa: PLC0415 - loads nothing more
    from edgeperf.agent.run.examination import look_at  # noqa: PLC0415 - numpy, only here
    from edgeperf.agent.spec import spec_from_mapping  # noqa: PLC0415

    spec = spec_from_mapping({"model": model, "shapes": shapes_of(shapes), **given})
    with tempfile.TemporaryDirectory(prefix="edgeperf-") as folder:
        return look_at(
            spec,
            log=Path(folder) / "examine.log",
            asks=given.get("task") is not None,
            samples=samples,
            pictures=pictures,
        )


def _show(samples: "tuple[SeenSample, ...]") -> None:
    """Print a table; where that is too wide, each sample with its paths on lines of their own."""
    from rich.measure import Measurement  # noqa: PLC0415 - rich, only where something is drawn
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from edgeperf.agent.cli.console import stdout_console  # noqa: PLC0415

    console = stdout_console()
    table = Table(box=None, padding=(0, 2, 0, 0))
    titles = ("sample", "truth", "answer", "", "input", "least", "mean", "most", "picture")
    for title in titles:
        table.add_column(title, overflow="fold")
    rows = [row for sample in samples for row in _rows(sample)]
    for row in rows:
        table.add_row(*map(Text, row))
    unbounded = console.options.update(width=_WIDEST)
    if Measurement.get(console, unbounded, table).maximum <= console.width:
        console.print(table)
        return
    for row in rows:
        words = [f"{title} {cell}".strip() for title, cell in zip(titles, row, strict=True) if cell]
        for word in words:
            indent = "" if word.startswith("sample ") else "  "
            console.print(Text(f"{indent}{word}"), soft_wrap=True)


def _rows(sample: "SeenSample") -> Iterator[tuple[str, ...]]:
    """Yield a row for each input of a sample; what is the sample's own only in the first."""
    right = {True: "right", False: "WRONG", None: ""}[sample.right]
    for place, given in enumerate(sample.inputs):
        own = (sample.name, sample.truth, sample.answer, right) if place == 0 else ("",) * 4
        yield (
            *own,
            f"{given.name} {given.dtype} {list(given.shape)}",
            *(f"{number:.4g}" for number in (given.least, given.mean, given.most)),
            sample.picture or "" if place == 0 else "",
        )
