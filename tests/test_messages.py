"""The wire's structures: every one survives the way there, and nothing else gets through."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fleet_bench import validator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from edgeperf import InputError
from edgeperf.agent.messages import (
    COMMANDS,
    EVENTS,
    MAX_MESSAGE_BYTES,
    REPLY,
    REQUEST,
    Ack,
    BlobStatus,
    Clock,
    Code,
    Command,
    EnrolRequest,
    Event,
    MessageError,
    Ping,
    RunAccepted,
    RunStart,
    encode_event,
    key_id,
    new_code,
    new_id,
    normalise_code,
    parse_ack,
    parse_blob_init,
    parse_command,
    parse_coordinator_state,
    parse_description,
    parse_device_topic,
    parse_event,
    parse_state,
    parse_telemetry,
    ranges,
    run_start,
    seal,
    sign_ack,
    sign_command,
    spec_sha256,
    spec_to_wire,
    stream_and_seq,
    unseal,
    wire_spec,
)
from edgeperf.agent.messages.asyncapi import document, schemas, short_name, write
from edgeperf.agent.spec import RunSpec

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEYS = {key_id(KEY.public_key()): KEY.public_key()}
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
SHA = "a" * 64
HERE: dict[str, str] = {"fleet": "lab", "device": "pi5"}


def _command(data: Any = Ping(), **changes: Any) -> Command:  # noqa: B008 - frozen
    command = Command(
        id=new_id(),
        fleet="lab",
        device="pi5",
        nonce="0" * 32,
        issued=NOW,
        deadline=NOW,
        counter=1,
        data=data,
    )
    return msgspec.structs.replace(command, **changes)


def _event(data: Any = RunAccepted(), **changes: Any) -> Event:  # noqa: B008 - frozen
    event = Event(
        id=new_id(),
        fleet="lab",
        device="pi5",
        time=NOW,
        stream=new_id(),
        seq=7,
        session=new_id(),
        clock=Clock(mono_ns=1, boot="b", synced=True),
        data=data,
    )
    return msgspec.structs.replace(event, **changes)


#: One value for each required field of any message, by the field's name.
_VALUES: dict[str, Any] = {
    "run": "0" * 36,
    "spec": {"model": "digits"},
    "spec_sha256": spec_sha256({"model": "digits"}),
    "model": {"sha256": SHA, "size_bytes": 3, "format": "tflite"},
    "code": "policy",
    "reason": "because",
    "temperature_c": 50.0,
    "target_c": 45.0,
    "phase": "performance",
    "percent": 12.5,
    "lines": ["a"],
    "status": "VALID",
    "exit_code": 0,
    "result": {"any": "thing"},
    "files": [{"name": "a/b.npz", "sha256": SHA, "size_bytes": 1}],
    "duration_s": 1.5,
    "error_class": "user",
    "message": "no",
    "command": "0" * 36,
    "name": "ping",
    "ok": True,
    "text": "t",
}


def example(kind: type[msgspec.Struct]) -> Any:
    """Return a value of a message's data, its required fields filled."""
    fields = msgspec.structs.fields(kind)
    needed = {f.name: _VALUES[f.name] for f in fields if f.required}
    return msgspec.convert(needed, kind)


@pytest.mark.parametrize("kind", EVENTS.values(), ids=EVENTS)
def test_every_event_survives_the_way(kind: type[msgspec.Struct]) -> None:
    """What a board says is what a coordinator reads."""
    event = _event(example(kind), run=new_id(), attempt=2)
    raw = encode_event(event)
    assert parse_event(raw, **HERE) == event
    validator(short_name(event.type)).validate(json.loads(raw))


@pytest.mark.parametrize("kind", COMMANDS.values(), ids=COMMANDS)
def test_every_command_survives_the_way(kind: type[msgspec.Struct]) -> None:
    """What a coordinator signs is what a board reads."""
    command = _command(example(kind))
    raw = sign_command(command, KEY)
    assert parse_command(raw, KEYS, **HERE) == command
    validator(short_name(command.type)).validate(json.loads(raw))


def test_unknown_fields_are_ignored() -> None:
    """An older reader understands a newer writer."""
    document = json.loads(encode_event(_event()))
    document |= {"new": 1}
    document["data"] |= {"newer": [2]}
    assert parse_event(json.dumps(document).encode(), **HERE).seq == 7


def test_an_event_of_an_unknown_type_can_be_set_aside() -> None:
    """It is refused with a code of its own, and its place in the stream is known."""
    document = json.loads(encode_event(event := _event())) | {"type": "edgeperf.run.danced.v9"}
    raw = json.dumps(document).encode()
    with pytest.raises(MessageError) as caught:
        parse_event(raw, **HERE)
    assert caught.value.code is Code.UNKNOWN_TYPE
    assert stream_and_seq(raw) == (event.stream, 7)


def test_an_event_on_anothers_topic_is_refused() -> None:
    """A board speaks for itself only."""
    with pytest.raises(MessageError) as caught:
        parse_event(encode_event(_event()), fleet="lab", device="other")
    assert caught.value.code is Code.WRONG_DEVICE


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"counter": 2}, Code.BAD_SIGNATURE),
        ({"new": 1}, Code.BAD_SIGNATURE),
        ({"key": "0" * 16}, Code.UNKNOWN_KEY),
        ({"sig": None}, Code.UNSIGNED),
        ({"sig": "AAAA"}, Code.BAD_SIGNATURE),
        ({"sig": "!"}, Code.BAD_SIGNATURE),
    ],
)
def test_an_altered_command_is_refused(change: dict[str, Any], code: Code) -> None:
    """The signature covers every field, also those that nobody knows."""
    document = json.loads(sign_command(_command(), KEY)) | change
    with pytest.raises(MessageError) as caught:
        parse_command(json.dumps(document).encode(), KEYS, **HERE)
    assert caught.value.code is code


def test_the_spelling_of_a_command_does_not_matter() -> None:
    """Other white space and another order of the fields are the same document."""
    document = json.loads(sign_command(command := _command(), KEY))
    spelt = json.dumps(dict(reversed(document.items())), indent=3).encode()
    assert parse_command(spelt, KEYS, **HERE) == command


def test_a_field_given_twice_is_read_once() -> None:
    """The document that was verified is the one that is acted on."""
    raw = sign_command(_command(counter=1), KEY)
    doubled = raw.replace(b'"counter":1', b'"counter":9,"counter":1')
    assert parse_command(doubled, KEYS, **HERE).counter == 1
    doubled = raw.replace(b'"counter":1', b'"counter":1,"counter":9')
    with pytest.raises(MessageError):
        parse_command(doubled, KEYS, **HERE)


def test_a_command_for_another_board_is_refused() -> None:
    """The name of the board is signed too."""
    raw = sign_command(_command(device="pi4"), KEY)
    with pytest.raises(MessageError) as caught:
        parse_command(raw, KEYS, **HERE)
    assert caught.value.code is Code.WRONG_DEVICE


def test_an_acknowledgement_is_not_a_command() -> None:
    """A signature for one purpose is none for the other."""
    ack = Ack(subject="lab/pi5", stream=new_id(), seqs=((1, 2),), time=NOW)
    raw = sign_ack(ack, KEY)
    assert parse_ack(raw, KEYS, **HERE) == ack
    validator("ack").validate(json.loads(raw))
    for parse, other in ((parse_command, raw), (parse_ack, sign_command(_command(), KEY))):
        with pytest.raises(MessageError) as caught:
            parse(other, KEYS, **HERE)
        assert caught.value.code is Code.BAD_SIGNATURE


def test_a_blob_status_survives_the_way() -> None:
    """The other message on the same topic is told apart."""
    status = BlobStatus(subject="lab/pi5", sha256=SHA, missing=((0, 9),), complete=False)
    raw = sign_ack(status, KEY)
    assert parse_ack(raw, KEYS, **HERE) == status
    validator("blob-status").validate(json.loads(raw))


PARSERS: dict[str, Callable[[bytes], object]] = {
    "event": lambda raw: parse_event(raw, **HERE),
    "command": lambda raw: parse_command(raw, KEYS, **HERE),
    "ack": lambda raw: parse_ack(raw, KEYS, **HERE),
    "state": parse_state,
    "coordinator": parse_coordinator_state,
    "description": parse_description,
    "telemetry": parse_telemetry,
    "blob": parse_blob_init,
    "box": lambda raw: unseal(raw, "00000-00000", REQUEST, EnrolRequest),
}
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
#: The machine may be busy with a benchmark.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
_FIELDS = st.sampled_from(
    ["id", "type", "source", "data", "seq", "sig", "key", "clock", "time", "salt", "nonce", "box"]
)

_RAW = st.binary(max_size=300) | st.dictionaries(_FIELDS, _JSON).map(
    lambda document: json.dumps(document).encode()
)


@pytest.mark.parametrize("name", [name for name in PARSERS if name != "box"])
@given(raw=_RAW)
@_PATIENT
def test_any_bytes_parse_or_raise_one_clean_error(name: str, raw: bytes) -> None:
    """Whatever comes, a parser returns a structure or raises a MessageError."""
    with contextlib.suppress(MessageError):
        PARSERS[name](raw)


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[" * 50_000,
        b'{"a":' * 15_000 + b"1" + b"}" * 15_000,
        b'{"data":' + b"[" * 100 + b"]" * 100 + b"}",
        b'{"id":"\xff"}',
        b'{"seq":1e999}',
        b'{"seq":' + b"9" * 4000 + b"}",
        b" " * (MAX_MESSAGE_BYTES + 1),
    ],
    ids=lambda raw: f"{raw[:12]!r}-{len(raw)}",
)
def test_bombs_are_refused(name: str, raw: bytes) -> None:
    """Size, depth and numbers out of range end in the same clean error."""
    with pytest.raises(MessageError):
        PARSERS[name](raw)


@given(change=st.dictionaries(_FIELDS, _JSON, min_size=1))
@_PATIENT
def test_a_signed_command_with_any_change_is_refused(change: dict[str, Any]) -> None:
    """No field of a signed command can be replaced."""
    document = json.loads(sign_command(_command(), KEY))
    altered = document | change
    if altered == document:
        return
    with pytest.raises(MessageError):
        parse_command(json.dumps(altered).encode(), KEYS, **HERE)


@pytest.mark.parametrize(
    "bad",
    [
        {"model": "/etc/passwd"},
        {"model": "../m.tflite"},
        {"model": "m.tflite"},
        {"model": "sha256:xyz"},
        {"model": "digits", "data": "/data"},
        {"model": "digits", "data": "a\\b"},
        {"model": "digits", "inputs_file": "x.npz"},
        {"model": "digits", "parts": {"decoder": "decoder.onnx"}},
        {"model": "digits", "shapes": {"a/../../x": [1]}},
        {"model": "digits", "meter": "ina226:/dev/i2c-1"},
        {"model": "digits", "meter": "sim:,seed=1"},
        {"model": "digits", "options": {"delegate": "libevil.so"}},
        {"model": "digits", "options": {"delegate": "/tmp/x"}},
        {"model": "digits", "options": {"delegate": "libevil.so.1"}},
        {"model": "digits", "options": {"../x": "1"}},
        {"model": "digits", "task": "os:system"},
        {"model": "digits", "backend": "edgeperf.evil:Backend"},
        {"model": "digits", "shell": "rm -rf /"},
        {"model": 3},
        {},
    ],
    ids=str,
)
def test_no_spec_on_the_wire_names_a_file(bad: dict[str, Any]) -> None:
    """Paths, libraries, devices and Python objects are refused, whatever the field."""
    with pytest.raises(MessageError) as caught:
        wire_spec(bad)
    assert caught.value.code is Code.SPEC


@pytest.mark.parametrize("field", RunSpec.__struct_fields__)
def test_no_field_of_a_spec_takes_a_path_off_the_wire(field: str) -> None:
    """Each field that there is, as a value and, where it is a table, as key and value."""
    path = "/etc/x"
    keyed = [{path: value} for value in (1, "1", [1], f"sha256:{SHA}", None)]
    for value in (path, [path], {"x": path}, {"x": [path]}, *keyed):
        with pytest.raises(MessageError, match=field) as caught:
            wire_spec({"model": "digits", field: value})
        assert caught.value.code is Code.SPEC


def test_parts_and_shapes_may_come_over_the_wire() -> None:
    """Parts by their digest, inputs by the names that runtimes give them."""
    parts = {"decoder": f"sha256:{SHA}"}
    spec = wire_spec({"model": "digits", "parts": parts, "shapes": {"model/in_1:0": [1, 2]}})
    assert spec.parts == parts
    assert spec.shapes == {"model/in_1:0": (1, 2)}


def test_a_spec_has_one_identity_however_it_is_written() -> None:
    """Defaults that are spelt out do not change what is asked."""
    spec = RunSpec(model="digits", threads=2)
    short = spec_to_wire(spec)
    assert short == {"model": "digits", "threads": 2}
    assert spec_sha256(short) == spec_sha256(short | {"seed": 0})
    assert spec_sha256(short) != spec_sha256(short | {"seed": 1})
    assert wire_spec(short) == spec
    assert run_start(short, run=new_id()).spec_sha256 == spec_sha256(short)


@given(st.lists(st.integers(0, 60)))
@_PATIENT
def test_ranges_cover_exactly_what_they_are_given(seqs: list[int]) -> None:
    """No number too many, none too few, and none twice."""
    covered = [n for first, last in ranges(seqs) for n in range(first, last + 1)]
    assert covered == sorted(set(seqs))


def test_ids_sort_by_time_and_never_repeat() -> None:
    """They are UUIDs of version 7."""
    ids = [new_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(id_[14] == "7" and id_[19] in "89ab" for id_ in ids)
    assert [id_[:11] for id_ in ids] == sorted(id_[:11] for id_ in ids)


@pytest.mark.parametrize(
    "topic", ["", "a/b", "edgeperf/v1/lab/dev/pi5/evt/x", "edgeperf/v1/LAB/dev/p/evt"]
)
def test_topics_of_others_are_refused(topic: str) -> None:
    """Only a board's own topics are taken apart."""
    with pytest.raises(MessageError):
        parse_device_topic(topic)


def test_a_blob_topic_fits_the_smallest_limits() -> None:
    """AWS IoT takes seven slashes and 256 bytes."""
    topic = f"edgeperf/v1/{'f' * 40}/dev/{'d' * 40}/blob/{SHA}/{10**14}"
    assert parse_device_topic(topic).part == str(10**14)
    assert len(topic) <= 256
    assert topic.count("/") <= 7


def test_an_enrolment_opens_with_its_code_only() -> None:
    """Another code, another purpose or a changed byte opens nothing."""
    code, request = new_code(), EnrolRequest(device="pi5", agent="1")
    box = seal(request, code, REQUEST)
    assert (
        unseal(box, normalise_code(code.lower().replace("-", " ")), REQUEST, EnrolRequest)
        == request
    )
    for raw, other, purpose in ((box, new_code(), REQUEST), (box, code, REPLY)):
        with pytest.raises(MessageError) as caught:
            unseal(raw, other, purpose, EnrolRequest)
        assert caught.value.code is Code.BAD_SIGNATURE


@pytest.mark.parametrize("typed", ["", "ABCD", "AAAAA-AAAA!", "U" * 10])
def test_what_cannot_be_a_code_is_said_at_once(typed: str) -> None:
    """A typing error costs no try."""
    with pytest.raises(InputError, match="code"):
        normalise_code(typed)


def test_the_wire_loads_nothing_heavy() -> None:
    """Neither numpy nor an MQTT client nor a runtime comes with the messages."""
    heavy = {"numpy", "paho", "onnxruntime", "openvino", "ai_edge_litert", "rich", "mlperf_loadgen"}
    code = f"import sys, edgeperf.agent.messages; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_run_start_defaults() -> None:
    """A retry is told by its attempt only."""
    start = run_start({"model": "digits"}, run=new_id())
    assert isinstance(start, RunStart)
    assert start.attempt == 1


DOCS = Path(__file__).parent.parent / "docs"


def test_the_published_description_is_current(tmp_path: Path) -> None:
    """What ``docs/`` says is what the code says."""
    again = "run: python -m edgeperf.agent.messages.asyncapi docs"
    written = write(tmp_path)
    for path in written:
        published = DOCS / path.relative_to(tmp_path)
        assert published.read_text() == path.read_text(), again
    names = {path.name for path in (DOCS / "schemas").iterdir()}
    assert names == {path.name for path in written if path.parent.name == "schemas"}, again


@pytest.mark.parametrize("name", schemas())
def test_every_schema_is_one(name: str) -> None:
    """It is valid JSON Schema, and says no to what is no such message."""
    Draft202012Validator.check_schema(schemas()[name])
    assert not validator(name).is_valid({})
    assert not validator(name).is_valid([])


def test_every_reference_of_the_description_leads_somewhere() -> None:
    """Channels name messages, operations name channels, messages name schema files."""
    described = document()

    def check(node: object) -> None:
        if isinstance(node, dict):
            reference = node.get("$ref")
            if reference is not None and reference.startswith("#/"):
                target: Any = described
                for part in reference[2:].split("/"):
                    target = target[part]
            elif reference is not None:
                assert (DOCS / reference).is_file()
            for child in node.values():
                check(child)

    check(described)
    assert {short_name(name) for name in (*EVENTS, *COMMANDS)} <= set(schemas())
