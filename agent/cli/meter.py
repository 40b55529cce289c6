"""``edgeperf meter ls|kinds|probe|record``: which meters are here, and measuring without a run."""

import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from edgeperf import InputError
from edgeperf.agent.cli.meter_kinds import kinds
from edgeperf.power.live import Live
from edgeperf.power.recorder import Recorder
from edgeperf.power.result import Estimate, Grade, PowerResult

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_UNITS_S = {"ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
#: How long ``probe`` reads.
PROBE_S = 2.0
_LOOK_S = 0.25
#: Without a terminal, progress is a line so often.
_LINE_S = 10.0


def seconds_of(text: str) -> float:
    """Turn ``10s``, ``500ms``, ``2m`` or ``1h`` into seconds.

    Raises:
        InputError: It is none of these, or not positive.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|)", text.strip())
    if match is None or (seconds := float(match[1]) * _UNITS_S[match[2]]) <= 0:
        raise InputError(f"duration {text!r}: expected such as 10s, 500ms, 2m or 1h")
    return seconds


@click.group()
def meter() -> None:
    """List, probe and record power meters."""


@meter.command("ls")
@click.option("--probe", is_flag=True, help="Also ask behind adapters, where anything may be.")
@_JSON
def ls(*, probe: bool, as_json: bool) -> None:
    """List what is attached, and what answered."""
    from edgeperf.power.discover import (  # noqa: PLC0415 - pyserial, only where needed
        attached_ports,
        onboard_meters,
        probe_port,
    )

    ports = [probe_port(one, adapters=probe) for one in attached_ports()]
    onboard = onboard_meters()
    if as_json:
        _print_json({"ports": ports, "onboard": onboard})
        return
    if not ports and not onboard:
        sys.stdout.write("no serial port, USB instrument or on-board meter here\n")
    for one in ports:
        sys.stdout.write(f"{one.port}\n    {_told(one)}\n")
    for spec in onboard:
        sys.stdout.write(f"{spec}\n    on this board\n")


def _told(one: Any) -> str:
    parts = [part for part in (one.usb, one.product) if part]
    parts += [one.device] if one.device != one.port else []
    if one.problem:
        parts.append(one.problem)
    elif one.answers:
        parts += [f"answers as {kind}: {model}" for kind, model in one.answers.items()]
    elif one.kinds:
        parts.append(f"may be {', '.join(one.kinds)}; nothing answered, or not asked (--probe)")
    return "; ".join(parts)


meter.add_command(kinds)


@meter.command("probe")
@click.argument("spec")
@_JSON
def probe(spec: str, *, as_json: bool) -> None:
    """Ask one meter who it is, and read it for two seconds."""
    from edgeperf.power import make_source  # noqa: PLC0415 - drivers, only where needed
    from edgeperf.power.watch import Watch  # noqa: PLC0415 - numpy

    source = make_source(spec)
    try:
        source.open()
        identity = source.identify()
        source.start()
        begin_s = time.monotonic()
        watch = Watch(source.info(), source.decoder(source.header()), time.monotonic_ns())
        while time.monotonic() - begin_s < PROBE_S:
            for chunk in source.read():
                watch.take(chunk)
        live, info = watch.look(time.monotonic_ns()), source.info()
        source.stop()
    finally:
        source.close()
    told = {"meter": spec, "identity": identity, "info": info, "live": live}
    if as_json:
        _print_json(told)
        return
    _print_rows(
        {
            "meter": spec,
            "identity": " ".join(
                filter(None, (identity.model, identity.serial, identity.firmware))
            ),
            "measures": f"{info.measures.value}, at the {info.boundary.value}",
            "rate": f"{info.rate_hz:g} new values/s; {live.readings} readings in {PROBE_S:g} s",
            "gain error": f"up to {info.gain:.2%}",
            "power": "not known" if live.power_w is None else f"{live.power_w:.4g} W",
            "state": live.problem or live.state,
            "faults": _counts(live.faults),
            **{f"note {number}": note for number, note in enumerate(info.notes, 1)},
        }
    )


@meter.command("record")
@click.argument("spec")
@click.option("--for", "length", required=True, metavar="TIME", help="How long: 10s, 2m.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Keep the trace, NPZ.")
@click.option("--core", type=int, help="Core that the recorder stays on.")
@_JSON
def record(spec: str, *, length: str, output: Path | None, core: int | None, as_json: bool) -> int:
    """Record a meter for a while and print the energy of exactly that time.

    Exit status 1 means that part of the time was not seen, or something is wrong.
    """
    from edgeperf.power.measure import measure  # noqa: PLC0415 - numpy
    from edgeperf.power.trace import PowerTrace  # noqa: PLC0415 - numpy

    length_s = seconds_of(length)
    if output is not None and not output.absolute().parent.is_dir():
        raise InputError(f"{output}: there is no folder {output.absolute().parent}")
    with tempfile.TemporaryDirectory(prefix="edgeperf-") as folder:
        with Recorder.start(spec, Path(folder), core) as recorder:
            start_ns = time.monotonic_ns()
            end_ns = start_ns + round(length_s * 1e9)
            _watch(recorder, start_ns, end_ns)
            recording = recorder.stop()
        trace = PowerTrace.load(recording.trace)
        if output is not None:
            shutil.copyfile(recording.trace, output)
    result = measure(trace, start_ns, end_ns)
    _report(result, recording.faults, as_json=as_json)
    return 0 if result.grade is Grade.COMPLETE and not result.problems else 1


def _watch(recorder: Recorder, start_ns: int, end_ns: int) -> None:
    """Show live watts until the window is over, and a little longer so that its end is seen."""
    shown_s = 0.0
    while (now_ns := time.monotonic_ns()) < end_ns:
        live = recorder.poll()
        if sys.stderr.isatty() or time.monotonic() - shown_s >= _LINE_S:
            shown_s = time.monotonic()
            _show(live, (now_ns - start_ns) * 1e-9, (end_ns - start_ns) * 1e-9)
        time.sleep(min(_LOOK_S, max((end_ns - now_ns) * 1e-9, 0)))
    seen = recorder.poll().readings
    patience_s = recorder.info.longest_interval_s if recorder.info else 1.0
    deadline_s = time.monotonic() + patience_s + 2 * _LOOK_S
    while recorder.poll().readings < seen + 2 and time.monotonic() < deadline_s:
        time.sleep(0.02)
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")


def _show(live: Live, passed_s: float, length_s: float) -> None:
    watts = "   -   W" if live.power_w is None else f"{live.power_w:8.3f} W"
    line = f"{watts}  {passed_s:.1f} of {length_s:g} s  {live.problem or live.state}"
    sys.stderr.write(f"\r\x1b[K{line[:100]}" if sys.stderr.isatty() else f"{line}\n")
    sys.stderr.flush()


def _report(result: PowerResult, faults: dict[str, int], *, as_json: bool) -> None:
    energy = result.gross.energy_j if result.gross else None
    average = result.gross.average_w if result.gross else None
    if as_json:
        _print_json(
            {
                "energy_j": energy.value if energy else None,
                "average_w": average.value if average else None,
                "peak_w": result.peak_w.value if result.peak_w else None,
                "coverage": result.coverage,
                "uncertainty": energy.uncertainty if energy else None,
                "faults": faults,
                "start_mono_ns": result.start_mono_ns,
                "end_mono_ns": result.end_mono_ns,
                "result": result,
            }
        )
        return
    _print_rows(
        {
            "energy": _estimate(energy, "J") if energy else "not stated",
            "average": _estimate(average, "W") if average else "not stated",
            "median": _estimate(result.median_w, "W"),
            "peak": f"{_estimate(result.peak_w, 'W')} at {result.rate_hz:g} values/s",
            "coverage": f"{result.coverage:.2%}, {result.readings} readings",
            "window": f"{result.start_mono_ns} to {result.end_mono_ns} ns, CLOCK_MONOTONIC",
            "meter": f"{result.identity.model}: {result.measures.value}, {result.boundary.value}",
            "faults": _counts(faults),
            **{f"problem {number}": text for number, text in enumerate(result.problems, 1)},
        }
    )


def _estimate(estimate: Estimate | None, unit: str) -> str:
    if estimate is None:
        return "not known"
    return f"{estimate.value:.6g} {unit} ± {estimate.uncertainty:.2g} {unit} (k = 2)"


def _counts(faults: dict[str, int]) -> str:
    return ", ".join(f"{phrase} ({times})" for phrase, times in faults.items()) or "none"


def _print_rows(rows: dict[str, str]) -> None:
    width = max(map(len, rows))
    for name, text in rows.items():
        sys.stdout.write(f"{name:<{width}}  {text}\n")


def _print_json(told: dict[str, Any]) -> None:
    text = msgspec.json.format(msgspec.json.encode(told), indent=2)
    sys.stdout.write(text.decode() + "\n")
