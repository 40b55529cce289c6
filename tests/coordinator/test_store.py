"""The store: schema, migrations, and what events do to runs. SQLite and PostgreSQL alike."""

import json
import random
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, inspect, select

from edgeperf.agent.events import Phase
from edgeperf.agent.messages import (
    Alert,
    BlobRef,
    BoardState,
    Code,
    CommandDone,
    ErrorClass,
    Event,
    Presence,
    RunAccepted,
    RunCancelled,
    RunFailed,
    RunInterrupted,
    RunLog,
    RunProgress,
    RunResult,
    new_id,
    run_start,
)
from edgeperf.coordinator import export
from edgeperf.coordinator.simulation.result import simulated_result
from edgeperf.coordinator.store import (
    SCHEMA_VERSION,
    Store,
    StoreError,
    StoreUrlError,
    commands,
    devices,
    events,
    open_store,
    results,
    runs,
)
from edgeperf.coordinator.store.events import Outcome
from edgeperf.coordinator.store.migrations import STEPS, migrate
from edgeperf.coordinator.store.schema import METADATA, command, event, metric

NOW = 1_000_000_000


def _create(store: Store, run: str, **fields: Any) -> None:
    with store.writing() as connection:
        start = run_start({"model": "digits"}, run=run, **fields)
        runs.create(connection, start, "pi5", now_ns=NOW)


def _apply(store: Store, *made: Event) -> list[Outcome]:
    with store.writing() as connection:
        return [events.apply_event(connection, one, now_ns=NOW) for one in made]


def _row(store: Store, run: str) -> Any:
    with store.reading() as connection:
        return runs.get(connection, run)


def _result(run: str, **fields: Any) -> RunResult:
    document = simulated_result(run, {"model": "digits"}, random.Random(1))  # noqa: S311 - invented figures
    given: dict[str, Any] = {"status": "VALID", "exit_code": 0, "duration_s": 1.0, "files": ()}
    return RunResult(**(given | {"result": document} | fields))


def test_migrated_schema_is_the_one_that_queries_use(store: Store) -> None:
    """Every table and column of the query layer is there, and no other."""
    with store.reading() as connection:
        there = inspect(connection)
        found = {
            name: {column["name"]: column["nullable"] for column in there.get_columns(name)}
            for name in there.get_table_names()
        }
    wanted = {
        table.name: {column.name: column.nullable for column in table.columns}
        for table in METADATA.tables.values()
    }
    # SQLite calls the column of a text primary key nullable; nothing of ours relies on it.
    assert {name: set(columns) for name, columns in found.items()} == {
        name: set(columns) for name, columns in wanted.items()
    }


@pytest.mark.parametrize("old", range(SCHEMA_VERSION))
def test_old_store_is_brought_forward(tmp_path: Path, old: int) -> None:
    """A store of any older version opens with its rows, and at the newest version."""
    path = tmp_path / "old.db"
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        for step in STEPS[:old]:
            for statement in step.split(";"):
                connection.exec_driver_sql(statement)
        if old:
            connection.exec_driver_sql(
                "INSERT INTO store_info VALUES ('fleet', 'shelf'), ('schema_version', ?)",
                (str(old),),
            )
    engine.dispose()
    store = open_store(path)
    with store.writing() as connection:
        assert devices.remember(connection, "fleet", "other") == ("shelf" if old else "other")
        assert migrate(connection) == SCHEMA_VERSION
    store.close()


def test_newer_store_is_refused(tmp_path: Path) -> None:
    """The line says both versions and what to do; the file is left alone."""
    path = tmp_path / "new.db"
    store = open_store(path)
    with store.writing() as connection:
        connection.exec_driver_sql(
            "UPDATE store_info SET value = ? WHERE name = 'schema_version'",
            (str(SCHEMA_VERSION + 1),),
        )
    store.close()
    with pytest.raises(StoreError, match=rf"version {SCHEMA_VERSION + 1}, newer.*upgrade edgeperf"):
        open_store(path)


def test_foreign_database_is_refused(tmp_path: Path) -> None:
    """Tables of somebody else are never mixed with ours."""
    path = tmp_path / "foreign.db"
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE recipes (name TEXT)")
    engine.dispose()
    with pytest.raises(StoreError, match=r"not edgeperf's \(recipes\)"):
        open_store(path)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mysql://u@h/d", "unknown kind 'mysql'"),
        ("nonsense", "not a URL"),
        ("postgresql://u:secret@127.0.0.1:1/d", "store postgresql"),
    ],
)
def test_unusable_url_is_one_line_without_its_password(url: str, expected: str) -> None:
    """Kind, syntax and an unreachable server each say what is wrong."""
    with pytest.raises((StoreUrlError, StoreError), match=expected) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_same_event_twice_has_one_effect(store: Store, make_event: Any) -> None:
    """The second copy changes no row, whatever was in it."""
    run = new_id()
    _create(store, run)
    one = make_event(RunLog(lines=("a", "b")), run=run)
    assert _apply(store, one, one) == [Outcome.APPLIED, Outcome.DUPLICATE]
    assert _apply(store, one) == [Outcome.DUPLICATE]
    with store.reading() as connection:
        assert [line.line for line in runs.log_lines(connection, run)] == ["a", "b"]


def _life(make_event: Any, run: str) -> list[Event]:
    return [
        make_event(RunAccepted(), run=run),
        make_event(RunProgress(phase=Phase.PREPARE, percent=10), run=run),
        make_event(RunLog(lines=("one",)), run=run),
        make_event(RunProgress(phase=Phase.PERFORMANCE, percent=80), run=run),
        make_event(RunLog(lines=("two", "three")), run=run),
        make_event(_result(run), run=run),
    ]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_order_and_repetition_do_not_matter(
    tmp_path_factory: pytest.TempPathFactory, event_maker: Any, data: st.DataObject
) -> None:
    """However a run's events are shuffled and repeated, the run ends the same."""
    run = new_id()
    life = _life(event_maker(), run)
    sent = data.draw(st.permutations(life + data.draw(st.lists(st.sampled_from(life)))))
    store = open_store(tmp_path_factory.mktemp("order") / "c.db")
    with store.writing() as connection:
        devices.enroll(connection, "pi5", now_ns=1)
    _create(store, run)
    _apply(store, *sent)
    row = _row(store, run)
    assert (row.state, row.verdict, row.exit_code) == ("succeeded", "INVALID", 0)
    with store.reading() as connection:
        lines = [line.line for line in runs.log_lines(connection, run)]
        kept = list(connection.execute(select(event.c.id)).scalars())
    store.close()
    assert lines == ["one", "two", "three"]
    assert len(kept) == 4  # progress is not kept one by one


def test_result_gives_metrics_with_units_and_conditions(store: Store, make_event: Any) -> None:
    """The headline, the percentiles and the throughput are rows; the document is whole."""
    run = new_id()
    _create(store, run)
    sent = _result(run)
    assert sent.result is not None
    energy = {"energy_j": {"value": 3.5, "uncertainty": 0.1}, "samples_per_joule": None}
    sent.result["power"] = {"gross": energy, "official": False, "gaps": []}
    _apply(store, make_event(sent, run=run))
    with store.reading() as connection:
        found = {row.name: (row.unit, row.value) for row in runs.metrics(connection, [run])}
        conditions = runs.conditions(connection, run)
        row = runs.find(connection, run)
    assert sent.result is not None
    latency = sent.result["performance"]["latency_ns"]
    assert found["latency_p99_ns"] == ("ns", latency["p99"])
    assert found["throughput_sps"][0] == "samples/s"
    assert found["power.gross.energy_j"] == ("J", 3.5)
    assert found["power.gross.energy_j.uncertainty"] == ("J", 0.1)
    assert (row.headline, row.headline_unit) == ("latency_p90", "ns")
    assert row.headline_value == found["latency_p90"][1]
    assert conditions["throttled"] == "False"
    assert json.loads(row.result) == json.loads(json.dumps(sent.result))


def test_newer_result_is_kept_whole_without_rows(store: Store, make_event: Any) -> None:
    """A board with a newer edgeperf loses nothing at an older coordinator."""
    run = new_id()
    _create(store, run)
    document = {"format_version": 999, "surprise": [1, 2]}
    _apply(store, make_event(_result(run, result=document), run=run))
    row = _row(store, run)
    assert (row.state, row.verdict, row.result) == (
        "succeeded",
        "VALID",
        '{"format_version":999,"surprise":[1,2]}',
    )


def test_result_as_blob_is_read_when_it_comes(store: Store, make_event: Any) -> None:
    """Until then the run says only what the event said."""
    run = new_id()
    _create(store, run)
    file = BlobRef(name="result.json", sha256="a" * 64, size_bytes=10)
    _apply(store, make_event(_result(run, result=None, files=(file,)), run=run))
    assert _row(store, run).headline is None
    with store.writing() as connection:
        assert results.awaiting(connection, "a" * 64) == [run]
        document = _result(run).result
        assert document is not None
        results.keep_document(connection, run, document)
        assert results.awaiting(connection, "a" * 64) == []
    assert _row(store, run).headline == "latency_p90"


@pytest.mark.parametrize(
    ("end", "state", "error_class"),
    [
        (RunFailed(error_class=ErrorClass.DEVICE, message="hot"), "failed", "device"),
        (RunCancelled(reason="because"), "cancelled", "cancelled"),
        (RunInterrupted(message="power cut"), "interrupted", "interrupted"),
    ],
)
def test_every_bad_end_has_a_state_and_a_class(
    store: Store, make_event: Any, end: Any, state: str, error_class: str
) -> None:
    """The class decides retries later."""
    run = new_id()
    _create(store, run)
    _apply(store, make_event(end, run=run))
    row = _row(store, run)
    assert (row.state, row.error_class) == (state, error_class)
    assert row.error


def test_spreadsheet_computes_nothing_that_a_board_wrote(store: Store, make_event: Any) -> None:
    """A message that looks like a formula is text in the CSV; numbers stay numbers."""
    run = new_id()
    _create(store, run)
    failed = RunFailed(error_class=ErrorClass.USER, message="=HYPERLINK(1)")
    _apply(store, make_event(failed, run=run))
    with store.reading() as connection:
        text = export.render("csv", runs.select_runs(connection, runs.Filter()), []).decode()
    assert ",'=HYPERLINK(1)," in text


def test_first_terminal_event_stands(store: Store, make_event: Any) -> None:
    """A result that crosses a cancellation does not undo it, nor the other way round."""
    run = new_id()
    _create(store, run)
    ended = make_event(RunCancelled(reason="x"), run=run)
    late = make_event(_result(run), run=run)
    assert _apply(store, ended, late) == [Outcome.APPLIED, Outcome.STALE]
    assert _row(store, run).state == "cancelled"


def test_old_attempt_cannot_touch_the_new_one(store: Store, make_event: Any) -> None:
    """Events of attempt 1 that arrive late leave attempt 2 alone."""
    run = new_id()
    _create(store, run)
    late = make_event(RunFailed(error_class=ErrorClass.USER, message="late"), run=run)
    interrupted = make_event(RunInterrupted(message="x"), run=run)
    _apply(store, interrupted)
    with store.writing() as connection:
        second = run_start({"model": "digits"}, run=run, attempt=2)
        runs.begin_attempt(connection, second)
    assert _apply(store, late) == [Outcome.STALE]
    accepted = make_event(RunAccepted(), run=run, attempt=2)
    assert _apply(store, accepted) == [Outcome.APPLIED]
    row = _row(store, run)
    assert (row.state, row.attempt, row.error) == ("accepted", 2, None)


def test_run_that_nobody_knows_is_taken_in(store: Store, make_event: Any) -> None:
    """A store that was lost does not cost the results that boards still hold."""
    run = new_id()
    assert _apply(store, make_event(_result(run), run=run)) == [Outcome.APPLIED]
    row = _row(store, run)
    assert (row.state, row.origin, row.model) == ("succeeded", "board", "digits")


def test_board_cannot_speak_for_another_boards_run(store: Store, event_maker: Any) -> None:
    """Its event is kept as a trace and has no effect."""
    run = new_id()
    _create(store, run)
    with store.writing() as connection:
        devices.enroll(connection, "rogue", now_ns=1)
    rogue = event_maker("rogue")
    forged = [rogue(_result(run), run=run), rogue(RunAccepted(), run=run)]
    assert _apply(store, *forged) == [Outcome.FOREIGN, Outcome.FOREIGN]
    assert _row(store, run).state == "queued"


def test_text_that_a_database_refuses_is_made_harmless(store: Store, make_event: Any) -> None:
    """NUL, which PostgreSQL refuses, and numbers beyond 64 bits spoil no transaction."""
    run = new_id()
    _create(store, run)
    document = _result(run).result
    assert document is not None
    document["conditions"] = {"a\x00b": "c\x00d", "deep": {"x": {"y": 1}}}
    document["phases_ns"] = {"huge": 2**80, "fine": 5}
    document["spec"] = {"model": {"not": "text"}, "backend": 3}
    failed = RunFailed(error_class=ErrorClass.USER, message="no\x00pe", exit_code=2**70)
    log = RunLog(lines=("\x00", "\ud800".encode("utf-8", "replace").decode()))
    alert = Alert(code=Code.POLICY, text="\x00")
    other = new_id()
    outcomes = _apply(
        store,
        make_event(_result(run, result=document, status="a\x00"), run=run),
        make_event(log, run=run),
        make_event(failed, run=other),
        make_event(alert),
    )
    assert set(outcomes) == {Outcome.APPLIED}
    with store.reading() as connection:
        assert connection.execute(select(metric.c.name).where(metric.c.run == run)).first()


def test_answer_settles_its_command_once(store: Store, make_event: Any) -> None:
    """A second answer changes nothing."""
    with store.writing() as connection:
        connection.execute(
            command.insert().values(
                id="c" * 20, device="pi5", type="ping", counter=1, body="{}", issued_ns=1,
                deadline_ns=2, state="pending", tries=0,
            )
        )  # fmt: skip
    done = CommandDone(command="c" * 20, name="ping", ok=True, text="here")
    refused = CommandDone(command="c" * 20, name="ping", ok=False, text="no")
    _apply(store, make_event(done), make_event(refused))
    with store.reading() as connection:
        row = commands.get(connection, "c" * 20)
    assert row is not None
    assert (row.state, row.reply) == ("done", "here")


def test_late_will_of_an_old_session_is_ignored(store: Store) -> None:
    """A board that came back is not called lost by its own past."""

    def said(status: Presence, session: str) -> BoardState:
        moment = datetime.now(timezone.utc)
        return BoardState(
            status=status, session=session, since=moment, agent="1", stream=new_id(), counter=7
        )

    old, new = new_id(), new_id()
    with store.writing() as connection:
        assert devices.apply_state(connection, "pi5", said(Presence.ONLINE, old), now_ns=1)
        assert devices.apply_state(connection, "pi5", said(Presence.ONLINE, new), now_ns=2)
        assert not devices.apply_state(connection, "pi5", said(Presence.LOST, old), now_ns=3)
        assert devices.get(connection, "pi5").state == "online"
        assert not devices.apply_state(connection, "pi5", said(Presence.LOST, new), now_ns=4)
        assert devices.get(connection, "pi5").state == "lost"
        assert devices.next_counter(connection, "pi5") == 8


def test_label_means_the_boards_that_carry_it_and_no_other(store: Store) -> None:
    """Ambiguous and unknown targets are one line that lists what is meant."""
    with store.writing() as connection:
        devices.enroll(connection, "pi4", now_ns=1)
        devices.relabel(connection, "pi5", add=["fast", "desk"], drop=[])
        devices.relabel(connection, "pi4", add=["desk"], drop=[])
        assert devices.find_one(connection, "label:fast") == "pi5"
        assert devices.find(connection, "label:desk") == ["pi4", "pi5"]
        with pytest.raises(devices.UnknownBoardError, match=r"2 boards \(pi4, pi5\); name one"):
            devices.find_one(connection, "label:desk")
        with pytest.raises(devices.UnknownBoardError, match="no board carries it"):
            devices.find_one(connection, "label:pi")
        with pytest.raises(devices.UnknownBoardError, match="board 'pi': not enrolled"):
            devices.find_one(connection, "pi")
        devices.relabel(connection, "pi5", add=[], drop=["desk"])
        assert devices.find(connection, "label:desk") == ["pi4"]


def test_failed_block_leaves_nothing(store: Store) -> None:
    """What was written before the error is not kept."""

    def fail() -> None:
        with store.writing() as connection:
            devices.enroll(connection, "ghost", now_ns=1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with store.reading() as connection, pytest.raises(devices.UnknownBoardError):
        devices.get(connection, "ghost")


def test_writers_and_readers_do_not_lock_each_other_out(store: Store) -> None:
    """Threads that write and read at once all get through: no "database is locked"."""
    problems: list[Exception] = []

    def work(number: int) -> None:
        try:
            for _ in range(10):
                with store.writing() as connection:
                    devices.next_counter(connection, "pi5")
                with store.reading() as connection:
                    devices.every(connection)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
            problems.append(error)
        del number

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    with store.writing() as connection:
        assert devices.next_counter(connection, "pi5") == 61
