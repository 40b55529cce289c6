"""Compare edgeperf with bare loops and with other harnesses, in one run.

    python -m benchmarks [MODEL[:PRECISION]@BACKEND ...] [--short] [--json FILE]

Every contestant has the model loaded all the time and they take turns, round by round,
so that all see the same machine. ``make bench`` runs it. With ``--json`` what was
measured is kept after every round, and the same command goes on where it was stopped;
``--from`` makes tables and chart of such a file and measures nothing.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from benchmarks.analysis import lines
from benchmarks.app import find_app
from benchmarks.arena import Arena
from benchmarks.chart import chart
from benchmarks.document import document
from benchmarks.goals import goals
from benchmarks.growth import growth
from benchmarks.machine import machine
from benchmarks.memory import memory
from benchmarks.report import report
from benchmarks.rounds import SCENARIOS, Round, Settings, bound_ns
from benchmarks.rows import Facts, Record, load, read, save
from benchmarks.target import BUNDLED, TARGETS, Target, opened, reachable

from edgeperf import EdgeperfError

FULL = Settings(seconds=0.6, queries=150, rounds=5, server_rounds=3, patience_s=0.0)
#: Proves that everything works, and nothing else.
SHORT = Settings(seconds=0.05, queries=20, rounds=1, server_rounds=1, patience_s=0.0)


def main() -> int:
    """Measure what is asked and print the report."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="MODEL[:PRECISION]@BACKEND")
    parser.add_argument("--short", action="store_true", help="seconds, for CI; proves nothing")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="only these")
    parser.add_argument("--rounds", type=int, help="repetitions (5)")
    parser.add_argument("--seconds", type=float, help="least length of a measurement (0.6)")
    parser.add_argument("--patience", type=float, default=0.0, help="wait for a quiet machine")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep everything here")
    parser.add_argument("--from", dest="kept", type=Path, metavar="FILE", help="measure nothing")
    parser.add_argument("--document", type=Path, metavar="FILE", help="put tables and chart here")
    args = parser.parse_args()
    try:
        record = _measure(args) if args.kept is None else read(args.kept)
        _conclude(record, args)
    except EdgeperfError as error:
        sys.stderr.write(f"benchmarks: {error}\n")
        return error.exit_code
    return 0


def _conclude(record: Record, args: argparse.Namespace) -> None:
    found = lines(record)
    reached = goals(record, found)
    record.analysis = {"lines": msgspec.to_builtins(found), "goals": msgspec.to_builtins(reached)}
    save(record, args.json)
    text = report(record, found, reached)
    print(text, end="")
    if args.document is not None:
        document(args.document, text, chart(record, found))


def _measure(args: argparse.Namespace) -> Record:
    settings = _settings(args)
    names = tuple(args.targets) or (BUNDLED[:2] if args.short else TARGETS)
    names = names if args.targets or args.short else reachable(names)
    asked = {"targets": names, "short": args.short, **msgspec.to_builtins(settings)}
    record = load(args.json, asked, machine())
    began = time.monotonic()
    for name in names:
        _say(began, name)
        _measure_target(name, settings, record, args.json)
    if not record.memory:
        _say(began, "memory")
        record.memory = memory(names[0])
        save(record, args.json)
    if not record.growth:
        _say(began, "growth")
        record.growth = growth(short=args.short)
        save(record, args.json)
    return record


def _settings(args: argparse.Namespace) -> Settings:
    base = SHORT if args.short else FULL
    rounds = args.rounds or base.rounds
    return msgspec.structs.replace(
        base,
        rounds=rounds,
        server_rounds=min(rounds, base.server_rounds),
        seconds=args.seconds or base.seconds,
        patience_s=args.patience,
        scenarios=tuple(args.scenario or SCENARIOS),
    )


def _measure_target(name: str, settings: Settings, record: Record, file: Path | None) -> None:
    missing = [number for number in range(settings.rounds) if not record.has(name, number)]
    if not missing:
        return
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edgeperf-bench-")))
        target = stack.enter_context(opened(name, folder))
        arena = stack.enter_context(Arena(target))
        record.facts[name] = _facts(target, arena)
        for number in missing:
            record.rows += list(Round(target, arena, settings, number, find_app()).rows())
            save(record, file)


def _facts(target: Target, arena: Arena) -> Facts:
    info = target.prepared.info
    return Facts(
        bare_ns=arena.bare_ns,
        cores=len(arena.cores),
        bound_ns=bound_ns(target, arena),
        runtime=f"{info.runtime} {info.version}",
        precision=info.precision,
        input_copy=info.input_copy,
    )


def _say(began: float, what: str) -> None:
    sys.stderr.write(f"[{time.monotonic() - began:5.0f} s] {what}\n")


if __name__ == "__main__":
    sys.exit(main())
