"""A run is frozen, repeated exactly, and refused wherever it could not be the same."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Outcome, Product

from edgeperf.agent.board import describe_board
from edgeperf.agent.freeze.board_checks import clock_findings
from edgeperf.agent.freeze.document import Clock, FrozenSpec, digest_of, frozen_from_json
from edgeperf.agent.freeze.findings import Finding
from edgeperf.agent.freeze.freezing import clocks_of
from edgeperf.agent.spec import spec_from_json
from edgeperf.datasets.assets import BUNDLED

pytestmark = pytest.mark.slow

QUICK = ("--preset", "smoke", "--min-duration", "0.2", "--min-queries", "64")
MODEL, DATA = "mine.tflite", "mine.npz"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """Return a folder with an own model, own samples, a result of them, and its frozen spec."""
    pytest.importorskip("ai_edge_litert")
    made = Product(tmp_path_factory.mktemp("frozen"))
    shutil.copy(BUNDLED / "digits_f32.tflite", made.folder / MODEL)
    shutil.copy(BUNDLED / "digits_test.npz", made.folder / DATA)
    ran = made.run(MODEL, "--task", "digits", "--data", DATA, *QUICK)
    assert ran.code in (0, 1), ran.stderr
    told = made.call("spec", "freeze", str(ran.directory), "-o", "spec.json")
    assert told.code == 0, told.stderr
    assert "now: edgeperf run --spec spec.json" in told.stderr
    yield made
    made.close()


@pytest.fixture
def desk(first: Product, tmp_path: Path) -> Product:
    """Return a copy of that folder, to be spoiled."""
    copy = Product(tmp_path / "desk")
    shutil.copytree(first.folder, copy.folder)
    shutil.rmtree(copy.output)
    return copy


def document_of(product: Product) -> dict[str, Any]:
    """Return the frozen spec in the folder as data."""
    found: dict[str, Any] = json.loads((product.folder / "spec.json").read_text())
    return found


def put(product: Product, changes: dict[str, Any], *, seal: bool = True) -> dict[str, Any]:
    """Change the frozen spec in the folder, ``TABLE.FIELD`` by ``TABLE.FIELD``."""
    document = document_of(product)
    for path, value in changes.items():
        node = document
        *tables, name = path.split(".")
        for table in tables:
            node = node[table]
        node[name] = value
    if seal:
        document["digest"] = digest_of(document)
    (product.folder / "spec.json").write_text(json.dumps(document))
    return document


def refused(outcome: Outcome) -> dict[str, str]:
    """Return the lines of a refusal by the condition they name; nothing may have run."""
    assert outcome.code == 2, outcome.stderr
    assert not outcome.output.exists() or not list(outcome.output.iterdir())
    *lines, last = [
        line.removeprefix("edgeperf: ")
        for line in outcome.stderr.splitlines()
        if " on tflite, " not in line and "loading model" not in line
    ]
    assert "not held here" in last
    assert last.startswith("spec spec.json: ")
    return {line.partition(":")[0]: line for line in lines}


def test_repeat_is_of_the_same_spec(desk: Product) -> None:
    """A held run says so, and its own result freezes into the same digest."""
    outcome = desk.run("--spec", "spec.json")
    assert outcome.code in (0, 1), outcome.stderr
    repeat = outcome.result.repeat
    assert repeat is not None
    assert repeat.digest == document_of(desk)["digest"]
    assert repeat.differs == ()
    assert "frozen spec" in outcome.stdout
    again = desk.call("spec", "freeze", str(outcome.directory))
    assert json.loads(again.stdout)["digest"] == repeat.digest


def test_everything_open_is_chosen(first: Product) -> None:
    """A frozen run leaves nothing to a default that may be another one elsewhere."""
    spec = frozen_from_json((first.folder / "spec.json").read_bytes(), where="spec.json").spec
    assert spec.run.backend == "tflite"
    assert spec.run.workers == 1
    assert spec.run.cores == spec.workers[0]
    assert spec.data.samples == 360
    assert spec.software.packages.keys() >= {"numpy", "mlcommons-loadgen"}
    shown = first.call("spec", "show", "spec.json")
    assert shown.code == 0
    assert spec.model.sha256 in shown.stdout
    assert spec.digest in shown.stdout
    assert f"from {spec.origin.result}, {spec.origin.status} (a remark" in shown.stdout
    checked = first.call("spec", "check", "spec.json")
    assert checked.code == 0, checked.stdout
    assert "NOT HELD" not in checked.stdout


def test_all_refusals_come_at_once(desk: Product) -> None:
    """What differs is told line by line: what, where, expected, found, what to do."""
    pi, pip = "Raspberry Pi 5", "pip install ai-edge-litert==0.1"
    changes = {
        "software.runtime_version": ("0.1", "runtime-version", pip),
        "software.edgeperf": ("0.0.1", "edgeperf-version", "pip install edgeperf==0.0.1"),
        "software.python": ("2.7.18", "python-version", "use Python 2.7"),
        "software.packages": ({"numpy": "1.0"}, "numpy-version", "pip install numpy==1.0"),
        "data.sha256": ("0" * 64, "data", "--data"),
        "model.sha256": ("0" * 64, "model", "edgeperf run --spec SPEC MODEL"),
        "machine.cpu": (pi, "cpu", "run it on such a board"),
        "machine.power_mode": ("15W", "power-mode", "sudo nvpmodel -m"),
        "machine.memory_bytes": (1_000_000, "memory", "run it on such a board"),
        "run.cores": ([4095], "cores", "run it on a board that has them"),
        "clocks": (
            [{"cores": [4095], "governor": "performance", "min_hz": 10**9, "max_hz": 10**9,
              "hardware_max_hz": 10**9}],
            "clock",
            "tuner",
        ),
    }  # fmt: skip
    put(desk, {path: value for path, (value, _, _) in changes.items()})
    outcome = desk.run("--spec", "spec.json")
    lines = refused(outcome)
    assert lines.keys() == {name for _, name, _ in changes.values()}
    for _, name, advice in changes.values():
        assert "expected" in lines[name]
        assert "found" in lines[name]
        assert advice in lines[name]
    assert "cores cannot be allowed" in outcome.stderr
    checked = desk.call("spec", "check", "spec.json")
    assert checked.code == 1
    assert checked.stdout.count("NOT HELD") == len(changes)


def test_edited_file_is_refused(desk: Product) -> None:
    """An edit shows by the digest, with both ways on."""
    put(desk, {"run.seed": 7}, seal=False)
    line = refused(desk.run("--spec", "spec.json"))["digest"]
    assert "edgeperf spec freeze" in line
    assert "edgeperf spec show --run" in line
    plain = desk.call("spec", "show", "--run", "spec.json")
    assert spec_from_json(plain.stdout).seed == 7
    assert "EDITED" in desk.call("spec", "show", "spec.json").stdout


def gone(path: Path) -> None:
    """Move a file away."""
    path.rename(path.with_suffix(".away"))


def damage(path: Path) -> None:
    """Change one byte of a file that does no harm."""
    path.write_bytes(path.read_bytes() + b"\0")


@pytest.mark.parametrize(
    ("spoil", "file", "name", "found"),
    [
        (gone, MODEL, "model", "no such file"),
        (damage, MODEL, "model", "found sha256"),
        (gone, DATA, "data", "No such file"),
        (damage, DATA, "data", "found sha256"),
    ],
)
def test_other_files_are_refused(
    desk: Product, spoil: Callable[[Path], None], file: str, name: str, found: str
) -> None:
    """A model or samples that are gone or other ones: the line names the file."""
    spoil(desk.folder / file)
    lines = refused(desk.run("--spec", "spec.json"))
    assert set(lines) == {name}
    assert file in lines[name]
    assert found in lines[name]


def test_moved_files_are_named_beside_the_spec(desk: Product) -> None:
    """Where things are is this machine's business; what they are is the spec's."""
    (desk.folder / "there").mkdir()
    for name in (MODEL, DATA):
        (desk.folder / name).rename(desk.folder / "there" / name)
    outcome = desk.run(f"there/{MODEL}", "--spec", "spec.json", "--data", f"there/{DATA}")
    assert outcome.code in (0, 1), outcome.stderr
    repeat = outcome.result.repeat
    assert repeat is not None
    assert repeat.differs == ()


def test_what_was_allowed_is_recorded(desk: Product) -> None:
    """An allowed difference makes the repeat suspect; one that hardly matters is a note."""
    put(desk, {"software.runtime_version": "0.1", "software.kernel": "2.4"})
    outcome = desk.run("--spec", "spec.json", "--allow", "runtime-version")
    assert outcome.code == 1
    assert outcome.reasons["not-as-frozen"] == "suspect"
    assert outcome.reasons["other-than-frozen"] == "note"
    result = outcome.result
    assert not result.verdict.comparable
    assert result.repeat is not None
    found = {one.name: (one.matters, one.expected) for one in result.repeat.differs}
    assert found == {"runtime-version": (True, "0.1"), "kernel": (False, "2.4")}
    assert "not held: runtime-version" in outcome.stdout


def test_what_really_runs_is_held(desk: Product) -> None:
    """Options in force are known once the model is loaded; nothing is left behind then."""
    put(desk, {"execution.options": {"xnnpack": "never"}, "data.samples": 3})
    outcome = desk.run("--spec", "spec.json")
    lines = refused(outcome)
    assert set(lines) == {"execution", "data"}
    assert "number of samples: expected 3, found 360" in lines["data"]


def test_what_the_system_gives_to_workers_is_held(desk: Product) -> None:
    """Priority and locked memory move the slowest queries; what was got then is got again."""
    execution = document_of(desk)["execution"]
    assert execution["scheduling"] in (["fifo"], ["normal"])
    other = {"fifo": "normal", "normal": "fifo"}[execution["scheduling"][0]]
    put(desk, {"execution.scheduling": [other]})
    line = refused(desk.run("--spec", "spec.json"))["execution"]
    assert f"priority of the workers: expected {other}, found {execution['scheduling'][0]};" in line
    locked = execution["memory_locked"][0]
    was = {"execution.scheduling": execution["scheduling"]}
    put(desk, {**was, "execution.memory_locked": [not locked]})
    line = refused(desk.run("--spec", "spec.json"))["execution"]
    assert f"memory of the workers locked: expected {not locked}, found {locked};" in line
    outcome = desk.run("--spec", "spec.json", "--allow", "execution")
    assert outcome.reasons["not-as-frozen"] == "suspect"


def test_what_an_older_spec_did_not_record_is_not_held(desk: Product) -> None:
    """A spec without priority and locked memory is intact, and says nothing about them."""
    execution = document_of(desk)["execution"]
    known = {key: execution[key] for key in execution if key not in ("scheduling", "memory_locked")}
    put(desk, {"execution": known})
    outcome = desk.run("--spec", "spec.json")
    assert outcome.code in (0, 1), outcome.stderr
    assert "not-as-frozen" not in outcome.reasons


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--spec", "spec.json", "--threads", "2"), "is frozen; leave out --threads"),
        (("--spec", "spec.json", "--allow", "weather"), "weather"),
        (("digits", "--allow", "kernel"), "means nothing without a frozen spec"),
        (("--spec", "none.json"), "No such file"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    desk: Product, arguments: tuple[str, ...], words: str
) -> None:
    """Options that a frozen spec decides are refused, and so is allowing nothing known."""
    outcome = desk.run(*arguments)
    assert outcome.code == 2
    assert words in outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1


def test_result_that_does_not_say_enough_is_not_frozen(first: Product, tmp_path: Path) -> None:
    """A result of an older edgeperf has no digest of its samples."""
    (folder,) = first.output.iterdir()
    document = json.loads((folder / "result.json").read_text())
    (tmp_path / "result.json").write_text(json.dumps(document | {"data": None}))
    told = first.call("spec", "freeze", str(tmp_path))
    assert told.code == 2
    assert "did not record samples" in told.stderr
    assert first.call("spec", "freeze", MODEL).code == 2
    again = first.call("spec", "freeze", str(folder), "-o", "spec.json")
    assert "is there already" in again.stderr


def cpufreq(root: Path, governor: str, lower: int, upper: int) -> None:
    """Lay out the clocks of a board with four cores that share one."""
    folder = root / "sys/devices/system/cpu/cpufreq/policy0"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {
        "affected_cpus": "0 1 2 3",
        "scaling_governor": governor,
        "scaling_available_governors": "ondemand performance",
        "scaling_min_freq": lower,
        "scaling_max_freq": upper,
        "cpuinfo_min_freq": 600_000,
        "cpuinfo_max_freq": 1_800_000,
    }.items():
        (folder / name).write_text(f"{text}\n")


def clocks_held(first: Product, root: Path, clock: Clock, **run: Any) -> dict[str, Finding]:
    """Return what is not held of a spec with that clock on the board at *root*."""
    raw = (first.folder / "spec.json").read_bytes()
    spec: FrozenSpec = msgspec.structs.replace(
        frozen_from_json(raw, where="here").spec, clocks=(clock,)
    )
    asked = msgspec.structs.replace(spec.run, **run)
    found = clock_findings(spec, asked, describe_board(root), root=root)
    return {finding.name: finding for finding in found if not finding.is_held}


def test_governor_and_limits_are_held(
    first: Product, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another governor or limit is refused, with the option that holds it."""
    monkeypatch.setenv("EDGEPERF_TUNER", str(tmp_path / "no-tuner"))
    clock = Clock(
        cores=(0, 1, 2, 3),
        governor="performance",
        min_hz=1_500_000_000,
        max_hz=1_500_000_000,
        hardware_max_hz=1_800_000_000,
    )
    cpufreq(tmp_path, "performance", 1_500_000, 1_500_000)
    assert clocks_held(first, tmp_path, clock) == {}
    cpufreq(tmp_path, "ondemand", 600_000, 1_800_000)
    loose = clocks_held(first, tmp_path, clock)
    assert "--governor performance" in loose["governor"].advice
    assert "--clock 1500MHz" in loose["clock"].advice
    assert (loose["clock"].expected, loose["clock"].found) == ("1500 MHz", "600 to 1800 MHz")
    # Asked for beside the spec, but nobody here may set it:
    asked = {"governor": "performance", "clock_hz": 1_500_000_000}
    unset = clocks_held(first, tmp_path, clock, **asked)
    assert set(unset) == {"governor", "clock"}
    assert "cannot be set" in unset["governor"].found
    wrong = clocks_held(first, tmp_path, clock, governor="ondemand", clock_hz=600_000_000)
    assert wrong["governor"].found == "ondemand"


def test_clocks_are_frozen_as_they_were_held(first: Product, tmp_path: Path) -> None:
    """A result describes the board after the tuner let go; the spec says how it ran."""
    cpufreq(tmp_path, "ondemand", 600_000, 1_800_000)
    raw = (first.folder / "spec.json").read_bytes()
    run = frozen_from_json(raw, where="here").spec.run
    board = describe_board(tmp_path)
    held = msgspec.structs.replace(run, governor="performance", clock_hz="max")
    (clock,) = clocks_of(board, held)
    assert (clock.governor, clock.min_hz, clock.max_hz) == (
        "performance",
        1_800_000_000,
        1_800_000_000,
    )
    (loose,) = clocks_of(board, run)
    assert (loose.governor, loose.min_hz) == ("ondemand", 600_000_000)
