"""What an .onnx file says about itself: inputs, outputs, quantisation, operators.

A reader of just these fields, so that no board needs the ``onnx`` package. ONNX Runtime
and OpenVINO do not tell how an input is quantised, because in ONNX that is not a
property of the tensor but of the ``DequantizeLinear`` that follows it.

Source: ``onnx.proto3``, whose field numbers are named below.
"""

import mmap
import struct
from collections import Counter
from pathlib import Path

import msgspec

from edgeperf.backends.base import ModelError
from edgeperf.backends.protobuf import DamagedError, Message
from edgeperf.datasets.tensors import Quantisation, TensorSpec

#: ``TensorProto.DataType``, as numpy calls it.
DTYPES = (
    "undefined", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "str", "bool",
    "float16", "float64", "uint32", "uint64", "complex64", "complex128", "bfloat16",
)  # fmt: skip

MODEL_GRAPH = 7
GRAPH_NODE, GRAPH_INITIALIZER, GRAPH_INPUT, GRAPH_OUTPUT = 1, 5, 11, 12
NODE_INPUT, NODE_OUTPUT, NODE_OPERATOR = 1, 2, 4
TENSOR_DIMS, TENSOR_TYPE, TENSOR_FLOATS, TENSOR_INTS, TENSOR_NAME, TENSOR_RAW = 1, 2, 4, 5, 8, 9
TENSOR_LOCATION = 14
VALUE_NAME, VALUE_TYPE = 1, 2
TYPE_TENSOR, TENSOR_ELEMENT, TENSOR_SHAPE = 1, 1, 2
SHAPE_AXIS, AXIS_SIZE, AXIS_NAME = 1, 1, 2

#: Operators that do the arithmetic, the fused ones of ONNX Runtime among them.
_INTEGER = frozenset({
    "QLinearConv", "QLinearMatMul", "QGemm", "ConvInteger", "MatMulInteger",
    "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "QAttention",
})  # fmt: skip
_FLOAT = frozenset({
    "Conv", "ConvTranspose", "FusedConv", "NhwcFusedConv", "Gemm", "FusedGemm", "MatMul",
    "FusedMatMul", "Einsum", "LSTM", "GRU", "RNN", "Attention", "MultiHeadAttention",
})  # fmt: skip
#: Operators that move values and do not change them.
_MOVING = frozenset({"Transpose", "Reshape", "Identity", "Squeeze", "Unsqueeze", "Flatten"})
#: How :mod:`struct` reads one raw element of the types that scales and zero points have.
_RAW = {"float32": "<f", "uint8": "<B", "int8": "<b", "uint16": "<H", "int16": "<h", "int32": "<i"}


class Node(msgspec.Struct, frozen=True):
    """One operator and the names of what it reads and writes."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class OnnxGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The main graph of an ONNX model.

    Attributes:
        inputs: Its inputs without its weights; free axes -1.
        outputs: Its outputs, likewise.
        free_axes: Name of each free axis that has one, per input and place.
        arithmetic: How many arithmetic operators compute in each precision.
        external_weights: Whether weights are in files beside it.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    free_axes: dict[tuple[str, int], str]
    arithmetic: dict[str, int]
    external_weights: bool


def read_onnx(model: Path) -> OnnxGraph:
    """Read the main graph of *model*.

    Raises:
        ModelError: The file is damaged.
    """
    with model.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        return parse_onnx(memoryview(data))
    except DamagedError as error:
        raise ModelError(f"{model}: damaged ONNX file: {error}") from error


def parse_onnx(data: memoryview) -> OnnxGraph:
    """Read the main graph of a model in memory.

    Raises:
        DamagedError: The content is not a sound ONNX model.
    """
    graphs = Message(data).messages(MODEL_GRAPH)
    if not graphs:
        raise DamagedError("no graph in it")
    graph = graphs[-1]
    nodes = [
        Node(node.text(NODE_OPERATOR), node.texts(NODE_INPUT), node.texts(NODE_OUTPUT))
        for node in graph.messages(GRAPH_NODE)
    ]
    weights = {tensor.text(TENSOR_NAME): tensor for tensor in graph.messages(GRAPH_INITIALIZER)}
    values = [v for v in graph.messages(GRAPH_INPUT) if v.text(VALUE_NAME) not in weights]
    return OnnxGraph(
        inputs=tuple(_spec(value, _read_scale(value, nodes, weights)) for value in values),
        outputs=tuple(
            _spec(value, _write_scale(value, nodes, weights))
            for value in graph.messages(GRAPH_OUTPUT)
        ),
        free_axes=dict(pair for value in values for pair in _free_axes(value)),
        arithmetic=dict(_arithmetic(nodes, weights)),
        external_weights=any(tensor.number(TENSOR_LOCATION) for tensor in weights.values()),
    )


def _arithmetic(nodes: list[Node], weights: dict[str, Message]) -> Counter[str]:
    half = any(_dtype(tensor.number(TENSOR_TYPE)) == "float16" for tensor in weights.values())
    counts: Counter[str] = Counter()
    for node in nodes:
        if node.operator in _INTEGER:
            counts["int8"] += 1
        elif node.operator in _FLOAT:
            counts["f16" if half else "f32"] += 1
    return counts


def _dtype(number: int) -> str:
    return DTYPES[number] if 0 <= number < len(DTYPES) else f"type{number}"


def _tensor_type(value: Message) -> Message:
    """Return what a value's type says about a tensor; empty for a sequence or a map."""
    for kind in value.messages(VALUE_TYPE):
        for tensor in kind.messages(TYPE_TENSOR):
            return tensor
    return Message(memoryview(b""))


def _axes(value: Message) -> list[Message]:
    return [
        axis
        for shape in _tensor_type(value).messages(TENSOR_SHAPE)
        for axis in shape.messages(SHAPE_AXIS)
    ]


def _spec(value: Message, quantisation: Quantisation | None) -> TensorSpec:
    return TensorSpec(
        name=value.text(VALUE_NAME),
        shape=tuple(
            axis.number(AXIS_SIZE) if axis.number(AXIS_SIZE) > 0 else -1 for axis in _axes(value)
        ),
        dtype=_dtype(_tensor_type(value).number(TENSOR_ELEMENT)),
        quantisation=quantisation,
    )


def _free_axes(value: Message) -> list[tuple[tuple[str, int], str]]:
    name = value.text(VALUE_NAME)
    return [
        ((name, place), axis.text(AXIS_NAME))
        for place, axis in enumerate(_axes(value))
        if axis.text(AXIS_NAME)
    ]


def _read_scale(
    value: Message, nodes: list[Node], weights: dict[str, Message]
) -> Quantisation | None:
    """Return how an input is dequantised, looking through operators that only move values."""
    name, seen = value.text(VALUE_NAME), set[str]()
    while name not in seen:
        seen.add(name)
        readers = [node for node in nodes if name in node.inputs]
        for node in readers:
            if node.operator in {"DequantizeLinear", "QLinearConv", "QLinearMatMul"}:
                return _affine(node.inputs[1:3], weights)
        moved = [node.outputs[0] for node in readers if _moves(node, name)]
        name = moved[0] if moved else name
    return None


def _write_scale(
    value: Message, nodes: list[Node], weights: dict[str, Message]
) -> Quantisation | None:
    """Return how an output was quantised, looking through operators that only move values."""
    name, seen = value.text(VALUE_NAME), set[str]()
    while name not in seen:
        seen.add(name)
        for node in nodes:
            if name in node.outputs and node.operator == "QuantizeLinear":
                return _affine(node.inputs[1:3], weights)
            if name in node.outputs and node.operator.startswith("QLinear"):
                return _affine(node.inputs[-2:], weights)
            if name in node.outputs and node.inputs and _moves(node, node.inputs[0]):
                name = node.inputs[0]
                break
    return None


def _moves(node: Node, name: str) -> bool:
    return node.operator in _MOVING and bool(node.outputs) and node.inputs[:1] == (name,)


def _affine(names: tuple[str, ...], weights: dict[str, Message]) -> Quantisation | None:
    numbers = [_scalar(weights[name]) if name in weights else None for name in names]
    if not numbers or numbers[0] is None or not numbers[0] > 0:
        return None
    zero = numbers[1] if len(numbers) > 1 else 0
    return None if zero is None else Quantisation(scale=float(numbers[0]), zero_point=int(zero))


def _scalar(tensor: Message) -> float | None:
    """Return the value of a weight that has exactly one; None for any other."""
    if any(size != 1 for size in tensor.numbers(TENSOR_DIMS)):
        return None
    code = _RAW.get(_dtype(tensor.number(TENSOR_TYPE)))
    raw = b"".join(tensor.chunks(TENSOR_RAW)) or b"".join(
        tensor.chunks(TENSOR_FLOATS) if code == "<f" else ()
    )
    if code and len(raw) == struct.calcsize(code):
        (number,) = struct.unpack(code, raw)
        return float(number)
    whole = tensor.numbers(TENSOR_INTS)
    return float(whole[0]) if code and code != "<f" and len(whole) == 1 else None
