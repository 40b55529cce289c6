"""``edgeperf run``: one board, now."""

import contextlib
import fcntl
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from edgeperf.agent.cli.allow import allow_option
from edgeperf.agent.cli.console import say, stdout_may_close
from edgeperf.agent.cli.ending import ending_of, ignore_signals
from edgeperf.agent.cli.run_fields import by_option, check_text, fields_of, option_of
from edgeperf.agent.cli.values import BatchSize
from edgeperf.agent.events import Event, Failed, Finished, Phase, Progress
from edgeperf.agent.freeze.document import check_is_spec, frozen_from_json, is_frozen, read_file
from edgeperf.agent.freeze.findings import NotHeldError
from edgeperf.agent.result import Result, Status, result_to_json
from edgeperf.agent.spec import (
    Precision,
    Preset,
    RunSpec,
    Scenario,
    SpecError,
    check_asked,
    spec_from_json,
    spec_from_mapping,
)

if TYPE_CHECKING:
    from edgeperf.agent.freeze.repeating import HeldToSpec

#: Where results go when nothing else is said.
RESULTS = "edgeperf-results"
_EXIT = {Status.VALID: 0, Status.SUSPECT: 1, Status.INVALID: 1}


def _choice(kind: type[Scenario] | type[Preset] | type[Precision]) -> click.Choice[str]:
    return click.Choice([member.value for member in kind], case_sensitive=False)


@click.command()
@click.argument("model", required=False)
@click.option(
    "--task", help="Task, or your own task file (.toml); default: the catalogue model's own."
)
@click.option(
    "--part", "parts", multiple=True, metavar="NAME=FILE", help="Further file: decoder, tokenizer."
)
@click.option("--data", metavar="PATH", help="Your own labelled samples: a folder or a file.")
@click.option("--backend", help="Runtime; default: what fits the file (see: edgeperf backends).")
@click.option("--precision", type=_choice(Precision), help="Which of a catalogue model's files.")
@click.option("--scenario", type=_choice(Scenario), help="How queries arrive.  [SingleStream]")
@click.option(
    "--preset",
    type=_choice(Preset),
    help="valid: MLPerf's 600 s; fast: 60 s; smoke: seconds, comparable with nothing.  [fast]",
)
@click.option("--cores", metavar="LIST", help="Cores to use, such as 2,3 or 0-3; default: all.")
@click.option("--workers", type=int, help="Processes that infer; default: by scenario and cores.")
@click.option("--threads", type=int, help="Runtime threads per worker.  [1]")
@click.option(
    "--option", "options", multiple=True, metavar="NAME=VALUE", help="The backend's own option."
)
@click.option(
    "--input", "shapes", multiple=True, metavar="NAME=SHAPE", help="Shape of a dynamic input."
)
@click.option("--inputs", "inputs_file", metavar="NPZ", help="Inputs for a model without a task.")
@click.option("--samples-per-query", type=int, help="MultiStream.  [8]")
@click.option("--target-qps", type=float, help="Server: rate; default: found by calibration.")
@click.option("--target-latency", type=float, metavar="MS", help="Server: bound; default: task's.")
@click.option("--min-duration", type=float, metavar="S", help="Instead of the preset's.")
@click.option("--min-queries", "min_query_count", type=int, help="Instead of the preset's.")
@click.option("--batch", type=BatchSize(), help="Offline: samples per inference.  [1]")
@click.option("--no-realtime", is_flag=True, help="Never take real-time priority.")
@click.option("--no-accuracy", is_flag=True, help="Skip the accuracy test; the result says so.")
@click.option(
    "--gate", type=float, help="Share of the FP32 reference to reach; default: the task's own gate."
)
@click.option("--ungated", is_flag=True, help="Show performance although the gate was missed.")
@click.option("--seed", type=int, help="Seed of generated inputs.  [0]")
@click.option("--stall", "stall_s", type=float, metavar="S", help="Without an answer: hung.  [60]")
@click.option("--meter", metavar="SPEC", help="Power meter, such as textline:/dev/ttyACM0.")
@click.option("--governor", metavar="NAME", help="Hold this governor: performance, ...")
@click.option("--clock", metavar="HZ|max", help="Hold every core at this clock, such as 1.5GHz.")
@click.option("--fan", type=click.Choice(["full"]), help="Hold the fan there.")
@click.option(
    "--spec", "spec_file", metavar="FILE", help="The whole spec as JSON, or a frozen one."
)
@click.option(
    "--hold-to",
    metavar="FILE",
    hidden=True,
    help="Hold the run of a plain --spec to this frozen spec, as a fleet's board does.",
)
@allow_option
@click.option("--output", metavar="DIR", help=f"Folder for the result.  [{RESULTS}]")
@click.option("--json", "as_json", is_flag=True, help="Print result.json on standard output.")
@click.option("--events", type=int, metavar="FD", help="Write events to this descriptor.")
def run(
    spec_file: str | None,
    hold_to: str | None,
    allowed: tuple[str, ...],
    output: str | None,
    as_json: bool,  # noqa: FBT001 - click passes flags by name
    events: int | None,
    **given: Any,
) -> int:
    """Measure MODEL (a file or a catalogue name) on this board, now.

    Accuracy is checked first; below its gate no performance is shown.
    """
    send = _sender(events)
    try:
        folder = _output(output)
        spec, held = _spec_or_frozen(spec_file, hold_to, given, allowed)
        result, directory = _execute(spec, held, folder, send)
    except BaseException as error:
        ending, lines = ending_of(error), error.lines if isinstance(error, NotHeldError) else []
        for line in lines:
            say(line)
        message = " | ".join([ending.text, *lines])  # who listens has no lines of ours
        send(Failed(message=message, exit_code=ending.status))
        raise
    code = _EXIT[result.verdict.status]
    send(Finished(directory=str(directory), status=result.verdict.status.value, exit_code=code))
    with stdout_may_close():
        _print(result, directory, as_json=as_json)
    return code


def _output(given: str | None) -> Path:
    if given == "":
        raise SpecError("--output: is empty")
    path = RESULTS if given is None else given
    check_text("--output", path)
    return Path(path)


def _execute(
    spec: RunSpec, held: "HeldToSpec | None", output: Path, send: Callable[[Event], None]
) -> tuple[Result, Path]:
    from edgeperf.agent.cli.progress import shown  # noqa: PLC0415 - numpy and rich, only here
    from edgeperf.agent.run.execute import execute  # noqa: PLC0415
    from edgeperf.agent.run.plan import make_plan  # noqa: PLC0415

    plan = make_plan(spec)
    if held is None and spec.seed and plan.task is not None:
        raise SpecError(f"--seed {spec.seed}: means nothing; the task {plan.task!r} has its inputs")
    with shown(plan) as show:

        def listen(event: Event) -> None:
            if isinstance(event, Progress) and event.phase is Phase.REPORT:
                ignore_signals()
            send(event)
            show(event)

        return execute(plan, output, listen, held)


def _print(result: Result, directory: Path, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(result_to_json(result).decode())
        return
    from edgeperf.agent.cli.summary import print_summary  # noqa: PLC0415 - rich, only here

    print_summary(result, directory)


def _sender(descriptor: int | None) -> Callable[[Event], None]:
    if descriptor is None:
        return _nobody
    try:
        mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    except (OSError, OverflowError, ValueError) as error:
        raise SpecError(f"--events {descriptor}: not an open file descriptor") from error
    if mode == os.O_RDONLY:
        raise SpecError(f"--events {descriptor}: open for reading only")

    def send(event: Event) -> None:
        with contextlib.suppress(BrokenPipeError):  # nobody listens any more: measure on
            os.write(descriptor, msgspec.json.encode(event) + b"\n")

    return send


def _nobody(event: Event) -> None:
    del event


def _spec_or_frozen(
    spec_file: str | None, hold_to: str | None, given: dict[str, Any], allowed: Sequence[str]
) -> tuple[RunSpec, "HeldToSpec | None"]:
    """Return what to run, and the frozen spec that it is held to, if there is one."""
    fields = fields_of(given)
    if hold_to is not None:
        return _held_to(spec_file, hold_to, allowed)
    if spec_file is not None:
        raw = read_file(Path(spec_file), "--spec")
        check_is_spec(raw, f"--spec {spec_file}")
        if is_frozen(raw):
            return _frozen(spec_file, raw, fields, allowed)
    if allowed:
        raise SpecError("--allow: means nothing without a frozen spec (edgeperf spec freeze)")
    if spec_file is None:
        return _spec(fields), None
    if fields:
        extra = ", ".join(map(option_of, sorted(fields)))
        raise SpecError(f"--spec {spec_file}: holds everything; leave out {extra}")
    spec = spec_from_json(raw, where=f"--spec {spec_file}")
    check_asked(spec)
    return spec, None


def _held_to(
    spec_file: str | None, hold_to: str, allowed: Sequence[str]
) -> tuple[RunSpec, "HeldToSpec"]:
    from edgeperf.agent.freeze.repeating import HeldToSpec  # noqa: PLC0415 - numpy, only here

    if spec_file is None:
        raise SpecError("--hold-to: holds the run of a plain --spec, and there is none")
    file = frozen_from_json(read_file(Path(hold_to), "--hold-to"), where=Path(hold_to).name)
    run = spec_from_json(read_file(Path(spec_file), "--spec"))
    return run, HeldToSpec(file, run, allowed)


def _frozen(
    spec_file: str, raw: bytes, fields: dict[str, Any], allowed: Sequence[str]
) -> tuple[RunSpec, "HeldToSpec"]:
    from edgeperf.agent.freeze.repeating import (  # noqa: PLC0415 - numpy, only here
        PLACES,
        HeldToSpec,
        run_here,
    )

    if extra := ", ".join(map(option_of, sorted(fields.keys() - set(PLACES)))):
        raise SpecError(
            f"--spec {spec_file}: is frozen; leave out {extra} (only where things are"
            " may be said beside it, and what shall be held)"
        )
    file = frozen_from_json(raw, where=spec_file)
    held = HeldToSpec(file, run_here(file.spec, fields), allowed)
    return held.run, held


def _spec(fields: dict[str, Any]) -> RunSpec:
    if "model" not in fields:
        raise SpecError("MODEL: give a model file or a catalogue name (see: edgeperf models)")
    try:
        spec = spec_from_mapping(json.loads(json.dumps(fields)))
        check_asked(spec)
    except SpecError as error:
        raise by_option(error) from error
    return spec
