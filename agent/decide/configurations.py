"""Which runs are repeats of one configuration, and which configurations compare.

Two figures stand beside each other only if they were asked the same way: task, samples,
scenario with what the rules let one choose in it, and length. What differs there makes
another *arena*. Within an arena, configurations differ in model, runtime, precision,
board and settings; runs that differ in none of these are repeats.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from edgeperf.agent.decide.sources import Run
from edgeperf.agent.result import Result, Sut

#: What an arena is made of: what ``--across`` may leave out.
ARENA = ("task", "samples", "scenario", "length")
#: Between what an arena is made of across.
BETWEEN = " | "
_SETTINGS = ("governor", "clock_hz", "fan", "realtime", "target_qps", "shapes")
#: Those that a board may not have, and the name of what was set.
_KNOBS = {"governor": "governor", "clock_hz": "clock", "fan": "fan"}


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that could be chosen, and its runs.

    Attributes:
        model: Name and file.
        model_sha256: The model's identity.
        backend: The runtime's name here.
        precision: What really ran.
        board: The board's name.
        settings: All else that makes it another: versions, threads, cores, options.
        runs: Its repeats, oldest first.
    """

    model: str
    model_sha256: str
    backend: str
    precision: str
    board: str
    settings: dict[str, str]
    runs: tuple[Run, ...]


class Arena(msgspec.Struct, frozen=True, kw_only=True):
    """Configurations that compare.

    Attributes:
        what: Task, samples, scenario and length, in words.
        configurations: Those that were measured so.
    """

    what: dict[str, str]
    configurations: tuple[Configuration, ...]


def arenas_of(runs: Sequence[Run], across: Collection[str] = ()) -> list[Arena]:
    """Sort runs into arenas and configurations.

    Args:
        runs: All of them.
        across: Parts of an arena that are compared across all the same, at the user's word.
    """
    samples = _samples_of(runs)
    found: dict[tuple[str, ...], list[Run]] = defaultdict(list)
    for run in runs:
        what = _arena(run.result, samples)
        found[tuple(what[name] for name in ARENA if name not in across)].append(run)
    arenas = []
    for members in found.values():
        what = {
            name: BETWEEN.join(dict.fromkeys(_arena(run.result, samples)[name] for run in members))
            for name in ARENA
        }
        arenas.append(Arena(what=what, configurations=tuple(_configurations(members, samples))))
    return sorted(arenas, key=lambda arena: (-len(arena.configurations), str(arena.what)))


def _configurations(runs: Sequence[Run], samples: dict[str, str]) -> list[Configuration]:
    grouped: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        identity = [_settings(run.result), run.result.model.sha256, run.board]
        grouped[json.dumps([*identity, _arena(run.result, samples)])].append(run)
    return [_configuration(repeats) for repeats in grouped.values()]


def _configuration(runs: Sequence[Run]) -> Configuration:
    result = runs[0].result
    sut = result.sut
    return Configuration(
        model=_called(result),
        model_sha256=result.model.sha256,
        backend=str(result.spec.get("backend") or "-") if sut is None else sut.backend,
        precision=(result.model.precision or "-") if sut is None else sut.precision,
        board=runs[0].board,
        settings=_settings(result),
        runs=tuple(runs),
    )


def _called(result: Result) -> str:
    name, file = result.model.name, result.model.file
    return name if name == file else f"{name} ({file})"


def _settings(result: Result) -> dict[str, str]:
    """Return what makes two runs of a model on a board two configurations, in words."""
    spec, sut = result.spec, result.sut
    found = {
        "scenario": str(spec.get("scenario")),
        "parts": ", ".join(part.sha256 for part in (*result.model.parts, *result.model.companions)),
        "processor": str(result.board.get("cpu_model") or ""),
        "power mode": str(result.board.get("power_mode") or ""),
        **{name: _word(_set(result, name)) for name in _SETTINGS},
    }
    if sut is None:
        return found | {"backend": _word(spec.get("backend"))}
    return found | {
        "backend": sut.backend,
        "runtime": f"{sut.runtime} {sut.version}",
        "device": sut.device,
        "precision": sut.precision,
        "delegates": ", ".join(sut.delegates),
        "workers": str(len(sut.workers)),
        "cores": " | ".join(",".join(map(str, worker.cores)) for worker in sut.workers),
        "threads": str(sut.threads_per_worker),
        "batch": str(sut.batch),
        "options": _word(sut.options),
        "timed": ", ".join(sut.timed),
        **_got(result, sut),
    }


def _got(result: Result, sut: Sut) -> dict[str, str]:
    """Return what the system gave to the workers, which only a performance test asks for."""
    workers = sut.workers if result.performance is not None else ()
    return {
        "priority": " | ".join(worker.policy for worker in workers),
        "memory locked": " | ".join(_word(worker.memory_locked) for worker in workers),
    }


def _set(result: Result, name: str) -> Any:
    """Return what was asked; None where the result tells that the board has no such thing."""
    knob, tuning, asked = _KNOBS.get(name), result.tuning, result.spec.get(name)
    if knob is None or tuning is None:
        return asked
    settings = tuning.get("settings")
    given = settings if isinstance(settings, list) else []
    there = any(isinstance(one, dict) and one.get("knob") == knob for one in given)
    return asked if there else None


def _arena(result: Result, samples: dict[str, str]) -> dict[str, str]:
    spec = result.spec
    length = f"preset {spec.get('preset')}"
    for name, unit in (("min_duration_ms", " ms"), ("min_query_count", " queries")):
        if spec.get(name) is not None:
            length += f", at least {spec[name]}{unit}"
    return {
        "task": result.task or "no task",
        "samples": samples[result.id],
        "scenario": _scenario(result),
        "length": length,
    }


def _scenario(result: Result) -> str:
    name = str(result.spec.get("scenario"))
    if name == "MultiStream":
        return f"{name} of {result.spec.get('samples_per_query')}"
    if name == "Server" and result.performance is not None:
        bound_ns = result.performance.target_latency_ns
        return name if bound_ns is None else f"{name} within {bound_ns / 1e6:g} ms"
    return name


def _samples_of(runs: Sequence[Run]) -> dict[str, str]:
    """Return on which samples each run's answers were judged, in words, by its id.

    The same digest is the same samples, whatever the file was called. A run that tells
    neither digest nor count is taken to belong to the others of its task, where these all
    had the same.
    """
    results = [run.result for run in runs]
    by_digest: dict[str, str] = {}
    for result in sorted(results, key=lambda result: not result.accuracy.measured):
        words, digest = _told(result), _digest(result)
        if words is not None and digest is not None:
            by_digest.setdefault(digest, words)
    alike = Counter(by_digest.values())
    for digest, words in by_digest.items():
        if alike[words] > 1:
            by_digest[digest] = f"{words}, sha256 {digest[:8]}"
    told = {result.id: by_digest.get(_digest(result) or "") or _told(result) for result in results}
    by_task: dict[tuple[str, str], set[str]] = defaultdict(set)
    for result in results:
        words = told[result.id]
        if words is not None:
            by_task[_source(result)].add(words)
    found = {}
    for result in results:
        others = by_task[_source(result)]
        only = next(iter(others)) if len(others) == 1 else "samples not told"
        found[result.id] = told[result.id] or only
    return found


def _digest(result: Result) -> str | None:
    return None if result.data is None else result.data.sha256


def _source(result: Result) -> tuple[str, str]:
    return result.task or "", str(result.spec.get("data") or "").rpartition("/")[2]


def _told(result: Result) -> str | None:
    count = result.accuracy.samples if result.accuracy.measured else 0
    if not count and _digest(result) is not None and result.data is not None:
        count = result.data.samples
    if not count:
        return None
    own = _source(result)[1]
    text = f"{count} samples of {own}" if own else f"{count} samples"
    counts = [score.samples for score in result.accuracy.classes]
    if 0 < len(counts) <= 3:  # noqa: PLR2004 - a line's worth
        return f"{text} ({' + '.join(map(str, counts))})"
    return text if not counts else f"{text} in {sum(map(bool, counts))} classes"


def _word(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, sort_keys=True)
