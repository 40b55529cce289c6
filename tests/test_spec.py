"""A run spec: checked once, on the way in, and never in doubt afterwards."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from edgeperf import InputError
from edgeperf.agent.spec import (
    Precision,
    Preset,
    RunSpec,
    Scenario,
    SpecError,
    check_asked,
    spec_from_json,
    spec_from_mapping,
)

WORDS = st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable())
COUNTS = st.integers(1, 4096)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "preset": st.sampled_from([member.value for member in Preset]),
    "backend": st.none() | WORDS,
    "precision": st.none() | st.sampled_from([member.value for member in Precision]),
    "task": st.none() | WORDS,
    "data": st.none() | WORDS,
    "shapes": st.dictionaries(WORDS, st.lists(st.integers(1, 4096), max_size=5), max_size=3),
    "cores": st.none() | st.lists(st.integers(0, 255), min_size=1, max_size=8),
    "workers": st.none() | COUNTS,
    "threads": COUNTS,
    "options": st.dictionaries(WORDS, st.text(max_size=20), max_size=3),
    "samples_per_query": COUNTS,
    "min_duration_ms": st.none() | st.integers(1, 86_400_000),
    "min_query_count": st.none() | st.integers(1, 1 << 26),
    "accuracy": st.booleans(),
    "gate": st.none() | st.floats(0, 1, exclude_min=True),
    "ungated": st.booleans(),
    "seed": st.integers(0, 2**63 - 1),
    "stall_s": st.floats(0, 86_400, exclude_min=True),
    "meter": st.none() | WORDS,
}
SPECS = st.fixed_dictionaries({"model": WORDS}, optional=VALUES)
SERVER = st.fixed_dictionaries(
    {"model": WORDS, "scenario": st.just("Server")},
    optional={
        "target_qps": st.none() | st.floats(0.01, 1e6),
        "target_latency_ms": st.none() | st.floats(0.01, 86_400_000),
    },
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


def test_model_is_all_that_must_be_said() -> None:
    """Every other field has its default, and the defaults are MLPerf's."""
    spec = spec_from_json('{"model": "digits"}')
    assert spec == RunSpec(model="digits")
    assert (spec.scenario, spec.preset) == (Scenario.SINGLE_STREAM, Preset.FAST)
    assert (spec.samples_per_query, spec.threads) == (8, 1)
    assert spec.gate is None  # the task's own
    assert spec.accuracy
    assert not spec.ungated


@given(fields=SPECS | SERVER)
def test_good_spec_survives_the_way_through_json(fields: dict[str, Any]) -> None:
    """What is written is read again, equal, from text and from parsed data alike."""
    spec = spec_from_mapping(fields)
    raw = msgspec.json.encode(spec)
    assert spec_from_json(raw) == spec
    assert spec_from_mapping(json.loads(raw)) == spec
    assert spec.model == fields["model"]


@given(raw=st.binary() | st.text() | JSON.map(json.dumps))
def test_any_text_is_a_spec_or_a_spec_error(raw: bytes | str) -> None:
    """Untrusted text never raises anything else, and the message is one line."""
    try:
        assert isinstance(spec_from_json(raw), RunSpec)
    except SpecError as error:
        assert "\n" not in str(error)  # noqa: PT017 - not raising is right as well


@given(field=st.sampled_from(sorted(VALUES)), value=JSON)
def test_any_value_of_a_field_is_taken_or_named(field: str, value: Any) -> None:
    """A field of the wrong type or out of range is refused, and the message names it."""
    try:
        spec_from_json(json.dumps({"model": "digits", field: value}))
    except SpecError as error:
        assert field in str(error) or "JSON" in str(error)  # noqa: PT017 - as above


@given(name=st.text(max_size=20), value=JSON)
def test_unknown_field_is_refused(name: str, value: Any) -> None:
    """A misspelt field is an error, not a default."""
    assume(name not in RunSpec.__struct_fields__)
    with pytest.raises(SpecError):
        spec_from_json(json.dumps({"model": "digits", name: value}))


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"model": ""}, "model"),
        ({"model": None}, "model"),
        ({"scenario": "singlestream"}, "scenario"),
        ({"preset": "VALID"}, "value 'VALID'; expected fast, smoke or valid - at .*preset"),
        ({"clock_hz": "least"}, "value 'least'; expected a number or max - at .*clock_hz"),
        ({"threads": 0}, "threads"),
        ({"threads": 1.5}, "threads"),
        ({"threads": True}, "threads"),
        ({"threads": "1"}, "threads"),
        ({"workers": 4097}, "workers"),
        ({"gate": 0}, "gate"),
        ({"gate": 1.01}, "gate"),
        ({"seed": -1}, "seed"),
        ({"stall_s": 0}, "stall_s"),
        ({"min_duration_ms": 0}, "min_duration_ms"),
        ({"min_duration_ms": 86_400_001}, "min_duration_ms"),
        ({"min_query_count": (1 << 26) + 1}, "min_query_count"),
        ({"cores": []}, "cores"),
        ({"cores": [0.5]}, "cores"),
        ({"shapes": {"x": [1, "2"]}}, "shapes"),
        ({"options": {"x": 1}}, "options"),
        ({"data": "a.npz", "inputs_file": "b.npz"}, "inputs_file"),
        ({"target_qps": 10}, "target_qps"),
        ({"target_latency_ms": 10}, "target_latency_ms"),
        ({"scenario": "Server", "target_qps": 0}, "target_qps"),
        ({"scenario": "Server", "target_qps": 1e7}, "target_qps"),
        ({"scenario": "Server", "target_latency_ms": 0}, "target_latency_ms"),
        ({"format_version": 1}, "format_version"),
    ],
    ids=str,
)
def test_wrong_field_is_named(changes: dict[str, Any], names: str) -> None:
    """Type, range and combination: the user learns which field it is."""
    with pytest.raises(SpecError, match=names):
        spec_from_mapping({"model": "digits"} | changes)
    with pytest.raises(SpecError, match=names):
        spec_from_json(json.dumps({"model": "digits"} | changes))


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"samples_per_query": 4}, "samples_per_query"),
        ({"accuracy": False, "gate": 0.9}, "gate"),
        ({"accuracy": False, "ungated": True}, "ungated"),
        ({"task": "digits", "seed": 5}, "seed"),
        ({"inputs_file": "a.npz", "seed": 5}, "seed"),
    ],
    ids=str,
)
def test_what_means_nothing_is_not_asked_and_still_read(
    changes: dict[str, Any], names: str
) -> None:
    """An older edgeperf ran it: results and frozen specs with it are read."""
    spec = spec_from_mapping({"model": "digits"} | changes)
    with pytest.raises(SpecError, match=f"^{names}: means nothing"):
        check_asked(spec)
    check_asked(spec_from_json(msgspec.json.encode(RunSpec(model="digits"))))
    check_asked(RunSpec(model="a", scenario=Scenario.MULTI_STREAM, samples_per_query=4, seed=5))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("field", ["gate", "stall_s", "target_qps"])
def test_number_that_is_none_is_refused(field: str, number: str) -> None:
    """Neither text nor parsed data can smuggle in what is no number."""
    text = f'{{"model": "digits", "scenario": "Server", "{field}": {number}}}'
    with pytest.raises(SpecError):
        spec_from_json(text)
    with pytest.raises(SpecError):
        spec_from_mapping(json.loads(text))


def test_depth_and_length_are_no_attack() -> None:
    """Deep nesting and very long values are refused like any other wrong value."""
    for value in ("[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"x":' * 50_000):
        with pytest.raises(SpecError):
            spec_from_json('{"model": "digits", "shapes": ' + value)
    with pytest.raises(SpecError):
        spec_from_json('{"model": "digits", "seed": ' + "9" * 5_000 + "}")


def test_spec_error_is_bad_input() -> None:
    """The command line exits with 2."""
    assert issubclass(SpecError, InputError)
    assert SpecError.exit_code == 2


def test_spec_never_changes() -> None:
    """What was checked stays as it was."""
    spec = RunSpec(model="digits")
    with pytest.raises(AttributeError):
        spec.threads = 4  # type: ignore[misc]
