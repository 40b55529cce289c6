"""Constraints: every way to write one means one thing, and everything else is one line."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeperf.agent.decide.constraints import Op, parse, settle
from edgeperf.agent.decide.errors import DecideError
from edgeperf.agent.decide.names import SERVING, Names, metric, resolve, serving
from edgeperf.agent.decide.units import UNITS, Kind, text_of

NAMES = Names(serving=("p99",), metrics=frozenset({"top1", "mAP", "bleu", "recall[a<b]"}))
SPACE = st.sampled_from(["", " ", "  "])
NUMBER = st.floats(min_value=0, max_value=1e12)


@given(st.sampled_from(sorted(SERVING)), st.sampled_from(list(Op)), NUMBER, st.data())
def test_serving_constraint_reads_back(
    name: str, op: Op, number: float, data: st.DataObject
) -> None:
    """Name, comparison, number and any unit of its kind, with spaces between or none."""
    unit, size = data.draw(st.sampled_from(sorted(UNITS[SERVING[name][0]].items()) or [("", 1.0)]))
    gaps = [data.draw(SPACE) for _ in range(4)]
    text = f"{gaps[0]}{name}{gaps[1]}{op.value}{gaps[2]}{number!r}{gaps[3]}{unit}"
    never_kept = number == 0 and op is Op.BELOW
    if never_kept and SERVING[name][0] in (Kind.TIME, Kind.MEMORY, Kind.RATE):
        with pytest.raises(DecideError, match="never below 0"):
            settle(parse(text), serving(name))
        return
    limit = settle(parse(text), serving(name))
    assert (limit.op, limit.asked.name) == (op, name)
    assert limit.value == pytest.approx(number * size)


@given(st.text(max_size=30) | st.from_regex(r"[a-z@=0-9.]{0,9}[<>]=?[0-9.e]{0,6}[a-z%]{0,3}"))
def test_any_text_is_a_constraint_or_one_line(text: str) -> None:
    """Whatever is typed, the error is ours and the number is finite."""
    try:
        constraint = parse(text)
    except DecideError as error:
        assert str(error).startswith("constraint ")  # noqa: PT017 - any text may be right too
    else:
        assert math.isfinite(constraint.number)
        assert constraint.name


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("p99≤20ms", "p99", 20e6),
        ("p99<20\N{GREEK SMALL LETTER MU}s", "p99", 20e3),
        ("p99_9<1s", "p99.9", 1e9),
        ("latency_p99_ns<1s", "p99", 1e9),
        ("p90_latency<1s", "p90", 1e9),
        ("accuracy>=90%", "accuracy", 0.9),
        ("map>=.19", "mAP", 0.19),
        ("recall@precision=0.90 >= 0.8", "recall@precision=0.9", 0.8),
        ("recall@precision=9e-1[cat]>=0.8", "recall@precision=0.9[cat]", 0.8),
        ("recall[a<b]>=0.5", "recall[a<b]", 0.5),
        ("bleu>=30", "bleu", 30),
        ("peak_rss<64MiB", "peak_rss", 64 * 2**20),
    ],
)
def test_ways_to_write_one(text: str, name: str, value: float) -> None:
    """Other names, other signs, percent, a number in the name, a sign in a class's name."""
    constraint = parse(text)
    limit = settle(constraint, resolve(constraint.name, NAMES, where="here"))
    assert limit.asked.name == name
    assert limit.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("p99<20", "p99 needs a unit: ns, us, µs, ms, s"),
        ("p99<20W", "unit 'W' of p99: expected ns"),
        ("p99<20 m s", "is no number with a unit"),
        ("p99<", "is no number with a unit"),
        ("p99<-3ms", "p99 is never below 0"),
        ("p99<0ms", "p99 is never below 0"),
        ("p99<nan", "is no number with a unit"),
        ("p99<1e999ms", "too large a number"),
        ("p99=<20ms", "=< is no comparison"),
        ("<20ms", "no figure before <"),
        ("p99<<20ms", "expected NAME<VALUE"),
        ("p99", "expected NAME<VALUE"),
        ("accuracy>=90", "write 0.9 or 90%"),
        ("bleu>=30%", "unit '%' of bleu: it has no unit"),
        ("p98<20ms", "did you mean p9"),
        ("acuracy>0.5", "did you mean accuracy? These results have p99, bleu, mAP, top1 and 1 of"),
        ("recall@precision=1.5>=0.8", "1.5 is no share between 0 and 1"),
    ],
)
def test_bad_constraint_is_one_line(text: str, said: str) -> None:
    """The line has the constraint as it was written, and what was expected."""
    with pytest.raises(DecideError) as caught:
        settle(parse(text), resolve(parse(text).name, NAMES, where=f"constraint {text!r}"))
    assert said in str(caught.value)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("top1", "higher"),
        ("ece", "lower"),
        ("cost", "lower"),
        ("wer", "lower"),
        ("base_rate", None),
    ],
)
def test_metrics_know_which_way_is_better(name: str, better: str | None) -> None:
    """What describes the samples has no better side."""
    assert metric(name).better == better


def test_unit_is_that_of_what_is_shown() -> None:
    """Rounding into the next unit is shown in that unit."""
    assert text_of(Kind.TIME, 999_970.0, digits=3) == "1 ms"
    assert text_of(Kind.TIME, 999_970.0, digits=5) == "999.97 µs"


@given(st.sampled_from(list(Kind)), st.floats(min_value=1e-3, max_value=1e15))
def test_a_value_shown_is_the_value(kind: Kind, value: float) -> None:
    """What is printed, read again, is the value to the digits that are shown."""
    number, _, unit = text_of(kind, value).replace(",", "").removesuffix("/s").partition(" ")
    size = UNITS[kind].get(unit, 1e-9 if unit == "nJ" else 1)
    assert float(number) * size == pytest.approx(
        value, rel=1e-3, abs=1e-4 if kind is Kind.SHARE else 0
    )
