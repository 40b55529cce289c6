"""What a board keeps: events until they are acknowledged, commands and runs for ever."""

import contextlib
import itertools
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from fleet_bench import BROKERS, AgentProcess, Coordinator, identity_for, wait_until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeperf.agent.events import Phase
from edgeperf.agent.link.clock import BoardClock
from edgeperf.agent.link.database import Database
from edgeperf.agent.link.errors import LinkInputError
from edgeperf.agent.link.journal import Journal, RunKey, RunState
from edgeperf.agent.link.lines import LineReader
from edgeperf.agent.link.outbox import Outbox
from edgeperf.agent.messages import (
    Ack,
    Alert,
    Code,
    Event,
    EventData,
    RunAccepted,
    RunLog,
    RunProgress,
    RunResult,
    new_id,
    parse_event,
    ranges,
)

RESULT = RunResult(status="VALID", exit_code=0, result={"n": 1}, files=(), duration_s=1.0)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Return a fresh file."""
    opened = Database(tmp_path / "agent.db")
    yield opened
    opened.close()


def _outbox(database: Database, **changes: float) -> Outbox:
    return Outbox(
        database,
        fleet="lab",
        device="pi5",
        session=new_id(),
        clock=BoardClock(),
        **changes,  # type: ignore[arg-type]  # sizes and seconds by name
    )


def _read(body: bytes) -> Event:
    return parse_event(body, fleet="lab", device="pi5")


def _due(outbox: Outbox) -> list[Event]:
    return [_read(body) for _, body in outbox.due()]


def _ack(outbox: Outbox, *seqs: int, stream: str | None = None) -> int:
    now = datetime.now(timezone.utc)
    return outbox.acknowledge(
        Ack(subject="lab/pi5", stream=stream or outbox.stream, seqs=ranges(list(seqs)), time=now)
    )


def test_events_leave_in_order_and_within_a_window(database: Database) -> None:
    """No more than the window is in flight; an acknowledgement makes room."""
    outbox = _outbox(database, window=5)
    for _ in range(8):
        outbox.put(RESULT, run=new_id(), attempt=1)
    assert [event.seq for event in _due(outbox)] == [1, 2, 3, 4, 5]
    assert _due(outbox) == []
    assert _ack(outbox, 2, 3) == 2
    assert [event.seq for event in _due(outbox)] == [6, 7]
    assert len(outbox) == 6


def test_what_is_not_acknowledged_is_sent_again_later_and_later(database: Database) -> None:
    """The wait doubles; nothing is sent before it is over."""
    outbox = _outbox(database, ack_timeout_s=0.05)
    outbox.put(RESULT, run=new_id(), attempt=1)
    waits = []
    for _ in range(3):
        began_s = time.monotonic()
        wait_until(outbox.due, "it is due again", 5)
        waits.append(time.monotonic() - began_s)
    assert waits[0] < 0.05 <= waits[1] < waits[2]


def test_a_new_coordinator_gets_everything_at_once(database: Database) -> None:
    """Nothing counts as in flight to somebody who never saw it."""
    outbox = _outbox(database)
    outbox.put(RESULT, run=new_id(), attempt=1)
    assert len(_due(outbox)) == 1
    outbox.send_all_again()
    assert len(_due(outbox)) == 1


def test_an_acknowledgement_of_another_outbox_is_none(database: Database) -> None:
    """After a lost journal the numbers begin again; old acknowledgements mean nothing."""
    outbox = _outbox(database)
    outbox.put(RESULT, run=new_id(), attempt=1)
    assert _ack(outbox, 1, stream=new_id()) == 0
    assert len(outbox) == 1


def test_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    """Also when everything was acknowledged before."""
    path = tmp_path / "agent.db"
    first = Database(path)
    outbox = _outbox(first)
    outbox.put(RESULT, run=new_id(), attempt=1)
    _ack(outbox, 1)
    first.close()
    second = Database(path)
    again = _outbox(second)
    again.put(RESULT, run=new_id(), attempt=1)
    assert [event.seq for event in _due(again)] == [2]
    assert again.stream == outbox.stream
    second.close()


def test_only_the_newest_progress_waits(database: Database) -> None:
    """An hour without a broker is not an hour of progress."""
    outbox, run = _outbox(database), new_id()
    outbox.put(RunAccepted(), run=run, attempt=1)
    for percent in range(100):
        outbox.put(RunProgress(phase=Phase.PERFORMANCE, percent=percent), run=run, attempt=1)
    assert len(outbox) == 2
    last = _due(outbox)[-1]
    assert isinstance(last.data, RunProgress)
    assert last.data.percent == 99


@given(kinds=st.lists(st.sampled_from("rrplo"), min_size=30, max_size=150))
@settings(
    deadline=None,
    max_examples=15,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_a_full_box_gives_up_progress_then_lines_never_results(
    tmp_path: Path, kinds: list[str]
) -> None:
    """Its size is bounded by what may be dropped; every result is still there."""
    database = Database(tmp_path / f"{new_id()}.db")
    outbox = _outbox(database, max_bytes=10_000)
    events: dict[str, EventData] = {
        "r": RESULT,
        "p": RunProgress(phase=Phase.PERFORMANCE, percent=1),
        "l": RunLog(lines=("x" * 1000,)),
        "o": Alert(code=Code.FAILED, text="x" * 200),
    }
    for kind in kinds:
        outbox.put(events[kind], run=new_id(), attempt=1)
    rows = database.connection.execute("SELECT body FROM outbox ORDER BY seq").fetchall()
    kept = [_read(row[0]).data for row in rows]
    assert sum(isinstance(data, RunResult) for data in kept) == kinds.count("r")
    assert outbox.size_bytes == sum(len(row[0]) for row in rows)
    if outbox.is_full:
        assert all(isinstance(data, RunResult) for data in kept)
    database.close()


def test_a_full_box_keeps_the_more_important(database: Database) -> None:
    """Progress goes before lines, lines before the rest."""
    outbox = _outbox(database, max_bytes=4000)
    outbox.put(Alert(code=Code.FAILED, text="x"))
    outbox.put(RunLog(lines=("x" * 800,)), run=new_id(), attempt=1)
    for _ in range(4):
        outbox.put(RunProgress(phase=Phase.PERFORMANCE, percent=1), run=new_id(), attempt=1)
    kinds = []
    for _ in range(9):
        kinds.append({type(event.data).__name__ for event in _due(outbox)})
        outbox.send_all_again()
        outbox.put(RESULT, run=new_id(), attempt=1)
    losses = [earlier - later for earlier, later in itertools.pairwise(kinds)]
    assert [name for loss in losses for name in sorted(loss)] == ["RunProgress", "RunLog", "Alert"]


def test_a_repeated_event_keeps_its_id(database: Database) -> None:
    """So that its reader knows it; while it still waits it is not put in twice."""
    outbox = _outbox(database)
    body = outbox.put(RESULT, run=new_id(), attempt=1)
    outbox.put_again(body)
    assert len(outbox) == 1
    _ack(outbox, 1)
    outbox.put_again(body)
    (event,) = _due(outbox)
    assert (event.id, event.seq) == (_read(body).id, 2)


def test_a_journal_that_is_no_database_is_set_aside(tmp_path: Path) -> None:
    """It is kept for whoever wants to look, and a new stream begins."""
    path = tmp_path / "agent.db"
    Database(path).close()
    path.write_bytes(b"\0" * 8192)
    opened = Database(path)
    assert opened.set_aside is not None
    assert opened.set_aside.read_bytes() == b"\0" * 8192
    assert opened.value("stream")
    opened.close()


def test_a_journal_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    """An older agent does not touch what it does not understand."""
    path = tmp_path / "agent.db"
    opened = Database(path)
    opened.connection.execute("PRAGMA user_version=99")
    opened.close()
    with pytest.raises(LinkInputError, match="newer edgeperf"):
        Database(path)


def test_a_run_ends_together_with_its_event(database: Database) -> None:
    """State, terminal event and uploads are one commit."""
    journal = Journal(database, outbox := _outbox(database))
    key = RunKey(new_id(), 1)
    journal.accept(key, b"{}", RunAccepted())
    assert journal.state(key) is RunState.QUEUED
    with contextlib.suppress(RuntimeError), database.transaction():
        journal.end(key, RESULT, [("a" * 64, "x", 1)])
        raise RuntimeError  # the power goes
    assert journal.state(key) is RunState.QUEUED
    assert journal.uploads(9) == []
    journal.end(key, RESULT, [("a" * 64, "x", 1)])
    assert journal.state(key) is RunState.ENDED
    assert journal.uploads(9) == [("a" * 64, "x", 1)]
    assert isinstance(_due(outbox)[-1].data, RunResult)


@pytest.mark.parametrize("kind", BROKERS)
def test_a_thousand_results_arrive_in_order_after_an_outage(tmp_path: Path, kind: str) -> None:
    """What was spooled while the broker was gone comes whole, once, in the order it was made."""
    broker = BROKERS[kind](tmp_path)
    broker.start()
    coordinator = Coordinator(broker.port)
    agent = AgentProcess(tmp_path / "agent", identity_for(broker.port, coordinator.key))
    database = Database(agent.state / "agent.db")
    outbox, runs = _outbox(database), [new_id() for _ in range(1000)]
    with database.transaction():
        for run in runs:
            outbox.put(RESULT, run=run, attempt=1)
    database.close()
    agent.start()
    try:
        wait_until(lambda: len(coordinator.events) >= 1000, "all results", 60)
        assert [event.run for event in coordinator.events if event.run] == runs
        wait_until(lambda: coordinator.states[-1].unsent == 0 or _is_empty(agent), "empty", 10)
    finally:
        agent.kill()
        coordinator.close()
        broker.kill()


def _is_empty(agent: AgentProcess) -> bool:
    database = Database(agent.state / "agent.db")
    try:
        count: int = database.connection.execute("SELECT count(*) FROM outbox").fetchone()[0]
    finally:
        database.close()
    return count == 0


def test_lines_are_read_once_and_cut(tmp_path: Path) -> None:
    """A half line waits for its end; of a flood the last lines stay, the others are counted."""
    path = tmp_path / "run.log"
    reader = LineReader(path)
    assert reader.take() is None
    path.write_bytes(b"one\n\x1b[31mtwo\nthr")
    assert reader.take() == RunLog(lines=("one", "[31mtwo"))
    assert reader.take() is None
    with path.open("ab") as stream:
        stream.write(b"ee\rfour")
    assert reader.take(at_end=True) == RunLog(lines=("three", "four"))
    with path.open("ab") as stream:
        stream.writelines(b"%d\n" % n for n in range(1000))
    flood = reader.take()
    assert flood is not None
    assert flood.dropped + len(flood.lines) == 1000
    assert flood.lines[-1] == "999"
