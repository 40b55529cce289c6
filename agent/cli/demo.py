"""``edgeperf demo``: the whole product on this machine, once, from nothing and back to nothing.

A broker, a coordinator, an agent in a process of its own and a simulated power meter; one
real run of the bundled model, asked for over MQTT, and its result read from the
coordinator's store. Everything lives in a scratch directory that is gone afterwards.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeperf import EdgeperfError
from edgeperf.agent.spec import Preset, Scenario

if TYPE_CHECKING:
    from edgeperf.coordinator.client import Client

_BOARD = "this-machine"
_METER = "bench"
#: Watts of an idle and of a fully loaded machine, as the simulated meter makes them up.
_POWER = "cpu:3,8"
_READY_S = 60.0
_STOP_S = 10.0


@click.command()
@click.option("--model", default="digits", show_default=True, help="A name of the catalogue.")
@click.option(
    "--preset",
    type=click.Choice([one.value for one in Preset], case_sensitive=False),
    default="smoke",
    show_default=True,
    help="How long the run lasts.",
)
@click.option(
    "--scenario",
    type=click.Choice([one.value for one in Scenario], case_sensitive=False),
    default="SingleStream",
    show_default=True,
)
@click.option("--backend", help="Runtime.  [what fits the model]")
@click.option("--no-meter", is_flag=True, help="Leave the simulated power meter out.")
@click.option(
    "--broker",
    type=click.Choice(["auto", "mosquitto", "embedded"]),
    default="auto",
    show_default=True,
)
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep all here.")
@click.option("--json", "as_json", is_flag=True, help="Print the run as JSON.")
def demo(*, no_meter: bool, broker: str, keep: Path | None, as_json: bool, **asked: Any) -> int:
    """Start a fleet of one on this machine, run a model on it over MQTT, and clean up."""
    from edgeperf.agent.cli.fleet_progress import followed  # noqa: PLC0415 - rich
    from edgeperf.agent.cli.fleet_runs import report  # noqa: PLC0415

    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    with contextlib.ExitStack() as stack:
        root = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edgeperf-")))
        meter = None if no_meter else stack.enter_context(_meter(root))
        client = stack.enter_context(_coordinator(root / "coordinator", broker))
        stack.enter_context(_agent(root / "agent", client, meter))
        spec = {name: value for name, value in asked.items() if value is not None}
        if meter is not None:
            spec["meter"] = _METER
        view = client.post("/v1/runs", {"board": _BOARD, "spec": spec})
        _say(f"asked {_BOARD} over MQTT to run {spec['model']}")
        view = followed(client, view)
        # The run is over when its result is stored; its files follow.
        return report(client.get(f"/v1/runs/{view['run']}", log_after=2**53), as_json=as_json)


@contextlib.contextmanager
def _coordinator(data: Path, broker: str) -> Iterator["Client"]:
    try:
        from edgeperf.coordinator.service import Coordinator  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("edgeperf"):
            raise
        raise EdgeperfError(
            f"demo: needs {error.name}; pip install 'edgeperf[coordinator,broker]'"
        ) from error
    from edgeperf.coordinator.client import find_coordinator  # noqa: PLC0415
    from edgeperf.coordinator.settings import Settings  # noqa: PLC0415

    settings = Settings(data=data, fleet="demo", broker=broker, broker_port=0, http_port=0)
    with Coordinator(settings) as running:
        _say(f"coordinator at {running.url}, broker {running.broker_name}")
        yield find_coordinator(url=None, token_file=None, ca_file=None, data=data)


@contextlib.contextmanager
def _agent(state: Path, client: "Client", meter: Path | None) -> Iterator[None]:
    """Let an agent join with a one-time code, and serve until the end."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    if meter is not None:
        text = f'[meters]\n{_METER} = "textline:{meter}"\n'
        (state / "board.toml").write_text(text, "utf-8")
    code = client.post("/v1/codes", {"board": _BOARD})["code"]
    agent = [*_edgeperf(), "agent", "--state", str(state)]
    joined = subprocess.run(
        [*agent, "enroll", client.url, "--code", code, "--name", _BOARD],
        check=False,
        capture_output=True,
        text=True,
        env=_environment(),
    )
    if joined.returncode:
        raise EdgeperfError(f"demo: the agent cannot join: {_last_line(joined.stderr)}")
    log = state / "agent.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            agent, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=_environment()
        )
    try:
        _wait_until_ready(client, process, log)
        yield
    finally:
        _end(process)


def _wait_until_ready(client: "Client", process: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + _READY_S
    while time.monotonic() < give_up:
        if process.poll() is not None:
            words = _last_line(log.read_text("utf-8", "replace"))
            raise EdgeperfError(f"demo: the agent ended: {words}")
        board = client.get(f"/v1/boards/{_BOARD}")
        # A first description comes at once, the one with the runtimes when they were tried.
        if board["state"] == "online" and (board["description"] or {}).get("runtimes"):
            runtimes = board["description"]["runtimes"]
            usable = [runtime["backend"] for runtime in runtimes if runtime["version"]]
            _say(f"board {_BOARD} joined with a one-time code; runtimes: {', '.join(usable)}")
            return
        time.sleep(0.1)
    raise EdgeperfError(f"demo: the agent did not come up within {_READY_S:.0f} s; see {log}")


@contextlib.contextmanager
def _meter(root: Path) -> Iterator[Path]:
    """Play a meter in a process of its own, as a real one would be."""
    root.mkdir(parents=True, exist_ok=True)
    link, log = root / "meter", root / "meter.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*_edgeperf(), "simulate-meter", "textline", "--waveform", _POWER, "--link", str(link)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            env=_environment(),
        )
    with process:
        try:
            if process.stdout is None or not process.stdout.readline():
                words = _last_line(log.read_text("utf-8", "replace"))
                raise EdgeperfError(f"demo: the simulated meter does not start: {words}")
            _say(f"simulated power meter at {link}, following this machine's load")
            yield link
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _edgeperf() -> list[str]:
    return [sys.executable, "-m", "edgeperf"]


def _environment() -> dict[str, str]:
    """Keep our own folders, called like well-known packages, off the children's path."""
    return {**os.environ, "PYTHONSAFEPATH": "1"}


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("edgeperf: ") if lines else "it said nothing"


def _say(text: str) -> None:
    sys.stderr.write(f"edgeperf demo: {text}\n")
    sys.stderr.flush()
