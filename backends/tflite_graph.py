"""What a .tflite file says about itself: inputs, outputs, quantisation, operators.

A reader of just these fields, for two reasons: OpenVINO drops the quantisation of the
tensors it loads, and the TFLite runtimes do not verify a file before they follow its
offsets, so that a truncated one ends the process. Every offset is checked here first.

Source: TensorFlow Lite ``schema.fbs`` version 3; FlatBuffers "internals".
"""

import mmap
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from edgeperf.backends.base import ModelError
from edgeperf.backends.precision import DYNAMIC
from edgeperf.datasets.tensors import Quantisation, TensorSpec

#: ``TensorType`` of the schema, as numpy calls it.
DTYPES = (
    "float32", "float16", "int32", "uint8", "int64", "str", "bool", "int16", "complex64",
    "int8", "float64", "complex128", "uint64", "resource", "variant", "uint32", "uint16",
    "int4", "bfloat16",
)  # fmt: skip

#: ``BuiltinOperator`` numbers of those that do the arithmetic: convolutions (2-D, depthwise,
#: transposed, 3-D), matrix products, recurrent cells.
ARITHMETIC = frozenset({3, 4, 67, 132, 9, 126, 16, 27, 35, 44})


class TfliteGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The first subgraph of a TFLite model.

    Attributes:
        inputs: Its inputs, free axes -1.
        outputs: Its outputs, likewise.
        arithmetic: How many arithmetic operators compute in each precision.
        custom_operators: Operators that no plain runtime knows by number.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    arithmetic: dict[str, int]
    custom_operators: tuple[str, ...]


class DamagedError(ValueError):
    """An offset or a count points outside the file."""


class Table:
    """A FlatBuffers table: fields by number, each of them optional."""

    def __init__(self, data: "mmap.mmap | bytes", place: int) -> None:
        self._data = data
        self._place = place
        self._vtable = place - unpack(data, "<i", place)
        self._size = unpack(data, "<H", self._vtable)

    def _field(self, number: int) -> int:
        """Return where field *number* is; 0 when it is absent."""
        slot = 4 + 2 * number
        if slot + 2 > self._size:
            return 0
        offset = unpack(self._data, "<H", self._vtable + slot)
        return self._place + offset if offset else 0

    def number(self, field: int, code: str) -> int:
        """Return a number; 0 when it is absent."""
        place = self._field(field)
        return unpack(self._data, code, place) if place else 0

    def vector(self, field: int, size: int) -> tuple[int, int]:
        """Return start and length of a vector whose elements take *size* bytes."""
        place = self._field(field)
        if not place:
            return 0, 0
        place += unpack(self._data, "<I", place)
        count = unpack(self._data, "<I", place)
        if place + 4 + count * size > len(self._data):
            raise DamagedError(f"a list of {count} elements at byte {place} leaves the file")
        return place + 4, count

    def numbers(self, field: int, code: str) -> tuple[int, ...]:
        """Return a vector of numbers."""
        size = struct.calcsize(code)
        start, count = self.vector(field, size)
        return struct.unpack(f"<{count}{code[-1]}", self._data[start : start + count * size])

    def text(self, field: int) -> str:
        """Return a string."""
        start, count = self.vector(field, 1)
        return bytes(self._data[start : start + count]).decode("utf-8", "replace")

    def table(self, field: int) -> "Table | None":
        """Return a table inside this one."""
        place = self._field(field)
        return Table(self._data, place + unpack(self._data, "<I", place)) if place else None

    def tables(self, field: int) -> list["Table"]:
        """Return a vector of tables."""
        start, count = self.vector(field, 4)
        places = range(start, start + 4 * count, 4)
        return [Table(self._data, place + unpack(self._data, "<I", place)) for place in places]


def unpack(data: "mmap.mmap | bytes", code: str, place: int) -> int:
    """Return one number.

    Raises:
        DamagedError: *place* is outside *data*.
    """
    if not 0 <= place <= len(data) - struct.calcsize(code):
        raise DamagedError(f"byte {place} is outside the file of {len(data)} bytes")
    (number,) = struct.unpack_from(code, data, place)
    return int(number)


def read_tflite(model: Path) -> TfliteGraph:
    """Read the first subgraph of *model*.

    Raises:
        ModelError: The file is damaged.
    """
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return parse_tflite(data)
        except (DamagedError, struct.error) as error:
            raise ModelError(f"{model}: damaged TFLite file: {error}") from error


def parse_tflite(data: "mmap.mmap | bytes") -> TfliteGraph:
    """Read the first subgraph of a model in memory.

    Raises:
        DamagedError: The content is not a sound TFLite model.
    """
    root = Table(data, unpack(data, "<I", 0))
    graphs = root.tables(2)
    if not graphs:
        raise DamagedError("no subgraph in it")
    for buffer in root.tables(4):
        _check_data(buffer, len(data))
    tensors = graphs[0].tables(0)
    codes = root.tables(1)
    return TfliteGraph(
        inputs=tuple(_specs(tensors, graphs[0].numbers(1, "<i"))),
        outputs=tuple(_specs(tensors, graphs[0].numbers(2, "<i"))),
        arithmetic=dict(
            _arithmetic(graphs[0].tables(3), [_builtin(code) for code in codes], tensors)
        ),
        custom_operators=tuple(filter(None, (code.text(1) for code in codes))),
    )


def _check_data(buffer: Table, size: int) -> None:
    """Refuse weights that leave the file, in place or (large models) at an offset."""
    offset, length = buffer.number(1, "<Q"), buffer.number(2, "<Q")
    if offset > 1 and offset + length > size:
        raise DamagedError(f"weights at byte {offset} leave the file")
    buffer.vector(0, 1)


def _builtin(code: Table) -> int:
    """Return an operator's number; it outgrew its first field, so the larger one counts."""
    return max(code.number(0, "<b"), code.number(3, "<i"))


def _arithmetic(operators: list[Table], codes: list[int], tensors: list[Table]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for operator in operators:
        number = operator.number(0, "<I")
        if number >= len(codes):
            raise DamagedError(f"operator {number} of {len(codes)}")
        places = operator.numbers(1, "<i")[:2]
        if codes[number] in ARITHMETIC and all(0 <= place < len(tensors) for place in places):
            counts[_precision([_dtype(tensors[place]) for place in places])] += 1
    return counts


def _precision(operands: list[str]) -> str:
    """Return how an operator with an activation and weights of these types computes."""
    first = operands[0] if operands else "float32"
    if "int8" in first:
        return "int8"
    if "int" in first:
        return first
    return DYNAMIC if any("int" in dtype for dtype in operands[1:]) else "f32"


def _dtype(tensor: Table) -> str:
    number = tensor.number(1, "<b")
    return DTYPES[number] if 0 <= number < len(DTYPES) else f"type{number}"


def _specs(tensors: list[Table], places: tuple[int, ...]) -> Iterator[TensorSpec]:
    for place in places:
        if not 0 <= place < len(tensors):
            raise DamagedError(f"tensor {place} of {len(tensors)}")
        tensor = tensors[place]
        yield TensorSpec(
            name=tensor.text(3),
            shape=tensor.numbers(7, "<i") or tensor.numbers(0, "<i"),
            dtype=_dtype(tensor),
            quantisation=_quantisation(tensor),
        )


def _quantisation(tensor: Table) -> Quantisation | None:
    """Return the quantisation of a whole integer tensor; per-channel is none of that."""
    table = tensor.table(4)
    if table is None or "int" not in _dtype(tensor):
        return None
    scales, zeros = table.numbers(2, "<f"), table.numbers(3, "<q")
    if len(scales) != 1 or not scales[0] > 0:
        return None
    return Quantisation(scale=float(scales[0]), zero_point=zeros[0] if zeros else 0)
