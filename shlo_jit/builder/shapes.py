"""Shapes as callers write them: `f32[2,3]` as XLA prints them, StableHLO's types, or objects with a shape and a dtype.

type_of("f32[2,3]")  type_of("pred[]")  type_of("s32[?,<=8]")  type_of("(f32[2], token[])")
type_of("tensor<2x3xf32>")  type_of(np.zeros((2, 3), np.float32))
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import numpy as np

from shlo_jit.builder.errors import wrong
from shlo_jit.errors import StableHLOError
from shlo_jit.ir.dtypes import DTYPES, DType, by_numpy
from shlo_jit.ir.types import TOKEN, QuantizedType, TensorType, TupleType, Type, tensor
from shlo_jit.ops.type_algebra import type_text, with_bounds
from shlo_jit.text.types import type_of_text

ShapeLike: TypeAlias = "str | Type | np.ndarray | np.generic | Any"
"""A string, a type of StableHLO, or an object with `shape` and `dtype`."""
DTypeLike: TypeAlias = "str | DType | np.dtype | type"
"""A name of XLA, StableHLO or NumPy, or a NumPy dtype."""
XLA_NAMES = {
    "pred": "i1", "bool": "i1", "bfloat16": "bf16", "c64": "complex<f32>", "c128": "complex<f64>",
    **{f"s{n}": f"i{n}" for n in (2, 4, 8, 16, 32, 64)}, **{f"u{n}": f"ui{n}" for n in (2, 4, 8, 16, 32, 64)},
    **{name.lower(): name for name in DTYPES if name[0] == "f" and name != name.lower()},
}  # fmt: skip
_SHAPE = re.compile(r"\s*([A-Za-z]\w*(?:<f\d+>)?)\s*\[\s*([^\[\]]*?)\s*\](?:\{[\d,]*\})?\s*")


def element_of(dtype: object, argument: str = "dtype") -> DType:
    """Element type of a name or a NumPy dtype."""
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str):
        found = DTYPES.get(XLA_NAMES.get(dtype, dtype))
        if found is not None:
            return found
    try:
        if not isinstance(dtype, str | np.dtype | type):  # NumPy takes None for f64, and anything that has a dtype
            raise TypeError
        return by_numpy()[np.dtype(dtype)]  # type: ignore[call-overload]  whatever it is, it says so
    except (TypeError, KeyError, ValueError, SyntaxError):  # NumPy raises the last two for a string
        hint = "such as 'f32', 's32' (or 'i32'), 'pred', 'bf16', or NumPy's"
        raise wrong(argument, f"expected an element type, got {dtype!r}", hint=hint) from None


def type_of(shape: object, argument: str = "shape") -> Type:
    """Type of a shape."""
    if isinstance(shape, Type):
        return shape
    if isinstance(shape, str):
        return _type_of_text(shape, argument)
    extents, dtype = getattr(shape, "shape", None), getattr(shape, "dtype", None)
    if isinstance(extents, tuple) and dtype is not None:
        return tensor(tuple(None if n is None else int(n) for n in extents), element_of(dtype, argument))
    raise wrong(argument, f"expected a shape such as 'f32[2,3]', got {shape!r}")


def tensor_type(shape: object, argument: str = "shape") -> TensorType:
    """Type of a tensor's shape."""
    found = type_of(shape, argument)
    if not isinstance(found, TensorType):
        raise wrong(argument, f"expected the shape of a tensor, got {shape_text(found)}")
    return found


def static_type(shape: object, argument: str = "shape") -> TensorType:
    """Type of a tensor's shape, with known extents."""
    found = tensor_type(shape, argument)
    if not found.is_static:
        raise wrong(argument, f"expected known extents, got {shape_text(found)}")
    return found


def _type_of_text(text: str, argument: str) -> Type:
    stripped = text.strip()
    if stripped in ("token", "token[]"):
        return TOKEN
    if stripped.startswith("(") and stripped.endswith(")"):
        return TupleType(tuple(_type_of_text(part, argument) for part in _parts(stripped[1:-1])))
    found = _SHAPE.fullmatch(text)
    if found is not None:
        element = element_of(found[1], argument)
        extents = [_extent(part, text, argument) for part in found[2].split(",")] if found[2] else []
        bounds = [bound for _, bound in extents]
        sizes = tuple(size for size, _ in extents)
        return tensor(sizes, element) if not any(b is not None for b in bounds) else with_bounds(sizes, element, bounds)
    try:
        return type_of_text(text)
    except StableHLOError:
        raise wrong(argument, f"expected a shape such as 'f32[2,3]', got {text!r}") from None


def _parts(text: str) -> list[str]:
    """Splits a text at the commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{<") - (c in ")]}>" and text[i - 1] != "=")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    rest = text[start:]
    return [*parts, rest] if rest.strip() else parts


def _extent(part: str, text: str, argument: str) -> tuple[int | None, int | None]:
    """Size and bound of `3`, `?` or `<=8`."""
    part = part.strip()
    if part.isdecimal():
        return int(part), None
    if part == "?":
        return None, None
    if part.startswith("<=") and part[2:].strip().isdecimal():
        return None, int(part[2:])
    raise wrong(argument, f"expected a size, ? or <= and a bound, got {part!r} in {text!r}")


def shape_text(t: Type) -> str:
    """Formats a type as `f32[2,3]`, for messages."""
    if isinstance(t, TensorType) and t.shape is not None:
        bounds = t.bounds or (None,) * len(t.shape)
        sizes = [
            str(n) if n is not None else "?" if b is None else f"<={b}" for n, b in zip(t.shape, bounds, strict=True)
        ]
        element = t.dtype.storage_name if isinstance(t.dtype, QuantizedType) else t.dtype.name
        return f"{element}[{','.join(sizes)}]"
    if isinstance(t, TupleType):
        return f"({', '.join(map(shape_text, t.types))})"
    return "token" if t is TOKEN else type_text(t)
