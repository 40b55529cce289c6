"""A real run program for tests: takes what ``edgeperf run`` takes, and does what it is told.

It is told through the spec's option ``do``: ``ok`` (the default), ``crash``, ``fail``, ``hang``,
``family`` (children that ignore SIGTERM), ``abort`` (dies by a signal), ``babble``. ``ms`` is how
long it works. Each run leaves a line in ``executed`` beside the run directories.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from edgeperf.agent.events import Failed, Finished, Phase, Progress
from edgeperf.agent.result import Accuracy, Model, Result, Status, Verdict, result_to_json
from edgeperf.agent.spec import RunSpec, spec_from_json

PARSER = argparse.ArgumentParser()
PARSER.add_argument("--spec", type=Path, required=True)
PARSER.add_argument("--events", type=int, required=True)
PARSER.add_argument("--output", type=Path, required=True)
ARGUMENTS = PARSER.parse_args()


def say(event: object) -> None:
    """Write one event."""
    with contextlib.suppress(BrokenPipeError):  # nobody listens any more: go on
        os.write(ARGUMENTS.events, msgspec.json.encode(event) + b"\n")


def result(spec: RunSpec, name: str) -> Result:
    """Return a small, complete result."""
    return Result(
        id=name,
        created="2026-01-01T00:00:00Z",
        edgeperf="0",
        verdict=Verdict(status=Status.VALID, comparable=False, reasons=()),
        spec=json.loads(msgspec.json.encode(spec)),
        model=Model(
            name="m",
            file="m.tflite",
            format="tflite",
            sha256="0" * 64,
            size_bytes=1,
            precision=None,
            inputs=(),
            outputs=(),
        ),
        task=None,
        sut=None,
        accuracy=Accuracy(measured=False, why_not="a test"),
        performance=None,
        board={},
        conditions=None,
        power=None,
        phases_ns={},
        files={},
    )


def misbehave(what: str) -> None:
    """Do one of the things that real runtimes do."""
    if what == "crash":
        sys.stderr.write("the runtime said something\nSegmentation fault is near\n")
        os._exit(3)
    if what == "abort":
        sys.stderr.write("terminate called after throwing an instance of 'std::bad_alloc'\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGABRT)
    if what == "fail":
        say(Failed(message="model m: no such input", exit_code=2))
        raise SystemExit(2)
    if what == "babble":
        os.write(ARGUMENTS.events, b"not json\n\xff\xfe{}\n" + b"x" * 100_000 + b"\n")
    if what == "family":
        stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
        apart = f"import os; os.setpgid(0, 0); {stubborn}"
        away = f"import os; os.fork() and os._exit(0); os.setsid(); {stubborn}"
        for program in (stubborn, apart, away):
            subprocess.Popen([sys.executable, "-c", program, str(ARGUMENTS.spec)])
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if what in ("hang", "family"):
        time.sleep(600)


def main() -> None:
    """Run."""
    spec = spec_from_json(ARGUMENTS.spec.read_bytes())
    folder = ARGUMENTS.spec.parent
    with (folder.parent / "executed").open("a") as log:
        log.write(folder.name + "\n")
    say(Progress(phase=Phase.PREPARE, percent=0.0))
    misbehave(spec.options.get("do", "ok"))
    work_s = int(spec.options.get("ms", "10")) / 1000
    until_s = time.monotonic() + work_s
    while (left_s := until_s - time.monotonic()) > 0:
        done = 100 * (1 - left_s / work_s)
        say(Progress(phase=Phase.PERFORMANCE, percent=done, eta_s=left_s))
        time.sleep(min(left_s, 0.05))
    name = f"20260101-{folder.name[:8]}"
    partial, final = ARGUMENTS.output / f".{name}.partial", ARGUMENTS.output / name
    partial.mkdir(parents=True)
    (partial / "result.json").write_bytes(result_to_json(result(spec, name)))
    (partial / "latencies.bin").write_bytes(folder.name.encode() * int(spec.options.get("kb", "1")))
    partial.rename(final)
    sys.stdout.write("measured\n")
    say(Finished(directory=str(final), status="VALID", exit_code=0))


main()
