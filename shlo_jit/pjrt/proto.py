"""Protocol buffers as far as the interface uses them: fields by number, without a schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields number and value of each field, in order. Raises ValueError for bytes that are not a message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if not key >> 3:
            raise ValueError(f"a field has no number at byte {at}")
        if kind == VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == BYTES:
            size, at = _varint(data, at)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise ValueError(f"a field has the unknown kind {kind} at byte {at}")
        if at + size > len(data):
            raise ValueError(f"a field ends after the last byte, {len(data)}")
        yield key >> 3, data[at : at + size]
        at += size


def last(data: bytes) -> dict[int, int | bytes]:
    """Returns the last value of each field."""
    return dict(fields(data))


def message(data: dict[int, int | bytes], number: int) -> bytes:
    """Returns a field that is a message; empty if it is missing."""
    value = data.get(number, b"")
    return value if isinstance(value, bytes) else b""


def packed(data: bytes) -> list[int]:
    """Returns the numbers of a packed field."""
    found, at = [], 0
    while at < len(data):
        value, at = _varint(data, at)
        found.append(value)
    return found


def write(number: int, value: int | bytes) -> bytes:
    """Returns the encoding of one field."""
    if isinstance(value, int):
        return _written(number << 3 | VARINT) + _written(value)
    return _written(number << 3 | BYTES) + _written(len(value)) + value


def write_packed(number: int, values: Iterable[int]) -> bytes:
    return write(number, b"".join(map(_written, values)))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError(f"an unterminated number at byte {at}")


def _written(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
