"""``result.json``: what is written is read again, and old readers read what new ones add."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf import InputError
from edgeperf.agent.result import (
    FORMAT_VERSION,
    Accuracy,
    File,
    Headline,
    LoadGen,
    Model,
    Percentiles,
    Performance,
    Reason,
    Result,
    ResultError,
    Severity,
    Status,
    Stopwatch,
    Sut,
    Tensor,
    Thread,
    Verdict,
    Worker,
    result_from_json,
    result_schema,
    result_to_json,
)

if TYPE_CHECKING:
    from conftest import Product

SCHEMA = Path(__file__).parents[1] / "docs" / "result.schema.json"
LATENCY = Percentiles(
    min=1.0, mean=2.5, p50=2.0, p90=3.0, p95=3.5, p97=3.7, p99=4.0, p99_9=5.0, max=9.0
)
FULL = Result(
    id="20261129T153837Z-digits-tflite-SingleStream-22291f",
    created="2026-11-29T15:38:40Z",
    edgeperf="0.1.0",
    verdict=Verdict(
        status=Status.SUSPECT,
        comparable=False,
        reasons=(Reason(code="foreign-load", severity=Severity.SUSPECT, text="3 %"),),
    ),
    spec={"model": "digits", "options": {"xnnpack": "on"}, "cores": [0, 1]},
    model=Model(
        name="digits",
        file="digits_f32.tflite",
        format=".tflite",
        sha256="0" * 64,
        size_bytes=155_632,
        precision="float",
        inputs=(Tensor(name="image", shape=(1, 8, 8, 1), dtype="int8", scale=0.1, zero_point=-3),),
        outputs=(Tensor(name="scores", shape=(1, 10), dtype="float32"),),
    ),
    task="digits",
    sut=Sut(
        backend="tflite",
        runtime="ai-edge-litert",
        version="2.3.0",
        device="CPU",
        precision="f32",
        delegates=("XNNPACK",),
        threads_per_worker=1,
        input_copy="runtime",
        timed=("inference",),
        options={"xnnpack": "auto"},
        notes=(),
        workers=(
            Worker(
                index=0,
                role="leader",
                cores=(1,),
                threads=(Thread(tid=7, name="python", cores=(1,)),),
            ),
        ),
    ),
    accuracy=Accuracy(measured=True, metric="top1", value=0.97, metrics={"top1": 0.97}),
    performance=Performance(
        headline=Headline(name="latency_p90_early_stopping", value=22_920.0, unit="ns"),
        queries=100,
        samples=100,
        duration_ns=2_000_000_000,
        throughput_sps=50.0,
        latency_ns=LATENCY,
        target_qps=None,
        target_latency_ns=None,
        calibrated_latency_ns=21_000.0,
        window_start_mono_ns=10,
        window_end_mono_ns=2_000_000_010,
        loadgen=LoadGen(
            version="6.0.17",
            valid=True,
            reasons=(),
            errors=(),
            settings={"min_duration_ms": 2000, "mode": "PerformanceOnly", "x": 0.5, "y": True},
            latency_ns={"p50": 2.0},
        ),
        stopwatch=Stopwatch(latency_ns=LATENCY, worst_difference_ns=900.0, agrees=True),
    ),
    board={"hostname": "pi", "cores": [{"core": 0}]},
    conditions={"foreign_share": 0.03},
    power=None,
    phases_ns={"prepare": 1, "performance": 2},
    files={"latencies.npz": File(sha256="1" * 64, size_bytes=12)},
)
EMPTY = msgspec.structs.replace(
    FULL,
    task=None,
    sut=None,
    accuracy=Accuracy(measured=False, why_not="no dataset"),
    performance=None,
    conditions=None,
    files={},
)


@pytest.mark.parametrize("result", [FULL, EMPTY], ids=["full", "empty"])
def test_result_survives_the_way_through_json(result: Result) -> None:
    """What is written is read again, equal; text for people ends in a newline."""
    raw = result_to_json(result)
    assert result_from_json(raw, where="here") == result
    assert raw.endswith(b"}\n")
    assert raw.startswith(b'{\n  "format_version": 1')


def objects(value: Any, kind: Any) -> Iterator[dict[str, Any]]:
    """Yield every JSON object in *value* that stands for a struct, as *kind* has it."""
    if isinstance(kind, msgspec.Struct):
        yield value
        for name in kind.__struct_fields__:
            yield from objects(value[name], getattr(kind, name))
    elif isinstance(kind, tuple):
        for inner, one in zip(value, kind, strict=True):
            yield from objects(inner, one)


@given(name=st.text(max_size=12).map("new_{}".format), extra=st.recursive(st.integers(), st.lists))
def test_fields_of_a_later_version_are_ignored(name: str, extra: Any) -> None:
    """A newer edgeperf may add fields anywhere without shutting out older readers."""
    data = json.loads(result_to_json(FULL))
    places = list(objects(data, FULL))
    assert len(places) > 10
    for place in places:
        place[name] = extra
    assert result_from_json(json.dumps(data).encode(), where="here") == FULL


def test_newer_format_is_refused() -> None:
    """A format that this edgeperf does not know is refused, not misread."""
    data = json.loads(result_to_json(FULL))
    data["format_version"] = FORMAT_VERSION + 1
    data["verdict"] = "something else entirely"
    with pytest.raises(ResultError, match=r"old/result\.json: format 2 .*upgrade"):
        result_from_json(json.dumps(data).encode(), where="old/result.json")


@pytest.mark.parametrize(
    ("status", "comparable"), [("VALID", False), ("INVALID", False), ("SUSPECT", True)]
)
def test_verdict_that_its_reasons_contradict_is_refused(status: str, comparable: bool) -> None:  # noqa: FBT001 - a case
    """Nobody reads VALID above a doubt, in ``show`` or elsewhere: the file was altered."""
    data = json.loads(result_to_json(FULL))
    data["verdict"] |= {"status": status, "comparable": comparable}
    with pytest.raises(ResultError, match=r"^old: was altered: it says"):
        result_from_json(json.dumps(data).encode(), where="old")


@given(raw=st.binary(max_size=100) | st.text(max_size=100).map(str.encode))
def test_anything_else_is_refused_by_name(raw: bytes) -> None:
    """Whatever a file holds, the error is ours and names the file."""
    with pytest.raises(ResultError, match=r"^there: "):
        result_from_json(raw, where="there")


@given(cut=st.integers(0, len(result_to_json(FULL)) - 3))
def test_cut_result_is_refused(cut: int) -> None:
    """A file that was not written whole is never read as a result."""
    with pytest.raises(ResultError):
        result_from_json(result_to_json(FULL)[:cut], where="here")


def test_result_error_is_bad_input() -> None:
    """The command line exits with 2."""
    assert issubclass(ResultError, InputError)


@pytest.mark.parametrize("result", [FULL, EMPTY], ids=["full", "empty"])
def test_result_fits_the_published_schema(result: Result) -> None:
    """The schema in docs/ is the one that the code means, and results fit it."""
    published = json.loads(SCHEMA.read_bytes())
    assert published == json.loads(msgspec.json.encode(result_schema()))
    jsonschema.Draft202012Validator.check_schema(published)
    jsonschema.validate(json.loads(result_to_json(result)), published)


def test_schema_refuses_what_is_no_result() -> None:
    """A validator that takes everything would prove nothing."""
    data = json.loads(result_to_json(FULL))
    for spoiled in (
        {**data, "verdict": {"status": "FINE"}},
        {name: value for name, value in data.items() if name != "accuracy"},
        {**data, "performance": {"queries": "many"}},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(spoiled, result_schema())


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["SingleStream", "MultiStream", "Offline", "Server"])
def test_real_result_fits_the_schema_and_is_shown_again(product: "Product", scenario: str) -> None:
    """A run's own result fits; ``show`` prints what the run printed, from the file alone."""
    quick = ("--preset", "smoke", "--min-duration", "0.5")
    outcome = product.run("digits", "--scenario", scenario, *quick)
    schema = json.loads(product.call("show", "--schema").stdout)
    raw = (outcome.directory / "result.json").read_text()
    jsonschema.validate(json.loads(raw), schema)
    assert product.call("show", str(outcome.directory), "--json").stdout == raw
    shown = product.call("show", f"edgeperf-results/{outcome.directory.name}")
    assert shown.code == 0
    assert shown.stdout == outcome.stdout
    told = ["LoadGen's, with handing over its list of samples", "from first issue to last answer"]
    assert all((words in shown.stdout) == (scenario == "Offline") for words in told)


@pytest.mark.slow
def test_json_on_standard_output_is_the_result(product: "Product") -> None:
    """``--json`` prints exactly result.json there, and everything else elsewhere."""
    outcome = product.run("digits", "--preset", "smoke", "--min-duration", "0.5", "--json")
    assert outcome.stdout == (outcome.directory / "result.json").read_text()
    assert "edgeperf: " in outcome.stderr


@pytest.mark.parametrize("name", ["nothing", "empty", "result.json"])
def test_show_refuses_what_is_no_result(product: "Product", name: str) -> None:
    """A missing path, an empty folder and another file: one line with the name."""
    (product.folder / "empty").mkdir()
    (product.folder / "result.json").write_text("{}")
    outcome = product.call("show", name)
    assert outcome.code == 2
    assert outcome.stdout == ""
    (line,) = outcome.stderr.splitlines()
    assert line.startswith(("edgeperf: result ", "edgeperf: result.json: "))
    assert name in line
