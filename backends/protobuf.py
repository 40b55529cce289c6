"""Reading Protocol Buffers without a schema compiler: fields by number, nothing decoded.

Source: Protocol Buffers, "Encoding".
"""

import struct

Field = int | memoryview

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


class DamagedError(ValueError):
    """A length points outside the message, or a tag makes no sense."""


class Message:
    """The fields of one message, in the order they were written."""

    def __init__(self, data: memoryview) -> None:
        self._fields: dict[int, list[Field]] = {}
        place = 0
        while place < len(data):
            tag, place = read_varint(data, place)
            value, place = _read_value(data, place, tag & 7)
            self._fields.setdefault(tag >> 3, []).append(value)

    def number(self, field: int) -> int:
        """Return the last value of a number field; 0 when it is absent."""
        numbers = [value for value in self._fields.get(field, ()) if isinstance(value, int)]
        return numbers[-1] if numbers else 0

    def has(self, field: int) -> bool:
        """Whether the field is present."""
        return field in self._fields

    def chunks(self, field: int) -> list[memoryview]:
        """Return every value of a bytes field."""
        return [value for value in self._fields.get(field, ()) if isinstance(value, memoryview)]

    def messages(self, field: int) -> list["Message"]:
        """Return every value of a message field."""
        return [Message(chunk) for chunk in self.chunks(field)]

    def texts(self, field: int) -> tuple[str, ...]:
        """Return every value of a string field."""
        return tuple(str(bytes(chunk), "utf-8", "replace") for chunk in self.chunks(field))

    def text(self, field: int) -> str:
        """Return the last value of a string field; empty when it is absent."""
        return self.texts(field)[-1] if self.chunks(field) else ""

    def numbers(self, field: int) -> tuple[int, ...]:
        """Return a repeated number field, packed or not."""
        found: list[int] = []
        for value in self._fields.get(field, ()):
            if isinstance(value, int):
                found.append(value)
                continue
            place = 0
            while place < len(value):
                number, place = read_varint(value, place)
                found.append(number)
        return tuple(found)


def read_varint(data: memoryview, place: int) -> tuple[int, int]:
    """Return the number at *place*, as a signed 64-bit one, and the place after it."""
    number = 0
    for index, byte in enumerate(data[place : place + _LONGEST_VARINT]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:  # noqa: PLR2004 - the encoding's "more follows" bit
            number &= (1 << 64) - 1
            return number - (1 << 64) if number >> 63 else number, place + index + 1
    raise DamagedError(f"no number at byte {place} of {len(data)}")


def _read_value(data: memoryview, place: int, wire: int) -> tuple[Field, int]:
    if wire == _VARINT:
        return read_varint(data, place)
    if wire == _BYTES:
        length, place = read_varint(data, place)
    elif wire in {_FIXED32, _FIXED64}:
        length = 4 if wire == _FIXED32 else 8
    else:
        raise DamagedError(f"a field of unknown kind {wire} at byte {place}")
    if not 0 <= length <= len(data) - place:
        raise DamagedError(f"a field of {length} bytes at byte {place} of {len(data)}")
    if wire == _BYTES:
        return data[place : place + length], place + length
    (number,) = struct.unpack_from("<i" if wire == _FIXED32 else "<q", data, place)
    return number, place + length
