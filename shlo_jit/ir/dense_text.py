"""Printer of arrays as `dense<...>` literals that parse to the same bits.

Up to 100 elements are written out, more become a hex string, as in MLIR. A number is written in decimal if that parses
to the same bits, otherwise (NaN, infinities) as its bit pattern.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shlo_jit.ir.attributes import Dense
from shlo_jit.ir.types import DTYPES, DType, round_to

MAX_WRITTEN_OUT = 100
_DIGITS = {"f64": 17, "f32": 9}


def dense_text(value: Dense) -> str:
    """Returns `dense<...>` without the type."""
    array, dtype = value.array, value.type.storage
    if array.size == 0:
        return "dense<>"
    if value.is_splat:
        return f"dense<{element_text(array.reshape(-1)[0] if array.size == 1 else array[(0,) * array.ndim], dtype)}>"
    if array.size > MAX_WRITTEN_OUT:
        return f'dense<"0x{to_bytes(array, dtype).hex().upper()}">'
    return f"dense<{_nested(array, dtype)}>"


def _nested(array: np.ndarray, dtype: DType) -> str:
    if array.ndim == 0:
        return element_text(array[()], dtype)
    return "[" + ", ".join(_nested(row, dtype) for row in array) + "]"


def element_text(element: Any, dtype: DType) -> str:
    """Returns the text of one element: `true`, `-3`, `1.000000e+00`, `0x7FC00000` or `(1.000000e+00,0.000000e+00)`."""
    if dtype.kind == "b":
        return "true" if element else "false"
    if dtype.is_complex:
        part = dtype.part
        parts = np.array([element], dtype.numpy).view(part.numpy)
        return f"({float_text(parts[0], part)},{float_text(parts[1], part)})"
    return float_text(element, dtype) if dtype.is_float else str(int(element))


def float_text(element: Any, dtype: DType) -> str:
    """Returns the text of a float: with six digits if they are exact, else as many as needed, else the bit pattern."""
    bits = np.array([element], dtype.numpy)
    value = float(bits[0])
    if value - value == 0.0:  # finite
        for text in (f"{value:.6e}", _plain(value, _DIGITS.get(dtype.name, 9)), _plain(value, 17)):
            if round_to(np.array([float(text)]), dtype).tobytes() == bits.tobytes():
                return text
    width = -(-dtype.bits // 4)
    pattern = int.from_bytes(to_bytes(bits, dtype), "little")
    return f"0x{pattern:0{width}X}"


def _plain(value: float, digits: int) -> str:
    """Returns `value` with that many digits, always with a point as MLIR's grammar requires."""
    text = f"{value:.{digits}g}"
    mantissa, e, exponent = text.partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return mantissa + ("E" + exponent if e else "")


def to_bytes(array: np.ndarray, dtype: DType) -> bytes:
    """Returns the little-endian buffer of an array. Sub-byte integers and floats take a byte each, high bits zero."""
    if dtype.bits >= 8 or dtype.kind == "b":
        return np.ascontiguousarray(array).tobytes()
    raw = np.ascontiguousarray(array.astype(np.int8) if dtype.is_integer else array).view(np.uint8)
    return (raw & ((1 << dtype.bits) - 1)).tobytes()


def attribute_float_text(value: float, type_name: str) -> str:
    """Returns the text of a float attribute's number, exact for its type."""
    dtype = DTYPES.get(type_name, DTYPES["f64"])
    return float_text(value, dtype)
