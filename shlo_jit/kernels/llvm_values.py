"""Values of LLVM's language, their types, and constants, all as text.

A value is a `V`: its type and its text (a name such as `%v7`, or a literal). Vectors are types such as
`<16 x float>`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from shlo_jit.sizes import NotSymbolic, Size, register_name


class V(NamedTuple):
    """An LLVM value: type and text."""

    type: str
    text: str

    @property
    def literal(self) -> int | None:
        """The value of an integer literal; None for other values."""
        t = self.text
        return int(t) if t.lstrip("-").isdigit() else None


@cache
def lanes(type: str) -> int:
    """Returns the lanes of a vector type; 1 for a scalar."""
    return int(type[1 : type.index(" x ")]) if type[0] == "<" else 1


@cache
def scalar(type: str) -> str:
    """Returns the element type of a vector type; a scalar type itself."""
    return type[type.index(" x ") + 3 : -1] if type[0] == "<" else type


@cache
def vector(type: str, n: int) -> str:
    """Returns the type with the element of `type` and n lanes; the bare element for n = 1."""
    return scalar(type) if n == 1 else f"<{n} x {scalar(type)}>"


@cache
def mangle(type: str) -> str:
    """Returns the suffix of an overloaded intrinsic: `<16 x float>` -> `v16f32`."""
    if type[0] == "<":
        return f"v{lanes(type)}{mangle(scalar(type))}"
    return {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}.get(type, type)


BITS = {"float": 32, "double": 64, "half": 16, "bfloat": 16, "ptr": 64}


@cache
def bits(type: str) -> int:
    """Returns the width of the element type in bits."""
    s = scalar(type)
    return BITS.get(s) or int(s[1:])


def is_float(type: str) -> bool:
    return scalar(type) in ("float", "double", "half", "bfloat")


@lru_cache(maxsize=4096)
def _float_text(scalar_type: str, bits_of_double: bytes) -> str:
    value = struct.unpack("<d", bits_of_double)[0]
    if scalar_type == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if scalar_type == "bfloat":
        return f"0xR{struct.unpack('<I', struct.pack('<f', value))[0] >> 16:04X}"
    if scalar_type == "float":
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def const(type: str, value: int | float) -> V:
    """Returns a literal; for a vector type, a splat. Floats are rounded to the type; `value` must be in its range. A
    size that is known only at the call becomes a register of type i64."""
    if isinstance(value, Size) and type == "i64":
        return i64(value)  # pyright: ignore[reportArgumentType] - a Size stands for an int
    s = scalar(type)
    if is_float(s):
        text = _float_text(s, struct.pack("<d", float(value)))
    elif s == "ptr":
        text = "null"
    elif s == "i1":
        text = "true" if value else "false"
    else:
        width = int(s[1:])
        v = int(value) & ((1 << width) - 1)
        text = str(v - (1 << width) if v >> (width - 1) and width > 1 else v)
    return V(type, f"splat ({s} {text})" if type[0] == "<" else text)


def vector_literal(element: str, values: Sequence[int | float]) -> V:
    """Returns a constant vector with the given elements. Raises NotSymbolic if one is known only at the call."""
    if any(isinstance(v, Size) for v in values):
        raise NotSymbolic("number-unknown", f"the constants {values} are not known")
    body = ", ".join(f"{element} {const(element, v).text}" for v in values)
    return V(f"<{len(values)} x {element}>", f"<{body}>")


def i64(value: int) -> V:
    return V("i64", register_name(value) if isinstance(value, Size) else str(value))


def i32(value: int) -> V:
    return V("i32", str(value))


Index = V | int
"""An i64, or a Python int in its place."""
