"""Laying a frozen spec beside this board: which it is, its cores, its clocks, its meter."""

from collections.abc import Iterator
from pathlib import Path

from edgeperf import InputError
from edgeperf.agent.board import BoardInfo, format_core_list
from edgeperf.agent.board.kernel_files import read_text
from edgeperf.agent.freeze.document import Clock, FrozenSpec
from edgeperf.agent.freeze.findings import Finding
from edgeperf.agent.run.layout import lay_out
from edgeperf.agent.run.tuning import wish_of
from edgeperf.agent.spec import RunSpec
from edgeperf.agent.tuner import problem_of
from edgeperf.agent.tuner.knobs import Knob, choose
from edgeperf.agent.tuner.wire import is_same
from edgeperf.power import parse_meter_spec

#: The kernel keeps a little more or less for itself; another size of memory is far more.
_SAME_MEMORY = 0.05
_SETTING = "needs the tuner: sudo edgeperf service install"


def machine_findings(spec: FrozenSpec, board: BoardInfo) -> Iterator[Finding]:
    """Compare what the board is; what it did not tell then is not asked now."""
    asked = spec.machine
    other = "run it on such a board; another one gives other numbers"
    yield from _told("board", "model", asked.model, board.model, other)
    yield from _told("board", "revision", asked.revision, board.pi_revision, other)
    yield from _told("cpu", "processor", asked.cpu, board.cpu_model, other)
    online = sum(core.online for core in board.cores)
    yield Finding("cpu", "cores online", str(asked.cores), str(online), other)
    yield Finding("arch", "architecture", asked.arch, board.arch, other)
    bits = "install a system of that width"
    yield Finding(
        "arch", "width of Python, bits", str(asked.pointer_bits), str(board.pointer_bits), bits
    )
    yield from _memory(asked.memory_bytes, board.memory_bytes, other)
    mode = f"sudo nvpmodel -m, with the number of {asked.power_mode}"
    yield from _told("power-mode", "nvpmodel", asked.power_mode, board.power_mode, mode)
    boost = None if asked.boost is None else _on(asked.boost)
    switch = "/sys/devices/system/cpu/cpufreq/boost or intel_pstate/no_turbo switches it"
    yield from _told("boost", "clocks above nominal", boost, _on(board.boost), switch)


def _told(
    name: str, where: str, expected: str | None, found: str | None, advice: str
) -> Iterator[Finding]:
    if expected is not None:
        yield Finding(name, where, expected, found or "unknown", advice)


def _on(value: bool | None) -> str:  # noqa: FBT001 - a fact to be put into words
    return "unknown" if value is None else "on" if value else "off"


def _memory(expected: int | None, found: int | None, advice: str) -> Iterator[Finding]:
    if expected is None:
        return
    near = found is not None and abs(found - expected) <= _SAME_MEMORY * expected
    text = f"{expected / 1e9:.1f} GB"
    here = "unknown" if found is None else f"{found / 1e9:.1f} GB"
    yield Finding("memory", "size", text, text if near else here, advice)


def core_findings(spec: FrozenSpec, run: RunSpec) -> Iterator[Finding]:
    """Compare the cores of each worker."""
    expected = _groups(spec.workers)
    try:
        found = _groups(lay_out(run).workers)
    except InputError as error:
        text = f"none ({error})"
        advice = "run it on a board that has them, or free them"
        yield Finding("cores", "workers", expected, text, advice, cannot=True)
        return
    advice = "the kernel ranks these cores otherwise; look at isolcpus, cpusets and offline cores"
    yield Finding("cores", "workers", expected, found, advice)


def _groups(workers: tuple[tuple[int, ...], ...]) -> str:
    return " | ".join(format_core_list(cores) for cores in workers)


def clock_findings(
    spec: FrozenSpec, run: RunSpec, board: BoardInfo, *, root: Path = Path("/")
) -> Iterator[Finding]:
    """Compare governor and limits, or see whether the tuner can hold them.

    Args:
        spec: The frozen spec.
        run: Its run, perhaps with a governor or clock to hold that was given beside it.
        board: This board.
        root: Root of the file tree.
    """
    here = {policy.cores: policy for policy in board.frequency}
    for clock in spec.clocks:
        cores = f"cores {format_core_list(clock.cores)}"
        policy = here.get(clock.cores)
        if policy is None:
            yield Finding("clock", cores, _limits(clock), "no such frequency policy", _SETTING)
            continue
        now = Clock(
            cores=policy.cores,
            governor=run.governor or policy.governor,
            min_hz=policy.min_hz,
            max_hz=policy.max_hz,
            hardware_max_hz=policy.hardware_max_hz,
        )
        yield from _one_clock(clock, now, run, cores)
    if run.fan != spec.run.fan:
        left = spec.run.fan or "left alone"
        yield Finding("fan", "fan", left, run.fan or "left alone", "leave --fan out")
    yield from _tuner(spec, run, root)


def _one_clock(clock: Clock, now: Clock, run: RunSpec, cores: str) -> Iterator[Finding]:
    if clock.governor is not None:
        advice = f"add --governor {clock.governor} ({_SETTING})"
        yield Finding("governor", cores, clock.governor, now.governor or "unknown", advice)
    fixed = clock.min_hz == clock.max_hz and clock.max_hz is not None
    advice = f"set scaling_min_freq and scaling_max_freq to {_limits(clock)}"
    if fixed:
        advice = f"add --clock {(clock.max_hz or 0) / 1e6:g}MHz ({_SETTING})"
    if run.clock_hz is None:
        found = _limits(now)
    elif run.clock_hz == "max":
        found = _span(now.max_hz, now.max_hz)
    else:
        found = _span(run.clock_hz, run.clock_hz)
    yield Finding("clock", cores, _limits(clock), found, advice)
    if clock.hardware_max_hz is not None:
        most, here = (_span(one.hardware_max_hz, one.hardware_max_hz) for one in (clock, now))
        yield Finding("clock", f"{cores}, the hardware's most", most, here, "another board")


def _limits(clock: Clock) -> str:
    return _span(clock.min_hz, clock.max_hz)


def _span(lower: int | None, upper: int | None) -> str:
    low, high = ("unknown" if hz is None else f"{hz / 1e6:g}" for hz in (lower, upper))
    return f"{low} MHz" if low == high else f"{low} to {high} MHz"


def _tuner(spec: FrozenSpec, run: RunSpec, root: Path) -> Iterator[Finding]:
    """Say whether what the run asks to be held can be."""
    knobs, missing = choose(root, wish_of(run))
    for text in missing if spec.clocks else ():
        name = text.partition(":")[0]
        if name in ("governor", "clock"):  # a board without a fan had none then either
            yield Finding(name, "this board", "as asked", text, "another board")
    loose: dict[str, tuple[Knob, str]] = {}
    for knob in knobs:
        now = read_text(knob.path) or "unknown"
        if not is_same(now, knob.value):
            loose.setdefault(knob.knob, (knob, now))
    if not loose or not (problem := problem_of()):
        return
    for name, (knob, now) in loose.items():
        yield Finding(name, knob.where, knob.value, f"{now}, and it cannot be set", problem)


def meter_findings(spec: FrozenSpec, run: RunSpec) -> Iterator[Finding]:
    """Compare the meter's kind and settings, not its port, and see that the port is there.

    A port that only the spec names is another board's, and looked for nowhere: who sends a
    spec must not learn from the answer which files there are.
    """
    if spec.run.meter is None:
        if run.meter is not None:
            yield Finding("meter", run.meter, "none", run.meter, "leave --meter out")
        return
    advice = "name this board's with --meter; edgeperf meter ls lists them"
    expected = _meter_word(spec.run.meter)
    if run.meter is None:
        yield Finding("meter", "kind and settings", expected, "none", advice)
        return
    here = parse_meter_spec(run.meter)
    yield Finding("meter", "kind and settings", expected, _meter_word(run.meter), advice)
    if here.port.startswith("/") and not Path(here.port).exists():
        yield Finding("meter", here.port, "a meter", "no such port", advice, cannot=True)


def _meter_word(text: str) -> str:
    meter = parse_meter_spec(text)
    options = (f"{key}={value}" for key, value in sorted(meter.options.items()))
    return ",".join([meter.kind, *options])
