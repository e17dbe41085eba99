"""Conversions and shapes of values, with the rules of ATen: promotion of element types, broadcasting, dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from shlo_jit import builder as b
from shlo_jit.builder import Value
from shlo_jit.ir.dtypes import DTYPES, DType
from shlo_jit.ir.types import tensor
from shlo_jit.torch.aten.registry import Unsupported

Operand: TypeAlias = "Value | bool | int | float | complex"
BOOL, I16, I32, I64, U64 = (DTYPES[name] for name in ("i1", "i16", "i32", "i64", "ui64"))
F16, BF16, F32, F64 = DTYPES["f16"], DTYPES["bf16"], DTYPES["f32"], DTYPES["f64"]
F8, F8_LIMIT = DTYPES["f8E4M3FN"], 448
"""A type without infinities, and its greatest number, to which newer versions of PyTorch round all that is greater."""
C64, C128 = DTYPES["complex<f32>"], DTYPES["complex<f64>"]
_CATEGORY = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


# ---------------------------------------------------------------------------- element types
def category(dtype: DType) -> int:
    """Category of an element type: 0 truth values, 1 integers, 2 floats, 3 complex numbers."""
    return _CATEGORY[dtype.kind]


def promoted(*operands: Operand) -> DType:
    """Element type to which ATen promotes operands: tensors decide before tensors of rank 0, these before numbers,
    unless a later one is of a higher category."""
    best: DType | None = None
    for group in (
        [x for x in operands if isinstance(x, Value) and x.ndim],
        [x for x in operands if isinstance(x, Value) and not x.ndim],
        [x for x in operands if not isinstance(x, Value)],
    ):
        found: DType | None = None
        for x in group:
            own = x.element_type if isinstance(x, Value) else number_type(x)
            found = own if found is None else joined(found, own)
        if found is not None and (best is None or category(found) > category(best)):
            is_complex_beside_floats = best is not None and category(best) == 2
            best = complex_of(best) if best is not None and is_complex_beside_floats else found
    assert best is not None
    return best


def number_type(x: object) -> DType:
    """Element type of a Python number."""
    if isinstance(x, bool):
        return BOOL
    if isinstance(x, int):
        return I64
    return C64 if isinstance(x, complex) else F32


def joined(x: DType, y: DType) -> DType:
    """The least element type to which ATen promotes both."""
    if x == y:
        return x
    low, high = sorted((x, y), key=category)
    if category(low) < category(high):
        if category(high) == 3 and category(low) == 2 and low.bits > high.bits // 2:
            return C128
        return high
    if x.kind in "iu":
        if x.kind == y.kind:
            return x if x.bits > y.bits else y
        signed, unsigned = (x, y) if x.kind == "i" else (y, x)
        if signed.bits > unsigned.bits:
            return signed
        if unsigned.bits == 8:
            return DTYPES["i16"]
        raise Unsupported(f"promotion of {x} and {y} is not defined")
    if {x, y} == {F16, BF16}:
        return F32
    return x if x.bits > y.bits else y


def float_of(dtype: DType) -> DType:
    """The element type of a function of floats: integers and truth values become f32."""
    return dtype if category(dtype) >= 2 else F32


def complex_of(dtype: DType) -> DType:
    """The complex type whose parts are of this type."""
    return C128 if dtype in (F64, C128) else C64


def wide(dtype: DType) -> DType:
    """The type in which ATen's CPU kernels compute: f32 for floats of 16 bits."""
    return F32 if dtype.kind == "f" and dtype.bits <= 16 else dtype


def cast(x: Operand, dtype: DType) -> Value:
    """Converts a value or a number as ATen casts it. A number becomes a constant of rank 0."""
    if not isinstance(x, Value):
        return number(x, dtype)
    if x.element_type == dtype:
        return x
    if dtype.kind == "b":
        return b.ne(x, number(0, x.element_type))
    if dtype.kind in "iu" and x.element_type.kind == "f" and dtype.bits < 32:
        return b.convert_element_type(b.convert_element_type(x, I32), dtype)  # wraps as the CPU's instructions do
    if dtype.kind == "u" and x.element_type.kind == "f":
        return b.convert_element_type(b.convert_element_type(x, I64), dtype)
    if x.element_type.kind == "c" and dtype.kind != "c":
        return cast(b.real(x), dtype)
    if dtype == F8 and (x.element_type.kind != "f" or x.element_type.bits < 16):
        x = b.convert_element_type(x, F32)
    if dtype == F8 and _saturates():
        x = b.clamp(number(-F8_LIMIT, x.element_type), x, number(F8_LIMIT, x.element_type))
    return b.convert_element_type(x, dtype)


def _saturates() -> bool:
    from shlo_jit.torch.dtypes import SATURATES  # not above: the records are also listed without PyTorch

    return SATURATES


def number(x: Any, dtype: DType) -> Value:
    """A constant of rank 0, converted as C does."""
    return b.constant(_constant(x, dtype))


def _constant(x: Any, dtype: DType) -> np.ndarray:
    with np.errstate(all="ignore"):
        x = x.real if isinstance(x, complex) and dtype.kind != "c" else x
        if dtype.kind in "iu":
            if isinstance(x, float):
                x = int(x) if math.isfinite(x) else 0
            bits = dtype.bits
            unsigned = int(x) % (1 << bits)
            wrapped = unsigned - (1 << bits) if dtype.kind == "i" and unsigned >> (bits - 1) else unsigned
            return np.array(wrapped, dtype.numpy)
        return np.array(x).astype(dtype.numpy)


def filled(shape: Sequence[int], x: Any, dtype: DType) -> Value:
    """A constant tensor whose elements are all the number, or the value of rank 0, converted."""
    if isinstance(x, Value):
        return b.broadcast_in_dim(cast(x, dtype), shape, ())
    return b.broadcast_in_dim(number(x, dtype), shape, ()) if len(shape) else number(x, dtype)


# ---------------------------------------------------------------------------- shapes
def sizes(x: Value) -> tuple[int, ...]:
    """The extents of a tensor, all of which are known."""
    found = x.shape
    if None in found:
        raise Unsupported("an extent is unknown")
    return found  # type: ignore[return-value]  checked above


def dimension(d: int, rank: int) -> int:
    """Index of a dimension, which may count from the last. A tensor of rank 0 counts as one of rank 1."""
    return d % max(rank, 1)


def dimensions(dims: Any, rank: int) -> tuple[int, ...]:
    """Indices of dimensions; None and an empty list are all of them."""
    if dims is None or (isinstance(dims, list | tuple) and not dims):
        return tuple(range(rank))
    listed = dims if isinstance(dims, list | tuple) else (dims,)
    return tuple(dict.fromkeys(dimension(d, rank) for d in listed)) if rank else ()


def common_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape to which shapes are broadcast, aligned at the last dimension."""
    return tuple(np.broadcast_shapes(*map(tuple, shapes)))


def broadcast_to(x: Value, shape: Sequence[int]) -> Value:
    """The value broadcast to a shape, aligned at the last dimension."""
    shape = tuple(shape)
    if sizes(x) == shape:
        return x
    return b.broadcast_in_dim(x, shape, range(len(shape) - x.ndim, len(shape)))


def together(dtype: DType, *operands: Operand) -> tuple[Value, ...]:
    """Converts operands to an element type and a common shape."""
    values = [cast(x, dtype) for x in operands]
    shapes = {sizes(v) for v in values}
    if len(shapes) == 1:
        return tuple(values)
    shape = common_shape(*shapes)
    return tuple(broadcast_to(v, shape) for v in values)


def pair(dtype: DType, x: Operand, y: Operand) -> tuple[Value, Value]:
    """Converts two operands to an element type and a common shape."""
    left, right = together(dtype, x, y)
    return left, right


def is_nan(x: Value) -> Value:
    """Whether elements differ from themselves."""
    return b.ne(x, x)


def at_least_1d(x: Value) -> Value:
    """A tensor of rank 0 as one with a single element; others unchanged."""
    return x if x.ndim else b.reshape(x, (1,))


def expanded(x: Value, dims: Sequence[int], shape: Sequence[int]) -> Value:
    """The result of a reduction along `dims`, broadcast to the shape before it."""
    kept = [d for d in range(len(shape)) if d not in dims]
    return b.broadcast_in_dim(x, tuple(shape), kept)


def keep(x: Value, dims: Sequence[int], rank: int) -> Value:
    """The result of a reduction, with extents of 1 for the reduced dimensions."""
    shape, i = [], 0
    for d in range(rank):
        if d in dims:
            shape.append(1)
        else:
            shape.append(sizes(x)[i])
            i += 1
    return b.reshape(x, shape)


def slice_along(x: Value, d: int, start: int, stop: int, step: int = 1) -> Value:
    """A slice along one dimension."""
    shape = sizes(x)
    if (start, stop, step) == (0, shape[d], 1):
        return x
    starts, stops, steps = [0] * len(shape), list(shape), [1] * len(shape)
    starts[d], stops[d], steps[d] = start, max(start, stop), step
    return b.slice(x, starts, stops, steps)


def lowest(dtype: DType) -> Any:
    """The least number of an element type, -inf for floats. Raises Unsupported for complex numbers."""
    if dtype.kind == "f":
        return -np.inf
    _refuse_complex(dtype)
    return False if dtype.kind == "b" else np.iinfo(dtype.numpy).min


def highest(dtype: DType) -> Any:
    """The greatest number of an element type, inf for floats. Raises Unsupported for complex numbers."""
    if dtype.kind == "f":
        return np.inf
    _refuse_complex(dtype)
    return True if dtype.kind == "b" else np.iinfo(dtype.numpy).max


def _refuse_complex(dtype: DType) -> None:
    if dtype.kind == "c":
        raise Unsupported("complex numbers are not supported, as they have no order")


def iota(shape: Sequence[int], d: int, dtype: DType = I64) -> Value:
    """A tensor whose elements are 0, 1, 2 ... along a dimension."""
    return b.iota(tensor(tuple(shape), dtype), d)
