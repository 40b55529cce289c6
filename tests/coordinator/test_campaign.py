"""Campaigns: what a file says, in which order its runs come, and how one goes on."""

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from edgeperf.agent.messages import (
    BoardState,
    ErrorClass,
    Event,
    ModelRef,
    Presence,
    RunAccepted,
    RunFailed,
    RunInterrupted,
    RunResult,
    new_id,
)
from edgeperf.coordinator.broker import Endpoint
from edgeperf.coordinator.campaign import CampaignError, Planner, Scheduler, parse_campaign
from edgeperf.coordinator.campaign.file import line_of
from edgeperf.coordinator.commander import Commander
from edgeperf.coordinator.link import Link
from edgeperf.coordinator.store import Store, campaigns, commands, devices, events, runs
from edgeperf.coordinator.store.campaigns import Cell
from edgeperf.coordinator.trust import Keys

S = 1_000_000_000

FILE = """\
# a shelf
name = "shelf"
boards = ["pi5", "label:old"]
models = [
  "digits",
  "mobilenet.tflite",
]
backends = ["tflite", "onnxruntime"]
scenarios = ["SingleStream", "Server"]
repeats = 2

[cool_down]
to_c = 55

[retries]
device = 2

[run]
threads = 1
options.delegate = "none"

[scenario.Server]
target_qps = 40

[[skip]]
model = "digits"
backend = "onnxruntime"
"""

REF = ModelRef(sha256="a" * 64, size_bytes=5, format="tflite", name="mobilenet.tflite")


def _cells(text: str, boards: tuple[str, ...] = ("pi5", "pi4")) -> list[Cell]:
    planner = Planner(parse_campaign(text, where="c.toml"), source=text, where="c.toml")
    return planner.cells(list(boards), {"mobilenet.tflite": REF})


def _short(cell: Cell) -> str:
    spec = cell.start.spec
    return f"{spec['model'][:6]} {spec.get('backend')} {spec.get('scenario', 'SingleStream')}"


def test_every_combination_but_the_skipped_on_every_board() -> None:
    """2 models x 2 backends x 2 scenarios, less 2, twice, on 2 boards."""
    cells = _cells(FILE)
    assert len(cells) == 6 * 2 * 2
    assert len({cell.start.run for cell in cells}) == len(cells)
    assert "digits onnxruntime SingleStream" not in map(_short, cells)
    server = next(cell for cell in cells if cell.start.spec.get("scenario") == "Server")
    assert server.start.spec["target_qps"] == 40
    assert (server.start.cool_to_c, server.start.spec["options"]) == (55, {"delegate": "none"})
    sent = next(cell for cell in cells if cell.start.model is not None)
    assert sent.start.spec["model"] == f"sha256:{REF.sha256}"


def test_orders() -> None:
    """Interleaved goes round, grouped stays, shuffled is fixed by its seed."""
    text = FILE.replace("repeats = 2", 'repeats = 2\norder = "ORDER"')
    turn = [_short(c) for c in _cells(text.replace("ORDER", "interleaved"), ("pi5",))]
    assert turn[:6] == turn[6:]
    stay = [_short(c) for c in _cells(text.replace("ORDER", "grouped"), ("pi5",))]
    assert stay[0::2] == stay[1::2] == turn[:6]
    mixed = [_short(c) for c in _cells(text.replace("ORDER", "shuffled"), ("pi5",))]
    again = [_short(c) for c in _cells(text.replace("ORDER", "shuffled"), ("pi5",))]
    other = [_short(c) for c in _cells("seed = 1\n" + text.replace("ORDER", "shuffled"), ("pi5",))]
    assert mixed == again != other
    assert sorted(mixed[:6]) == sorted(turn[:6])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("repeats = 2", "repeats = 0"), "c.toml:10: repeats: Expected `int` >= 1"),
        (("repeats = 2", "repeets = 2"), "c.toml:10: repeets: unknown field"),
        (('name = "shelf"', ""), "c.toml: name: missing"),
        (
            ('"Server"]', '"Sever"]'),
            "c.toml:9: scenarios[1]: Invalid enum value 'Sever'; expected MultiStream, Offline,",
        ),
        (("to_c = 55", "to_c = 155"), "c.toml:13: cool_down.to_c: Expected `float` <= 150.0"),
        (("device = 2", "devise = 2"), "c.toml:16: retries.devise: unknown field"),
        (("threads = 1", "threads = 0"), "c.toml:19: run.threads: Expected `int` >= 1"),
        (("threads = 1", "thread = 1"), "c.toml:19: run.thread: Object contains unknown field"),
        (("threads = 1", "model = 'x'"), "c.toml:19: run.model: model: comes from the lists"),
        (("threads = 1", "inputs_file = '/etc/passwd'"), "c.toml:19: run.inputs_file"),
        (("target_qps = 40", "target_qps = 0"), "c.toml:23: scenario.Server.target_qps"),
        (('"digits",', '"/etc/passwd",'), "c.toml:4: models: model: '/etc/passwd' is not a plain"),
        (("repeats = 2", "repeats = 2 2"), "c.toml:10: not TOML"),
        (("repeats = 2", "repeats = 1000\nseed = -1"), "c.toml:11: seed"),
        (('backend = "onnxruntime"', ""), None),
    ],
)
def test_error_names_line_and_field(change: tuple[str, str], expected: str | None) -> None:
    """A person finds the spot without reading the whole file again."""
    text = FILE.replace(*change)
    assert text != FILE
    if expected is None:
        assert _cells(text)
        return
    with pytest.raises(CampaignError) as caught:
        _cells(text)
    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)


def test_unknown_board_names_its_place() -> None:
    """The index says which entry of the list."""
    planner = Planner(parse_campaign(FILE, where="c.toml"), source=FILE, where="c.toml")

    def find(target: str) -> list[str]:
        if target == "pi5":
            return ["pi5"]
        raise devices.UnknownBoardError("label 'old': no board carries it")

    with pytest.raises(CampaignError, match=r"c.toml:3: boards\[1\]: label 'old'"):
        planner.boards(find)


def test_campaign_that_leaves_nothing_or_too_much() -> None:
    """Both are mistakes in the file."""
    nothing = FILE + '[[skip]]\nboard = "pi5"\n[[skip]]\nboard = "pi4"\n'
    with pytest.raises(CampaignError, match="it leaves no run at all"):
        _cells(nothing)
    with pytest.raises(CampaignError, match=r"c\.toml:10: repeats: more than"):
        _cells(FILE.replace("repeats = 2", "repeats = 1000"), tuple(f"b{n}" for n in range(9)))


def test_line_of_a_field() -> None:
    """Tables, arrays of tables, dotted and quoted keys."""
    text = 'a = 1\n[b.c]\n"d" = 2\n[[e]]\nf = 3\n'
    assert [line_of(text, field) for field in ("a", "b.c.d", "e[0].f", "b.c", "zz")] == [
        1,
        3,
        5,
        2,
        None,
    ]


class Bench:
    """A store, a scheduler on a clock of the test, and a board that does as it is told."""

    def __init__(self, store: Store, keys: Keys, maker: Callable[..., Any]) -> None:
        self.store = store
        self.keys = keys
        self.now_ns = 1000 * S
        self._maker = maker
        self._session = new_id()
        self.restart()

    def restart(self) -> None:
        """Begin anew with nothing but the store."""
        nowhere = Endpoint("127.0.0.1", 1, False, None, 1, False, None, None)  # noqa: FBT003
        link = Link(nowhere, fleet="default")
        self.commander = Commander(
            self.store, link, self.keys, "default", clock_ns=lambda: self.now_ns
        )
        self.scheduler = Scheduler(self.store, self.commander, clock_ns=lambda: self.now_ns)

    def begin(self, cells: list[Cell], text: str) -> None:
        """Submit a campaign."""
        with self.store.writing() as connection:
            campaigns.add(connection, "shelf", text, cells, now_ns=self.now_ns)

    def board(self, name: str, status: Presence) -> None:
        """Let a board say how it is."""
        state = BoardState(
            status=status, session=self._session, since=datetime.now(timezone.utc), agent="1",
            stream=new_id(),
        )  # fmt: skip
        with self.store.writing() as connection:
            devices.apply_state(connection, name, state, now_ns=self.now_ns)

    def tick(self, *, after_s: float = 0) -> list[str]:
        """Let time pass and the scheduler work; returns the runs under way."""
        self.now_ns += int(after_s * S)
        self.scheduler.tick()
        with self.store.reading() as connection:
            cells = campaigns.cells(connection, "shelf")
        return [cell.run for cell in cells if cell.state == campaigns.RUNNING]

    def say(self, run: str, data: Any, board: str = "pi5") -> None:
        """Let the board report something about the run's newest attempt."""
        with self.store.writing() as connection:
            row = runs.get(connection, run)
            assert row is not None
            event: Event = self._maker(board)(data, run=run, attempt=row.attempt)
            events.apply_event(connection, event, now_ns=self.now_ns)

    def succeed(self, run: str, board: str = "pi5") -> None:
        """Let a run end well."""
        result = RunResult(status="VALID", exit_code=0, result=None, files=(), duration_s=1)
        self.say(run, result, board)

    @property
    def state(self) -> str:
        """Of the campaign."""
        with self.store.reading() as connection:
            return str(campaigns.get(connection, "shelf").state)

    def attempts(self) -> list[int]:
        """Of each cell."""
        with self.store.reading() as connection:
            return [cell.attempts for cell in campaigns.cells(connection, "shelf")]


@pytest.fixture
def bench(store: Store, tmp_path: Any, event_maker: Callable[..., Any]) -> Bench:
    """Return a bench with the enrolled, online board ``pi5``."""
    (tmp_path / "keys").mkdir()
    made = Bench(store, Keys(tmp_path / "keys"), event_maker)
    made.board("pi5", Presence.ONLINE)
    return made


SMALL = """\
name = "shelf"
boards = ["pi5"]
models = ["digits"]
repeats = 3
[retries]
device = 1
interrupted = 1
pause_s = 30
"""


def test_one_run_at_a_time_until_all_are_done(bench: Bench) -> None:
    """Each next run is asked for when the last is over, in the file's order."""
    cells = _cells(SMALL, ("pi5",))
    bench.begin(cells, SMALL)
    for cell in cells:
        assert bench.tick() == [cell.start.run]
        assert bench.tick() == [cell.start.run]
        bench.succeed(cell.start.run)
    assert bench.tick() == []
    assert bench.state == "done"


def test_boards_work_side_by_side_but_never_twice(bench: Bench) -> None:
    """Two boards run at once; a second campaign waits for a busy board."""
    with bench.store.writing() as connection:
        devices.enroll(connection, "pi4", now_ns=1)
    bench.board("pi4", Presence.ONLINE)
    bench.begin(_cells(SMALL, ("pi5", "pi4")), SMALL)
    with bench.store.writing() as connection:
        campaigns.add(connection, "other", SMALL, _cells(SMALL, ("pi5",)), now_ns=bench.now_ns + 1)
    assert len(bench.tick()) == 2
    with bench.store.reading() as connection:
        other = campaigns.cells(connection, "other")
    assert {cell.state for cell in other} == {campaigns.WAITING}


def test_retry_by_error_class_with_growing_pause(bench: Bench) -> None:
    """A device error is tried once more after the pause, a user error never."""
    cells = _cells(SMALL, ("pi5",))
    bench.begin(cells, SMALL)
    first, second = cells[0].start.run, cells[1].start.run
    bench.tick()
    bench.say(first, RunFailed(error_class=ErrorClass.DEVICE, message="hot"))
    assert bench.tick() == [second]  # the board does something else meanwhile
    bench.say(second, RunFailed(error_class=ErrorClass.USER, message="bad"))
    assert bench.tick(after_s=31) == [first]
    assert bench.attempts() == [2, 1, 0]
    bench.say(first, RunFailed(error_class=ErrorClass.DEVICE, message="hot"))
    (third,) = bench.tick(after_s=100)
    assert third == cells[2].start.run
    bench.succeed(third)
    bench.tick()
    assert bench.state == "failed"


def test_goes_on_after_a_restart_of_coordinator_and_board(bench: Bench) -> None:
    """The run under way stays the same run; an interrupted one is tried again."""
    cells = _cells(SMALL, ("pi5",))
    bench.begin(cells, SMALL)
    (run,) = bench.tick()
    bench.say(run, RunAccepted())
    bench.restart()
    assert bench.tick() == [run]
    bench.say(run, RunInterrupted(message="the board lost power"))
    bench.restart()
    assert run not in bench.tick()
    bench.restart()
    with bench.store.reading() as connection:
        under_way = [c.run for c in campaigns.cells(connection, "shelf") if c.state == "running"]
    bench.succeed(under_way[0])
    assert bench.tick(after_s=31) == [run]
    bench.succeed(run)
    assert bench.attempts() == [2, 1, 0]


@pytest.mark.parametrize("away", [Presence.LOST, Presence.OFFLINE, Presence.DRAINING])
def test_cell_waits_for_a_board_that_takes_no_work(bench: Bench, away: Presence) -> None:
    """No deadline runs while a board is switched off or drains."""
    bench.begin(_cells(SMALL, ("pi5",)), SMALL)
    bench.board("pi5", away)
    assert bench.tick(after_s=10**6) == []
    bench.board("pi5", Presence.ONLINE)
    assert len(bench.tick()) == 1


def test_command_that_nobody_answers_expires_and_is_retried(bench: Bench) -> None:
    """The first attempt is called off, in case it was heard after all."""
    cells = _cells(SMALL, ("pi5",))
    bench.begin(cells, SMALL)
    (run,) = bench.tick()
    bench.now_ns += 3700 * S
    bench.commander.give_up_overdue()
    with bench.store.reading() as connection:
        row = runs.find(connection, run)
        sent = commands.due(connection, now_ns=bench.now_ns, resend_after_ns=1)
    assert (row.state, row.error_class) == ("expired", "device")
    assert [command.type for command in sent] == ["run.cancel"]
    bench.tick()
    with bench.store.reading() as connection:
        now = {cell.run: cell.state for cell in campaigns.cells(connection, "shelf")}
    assert now[run] == campaigns.WAITING


def test_cancelled_campaign_starts_nothing_more(bench: Bench) -> None:
    """Its run is called off at the board, the rest never begins."""
    bench.begin(_cells(SMALL, ("pi5",)), SMALL)
    bench.tick()
    with bench.store.writing() as connection:
        assert bench.scheduler.cancel(connection, "shelf") == 3
    assert bench.tick() == []
    assert bench.state == "cancelled"
    with bench.store.reading() as connection:
        due = commands.due(connection, now_ns=bench.now_ns, resend_after_ns=1)
    assert [command.type for command in due] == ["run.start", "run.cancel"]


def test_name_can_be_used_once(bench: Bench) -> None:
    """A second campaign of the name is refused, so results never mix."""
    bench.begin(_cells(SMALL, ("pi5",)), SMALL)
    with pytest.raises(campaigns.UnknownCampaignError, match="give another name"):
        bench.begin(_cells(SMALL, ("pi5",)), SMALL)
