"""A real run program for tests: takes what ``edgeperf run`` takes, and does what it is told.

It is told through the spec's option ``do``: ``ok`` (the default), ``crash``, ``fail``, ``hang``,
``family`` (children that ignore SIGTERM), ``abort`` (dies by a signal), ``babble``. ``ms`` is how
long it works. Each run leaves a line in ``executed`` beside the run directories. It imports
nothing of ours, so that hundreds of runs start quickly.
"""

import contextlib
import json
import os
import signal
import sys
import time

NAMES = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
SPEC, EVENTS, OUTPUT = NAMES["--spec"], int(NAMES["--events"]), NAMES["--output"]


def say(**event: object) -> None:
    """Write one event."""
    with contextlib.suppress(BrokenPipeError):  # nobody listens any more: go on
        os.write(EVENTS, json.dumps(event).encode() + b"\n")


def result(spec: dict[str, object], name: str) -> dict[str, object]:
    """Return a small, complete result."""
    model = {
        "name": "m",
        "file": "m.tflite",
        "format": "tflite",
        "sha256": "0" * 64,
        "size_bytes": 1,
        "precision": None,
        "inputs": [],
        "outputs": [],
    }
    nothing = ("task", "sut", "performance", "conditions", "power")
    return {
        "format_version": 1,
        "id": name,
        "created": "2026-01-01T00:00:00Z",
        "edgeperf": "0",
        "verdict": {"status": "VALID", "comparable": False, "reasons": []},
        "spec": spec,
        "model": model,
        "accuracy": {"measured": False, "why_not": "a test"},
        "board": {},
        "phases_ns": {},
        "files": {},
        **dict.fromkeys(nothing),
    }


def misbehave(what: str) -> None:
    """Do one of the things that real runtimes do."""
    if what == "crash":
        sys.stderr.write("the runtime said something\nSegmentation fault is near\n")
        sys.stderr.flush()
        os._exit(3)
    if what == "abort":
        sys.stderr.write("terminate called after throwing an instance of 'std::bad_alloc'\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGABRT)
    if what == "fail":
        say(type="failed", message="model m: no such input", exit_code=2)
        raise SystemExit(2)
    if what == "babble":
        os.write(EVENTS, b"not json\n\xff\xfe{}\n" + b"x" * 100_000 + b"\n")
    if what == "family":
        raise_family()
    if what in ("hang", "family"):
        time.sleep(600)


def raise_family() -> None:
    """Start children that ignore SIGTERM: one here, one in its own group, one far away."""
    import subprocess  # noqa: PLC0415 - slow, and only for this

    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    apart = f"import os; os.setpgid(0, 0); {stubborn}"
    away = f"import os; os.fork() and os._exit(0); os.setsid(); {stubborn}"
    for program in (stubborn, apart, away):
        subprocess.Popen([sys.executable, "-c", program, SPEC])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def main() -> None:
    """Run."""
    with open(SPEC, encoding="utf-8") as file:  # noqa: PTH123 - pathlib is slow to import
        spec = json.load(file)
    options = spec["options"]
    folder = os.path.dirname(SPEC)  # noqa: PTH120
    name = os.path.basename(folder)  # noqa: PTH119
    with open(f"{folder}/../executed", "a", encoding="utf-8") as log:  # noqa: PTH123
        log.write(name + "\n")
    say(type="progress", phase="prepare", percent=0.0)
    misbehave(options.get("do", "ok"))
    work_s = int(options.get("ms", "10")) / 1000
    until_s = time.monotonic() + work_s
    while (left_s := until_s - time.monotonic()) > 0:
        done = 100 * (1 - left_s / work_s)
        say(type="progress", phase="performance", percent=done, eta_s=left_s)
        time.sleep(min(left_s, 0.05))
    result_id = f"20260101-{name[:8]}"
    partial, final = f"{OUTPUT}/.{result_id}.partial", f"{OUTPUT}/{result_id}"
    os.makedirs(partial)  # noqa: PTH103
    with open(f"{partial}/result.json", "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(result(spec, result_id), file)
    with open(f"{partial}/latencies.bin", "wb") as blob:  # noqa: PTH123
        blob.write(name.encode() * int(options.get("kb", "1")))
    os.rename(partial, final)  # noqa: PTH104
    sys.stdout.write("measured\n")
    say(type="finished", directory=final, status="VALID", exit_code=0)


main()
