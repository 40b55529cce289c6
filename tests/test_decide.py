"""Deciding: what passes, what fails by how much, what is refused, and what does not compare."""

import contextlib
import csv
import io
import json
import re
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from decide_results import WHY, kept, made
from hypothesis import given
from hypothesis import strategies as st

from edgeperf import InputError
from edgeperf.agent.decide.choose import decide
from edgeperf.agent.decide.decision import Decision, Group, Wish
from edgeperf.agent.decide.errors import DecideError
from edgeperf.agent.decide.judge import Judged, Outcome, Reading
from edgeperf.agent.decide.names import serving
from edgeperf.agent.decide.pareto import pareto
from edgeperf.agent.decide.sources import find
from edgeperf.agent.decide.words import margin_text
from edgeperf.agent.result import Result, Status, result_to_json

if TYPE_CHECKING:
    from conftest import Product


def decided(folder: Path, results: list[Result], *constraints: str, **wish: Any) -> Decision:
    """Write the results, read them again and decide."""
    return decide(find([str(kept(folder, *results))]), Wish(constraints=constraints, **wish))


def only(decision: Decision) -> Group:
    """Return the one group there is."""
    (group,) = decision.groups
    return group


def judged(decision: Decision) -> list[Judged]:
    """Return what became of each configuration, in the order shown."""
    return [one.judged for group in decision.groups for one in group.candidates]


def outcomes(decision: Decision) -> dict[str, str]:
    """Return the outcome by runtime."""
    return {one.configuration.backend: one.outcome.value for one in judged(decision)}


def test_line_says_by_how_much(tmp_path: Path) -> None:
    """Absolute in the figure's unit, relative to the limit, for what is kept and what is not."""
    results = [made(p99_ms=23, metrics={"top1": 0.95}, joules=(0.04, 0.001))]
    (one,) = judged(decided(tmp_path, results, "p99<20ms", "accuracy>=0.9", "j_per_sample<0.05"))
    assert one.outcome is Outcome.FAILS
    assert [line.met for line in one.lines] == [False, True, True]
    assert [line.by for line in one.lines] == pytest.approx([3e6, 0.05, -0.01])
    assert [line.by_relative for line in one.lines] == pytest.approx([0.15, 0.05 / 0.9, -0.2])


@pytest.mark.parametrize(
    ("p99_ms", "limit", "said"),
    [
        (0.025, "p99<20ms", "19.98 ms under (1/800 of it)"),
        (0.000003, "p99<1ms", "1 ms under (1/3.33e+05 of it)"),
        (19, "p99<20ms", "1 ms under (-5.0%)"),
        (23, "p99<20ms", "3 ms over (+15%)"),
        (400, "p99<20ms", "380 ms over (20 times)"),
    ],
)
def test_margin_is_said_in_words_that_mean_something(
    tmp_path: Path, p99_ms: float, limit: str, said: str
) -> None:
    """Nothing is under by all of the limit, or by a thousand of a smaller unit."""
    (one,) = judged(decided(tmp_path, [made(p99_ms=p99_ms)], limit))
    assert margin_text(one.lines[0]) == said


def test_invalid_never_passes_and_suspect_only_when_told(tmp_path: Path) -> None:
    """SUSPECT counts with --accept-suspect, marked; INVALID with nothing."""
    results = [
        made(backend="a", status=Status.INVALID, p99_ms=1),
        made(backend="b", status=Status.SUSPECT, p99_ms=1),
        made(backend="c", p99_ms=2),
    ]
    strict = decided(tmp_path / "1", results, "p99<20ms")
    assert outcomes(strict) == {"a": "refused", "b": "suspect", "c": "passes"}
    assert [one.configuration.backend for one in judged(strict)] == ["c", "b", "a"]
    lenient = decided(tmp_path / "2", results, "p99<20ms", accept_suspect=True)
    assert outcomes(lenient) == {"a": "refused", "b": "passes", "c": "passes"}
    assert judged(lenient)[0].suspect


def test_suspect_repeat_beside_valid_ones_is_left_out(tmp_path: Path) -> None:
    """The median is of what is believed."""
    results = [made(p99_ms=10), made(p99_ms=12), made(p99_ms=50, status=Status.SUSPECT)]
    (one,) = judged(decided(tmp_path, results, "p99<20ms"))
    assert one.outcome is Outcome.PASSES
    assert not one.suspect
    assert one.lines[0].reading.value == pytest.approx(11e6)
    assert len(one.left_out) == 1


@pytest.mark.parametrize(
    ("p99_ms", "met", "noise"),
    [((18, 19, 22), True, True), ((10, 11, 12), True, False), ((19, 21, 22), False, True)],
)
def test_median_of_repeats_decides(
    tmp_path: Path,
    p99_ms: tuple[float, ...],
    met: bool,  # noqa: FBT001 - of a table
    noise: bool,  # noqa: FBT001
) -> None:
    """Repeats are one configuration; where they lie on both sides of the limit, it is said."""
    (one,) = judged(decided(tmp_path, [made(p99_ms=ms) for ms in p99_ms], "p99<20ms"))
    (line,) = one.lines
    assert line.reading.runs == 3
    assert (line.met, line.within_noise) == (met, noise)


def test_interval_of_a_metric_and_uncertainty_of_joules_are_noise(tmp_path: Path) -> None:
    """The bootstrap interval and the meter's k = 2 are what the limit is held against."""
    result = made(metrics={"top1": 0.91}, intervals={"top1": (0.88, 0.94)}, joules=(0.048, 0.003))
    (one,) = judged(decided(tmp_path, [result], "top1>=0.9", "j_per_sample<50mJ", "p99<1s"))
    assert [line.within_noise for line in one.lines] == [True, True, False]


@pytest.mark.parametrize(
    ("constraint", "scenario", "why"),
    [
        ("j_per_sample<1J", "SingleStream", "no meter: measure with --meter"),
        ("p99<1s", "Offline", "Offline has one query; ask for samples_per_second"),
        ("qps>1", "Offline", "Offline has one query; ask for samples_per_second"),
        ("recall@precision=0.9>0.1", "SingleStream", "bring the whole result directory"),
    ],
)
def test_figure_that_is_not_there_fails_its_line(
    tmp_path: Path, constraint: str, scenario: str, why: str
) -> None:
    """Not measured is not kept, and says what is missing."""
    (one,) = judged(decided(tmp_path, [made(scenario=scenario)], constraint))
    assert one.outcome is Outcome.FAILS
    assert one.lines[0].reading.value is None
    assert why in one.lines[0].reading.why_not


def test_accuracy_that_was_not_measured_fails(tmp_path: Path) -> None:
    """A run without a dataset cannot keep a line on quality."""
    results = [made(backend="a"), made(backend="b", metrics={})]
    decision = decided(tmp_path, results, "accuracy>=0.5")
    assert outcomes(decision) == {"a": "passes", "b": "fails"}
    assert "no dataset" in judged(decision)[1].lines[0].reading.why_not


#: Part of an arena, and what two runs differ in.
DIFFERENT = [
    ("scenario", {}, {"scenario": "Offline"}),
    ("length", {}, {"preset": "smoke"}),
    ("length", {}, {"min_duration_ms": 700_000}),
    ("samples", {}, {"samples": 100}),
    ("samples", {}, {"data": "/data/mine.npz"}),
    ("samples", {"digest": "a" * 64}, {"digest": "b" * 64}),
    ("task", {}, {"task": "kws"}),
]


@pytest.mark.parametrize(("part", "one", "other"), DIFFERENT)
def test_what_was_asked_differently_does_not_compare(
    product: "Product", part: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    """Another scenario, length, task or other samples: groups of their own, and the reason."""
    kept(product.output, made(backend="a", **one), made(backend="b", **other))
    done = product.call("decide")
    assert f"2 groups that do not compare: they differ in {part}" in done.stdout
    assert done.stdout.count("best first by") == 2
    options = ["--across", part] + (["--across", "samples"] if part == "task" else [])
    together = product.call("decide", *options)
    assert together.stdout.count("best first by") == 1
    assert f"compared across {part}, at your word: " in together.stdout


def test_same_digest_is_the_same_samples(tmp_path: Path) -> None:
    """Boards keep a file under names of their own; one without an accuracy test belongs too."""
    results = [
        made(backend="a", digest="a" * 64, data="/home/pi/mine.npz"),
        made(backend="b", digest="a" * 64, data="/srv/copy.npz"),
        made(backend="c", digest="a" * 64, data="/srv/other.npz", metrics={}),
    ]
    assert len(only(decided(tmp_path, results, "p99<20ms")).candidates) == 3


def test_settings_tell_configurations_apart(tmp_path: Path) -> None:
    """Another governor is another configuration, and the difference is named."""
    results = [made(p99_ms=9, governor="performance"), made(p99_ms=10)]
    group = only(decided(tmp_path, results, "p99<20ms"))
    assert [one.settings for one in group.candidates] == [
        ("governor performance",),
        ("governor not set",),
    ]


def got(scheduling: str, *, locked: bool) -> Result:
    """Return a result whose worker got that of the system."""
    result = made()
    assert result.sut is not None
    (worker,) = result.sut.workers
    worker = msgspec.structs.replace(worker, scheduling=scheduling, memory_locked=locked)
    sut = msgspec.structs.replace(result.sut, workers=(worker,))
    return msgspec.structs.replace(result, sut=sut)


def test_what_the_system_gave_tells_configurations_apart(tmp_path: Path) -> None:
    """Real-time priority and locked memory move the tail: no repeats; why not, does not."""
    results = [
        got("fifo", locked=True),
        got("normal (not permitted)", locked=True),
        got("normal (as asked)", locked=True),
        got("fifo", locked=False),
    ]
    group = only(decided(tmp_path, results, "p99<20ms"))
    assert sorted(one.settings for one in group.candidates) == [
        ("priority fifo", "memory locked false"),
        ("priority fifo", "memory locked true"),
        ("priority normal", "memory locked true"),
    ]


@pytest.mark.parametrize(
    ("lines", "contradict"),
    [
        (("p99<1ms", "p99>2ms"), True),
        (("p99<2ms", "p99>=2ms"), True),
        (("p99<=2ms", "p99>=2ms"), False),
        (("p99<2ms", "p90>3ms"), False),
    ],
)
def test_constraints_that_contradict_are_refused(
    tmp_path: Path, lines: tuple[str, ...], *, contradict: bool
) -> None:
    """What no value can keep is a slip of the pen, not a decision against every board."""
    if contradict:
        with pytest.raises(DecideError, match=r"^constraints p99 .* no value keeps both"):
            decided(tmp_path, [made()], *lines)
    else:
        decided(tmp_path, [made()], *lines)


def test_constraint_that_is_turned_round_is_said(tmp_path: Path) -> None:
    """A ceiling on accuracy, or a floor under latency, is done as asked and told."""
    notes = only(decided(tmp_path, [made()], "top1<0.9", "p99<20ms")).notes
    told = [note for note in notes if "asks for the worse" in note]
    assert told == ["top1 < 0.9 asks for the worse: of top1 higher is better"]


def test_governor_that_the_board_does_not_have_is_no_setting(tmp_path: Path) -> None:
    """Asked for and not there, it changed nothing; asked for and held, it did."""
    asked = made(p99_ms=9, governor="performance")
    missing = {"settings": [], "missing": ["governor: the kernel controls no frequency here"]}
    held = {"settings": [{"knob": "governor", "is_held": True}], "missing": []}
    results = [msgspec.structs.replace(asked, tuning=missing), made(p99_ms=10)]
    assert len(only(decided(tmp_path / "missing", results, "p99<20ms")).candidates) == 1
    results = [msgspec.structs.replace(asked, tuning=held), made(p99_ms=10)]
    group = only(decided(tmp_path / "held", results, "p99<20ms"))
    assert [one.settings for one in group.candidates] == [
        ("governor performance",),
        ("governor not set",),
    ]


def test_same_name_of_two_models_is_no_repeat(tmp_path: Path) -> None:
    """The file's digest is the model's identity, and is shown where names do not tell."""
    first = made()
    model = msgspec.structs.replace(first.model, sha256="f" * 64)
    second = msgspec.structs.replace(made(), model=model)
    group = only(decided(tmp_path, [first, second], "p99<20ms"))
    assert {one.settings for one in group.candidates} == {
        ("sha256 00000000",),
        ("sha256 ffffffff",),
    }


def test_rank_and_pareto_set(tmp_path: Path) -> None:
    """Best first by what is preferred; who is dominated, and by whom."""
    results = [
        made(backend="fast", p99_ms=5, metrics={"top1": 0.90}),
        made(backend="exact", p99_ms=15, metrics={"top1": 0.99}),
        made(backend="neither", p99_ms=16, metrics={"top1": 0.89}),
    ]
    wish = ("p99<20ms", "accuracy>=0.5")
    by_default = only(decided(tmp_path / "1", results, *wish))
    assert by_default.prefer.name == "p99"
    assert [one.judged.configuration.backend for one in by_default.candidates] == [
        "fast",
        "exact",
        "neither",
    ]
    assert [one.dominators for one in by_default.candidates] == [(), (), (1, 2)]
    preferred = only(decided(tmp_path / "2", results, *wish, prefer="top1"))
    assert preferred.candidates[0].judged.configuration.backend == "exact"
    over = only(decided(tmp_path / "3", results, *wish, over=("p99",)))
    assert [one.dominators for one in over.candidates] == [(), (1,), (1, 2)]


AXES = (serving("p99"), serving("qps"))
ROWS = st.lists(st.tuples(st.integers(0, 4) | st.none(), st.integers(0, 4)), max_size=8)


@given(ROWS)
def test_pareto_set_is_what_nothing_beats(rows: list[tuple[int | None, int]]) -> None:
    """Against the definition: no worse in any figure, better in one."""
    readings = [{"p99": Reading(value=x), "qps": Reading(value=y)} for x, y in rows]

    def beats(one: tuple[int | None, int], other: tuple[int | None, int]) -> bool:
        if one[0] is None or other[0] is None:
            return False
        return one[0] <= other[0] and one[1] >= other[1] and one != other

    for row, place in zip(rows, pareto(readings, AXES), strict=True):
        expected = tuple(at for at, other in enumerate(rows) if beats(other, row))
        assert place.dominated_by == expected
        assert place.on_front is (None if row[0] is None else not expected)


def test_domination_within_noise_is_said() -> None:
    """A lead that lies inside the intervals is no clear one."""
    rows = [
        {"p99": Reading(value=1, low=0.5, high=3)},
        {"p99": Reading(value=2, low=1, high=3)},
        {"p99": Reading(value=9, low=8, high=10)},
    ]
    places = pareto(rows, AXES[:1])
    assert [place.within_noise for place in places] == [False, True, False]


def test_joules_of_different_boundaries_do_not_compare(tmp_path: Path) -> None:
    """A wall meter and a rail are not the same joules, and it is said."""
    results = [
        made(backend="a", joules=(0.04, 0.001), boundary="wall"),
        made(backend="b", joules=(0.01, 0.001), boundary="cpu-rail"),
    ]
    group = only(decided(tmp_path, results, "j_per_sample<1J"))
    assert any("different boundaries: cpu-rail (1 runs), wall" in note for note in group.notes)


def test_fleet_export(tmp_path: Path) -> None:
    """Boards have their fleet names; a run that failed is listed; the same result counts once."""
    first, second = made(board="raspberrypi"), made(backend="b", board="raspberrypi")
    folder = kept(tmp_path / "here", first)
    rows: list[dict[str, Any]] = [
        {"run": "r1", "state": "succeeded", "board": "pi5-07", "result": as_data(first)},
        {"run": "r2", "state": "succeeded", "board": "pi5-08", "result": as_data(second)},
        {"run": "r3", "state": "failed", "board": "pi5-09", "result": None, "error": "no power"},
    ]
    export = tmp_path / "fleet.json"
    export.write_text(json.dumps(rows))
    lines = tmp_path / "fleet.jsonl"
    lines.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for file in (export, lines):
        found = find([str(file), str(folder)])
        assert [run.board for run in found.runs] == ["raspberrypi", "pi5-08"]
        assert found.twice == 1
        assert [(one.name, one.why) for one in found.unread] == [("r3", "failed: no power")]


def as_data(result: Result) -> Any:
    """Return ``result.json`` as data."""
    return json.loads(result_to_json(result))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"run": "r", "state": "succeeded", "metric": "p99"}\n' * 2, "--format json"),
        ("run,board\nr,pi\n", "line 1: neither a result nor JSON"),
        ("[1]", "no result; expected result.json"),
        ("", "is empty"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, said: str) -> None:
    """Single figures have no reasons and no intervals; and so on."""
    file = tmp_path / "other.json"
    file.write_text(content)
    with pytest.raises(DecideError, match=re.escape(said)):
        find([str(file)])


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)
    | st.just(b"[" * 100_000)
)
def test_any_file_is_a_result_or_bad_input(content: bytes) -> None:
    """Whatever a file holds, the error is ours and has the file's name."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "some.json"
        file.write_bytes(content)
        with contextlib.suppress(InputError):
            assert find([str(file)]).runs == []


@pytest.mark.parametrize("value", [10**400, -(10**400), "5", None, True, [1], {"value": 1}])
def test_numbers_that_are_none_are_not_measured(tmp_path: Path, value: Any) -> None:
    """A board may write anything where power and temperatures go."""
    result = made(joules=(0.04, 0.001))
    raw = as_data(result)
    raw["power"]["gross"]["energy_per_sample_j"] = {"value": value, "uncertainty": value}
    raw["power"]["peak_w"] = raw["power"]["idle"] = value
    raw["conditions"]["temperatures_max_c"] = {"cpu": value}
    (tmp_path / "result.json").write_text(json.dumps(raw))
    asked = ("j_per_sample<1J", "peak_w<1W", "idle_w<1W", "temperature<90C")
    decision = decide(find([str(tmp_path)]), Wish(constraints=asked))
    (one,) = judged(decision)
    measured = [line.reading.value for line in one.lines if line.limit.asked.name != "peak_w"]
    assert measured == [None, None, None]
    assert not one.lines[0].met


def test_changed_copy_is_refused(tmp_path: Path) -> None:
    """Two results under one id cannot both be it."""
    result = made()
    kept(tmp_path / "a", result)
    kept(tmp_path / "b", msgspec.structs.replace(result, task="kws"))
    with pytest.raises(DecideError, match="one of them was changed"):
        find([str(tmp_path)])


def test_search_lists_what_is_broken(product: "Product") -> None:
    """One cut file does not hide the others; named itself it is bad input."""
    kept(product.output, made())
    broken = product.output / "broken"
    broken.mkdir()
    (broken / "result.json").write_text("{")
    searched = product.call("decide", "p99<20ms")
    assert searched.code == 0
    assert "edgeperf-results/broken: " in searched.stdout.split("not counted")[1]
    assert product.call("decide", str(broken)).code == 2


def test_exit_status_and_streams(product: "Product") -> None:
    """0 something passes, 1 nothing, 2 bad input in one line and nothing on standard output."""
    kept(product.output, made())
    assert product.call("decide", "p99<20ms", "accuracy>=0.9").code == 0
    nothing = product.call("decide", "p99 < 1 ms")
    assert (nothing.code, nothing.stderr) == (1, "")
    assert nothing.stdout.startswith("0 of 1 configuration passes")
    for words in (
        ["p99<20"],
        ["p42<20ms"],
        ["p99=20ms"],
        ["nowhere"],
        ["cost<1"],
        ["cost<1", "--cost-miss", "1"],
        ["p99<1s", "--cost-miss", "1", "--cost-false-alarm", "1"],
        ["cost<1", "--cost-miss", "1", "--cost-false-alarm", "-1"],
        ["--prefer", "nothing"],
        ["--pareto", "p99,nothing"],
        ["--report", "x.pdf"],
        ["--report", "nowhere/x.md"],
    ):
        wrong = product.call("decide", *words)
        assert (wrong.code, wrong.stdout) == (2, ""), words
        assert len(wrong.stderr.splitlines()) == 1
        assert wrong.stderr.startswith("edgeperf: ")


def test_nothing_to_choose_from(product: "Product") -> None:
    """Without results it says where it looked."""
    done = product.call("decide")
    assert done.code == 2
    assert done.stderr == "edgeperf: result edgeperf-results: no such file or directory\n"
    product.output.mkdir()
    assert "no result.json in it or below" in product.call("decide").stderr


def test_pack_is_unpacked_first(product: "Product") -> None:
    """The archive itself is refused with what to do; its folder is one to search."""
    kept(product.output, made())
    (directory,) = product.output.iterdir()
    pack = product.call("pack", str(directory), "-o", "evidence.tar.gz")
    assert pack.code == 0, pack.stderr
    refused = product.call("decide", "evidence.tar.gz", "p99<20ms")
    assert refused.code == 2
    assert "unpack it" in refused.stderr
    with tarfile.open(product.folder / "evidence.tar.gz") as archive:
        archive.extractall(product.folder / "unpacked", filter="data")
    assert product.call("decide", "unpacked", "p99<20ms").code == 0


def test_reports(product: "Product") -> None:
    """Markdown, HTML, CSV and JSON say the same as the terminal."""
    kept(
        product.output,
        made(backend="a", p99_ms=5),
        made(backend="b", p99_ms=30),
        made(backend="c", status=Status.INVALID),
    )
    names = ["r.md", "r.html", "r.csv", "r.json"]
    options = [word for name in names for word in ("--report", name)]
    done = product.call("decide", "p99<20ms", "top1>0.5", *options, "--json")
    texts = {name: (product.folder / name).read_text() for name in names}
    assert texts["r.json"] == done.stdout
    data = json.loads(done.stdout)
    assert data["counts"] == {"passes": 1, "suspect": 0, "fails": 1, "refused": 1}
    for name in names[:2]:
        assert "1 of 3 configurations pass" in texts[name]
        assert "10 ms over (+50%)" in texts[name]
        assert WHY in texts[name]
    assert "http" not in texts["r.html"]
    rows = list(csv.DictReader(io.StringIO(texts["r.csv"])))
    assert [(row["backend"], row["figure"], row["met"]) for row in rows] == [
        ("a", "p99", "True"),
        ("a", "top1", "True"),
        ("b", "p99", "False"),
        ("b", "top1", "True"),
        ("c", "", ""),
    ]
    assert float(rows[2]["by"]) == pytest.approx(10e6)
    refused = product.call("decide", "p99<1s", "--report", "r.md")
    assert refused.code == 2
    assert "--report r.md: is there already; give another file" in refused.stderr
    assert (product.folder / "r.md").read_text() == texts["r.md"]


def test_text_from_a_board_stays_text(product: "Product") -> None:
    """Control characters, markup and formulas of a board's name do nothing anywhere."""
    evil = "=1+1\x1b[31m[bold]<script>|`x`\nnext"
    kept(product.output, made(board=evil))
    names = ["r.md", "r.html", "r.csv"]
    options = [word for name in names for word in ("--report", name)]
    done = product.call("decide", "p99<20ms", *options)
    assert done.code == 0
    assert "\x1b" not in done.stdout
    assert "=1+1 [31m[bold]<script>|`x` next" in done.stdout
    assert "<script" not in (product.folder / "r.html").read_text()
    assert "<script>" not in (product.folder / "r.md").read_text().replace("\\<script\\>", "")
    (row,) = csv.DictReader(io.StringIO((product.folder / "r.csv").read_text()))
    assert row["board"].startswith("'=")


@pytest.mark.parametrize("columns", [60, 80, 140, 200])
def test_any_width_shows_every_figure(product: "Product", columns: int) -> None:
    """A table where it fits, blocks where it does not: nothing is cut off."""
    kept(product.output, made(p99_ms=12.34, metrics={"top1": 0.9123}, joules=(0.0456, 0.001)))
    product.environment["COLUMNS"] = str(columns)
    done = product.call("decide", "p99<20ms", "top1>=0.9", "j_per_sample<50mJ", "peak_rss<1GB")
    for figure in ("12.34 ms", "0.9123", "45.6 mJ", "50 MB"):
        assert figure in done.stdout
    assert "…" not in done.stdout


def test_every_constraint_has_its_column(product: "Product") -> None:
    """Classes in brackets, one figure twice, limits that read alike; the same line counts once."""
    kept(product.output, made(metrics={"top1": 0.9, "recall[bold]": 0.81}, p99_ms=12))
    lines = ("recall[bold]>=0.8", "p99<20ms", "p99>1ms", "p99<20.000001ms", "p99<0.02s")
    done = product.call("decide", *lines)
    assert done.code == 0
    assert done.stdout.splitlines()[1].count("·") == 3
    header = next(line for line in done.stdout.splitlines() if "outcome" in line)
    assert "recall[bold] >= 0.8" in header
    assert header.count("p99 < 20 ms") == 2
    assert done.stdout.count("✓") == 4


def test_figure_of_some_repeats_says_so(product: "Product") -> None:
    """Joules of one run of two are no joules of both."""
    kept(product.output, made(joules=(0.04, 0.001)), made())
    assert "in 1 of 2 runs" in product.call("decide", "j_per_sample<1J").stdout


def test_order_of_results_changes_nothing(tmp_path: Path) -> None:
    """The same results in any order are the same decision."""
    results = [made(backend=name, p99_ms=ms) for name, ms in zip("abcd", (4, 3, 2, 1), strict=True)]
    kept(tmp_path, *results)
    paths = [str(tmp_path / result.id) for result in results]
    first = decide(find(paths), Wish(constraints=("p99<20ms",)))
    assert decide(find(paths[::-1]), Wish(constraints=("p99<20ms",))) == first
