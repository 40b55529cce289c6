"""The intake against a real store: whatever comes, known boards are served and nothing breaks."""

import hashlib
import json
import logging
import random
import sqlite3
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from edgeperf.agent.messages import (
    Ack,
    BlobInit,
    BlobStatus,
    BoardState,
    Code,
    CommandRejected,
    Ping,
    Presence,
    RunAccepted,
    RunLog,
    RunResult,
    blob_topic,
    device_topic,
    encode,
    encode_event,
    new_id,
    parse_ack,
    parse_command,
    run_start,
)
from edgeperf.coordinator.artefacts import Artefacts
from edgeperf.coordinator.blobs import BlobStore
from edgeperf.coordinator.commander import Commander
from edgeperf.coordinator.intake import Intake
from edgeperf.coordinator.link import Inbound
from edgeperf.coordinator.simulation.result import simulated_result
from edgeperf.coordinator.store import Store, commands, devices, open_store, runs
from edgeperf.coordinator.store.schema import command as command_table
from edgeperf.coordinator.store.schema import event
from edgeperf.coordinator.trust import Keys

FLEET = "default"


class HandWire:
    """The connection of a test: messages come by hand, answers are kept."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, bytes]] = []

    def take(self, most: int, timeout_s: float) -> list[Inbound]:
        """Return nothing."""
        del most, timeout_s
        return []

    def send(self, board: str, leaf: str, payload: bytes, *, expiry_s: int | None = None) -> bool:
        """Keep an answer."""
        del expiry_s
        self.sent.append((board, leaf, payload))
        return True


class Bench:
    """An intake without a broker."""

    def __init__(self, root: Path, store: Store) -> None:
        (root / "keys").mkdir()
        self.store = store
        self.keys = Keys(root / "keys")
        wire = HandWire()
        self.sent = wire.sent
        self.now_ns = 10**18
        self.commander = Commander(store, wire, self.keys, FLEET, clock_ns=lambda: self.now_ns)
        self.blobs_root = root / "blobs"
        self.blobs = BlobStore(self.blobs_root)
        self.intake = Intake(
            store,
            wire,
            self.keys,
            FLEET,
            artefacts=Artefacts(store, self.blobs),
            commander=self.commander,
            clock_ns=lambda: self.now_ns,
            on_change=lambda: None,
        )

    def hear(self, board: str, leaf: str, *payloads: bytes) -> None:
        """Take messages in."""
        topic = device_topic(FLEET, board, leaf)
        self.intake.take_in([Inbound(topic, payload) for payload in payloads])

    def acked(self) -> list[tuple[int, int]]:
        """Return what was acknowledged since the last time, as ranges."""
        public = {self.keys.id: self.keys.signing.public_key()}
        found = []
        for board, leaf, payload in self.sent:
            if leaf == "ack":
                ack = parse_ack(payload, public, fleet=FLEET, device=board)
                found += list(ack.seqs) if isinstance(ack, Ack) else []
        self.sent.clear()
        return found

    def events(self) -> int:
        """Return how many events are stored."""
        with self.store.reading() as connection:
            return int(connection.execute(select(func.count()).select_from(event)).scalar_one())


@pytest.fixture
def bench(store: Store, tmp_path: Path) -> Bench:
    """Return a bench whose store knows the board ``pi5``."""
    return Bench(tmp_path, store)


def test_acknowledged_after_it_is_stored_and_again_for_a_copy(
    bench: Bench, make_event: Any
) -> None:
    """A board whose acknowledgement was lost gets another, and nothing is stored twice."""
    made = [encode_event(make_event(RunLog(lines=("x",)), run=new_id())) for _ in range(3)]
    bench.hear("pi5", "evt", *made)
    assert bench.acked() == [(1, 3)]
    assert bench.events() == 3
    bench.hear("pi5", "evt", made[1])
    assert bench.acked() == [(2, 2)]
    assert bench.events() == 3


def test_gap_holds_nothing_back(bench: Bench, make_event: Any) -> None:
    """What came is acknowledged; what is missing may come later or never."""
    made = [encode_event(make_event(RunLog(lines=("x",)), run=new_id())) for _ in range(6)]
    bench.hear("pi5", "evt", made[0], made[1], made[3], made[5])
    assert bench.acked() == [(1, 2), (4, 4), (6, 6)]


def test_unreadable_event_is_set_aside_and_acknowledged(bench: Bench, make_event: Any) -> None:
    """Or its board would send it for ever; a newer board's unknown event is one of these."""
    fine = make_event(RunAccepted(), run=new_id())
    document = json.loads(encode_event(make_event(RunAccepted(), run=new_id())))
    newer = json.dumps({**document, "type": "edgeperf.run.teleported.v9"}).encode()
    broken = json.dumps({**document, "seq": 3, "data": {"position": "first"}}).encode()
    stranger = {**document, "seq": 4, "source": "edgeperf/default/dev/pi4"}
    bench.hear("pi5", "evt", newer, broken, encode_event(fine), json.dumps(stranger).encode())
    assert bench.acked() == [(1, 4)]
    with bench.store.reading() as connection:
        kinds = sorted(connection.execute(select(event.c.type)).scalars())
    assert kinds == ["edgeperf.run.accepted.v1", "unread", "unread", "unread"]


def test_stranger_is_not_heard(bench: Bench, event_maker: Callable[..., Any]) -> None:
    """A board that was never enrolled leaves no row and gets no answer."""
    bench.hear("ghost", "evt", encode_event(event_maker("ghost")(RunAccepted(), run=new_id())))
    assert bench.acked() == []
    assert bench.events() == 0


def test_poisoned_event_spoils_only_itself(bench: Bench, make_event: Any) -> None:
    """If the database refuses one event of a batch, the others are stored all the same."""
    run = new_id()
    good = encode_event(make_event(RunLog(lines=("a",)), run=run))
    # The place of its log line is taken, so that its insertion fails.
    bad = make_event(RunLog(lines=("b",)), run=run)
    after = encode_event(make_event(RunLog(lines=("c",)), run=run))
    with bench.store.writing() as connection:
        start = run_start({"model": "digits"}, run=run)
        runs.create(connection, start, "pi5", now_ns=1)
        connection.exec_driver_sql(
            f"INSERT INTO log VALUES ('{run}', {bad.seq * 1000}, 'taken')"  # noqa: S608 - ours
        )
    bench.hear("pi5", "evt", good, encode_event(bad), after)
    assert bench.acked() == [(1, 3)]
    with bench.store.reading() as connection:
        lines = [line.line for line in runs.log_lines(connection, run)]
    assert lines == ["a", "taken", "c"]


class _LockOnComplaint(logging.Handler):
    """Another process that holds the database, from the first complaint to the next retry."""

    def __init__(self, database: Path) -> None:
        super().__init__()
        self._other = sqlite3.connect(database, isolation_level=None)
        self.was_waited_for = False

    def emit(self, record: logging.LogRecord) -> None:
        """Take the lock, or give it back."""
        if "trying again" in record.getMessage():
            self.was_waited_for = True
            self.close()
        elif not self.was_waited_for:
            self._other.execute("BEGIN IMMEDIATE")

    def close(self) -> None:
        """Give the lock back for good."""
        self._other.close()
        super().close()


def test_locked_database_makes_no_event_poison(
    tmp_path: Path, make_event: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is taken while a batch goes in one by one: all is kept, and later stored."""
    monkeypatch.setattr("edgeperf.coordinator.store.database._BUSY_TIMEOUT_S", 0.1)
    bench = Bench(tmp_path, open_store(tmp_path / "store.db"))
    run = new_id()
    bad, good = (make_event(RunLog(lines=(word,)), run=run) for word in ("bad", "good"))
    with bench.store.writing() as connection:
        devices.enroll(connection, "pi5", now_ns=1)
        runs.create(connection, run_start({"model": "digits"}, run=run), "pi5", now_ns=1)
        connection.exec_driver_sql(
            f"INSERT INTO log VALUES ('{run}', {bad.seq * 1000}, 'taken')"  # noqa: S608 - ours
        )
    log = logging.getLogger("edgeperf.coordinator.intake")
    lock = _LockOnComplaint(tmp_path / "store.db")
    log.addHandler(lock)
    try:
        bench.hear("pi5", "evt", encode_event(bad), encode_event(good))
    finally:
        log.removeHandler(lock)
        lock.close()
    assert lock.was_waited_for
    assert bench.acked() == [(1, 2)]
    assert bench.events() == 2
    with bench.store.reading() as connection:
        assert [line.line for line in runs.log_lines(connection, run)] == ["taken", "good"]
    bench.store.close()


def test_counter_that_went_back_is_made_up_for(bench: Bench, make_event: Any) -> None:
    """A board has seen higher counters than our store knows: the command is made anew."""
    with bench.store.writing() as connection:
        sent = bench.commander.issue(connection, "pi5", Ping(), within_s=60)
    refusal = CommandRejected(command=sent, code=Code.COUNTER, reason="low", counter=41)
    bench.hear("pi5", "evt", encode_event(make_event(refusal)))
    with bench.store.reading() as connection:
        old = commands.get(connection, sent)
        due = commands.due(connection, now_ns=bench.now_ns, resend_after_ns=1)
        assert old is not None
    assert old.state == "rejected"
    assert due == []  # the board is not online yet
    bench.hear("pi5", "state", _state(Presence.ONLINE))
    with bench.store.reading() as connection:
        (new, *_) = commands.due(connection, now_ns=bench.now_ns, resend_after_ns=1)
    public = {bench.keys.id: bench.keys.signing.public_key()}
    command = parse_command(new.body.encode(), public, fleet=FLEET, device="pi5")
    assert (command.counter, command.data, new.id != sent) == (42, Ping(), True)


def test_refused_run_is_over(bench: Bench, make_event: Any) -> None:
    """A board that does not follow a run's command ends the run, with the reason."""
    start = run_start({"model": "digits"}, run=new_id())
    with bench.store.writing() as connection:
        bench.commander.start_run(connection, "pi5", start, within_s=60)
    with bench.store.reading() as connection:
        sent = connection.execute(select(command_table.c.id)).scalar_one()
    refusal = CommandRejected(command=sent, code=Code.EXPIRED, reason="too late")
    bench.hear("pi5", "evt", encode_event(make_event(refusal)))
    with bench.store.reading() as connection:
        row = runs.find(connection, start.run)
    assert (row.state, row.error) == ("rejected", "expired: too late")


def test_board_that_speaks_though_called_lost_is_asked_who_it_is(
    bench: Bench, make_event: Any
) -> None:
    """The broker forgot its state: one command brings it back, not one per event."""
    made = [encode_event(make_event(RunLog(lines=("x",)), run=new_id())) for _ in range(3)]
    for raw in made:
        bench.hear("pi5", "evt", raw)
    asked = [payload for _, leaf, payload in bench.sent if leaf == "cmd"]
    assert len(asked) == 1
    assert json.loads(asked[0])["type"] == "edgeperf.describe.v1"


def test_blob_over_mqtt_survives_a_lost_chunk(bench: Bench, make_event: Any) -> None:
    """The status names the gap; what follows it is sent again; the digest is checked."""
    run = new_id()
    document = {"format_version": 999, "big": "x" * 200_000}
    content = msgspec.json.encode(document)
    sha256 = hashlib.sha256(content).hexdigest()
    file = {"name": "result.json", "sha256": sha256, "size_bytes": len(content)}
    result = msgspec.convert(
        {"status": "VALID", "exit_code": 0, "result": None, "files": [file], "duration_s": 1},
        RunResult,
    )
    bench.hear("pi5", "evt", encode_event(make_event(result, run=run)))
    chunk = 60_000
    pieces = {at: content[at : at + chunk] for at in range(0, len(content), chunk)}

    def send(part: str | int, payload: bytes) -> None:
        topic = blob_topic(FLEET, "pi5", sha256, part)
        bench.intake.take_in([Inbound(topic, payload)])

    def status() -> BlobStatus:
        public = {bench.keys.id: bench.keys.signing.public_key()}
        board, _, payload = bench.sent[-1]
        said = parse_ack(payload, public, fleet=FLEET, device=board)
        assert isinstance(said, BlobStatus)
        return said

    send(0, pieces[0])
    assert status().missing == ()  # never announced: the board shall begin with init
    send("init", encode(BlobInit(size_bytes=len(content), chunk_bytes=chunk)))
    assert status().missing == ((0, len(content)),)
    for at, piece in pieces.items():
        if at != chunk:  # the second is lost
            send(at, piece)
    send("fin", b"")
    assert status().missing == ((chunk, len(content)),)
    for at, piece in pieces.items():
        if at >= chunk:
            send(at, piece)
    send("fin", b"")
    assert status().complete
    with bench.store.reading() as connection:
        assert runs.find(connection, run).result == content.decode()


def test_full_disk_does_not_end_the_intake(bench: Bench, make_event: Any) -> None:
    """A chunk that cannot be kept, or even looked for, is complained of; events go on."""
    content = b"x" * 100
    sha256 = hashlib.sha256(content).hexdigest()
    announced = encode(BlobInit(size_bytes=len(content), chunk_bytes=1000))
    part = bench.blobs_root / "incoming" / sha256
    for broken in ("/dev/full", part.name):  # the second is a link to itself
        part.symlink_to(broken)
        for leaf, payload in (("init", announced), (0, content), ("fin", b"")):
            topic = blob_topic(FLEET, "pi5", sha256, leaf)
            bench.intake.take_in([Inbound(topic, payload)])
        part.unlink()
    bench.hear("pi5", "evt", encode_event(make_event(RunLog(lines=("x",)), run=new_id())))
    assert bench.events() == 1
    assert bench.blobs.size(sha256) is None


def test_a_result_that_cannot_be_read_does_not_end_the_intake(
    bench: Bench, make_event: Any
) -> None:
    """The disk fails where its file is looked for, or read: the event counts all the same."""
    for kept, break_it in (("ab", lambda path: path.mkdir()), ("cd", _link_to_itself)):
        path = bench.blobs_root / kept / (kept * 32)
        path.parent.mkdir()
        break_it(path)
        file = {"name": "result.json", "sha256": kept * 32, "size_bytes": 10}
        result = {"status": "VALID", "exit_code": 0, "result": None, "files": [file]}
        data = msgspec.convert(result | {"duration_s": 1}, RunResult)
        bench.hear("pi5", "evt", encode_event(make_event(data, run=new_id())))
    assert bench.acked() == [(1, 1), (2, 2)]


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


@st.composite
def _mutated(draw: st.DrawFn) -> bytes:
    """Draw a good event with some of its fields replaced by anything."""
    document = draw(st.sampled_from(_TEMPLATES)).copy()
    for name in draw(st.lists(st.sampled_from(sorted(document)), max_size=3)):
        document[name] = draw(_JSON)
    data = document.get("data")
    if isinstance(data, dict) and data:
        data = document["data"] = dict(data)
        data[draw(st.sampled_from(sorted(data)))] = draw(_JSON)
    return json.dumps(document).encode()


def _templates() -> list[dict[str, Any]]:
    run, moment = "r" * 20, "2026-11-29T12:00:00Z"
    common: dict[str, Any] = {
        "specversion": "1.0", "id": "i" * 20, "source": "edgeperf/default/dev/pi5", "time": moment,
        "stream": "s" * 20, "seq": 1, "session": "t" * 20, "clock": {"mono_ns": 1, "boot": "b"},
        "run": run, "attempt": 1,
    }  # fmt: skip
    result = simulated_result(run, {"model": "m"}, random.Random(0))  # noqa: S311
    datas = {
        "run.accepted": {"position": 0},
        "run.progress": {"phase": "performance", "percent": 1.0},
        "run.log": {"lines": ["a"]},
        "run.result": {
            "status": "VALID", "exit_code": 0, "files": [], "duration_s": 1.0, "result": result,
        },
        "run.failed": {"error_class": "user", "message": "m"},
        "command.done": {"command": "c" * 20, "name": "ping", "ok": True},
        "command.rejected": {"command": "c" * 20, "code": "counter", "reason": "r", "counter": 3},
    }  # fmt: skip
    return [{**common, "type": f"edgeperf.{kind}.v1", "data": data} for kind, data in datas.items()]


_TEMPLATES = _templates()


_PARTS = ("init", "7", "fin")
_LEAVES = ("evt", "state", "desc", "tlm", "cmd", *(f"blob/{'a' * 64}/{part}" for part in _PARTS))
_ANY = st.binary(max_size=60) | _JSON.map(lambda value: json.dumps(value).encode()) | _mutated()


@settings(max_examples=150, deadline=None)
@given(messages=st.lists(st.tuples(st.sampled_from(_LEAVES), _ANY), max_size=6))
def test_any_bytes_on_any_topic(
    tmp_path_factory: pytest.TempPathFactory,
    event_maker: Callable[..., Any],
    messages: list[tuple[str, bytes]],
) -> None:
    """Nothing raises, and a good event sent with them is stored and acknowledged."""
    root = tmp_path_factory.mktemp("any")
    store = open_store(root / "c.db")
    with store.writing() as connection:
        devices.enroll(connection, "pi5", now_ns=1)
    bench = Bench(root, store)
    made = event_maker()
    batch = [Inbound(device_topic(FLEET, "pi5", leaf), raw) for leaf, raw in messages]
    batch.append(Inbound("any/other/topic", b"x"))
    good = made(RunAccepted(), run=new_id())
    batch.append(Inbound(device_topic(FLEET, "pi5", "evt"), encode_event(good)))
    bench.intake.take_in(batch)
    public = {bench.keys.id: bench.keys.signing.public_key()}
    acks = [
        parse_ack(payload, public, fleet=FLEET, device=board)
        for board, leaf, payload in bench.sent
        if leaf == "ack"
    ]
    store.close()
    assert any(isinstance(ack, Ack) and ack.stream == made.stream for ack in acks)


def _state(status: Presence) -> bytes:
    return encode(
        BoardState(
            status=status, session=new_id(), since=datetime.now(timezone.utc), agent="1",
            stream=new_id(),
        )
    )  # fmt: skip
