"""ONNX: reading the graph without the ``onnx`` package, and running small models made here."""

import struct
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("hypothesis", reason="the fuzz tests need hypothesis")

from hypothesis import given, settings
from hypothesis import strategies as st

from edgeperf import InputError
from edgeperf.backends import open_backend, protobuf
from edgeperf.backends.base import (
    BackendError,
    BackendMissingError,
    ModelError,
    Session,
    SessionOptions,
)
from edgeperf.backends.onnx_binding import MOST_BINDINGS
from edgeperf.backends.onnx_graph import parse_onnx
from edgeperf.backends.protobuf import Message, read_varint
from edgeperf.datasets.tensors import Quantisation

FLOAT, INT8, INT64, TEXT = 1, 3, 7, 8


def varint(number: int) -> bytes:
    """Encode a number as Protocol Buffers do."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: int | bytes | str) -> bytes:
    """Encode one field, a number or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def value(name: str, kind: int, *axes: int | str) -> bytes:
    """Encode a ``ValueInfoProto``; an axis is a size or a name."""
    dims = b"".join(
        field(1, field(1, axis) if isinstance(axis, int) else field(2, axis)) for axis in axes
    )
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


def node(operator: str, inputs: list[str], outputs: list[str], domain: str = "") -> bytes:
    """Encode a ``NodeProto``."""
    ends = b"".join(field(1, name) for name in inputs) + b"".join(field(2, n) for n in outputs)
    return field(1, ends + field(4, operator) + (field(7, domain) if domain else b""))


def scalar(name: str, kind: int, payload: bytes) -> bytes:
    """Encode a weight with one element."""
    return field(5, field(2, kind) + field(8, name) + payload)


def model(graph: bytes, *domains: str) -> memoryview:
    """Encode a ``ModelProto`` of operator set 13, and of other domains."""
    sets = [field(1, domain) + field(2, 1) for domain in domains]
    named = field(2, "graph") + graph
    return memoryview(
        field(1, 8) + field(7, named) + b"".join(field(8, s) for s in [field(2, 13), *sets])
    )


# Protocol Buffers


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_numbers_survive_the_encoding(number: int) -> None:
    """Every signed 64-bit number comes back."""
    raw = varint(number)
    assert read_varint(memoryview(raw), 0) == (number, len(raw))


def test_fields_of_every_kind_are_read() -> None:
    """Numbers, bytes, fixed widths, packed lists, repeats; the last of a single one counts."""
    raw = (
        field(1, 5)
        + field(1, 7)
        + field(2, "text")
        + varint(3 << 3 | 5)
        + struct.pack("<i", -3)
        + varint(4 << 3 | 1)
        + struct.pack("<q", 1 << 40)
        + field(5, varint(1) + varint(300))
        + field(5, 2)
    )
    message = Message(memoryview(raw))
    assert message.number(1) == 7
    assert message.text(2) == "text"
    assert message.number(3) == -3
    assert message.number(4) == 1 << 40
    assert message.numbers(5) == (1, 300, 2)
    assert message.number(9) == 0
    assert message.text(9) == ""


@pytest.mark.parametrize(
    "raw",
    [
        b"\x80",  # a tag that does not end
        b"\x08\xff",  # a number that does not end
        b"\x0a\x05ab",  # a length that leaves the message
        b"\x0b",  # a group, long forbidden
        b"\x0d\x00",  # half of a fixed number
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a negative length
    ],
)
def test_a_damaged_message_is_an_error_of_its_own(raw: bytes) -> None:
    """Nothing but ``DamagedError`` comes out of a bad message."""
    with pytest.raises(protobuf.DamagedError):
        Message(memoryview(raw))


@given(st.binary(max_size=200))
def test_any_bytes_parse_or_are_damaged(raw: bytes) -> None:
    """No other exception, no endless loop."""
    try:
        parse_onnx(memoryview(raw))
    except protobuf.DamagedError:
        return


# ONNX


def test_free_axes_and_weights_listed_as_inputs() -> None:
    """Old exporters list weights among the inputs; a size of 0 or a name is a free axis."""
    graph = (
        field(11, value("x", 1, "N", 3, "H", 0))
        + field(11, value("w", 1, 3))
        + scalar("w", 1, field(1, 3) + field(9, bytes(12)))
        + node("Conv", ["x", "w"], ["y"])
        + field(12, value("y", 1, "N", 10))
    )
    read = parse_onnx(model(graph))
    assert [(spec.name, spec.shape) for spec in read.inputs] == [("x", (-1, 3, -1, -1))]
    assert read.outputs[0].shape == (-1, 10)
    assert read.free_axes == {("x", 0): "N", ("x", 2): "H"}
    assert read.arithmetic == {"f32": 1}


@pytest.mark.parametrize("moved", [(), ("Transpose",), ("Reshape", "Identity")])
def test_quantisation_is_found_behind_operators_that_only_move(moved: tuple[str, ...]) -> None:
    """tf2onnx puts a Transpose between the input and its DequantizeLinear."""
    names = ["x", *(f"m{place}" for place in range(len(moved)))]
    steps = b"".join(
        node(operator, [before], [after])
        for operator, before, after in zip(moved, names, names[1:], strict=False)
    )
    graph = (
        field(11, value("x", 3, 1, 4))
        + steps
        + node("DequantizeLinear", [names[-1], "s", "z"], ["f"])
        + node("QuantizeLinear", ["f", "s", "z"], ["q"])
        + node("Reshape", ["q", "shape"], ["y"])
        + scalar("s", 1, field(9, struct.pack("<f", 0.5)))
        + scalar("z", 3, field(5, -7))
        + field(12, value("y", 3, 1, 4))
    )
    read = parse_onnx(model(graph))
    assert read.inputs[0].quantisation == Quantisation(scale=0.5, zero_point=-7)
    assert read.outputs[0].quantisation == Quantisation(scale=0.5, zero_point=-7)
    assert read.quantised


@pytest.mark.parametrize(
    ("scale", "zero", "expected"),
    [
        (
            field(4, struct.pack("<f", 0.25)),
            field(9, b"\x03"),
            Quantisation(scale=0.25, zero_point=3),
        ),
        (field(9, struct.pack("<f", 0.0)), field(9, b"\x03"), None),
        (field(9, struct.pack("<f", float("nan"))), field(9, b"\x03"), None),
        (field(1, 2) + field(9, struct.pack("<2f", 1, 2)), field(9, b"\x03"), None),
        (field(9, struct.pack("<f", 1.0)), field(9, b"\x03\x04"), None),
    ],
)
def test_only_a_sound_scale_of_the_whole_tensor_counts(
    scale: bytes, zero: bytes, expected: Quantisation | None
) -> None:
    """Per-channel, zero and NaN scales are not a quantisation of the input."""
    graph = (
        field(11, value("x", 3, 1, 4))
        + node("DequantizeLinear", ["x", "s", "z"], ["y"])
        + scalar("s", 1, scale)
        + scalar("z", 3, zero)
        + field(12, value("y", 1, 1, 4))
    )
    assert parse_onnx(model(graph)).inputs[0].quantisation == expected


def test_a_dequantisation_without_zero_point_means_zero() -> None:
    """The third input of DequantizeLinear is optional."""
    graph = (
        field(11, value("x", 2, 4))
        + node("DequantizeLinear", ["x", "s"], ["y"])
        + scalar("s", 1, field(9, struct.pack("<f", 2.0)))
        + field(12, value("y", 1, 4))
    )
    assert parse_onnx(model(graph)).inputs[0].quantisation == Quantisation(scale=2.0, zero_point=0)


def test_a_graph_that_feeds_itself_ends() -> None:
    """A cycle of moving operators is followed once."""
    graph = (
        field(11, value("x", 3, 1))
        + node("Identity", ["x"], ["y"])
        + node("Identity", ["y"], ["x"])
        + field(12, value("y", 3, 1))
    )
    read = parse_onnx(model(graph))
    assert read.inputs[0].quantisation is None
    assert read.outputs[0].quantisation is None


@pytest.fixture(scope="module")
def kws_onnx(models_dir: Path) -> bytes:
    """Return a small real ONNX model."""
    return (models_dir / "kws_speech_commands/models/dscnn_int8.onnx").read_bytes()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_onnx_file_parses_or_is_damaged(kws_onnx: bytes, data: st.DataObject) -> None:
    """Bytes changed and the end cut off a real model: our error or a graph, nothing else."""
    raw = bytearray(kws_onnx[: data.draw(st.integers(1, len(kws_onnx)))])
    for place in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=8)):
        raw[place] = data.draw(st.integers(0, 255))
    try:
        parse_onnx(memoryview(bytes(raw)))
    except protobuf.DamagedError:
        return


# Running small models


def load(backend: str, path: Path, graph: memoryview, **options: object) -> Session:
    """Write a model and load it; skip where the runtime is not installed."""
    try:
        open_backend(backend).version()
    except BackendMissingError:
        pytest.skip(f"{backend} is not installed in this environment")
    (path / "made.onnx").write_bytes(graph)
    return open_backend(backend).load(path / "made.onnx", SessionOptions(**options))  # type: ignore[arg-type]


def relu(*axes: int | str, out: tuple[int | str, ...] | None = None) -> memoryview:
    """Return a model with one Relu."""
    return model(
        node("Relu", ["x"], ["y"])
        + field(11, value("x", FLOAT, *axes))
        + field(12, value("y", FLOAT, *(out or axes)))
    )


both = pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])


@both
def test_a_free_batch_becomes_one(backend: str, tmp_path: Path) -> None:
    """Nothing needs to be said about the batch."""
    session = load(backend, tmp_path, relu("N", 4))
    assert session.inputs[0].shape == (1, 4)
    assert session.outputs[0].shape == (1, 4)
    session.bind([np.array([[[-1, 2, -3, 4]]], np.float32)])
    session.infer(0)
    assert session.results[0].tolist() == [[0, 2, 0, 4]]


@both
def test_other_free_axes_need_a_size(backend: str, tmp_path: Path) -> None:
    """The message shows the option to give, with the axes that are known."""
    expected = r"input 'x' has free axes, \?,3,\?,\?: .* --input x=1,3,64,64"
    with pytest.raises(ModelError, match=expected):
        load(backend, tmp_path, relu("N", 3, "H", "W"))


@both
def test_a_size_given_for_a_free_axis_is_used(backend: str, tmp_path: Path) -> None:
    """And settles the outputs too."""
    session = load(backend, tmp_path, relu("N", 3, "H", "W"), shapes={"x": (1, 3, 5, 7)})
    assert session.inputs[0].shape == (1, 3, 5, 7)
    assert session.outputs[0].shape == (1, 3, 5, 7)


@both
@pytest.mark.parametrize(
    ("shapes", "problem"),
    [
        ({"z": (1, 3, 5, 7)}, r"--input z: the model has no such input; it has: x"),
        ({"x": (1, 4, 5, 7)}, r"--input x=1,4,5,7: does not fit the model's \?,3,\?,\?"),
        ({"x": (1, 3, 5)}, r"--input x=1,3,5: does not fit"),
        ({"x": (1, 3, 0, 7)}, r"--input x=1,3,0,7: does not fit"),
        ({"x": (2, 3, 5, 7)}, r"--input x=2,3,5,7: the first axis is the batch and must be 1"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(
    backend: str, shapes: dict[str, tuple[int, ...]], problem: str, tmp_path: Path
) -> None:
    """Wrong name, fixed axis, rank, size or batch."""
    with pytest.raises(InputError, match=problem):
        load(backend, tmp_path, relu("N", 3, "H", "W"), shapes=shapes)


@both
def test_a_fixed_batch_is_refused(backend: str, tmp_path: Path) -> None:
    """A query is one sample; a model made for eight would answer seven of them for nothing."""
    with pytest.raises(ModelError, match=r"fixed batch of 8, 8,4: expected a batch of 1"):
        load(backend, tmp_path, relu(8, 4))


@both
def test_a_first_axis_that_is_no_batch_can_be_declared_one_sample(
    backend: str, tmp_path: Path
) -> None:
    """The user's word counts: the whole tensor is one sample."""
    session = load(backend, tmp_path, relu(8, 4), shapes={"x": (8, 4)})
    assert session.inputs[0].sample_shape == (8, 4)


@both
def test_a_flat_input_is_one_sample(backend: str, tmp_path: Path) -> None:
    """A waveform of 16,000 values has no batch axis at all."""
    session = load(backend, tmp_path, relu(16000))
    assert session.inputs[0].sample_shape == (16000,)


@both
def test_an_unknown_operator_is_named(backend: str, tmp_path: Path) -> None:
    """One line, with the operator as the file spells it."""
    graph = (
        node("Frobnicate", ["x"], ["y"], "com.acme")
        + field(11, value("x", FLOAT, 1, 4))
        + field(12, value("y", FLOAT, 1, 4))
    )
    with pytest.raises(ModelError, match=r"has no operator com\.acme[.:]Frobnicate") as caught:
        load(backend, tmp_path, model(graph, "com.acme"))
    assert "\n" not in str(caught.value)


@both
def test_text_is_no_sample(backend: str, tmp_path: Path) -> None:
    """Tokenisers take strings; a benchmark's block cannot hold them."""
    graph = (
        node("Identity", ["x"], ["y"])
        + field(11, value("x", TEXT, 1, 4))
        + field(12, value("y", TEXT, 1, 4))
    )
    with pytest.raises(ModelError, match=r"input 'x' is str|cannot load it"):
        load(backend, tmp_path, model(graph))


@both
def test_a_model_without_inputs_has_nothing_to_measure(backend: str, tmp_path: Path) -> None:
    """A graph of constants."""
    graph = (
        scalar("w", FLOAT, field(1, 1) + field(9, struct.pack("<f", 1.0)))
        + node("Relu", ["w"], ["y"])
        + field(12, value("y", FLOAT, 1))
    )
    with pytest.raises(ModelError, match="no input"):
        load(backend, tmp_path, model(graph))


@both
def test_a_name_that_is_no_text_is_still_one_line(backend: str, tmp_path: Path) -> None:
    """Bytes that are not UTF-8 in an operator's name break a runtime's own message."""
    graph = field(1, field(1, "x") + field(2, "y") + field(4, b"Re\xb1lu")) + bytes(
        field(11, value("x", FLOAT, 1, 4)) + field(12, value("y", FLOAT, 1, 4))
    )
    with pytest.raises(ModelError):
        load(backend, tmp_path, model(graph))


def weighted(payload: bytes) -> memoryview:
    """Return a model with one matrix product of 2x2, its weights as *payload* says."""
    weights = field(1, 2) + field(1, 2) + field(2, FLOAT) + field(8, "w") + payload
    return model(
        node("MatMul", ["x", "w"], ["y"])
        + field(5, weights)
        + field(11, value("x", FLOAT, 1, 2))
        + field(12, value("y", FLOAT, 1, 2))
    )


def test_weights_beside_the_model_are_found(tmp_path: Path) -> None:
    """Large models keep their weights in a second file."""
    (tmp_path / "w.bin").write_bytes(np.eye(2, dtype=np.float32).tobytes())
    where = field(13, field(1, "location") + field(2, "w.bin")) + field(14, 1)
    session = load("onnxruntime", tmp_path, weighted(where))
    assert session.info().precision == "f32"
    session.bind([np.array([[[3, 4]]], np.float32)])
    session.infer(0)
    assert session.results[0].tolist() == [[3, 4]]


def test_weights_that_are_missing_are_one_line(tmp_path: Path) -> None:
    """The second file was not copied to the board."""
    where = field(13, field(1, "location") + field(2, "w.bin")) + field(14, 1)
    with pytest.raises(ModelError, match=r"made\.onnx: onnxruntime cannot load it: .*w\.bin"):
        load("onnxruntime", tmp_path, weighted(where))


@both
def test_an_output_that_changes_its_size_fails_in_one_line(backend: str, tmp_path: Path) -> None:
    """Its buffer is fixed when the model is loaded."""
    graph = (
        node("NonZero", ["x"], ["y"])
        + field(11, value("x", FLOAT, 1, 4))
        + field(12, value("y", INT64, 2, "found"))
    )
    session = load(backend, tmp_path, model(graph))
    session.bind([np.ones((1, 1, 4), np.float32)])
    with pytest.raises(BackendError, match=f"{backend}: inference failed") as caught:
        session.infer(0)
    assert "\n" not in str(caught.value)


def test_an_output_that_is_no_tensor_is_refused(tmp_path: Path) -> None:
    """A sequence cannot be read by index."""
    sequence = field(1, "y") + field(2, field(4, field(1, field(1, field(1, FLOAT)))))
    graph = (
        node("SequenceConstruct", ["x"], ["y"])
        + field(11, value("x", FLOAT, 1, 4))
        + field(12, sequence)
    )
    with pytest.raises(ModelError, match="an output is no tensor"):
        load("onnxruntime", tmp_path, model(graph))


# ONNX Runtime's own


def test_inferring_before_binding_is_an_error(tmp_path: Path) -> None:
    """Not a crash."""
    with pytest.raises(BackendError, match="no samples are bound"):
        load("onnxruntime", tmp_path, relu(1, 4)).infer(0)


def test_many_slots_share_one_binding(tmp_path: Path) -> None:
    """Above the bound on memory, answers are the same."""
    session = load("onnxruntime", tmp_path, relu(1, 2))
    block = np.arange(2 * (MOST_BINDINGS + 1), dtype=np.float32).reshape(-1, 1, 2)
    session.bind([block])
    for slot in (0, 1, MOST_BINDINGS):
        session.infer(slot)
        np.testing.assert_array_equal(session.results[0], block[slot])
    block[1] = 5
    session.infer(1)
    assert session.results[0].tolist() == [[5, 5]]
    with pytest.raises(BackendError, match="no samples are bound"):
        session.infer(len(block))


def test_a_provider_that_is_not_in_this_build_is_one_line(tmp_path: Path) -> None:
    """The message lists those that are."""
    options = {"provider": "FrobExecutionProvider,CPUExecutionProvider"}
    with pytest.raises(InputError, match=r"provider=FrobExec.*this onnxruntime has .*CPUExec"):
        load("onnxruntime", tmp_path, relu(1, 4), options=options)


def test_options_of_a_provider_that_is_not_asked_for_are_refused(tmp_path: Path) -> None:
    """They would do nothing."""
    options = {"CUDAExecutionProvider.device_id": "0"}
    with pytest.raises(InputError, match=r"CUDAExecutionProvider.*not asked for"):
        load("onnxruntime", tmp_path, relu(1, 4), options=options)


def test_a_provider_that_runs_nothing_is_noted(tmp_path: Path) -> None:
    """What was asked and what ran are both on record; samples are fetched at the query."""
    session = load("onnxruntime", tmp_path, relu(1, 2))
    onnxruntime = pytest.importorskip("onnxruntime")
    if "AzureExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this build has no provider beside the CPU's")
    options = {"provider": "AzureExecutionProvider,CPUExecutionProvider"}
    session = load("onnxruntime", tmp_path, relu(1, 2), options=options)
    info = session.info()
    assert info.input_copy == "runtime"
    if not any("does not tell which provider" in note for note in info.notes):
        assert info.delegates == ("CPUExecutionProvider",)
        assert info.device == "CPU"
        assert any("AzureExecutionProvider was asked for and runs no" in n for n in info.notes)
    block = np.array([[[1, 2]]], np.float32)
    kept = session.results
    session.bind([block])
    session.infer(0)
    block[:] = 7
    session.infer(0)
    assert kept[0].tolist() == [[7, 7]]


@pytest.mark.parametrize("option", ["graph_optimization=fast", "spinning=maybe"])
def test_a_bad_value_lists_the_good_ones(option: str, tmp_path: Path) -> None:
    """Nothing is guessed."""
    name, _, given_value = option.partition("=")
    with pytest.raises(InputError, match=f"option {option}: expected one of"):
        load("onnxruntime", tmp_path, relu(1, 4), options={name: given_value})


@pytest.mark.parametrize(("level", "precision"), [("all", "int8"), ("off", "f32")])
def test_int8_is_only_int8_where_the_runtime_fused_it(
    level: str, precision: str, models_dir: Path
) -> None:
    """Without optimisation the same file computes in float between its quantisers."""
    pytest.importorskip("onnxruntime")
    path = models_dir / "imagenet_cls/models/mobilenet_v1_025_128_u8.onnx"
    options = SessionOptions(options={"graph_optimization": level})
    info = open_backend("onnxruntime").load(path, options).info()
    assert info.precision == precision
    assert info.options["graph_optimization"] == level
    assert info.options["spinning"] == "on"
