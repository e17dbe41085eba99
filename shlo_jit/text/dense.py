"""Decoder of `dense<...>` literals into arrays.

    dense   ::= `dense<` (element | list | hex-string)? `>`
    list    ::= `[` ((element | list) (`,` (element | list))*)? `]`
    element ::= integer | float | hex | `true` | `false` | `(` element `,` element `)`

A splat stays a single element, broadcast to the shape, however large the shape is. A hex string is the little-endian
buffer, or one element of it. Decoding is eager, so that an invalid literal is reported at its position.
"""

from __future__ import annotations

import functools
import math
import re

import numpy as np

from shlo_jit.ir.attributes import Dense, keeps_packed
from shlo_jit.ir.types import DTYPES, DType, TensorType, round_to, storage_range
from shlo_jit.text.literals import Literal, LiteralToken

_INTEGER = re.compile(r"-?\d+$|-?0x[0-9A-Fa-f]+$")
_FLOAT = re.compile(r"-?\d+\.\d*(?:[eE][-+]?\d+)?$|0x[0-9A-Fa-f]+$")
_SKELETON = {c: None for c in range(128) if chr(c) not in "[],"}
_NO_BRACKETS = str.maketrans("", "", "[]() \t\r\n")


class LiteralRefusal(ValueError):
    """An invalid literal: `offset` is the position of the error in its text, `hint` says what to write."""

    def __init__(self, message: str, offset: int = 0, hint: str = ""):
        super().__init__(message)
        self.offset = offset
        self.hint = hint


def decode_dense(text: str, type: TensorType) -> Dense:
    """Returns the value of `text`, which consists of one complete `dense<...>`."""
    if isinstance(text, LiteralToken):
        return dense_of_literal(text.literal, type)
    return _small(text, type) if len(text) <= 128 else _decode(text, type)


def _check_static(type: TensorType) -> None:
    if not type.is_static:
        raise LiteralRefusal("elements literal type must have static shape")


def dense_of_literal(literal: Literal, type: TensorType) -> Dense:
    """Returns the value whose bytes are in the literal. Raises LiteralRefusal immediately if they do not fit."""
    _check_static(type)
    if keeps_packed(type) and literal.nbytes == type.size:
        return Dense(type, packed=lambda: literal.read().packed(type.storage.bits), release=literal.release)
    value = Dense(type, decode=lambda: from_bytes(literal.data, type), release=literal.release)
    _ = value.array
    return value


@functools.lru_cache(maxsize=16384)
def _small(text: str, type: TensorType) -> Dense:
    return _decode(text, type)


def _decode(text: str, type: TensorType) -> Dense:
    _check_static(type)
    if text.find('"', 0, 100) >= 0:
        return Dense(type, _from_hex(text, type))
    body = text[6:-1]
    plain = body.strip()
    if not plain:
        if type.size:
            raise LiteralRefusal(f"parsed zero elements, but type expected at least {type.size}")
        return Dense(type, np.empty(type.extents, type.storage.numpy))
    if plain[0] == "[":
        return Dense(type, _from_list(plain, type, 6 + body.index("[")))
    return Dense(type, splat(_elements([plain], type.storage, 6), type))


def splat(element: np.ndarray, type: TensorType) -> np.ndarray:
    """Returns one element as a read-only array of the type's shape."""
    try:
        return np.broadcast_to(element.reshape(()), type.extents)
    except ValueError:
        pass
    raise LiteralRefusal("the tensor is too large")


def _from_hex(text: str, type: TensorType) -> np.ndarray:
    start = text.index('"') + 1
    end = text.rindex('"')
    if text[6 : start - 1].strip() or text[end + 1 : -1].strip() or end < start:
        raise LiteralRefusal("expected string containing hex digits starting with '0x'", 6)
    if text.startswith("0x", start):
        start += 2
    try:
        data = bytes.fromhex(text[start:end])
    except ValueError:
        data = None
    if data is None or 2 * len(data) != end - start:  # `fromhex` accepts blanks
        raise LiteralRefusal("expected string containing pairs of hex digits starting with '0x'", 6)
    return from_bytes(data, type)


def from_bytes(data: bytes | memoryview | np.ndarray, type: TensorType) -> np.ndarray:
    """Returns the array in a raw buffer of all elements, or of one for a splat. i1 has a byte or a bit per element."""
    dtype = type.storage
    size = type.size
    if dtype.name == "i1":
        return _bits(data, type)
    if len(data) == dtype.itemsize and size != 1:
        return splat(_raw(data, dtype), type)
    if len(data) != size * dtype.itemsize:
        raise LiteralRefusal(_wrong_size(size * dtype.itemsize, len(data)), 6)
    return _raw(data, dtype).reshape(type.extents)


def _raw(data: bytes | memoryview | np.ndarray, dtype: DType) -> np.ndarray:
    """Returns the elements of a little-endian buffer. Sub-byte types use the low bits of one byte per element."""
    if dtype.bits >= 8:
        return np.frombuffer(data, dtype.numpy.newbyteorder("<") if dtype.kind in "iux" else dtype.numpy)
    low = np.frombuffer(data, np.uint8) & ((1 << dtype.bits) - 1)
    if dtype.kind == "f":
        return low.view(dtype.numpy)
    if dtype.kind == "i":
        sign = 1 << (dtype.bits - 1)
        return ((low ^ sign).astype(np.int8) - np.int8(sign)).astype(dtype.numpy)
    return low.astype(dtype.numpy)


def _bits(data: bytes | memoryview | np.ndarray, type: TensorType) -> np.ndarray:
    """Decodes a buffer of i1: one byte per element, or packed, lowest bit first. A single byte is a splat."""
    size = type.size
    values = np.frombuffer(data, np.uint8)
    if len(data) == size:
        return (values != 0).reshape(type.extents)
    if len(data) == 1:
        return splat(values != 0, type)
    if len(data) == -(-size // 8):
        return np.unpackbits(values, count=size, bitorder="little").astype(bool).reshape(type.extents)
    raise LiteralRefusal(_wrong_size(size, len(data)), 6)


def _wrong_size(expected: int, found: int) -> str:
    return f"elements hex data size is invalid for the type: expected {expected} bytes, found {found}"


def _from_list(plain: str, type: TensorType, at: int) -> np.ndarray:
    """Parses a list whose brackets follow the shape. All elements are converted together."""
    _check_nesting(plain, type, at)
    if type.size == 0:
        if plain.translate(_NO_BRACKETS).strip(","):
            raise LiteralRefusal("expected no elements", at)
        return np.empty(type.extents, type.storage.numpy)
    parts = plain.translate(_NO_BRACKETS).split(",")
    if type.storage.is_complex:
        if plain.count("(") != type.size or plain.count(")") != type.size:
            raise LiteralRefusal("expected complex elements as '(real, imaginary)'", at)
        parts = [f"({re},{im})" for re, im in zip(parts[::2], parts[1::2], strict=True)]
    elif "(" in plain:
        raise LiteralRefusal(f"expected elements of {type.storage}, found a complex one", plain.index("(") + at)
    return _elements(parts, type.storage, at, plain).reshape(type.extents)


def _check_nesting(plain: str, type: TensorType, at: int) -> None:
    """Checks that brackets and commas match the shape. Raises LiteralRefusal if not."""
    shape = type.extents
    found = plain.translate(_SKELETON)
    pairs = type.storage.is_complex
    commas = found.count(",")
    wanted = max(0, 2 * type.size - 1 if pairs else type.size - 1)
    depth = len(plain) - len(plain.lstrip("[ \t\r\n"))
    if 0 in shape:
        shape, wanted = shape[: shape.index(0) + 1], found.count(",")
    if wanted != commas or not found.isascii() or found != _skeleton(shape, pairs):
        nest = f"inferred shape of elements literal does not match type ({list(type.extents)})"
        count = (commas + 1) // 2 if pairs else commas + 1
        if type.size and count != type.size:
            raise LiteralRefusal(f"{nest}: expected {type.size} elements, found {count}", at)
        raise LiteralRefusal(nest, at + min(depth, 1))


def _skeleton(shape: tuple[int, ...], pairs: bool) -> str:
    """Returns the brackets and commas of a literal of this shape. Its length is that of the text to compare with."""
    inner = "," if pairs else ""
    for extent in reversed(shape):
        inner = "[" + ",".join([inner] * extent) + "]"
    return inner


def _elements(parts: list[str], dtype: DType, at: int, whole: str = "") -> np.ndarray:
    """Returns the elements as a one-dimensional array."""
    try:
        if dtype.is_complex:
            return _complexes(parts, dtype)
        if dtype.is_float:
            return _floats(parts, dtype)
        return _integers(parts, dtype)
    except _ElementRefusal as refusal:
        where = whole.find(refusal.part) if whole and refusal.part else 0
        from shlo_jit.text.literal_hints import element_hint

        raise LiteralRefusal(str(refusal), at + max(0, where), element_hint(refusal.part, dtype)) from None


class _ElementRefusal(ValueError):
    def __init__(self, message: str, part: str):
        super().__init__(message)
        self.part = part


_BOOLEANS = {"true": 1, "false": 0}


def _integers(parts: list[str], dtype: DType) -> np.ndarray:
    many = _plain_integers(parts) if len(parts) > 64 and dtype.name != "i1" else None
    if many is not None:
        low, high = (-(2**63), 2**63 - 1) if dtype.bits == 64 else storage_range(dtype)
        if many.min() >= low and many.max() <= high:
            return many.astype(dtype.numpy)
    values: list[int] = []
    for part in parts:
        part = part.strip()
        boolean = _BOOLEANS.get(part) if dtype.name == "i1" else None
        values.append(_integer(part, dtype) if boolean is None else boolean)
    if dtype.bits < 8:
        return np.array(values, np.int8).astype(dtype.numpy)
    return np.array(values, dtype.numpy)


def _plain_integers(parts: list[str]) -> np.ndarray | None:
    """Converts many decimal integers together. None if anything else is among them or 64 bits are not enough."""
    if "".join(parts).strip("0123456789-"):
        return None
    try:
        values = np.array(list(map(int, parts)))
    except ValueError:
        return None
    return values if values.dtype == np.int64 else None


def _integer(part: str, dtype: DType) -> int:
    """Parses an integer element. A hexadecimal or unsigned one may use the sign bit of a signed type."""
    if not _INTEGER.match(part) or len(part) > 40:
        raise _ElementRefusal(f"expected integer elements of type {dtype}, but parsed '{_short(part)}'", part)
    hexadecimal = "0x" in part
    value = int(part, 16) if hexadecimal else int(part)
    if dtype.name == "i1":
        if value not in (0, 1, -1):
            raise _ElementRefusal(f"integer constant out of range for type i1: {value}", part)
        return abs(value)
    low = 0 if dtype.kind == "u" else -(1 << (dtype.bits - 1))
    high = (1 << dtype.bits) - 1
    if value < low or value > high:
        raise _ElementRefusal(f"integer constant out of range for type {dtype}: {_short(part)}", part)
    return value - (1 << dtype.bits) if dtype.kind != "u" and value >= -low else value


def _short(part: str) -> str:
    return part if len(part) <= 30 else part[:27] + "..."


def _floats(parts: list[str], dtype: DType) -> np.ndarray:
    """Parses floats: decimal ones are read as f64 and rounded once, hexadecimal ones are bit patterns."""
    many = _plain_floats(parts) if len(parts) > 64 else None
    if many is not None:
        return round_to(many, dtype)
    values = np.empty(len(parts), np.float64)
    patterns: list[tuple[int, int]] = []
    for i, part in enumerate(parts):
        part = part.strip()
        if not _FLOAT.match(part) or len(part) > 400:
            wanted = f"floating-point elements of type {dtype}"
            raise _ElementRefusal(f"expected {wanted}, but parsed '{_short(part)}'", part)
        if part.startswith("0x"):
            pattern = int(part, 16)
            if pattern >= 1 << dtype.bits:
                raise _ElementRefusal(f"bit pattern {_short(part)} does not fit {dtype}", part)
            patterns.append((i, pattern))
            values[i] = 0.0
        else:
            values[i] = float(part)
            if math.isinf(values[i]):
                raise _ElementRefusal(f"floating point value too large: {_short(part)}", part)
    result = round_to(values, dtype)
    if patterns:
        raw = result.view(f"u{dtype.itemsize}")
        for i, pattern in patterns:
            raw[i] = pattern
    return result


def _plain_floats(parts: list[str]) -> np.ndarray | None:
    """Converts many decimal floats together. None if anything else is among them."""
    joined = ",".join(parts)
    if joined.strip("0123456789+-.eE,") or joined.count(".") != len(parts) or ",." in joined or joined[0] == ".":
        return None
    if ",-." in joined or ",+." in joined or (joined[1] == "." and not joined[0].isdigit()):
        return None
    try:
        values = np.array(list(map(float, parts)), np.float64)
    except ValueError:
        return None
    return values if np.isfinite(values).all() else None


def _complexes(parts: list[str], dtype: DType) -> np.ndarray:
    numbers: list[str] = []
    for part in parts:
        inner = part.strip()
        if not (inner.startswith("(") and inner.endswith(")")) or inner.count(",") != 1:
            raise _ElementRefusal(f"expected a complex number '(real, imaginary)', found '{_short(inner)}'", part)
        numbers += inner[1:-1].split(",")
    return _floats(numbers, dtype.part).view(dtype.numpy)


def float_value(text: str, type_name: str) -> float | None:
    """Returns the value of a float attribute of a builtin type. None if the text is not a float of that type."""
    dtype = DTYPES.get(type_name)
    if dtype is None or not dtype.is_float:
        return float(text) if "x" not in text and len(text) <= 400 else None
    try:
        return float(_floats([text], dtype)[0])
    except _ElementRefusal:
        return None
