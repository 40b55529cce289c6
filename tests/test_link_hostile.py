"""Anybody may write to a board's topics: nothing happens, nothing breaks, somebody is told."""

import json
import secrets
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fleet_bench import DEVICE, FLEET, Bench, bench, start, wait_until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeperf.agent.link.ledger import WINDOW
from edgeperf.agent.messages import (
    MAX_MESSAGE_BYTES,
    Ack,
    Alert,
    Code,
    CommandRejected,
    MessageError,
    Ping,
    RunRejected,
    RunResult,
    RunStart,
    new_id,
    sign_ack,
    sign_command,
    spec_sha256,
)

STRANGER = Ed25519PrivateKey.generate()
BOARD = '[policy]\nbackends = ["tflite", "null"]\nmax_duration_s = 600\n'


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Return a board that every test leaves alive and idle."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "agent").mkdir(mode=0o700)
    (folder / "agent" / "board.toml").write_text(BOARD)
    with bench(folder) as together:
        yield together


@pytest.fixture(autouse=True)
def unharmed(up: Bench) -> Iterator[None]:
    """After each test the same process still answers, and ran nothing that it should not."""
    pid, ran = up.agent.pid, up.agent.executed()
    yield
    assert up.coordinator.answer(up.coordinator.send(Ping())).ok
    assert up.agent.pid == pid
    assert up.agent.executed() == ran
    assert "Traceback" not in up.agent.log()


def _alerts(up: Bench) -> set[Code]:
    return {e.data.code for e in up.coordinator.events if isinstance(e.data, Alert)}


@pytest.mark.parametrize("leaf", ["cmd", "ack", "state", "coord"])
@given(payloads=st.lists(st.binary(max_size=400), min_size=1, max_size=20))
@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_bytes_on_any_topic(up: Bench, leaf: str, payloads: list[bytes]) -> None:
    """Bytes that are nothing change nothing."""
    for payload in payloads:
        if leaf == "coord":
            up.coordinator.publish_at(f"edgeperf/v1/{FLEET}/coord/state", payload)
        else:
            up.coordinator.publish(payload, leaf)
    assert up.coordinator.answer(up.coordinator.send(Ping())).ok


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(
    changes=st.dictionaries(st.sampled_from(list(RunStart.__struct_fields__)), _JSON, min_size=1)
)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_signed_command_with_any_content(up: Bench, changes: dict[str, Any]) -> None:
    """Even who has the key can only ask for what the schema knows; the rest is refused."""
    data: dict[str, Any] = msgspec.to_builtins(start(new_id(), {"do": "never"}))
    data |= {"spec": {"model": "/etc/passwd"}}
    command = _raw(up, data | changes)
    up.coordinator.publish(command)
    wait_until(
        lambda: any(isinstance(e.data, CommandRejected | RunRejected) for e in _about(up, command)),
        "a refusal",
    )


def _raw(up: Bench, data: dict[str, Any], **changes: Any) -> bytes:
    """Return a command with a good signature over any data."""
    from edgeperf.agent.messages.signing import COMMAND, sign  # noqa: PLC0415

    command = up.coordinator.command(Ping())
    document = json.loads(sign_command(command, up.coordinator.key))
    document |= {"type": "edgeperf.run.start.v1", "data": data, **changes}
    del document["sig"], document["key"]
    return sign(document, up.coordinator.key, COMMAND)


def _about(up: Bench, raw: bytes) -> list[Any]:
    document = json.loads(raw)
    ids = [document["id"], document["data"].get("run")]
    return [e for e in up.coordinator.events if getattr(e.data, "command", e.run) in ids]


def _wait_for_refusal(up: Bench, command_id: str) -> CommandRejected:
    def found() -> list[CommandRejected]:
        rejected = [e.data for e in up.coordinator.events if isinstance(e.data, CommandRejected)]
        return [data for data in rejected if data.command == command_id]

    wait_until(found, "a refusal")
    return found()[0]


def test_an_oversized_message_is_dropped(up: Bench) -> None:
    """More than 96 KiB is not even parsed; more than the packet limit never arrives."""
    up.coordinator.publish(b"{" + b" " * MAX_MESSAGE_BYTES + b"}")
    up.coordinator.publish(b"x" * 1_000_000)
    wait_until(lambda: Code.TOO_LARGE in _alerts(up), "an alert")


def test_an_unsigned_command_has_no_effect(up: Bench) -> None:
    """No answer, one alert."""
    document = json.loads(sign_command(up.coordinator.command(start(new_id())), STRANGER))
    del document["sig"]
    up.coordinator.publish(json.dumps(document).encode())
    wait_until(lambda: Code.UNSIGNED in _alerts(up), "an alert")


def test_a_command_signed_by_another_key_has_no_effect(up: Bench) -> None:
    """Also when it names the right key."""
    raw = sign_command(up.coordinator.command(start(new_id())), STRANGER)
    up.coordinator.publish(raw)
    wait_until(lambda: Code.UNKNOWN_KEY in _alerts(up), "an alert")
    document = json.loads(raw)
    document["key"] = json.loads(sign_command(up.coordinator.command(Ping()), up.coordinator.key))[
        "key"
    ]
    up.coordinator.publish(json.dumps(document).encode())
    wait_until(lambda: Code.BAD_SIGNATURE in _alerts(up), "an alert")


def test_a_thousand_forged_messages_are_one_alert_and_one_line(up: Bench) -> None:
    """A flood fills neither the outbox nor the log."""
    before = len(up.coordinator.events)
    raw = sign_command(up.coordinator.command(start(new_id())), Ed25519PrivateKey.generate())
    for _ in range(1000):
        up.coordinator.publish(raw)
    up.coordinator.answer(up.coordinator.send(Ping()))
    assert len(up.coordinator.events) - before <= 4
    assert up.agent.log().count("unknown-key") <= 4


def test_a_command_for_another_board_has_no_effect(up: Bench) -> None:
    """Even with a good signature."""
    up.coordinator.send(start(new_id()), device="pi4")
    wait_until(lambda: Code.WRONG_DEVICE in _alerts(up), "an alert")


def test_an_expired_command_is_refused_with_a_reason(up: Bench) -> None:
    """Long past its deadline by the coordinator's own clock."""
    up.coordinator.answer(up.coordinator.send(Ping()))  # its acknowledgement brings the time
    past = datetime.now(timezone.utc) - timedelta(hours=1)
    run = new_id()
    up.coordinator.send(start(run), deadline=past)
    end = up.coordinator.last(run)
    assert isinstance(end, RunRejected)
    assert end.code is Code.EXPIRED
    command = up.coordinator.send(Ping(), deadline=past)
    assert _wait_for_refusal(up, command.id).code is Code.EXPIRED


def test_a_replayed_identity_is_refused(up: Bench) -> None:
    """An id, a nonce or a counter that another command had."""
    old = up.coordinator.send(Ping())
    up.coordinator.answer(old)
    same_nonce = up.coordinator.send(Ping(), nonce=old.nonce)
    same_counter = up.coordinator.send(Ping(), counter=old.counter)
    for command in (same_nonce, same_counter):
        assert _wait_for_refusal(up, command.id).code is Code.REPLAYED
    run = new_id()
    up.coordinator.send(start(run), id=old.id)
    assert _wait_for_refusal(up, old.id).code is Code.REPLAYED


@pytest.mark.parametrize("far", [2_000_000, -WINDOW - 10])
def test_a_counter_out_of_reach_is_refused(up: Bench, far: int) -> None:
    """The answer tells the highest counter seen, so that an honest sender finds its way."""
    up.coordinator.counter = max(up.coordinator.counter, 2 * WINDOW)
    up.coordinator.answer(up.coordinator.send(Ping()))
    command = up.coordinator.send(Ping(), counter=up.coordinator.counter + far)
    refusal = _wait_for_refusal(up, command.id)
    assert refusal.code is Code.COUNTER
    assert refusal.counter >= 2 * WINDOW


def test_commands_may_overtake_each_other(up: Bench) -> None:
    """A late one with an unused counter is followed."""
    early = up.coordinator.command(Ping())
    up.coordinator.answer(up.coordinator.send(Ping()))
    up.coordinator.publish(sign_command(early, up.coordinator.key))
    assert up.coordinator.answer(early).ok


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"model": "digits", "backend": "onnxruntime"}, Code.POLICY),
        ({"model": "digits"}, Code.POLICY),
        ({"model": "digits", "backend": "null", "min_duration_ms": 700_000}, Code.POLICY),
        ({"model": "digits", "backend": "null", "meter": "main"}, Code.POLICY),
        ({"model": "digits", "backend": "null", "data": "imagenet"}, Code.POLICY),
        ({"model": f"sha256:{'a' * 64}", "backend": "null"}, Code.SPEC),
        ({"model": "../digits", "backend": "null"}, Code.SPEC),
        ({"model": "digits", "backend": "null", "inputs_file": "/x"}, Code.SPEC),
    ],
    ids=str,
)
def test_the_boards_policy_wins(up: Bench, spec: dict[str, Any], code: Code) -> None:
    """A good signature does not help against the board's own file."""
    run = new_id()
    try:
        digest = spec_sha256(spec)
    except MessageError:
        digest = "0" * 64
    raw = _raw(up, {"run": run, "spec": spec, "spec_sha256": digest})
    up.coordinator.publish(raw)
    end = up.coordinator.last(run)
    assert isinstance(end, RunRejected)
    assert end.code is code


def test_a_spec_that_was_swapped_is_refused(up: Bench) -> None:
    """The digest of the spec belongs to the command."""
    run = new_id()
    spec = {"model": "digits", "backend": "null"}
    digest = spec_sha256(spec | {"seed": 1})
    up.coordinator.publish(_raw(up, {"run": run, "spec": spec, "spec_sha256": digest}))
    end = up.coordinator.last(run)
    assert isinstance(end, RunRejected)
    assert end.code is Code.SPEC


def test_a_forged_acknowledgement_forgets_nothing(up: Bench) -> None:
    """A broker cannot make a board drop results."""
    up.coordinator.acknowledges = False
    try:
        command = up.coordinator.send(Ping())
        up.coordinator.answer(command)
        event = up.coordinator.events[-1]
        ack = Ack(
            subject=f"{FLEET}/{DEVICE}",
            stream=event.stream,
            seqs=((0, 2**50),),
            time=datetime.now(timezone.utc),
        )
        up.coordinator.publish(sign_ack(ack, STRANGER), "ack")
        wait_until(lambda: Code.UNKNOWN_KEY in _alerts(up), "an alert")
        heard = up.coordinator.heard
        wait_until(lambda: up.coordinator.heard > heard, "the event is sent again")
    finally:
        up.coordinator.acknowledges = True


def test_a_random_flood_of_signed_duplicates(up: Bench) -> None:
    """The same command a thousand times is one effect and few answers."""
    command = up.coordinator.command(Ping(), nonce=secrets.token_hex(16))
    raw = sign_command(command, up.coordinator.key)
    before = up.coordinator.heard
    for _ in range(1000):
        up.coordinator.publish(raw)
    up.coordinator.answer(command)
    up.coordinator.answer(up.coordinator.send(Ping()))
    assert up.coordinator.heard - before < 20


def test_after_all_that_it_still_runs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A policy that allows the run lets it run."""
    with bench(tmp_path_factory.mktemp("well")) as together:
        assert isinstance(together.coordinator.last(together.coordinator.start_run()), RunResult)
