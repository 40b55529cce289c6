"""A frozen spec's file: one canonical form, one digest, and nothing else is believed."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from edgeperf.agent.freeze.board_checks import meter_findings
from edgeperf.agent.freeze.document import (
    Clock,
    Execution,
    FrozenModel,
    FrozenSpec,
    FrozenTask,
    Machine,
    Origin,
    Software,
    canonical,
    digest_of,
    frozen_from_json,
    frozen_to_json,
    is_frozen,
    sealed,
)
from edgeperf.agent.result import Data, ModelPart
from edgeperf.agent.spec import RunSpec, SpecError

SPEC = sealed(
    FrozenSpec(
        origin=Origin(result="one", created="now", status="VALID", hostname="pi"),
        run=RunSpec(model="digits", stall_s=60.0, cores=(1, 2)),
        model=FrozenModel(
            name="digits",
            file="digits.tflite",
            sha256="0" * 64,
            size_bytes=12,
            parts=(ModelPart(name="decoder", file="d", sha256="1" * 64, size_bytes=3),),
        ),
        task=FrozenTask(name="digits"),
        data=Data(sha256="2" * 64, size_bytes=99, samples=360),
        software=Software(
            edgeperf="0.1.0",
            runtime="ai-edge-litert",
            runtime_version="2.3.0",
            python="3.11.7",
            packages={"numpy": "2.4.6"},
            os="Debian",
            kernel="6.12",
            kernel_build="#1",
            libc="glibc 2.36",
        ),
        execution=Execution(
            device="CPU",
            precision="f32",
            delegates=("XNNPACK",),
            options={"xnnpack": "auto"},
            input_copy="none",
            batch=1,
        ),
        workers=((1,), (2,)),
        machine=Machine(
            model="Raspberry Pi 5 Model B Rev 1.0",
            revision="d04170",
            cpu="Cortex-A76",
            cores=4,
            arch="aarch64",
            pointer_bits=64,
            memory_bytes=8_000_000_000,
            microcode=None,
            l4t=None,
            jetpack=None,
            power_mode=None,
            boost=None,
            virtualisation=(),
        ),
        clocks=(
            Clock(
                cores=(0, 1, 2, 3),
                governor="performance",
                min_hz=1_500_000_000,
                max_hz=2_400_000_000,
                hardware_max_hz=2_400_000_000,
            ),
        ),
    )
)
DOCUMENT: dict[str, Any] = json.loads(frozen_to_json(SPEC))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), inner)
    ),
    max_leaves=12,
)


def leaves(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value of a document that is no table."""
    if isinstance(node, dict) and node:
        for name, inner in node.items():
            yield from leaves(inner, (*path, name))
    elif isinstance(node, list) and node:
        for place, inner in enumerate(node):
            yield from leaves(inner, (*path, place))
    else:
        yield path


PATHS = list(leaves(DOCUMENT))


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Return the document with one value changed."""
    document = copy.deepcopy(DOCUMENT)
    node = document
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    return document


@given(document=st.dictionaries(st.text(max_size=5), JSON), indent=st.none() | st.integers(0, 4))
def test_spelling_does_not_count(document: dict[str, Any], indent: int | None) -> None:
    """White space, the order of keys and escapes leave the canonical form as it is."""
    turned = dict(reversed(document.items()))
    again = json.loads(json.dumps(turned, indent=indent))
    assert canonical(again) == canonical(document)
    assert json.loads(canonical(document)) == document


@given(number=st.integers(-(2**53) + 1, 2**53 - 1))
def test_whole_numbers_are_the_same_with_and_without_a_point(number: int) -> None:
    """``60`` and ``60.0`` are one value: tools that print JSON anew change that."""
    assert canonical({"a": float(number)}) == canonical({"a": number})


@given(first=JSON, second=JSON)
def test_other_values_have_another_form(first: Any, second: Any) -> None:
    """Two documents have the same form only if they are equal, down to true and 1."""
    assume(first != second)
    assert canonical(first) != canonical(second)


def test_true_is_not_one() -> None:
    """Python holds them equal; a spec does not."""
    assert canonical([True, False]) != canonical([1, 0])


@given(path=st.sampled_from(PATHS), value=JSON)
def test_every_value_is_under_the_digest(path: tuple[Any, ...], value: Any) -> None:
    """Whatever is changed shows, but for the digest itself and where the spec came from."""
    document = changed(path, value)
    outside = path[0] in ("digest", "origin")
    same = canonical(document) == canonical(DOCUMENT)
    assert (digest_of(document) == SPEC.digest) is (outside or same)


@given(path=st.sampled_from(PATHS), value=JSON)
def test_any_value_is_read_or_refused(path: tuple[Any, ...], value: Any) -> None:
    """An edited file is a spec that says so, or one line; never anything else."""
    raw = json.dumps(changed(path, value)).encode()
    try:
        file = frozen_from_json(raw, where="here")
    except SpecError as error:
        assert "here" in str(error) or "run spec" in str(error) or path[0] == "run"  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017 - not raising is right as well
    else:
        assert file.found_digest == digest_of(json.loads(raw))


@given(raw=st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_spec_or_an_error(raw: bytes) -> None:
    """Untrusted bytes raise one kind of error."""
    assert not is_frozen(raw) or raw.lstrip().startswith(b"{")
    with pytest.raises(SpecError):
        frozen_from_json(raw, where="here")


def test_file_survives_the_way_to_the_disk() -> None:
    """What is written is read again, equal, and intact."""
    file = frozen_from_json(frozen_to_json(SPEC), where="here")
    assert file.spec == SPEC
    assert file.is_intact
    assert sealed(SPEC) == SPEC
    other = msgspec.structs.replace(SPEC.origin, result="two", hostname="other")
    assert sealed(msgspec.structs.replace(SPEC, origin=other)).digest == SPEC.digest


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"frozen_spec": 2}, "format 2 is newer than this edgeperf reads (1)"),
        ({"frozen_spec": None}, "frozen_spec is None, expected 1"),
        ({"extra": 1}, "unknown field `extra`"),
        ({"workers": "all"}, "`$.workers`"),
    ],
)
def test_what_it_cannot_read_is_named(change: dict[str, Any], words: str) -> None:
    """A file of another version, or with another field, is no spec."""
    with pytest.raises(SpecError) as caught:
        frozen_from_json(json.dumps(DOCUMENT | change).encode(), where="here")
    assert words in str(caught.value)


@pytest.mark.parametrize("port", ["/dev/null", "/no/such/place"])
def test_a_port_that_only_the_spec_names_is_not_looked_for(port: str) -> None:
    """Whether a file is there is not for who sent the spec to know; the meter is missing."""
    run = msgspec.structs.replace(SPEC.run, meter=f"ina226:{port},shunt=0.01")
    spec = msgspec.structs.replace(SPEC, run=run)
    (found,) = meter_findings(spec, SPEC.run)
    assert (found.where, found.found, found.is_held) == ("kind and settings", "none", False)
    assert port not in str(found)
    named = list(meter_findings(spec, run))
    assert named[0].is_held
    assert len(named) == 1 + (port == "/no/such/place")
