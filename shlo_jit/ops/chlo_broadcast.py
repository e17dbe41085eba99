"""CHLO ops with implicit broadcasting: `chlo.broadcast_add` is a broadcast of the operands, then `stablehlo.add`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shlo_jit.ir.core import Op
from shlo_jit.ir.types import C64, C128, I1, ElementType, TensorType, Type
from shlo_jit.ops.numeric import Array
from shlo_jit.ops.record import OPS, Violation, define, optional, required
from shlo_jit.ops.type_algebra import (
    bounds_of,
    compatible_elements,
    operand_types,
    type_text,
    types_text,
    with_bounds,
)


def broadcast_types(op: Op, types: Sequence[TensorType], element: ElementType) -> TensorType:
    """Returns the type after broadcasting as in numpy, or by `broadcast_dimensions`, which apply to the operand of
    lower rank."""
    if any(t.shape is None for t in types):
        return TensorType(None, element)
    placed = [_place(op, t, max(u.rank for u in types)) for t in types]
    shape: list[int | None] = []
    bounds: list[int | None] = []
    for column in zip(*placed, strict=True):
        extents = {n for n, _ in column}
        large = {n for n in extents if n is not None and n != 1}
        if len(large) > 1:
            raise Violation("C2", f"requires broadcast compatible operands, got {types_text(types)}")
        unknown = None in extents
        shape.append(large.pop() if large else None if unknown else 1)
        limits = [b for n, b in column if n is None]
        bounds.append(max(limits) if shape[-1] is None and None not in limits else None)  # type: ignore[type-var]
    return with_bounds(tuple(shape), element, bounds)


def _place(op: Op, t: TensorType, rank: int) -> list[tuple[int | None, int | None]]:
    """Returns (extent, bound) of an operand along each dimension of the result."""
    assert t.shape is not None
    dims = op.ints("broadcast_dimensions", ())
    if t.rank == rank or not dims:
        dims = tuple(range(rank - t.rank, rank))
    if len(dims) != t.rank or any(not 0 <= d < rank for d in dims):
        raise Violation("C2", f"broadcast_dimensions {list(dims)} do not fit operand '{type_text(t)}'")
    out: list[tuple[int | None, int | None]] = [(1, None)] * rank
    for d, n, b in zip(dims, t.shape, bounds_of(t), strict=True):
        out[d] = (n, b)
    return out


def _spread(op: Op, arrays: Sequence[Array]) -> list[Array]:
    """Broadcasts arrays to a common shape."""
    rank = max(x.ndim for x in arrays)
    dims = op.ints("broadcast_dimensions", ())
    wide = []
    for x in arrays:
        if x.ndim != rank and dims:
            shape = [1] * rank
            for d, n in zip(dims, x.shape, strict=True):
                shape[d] = n
            x = x.reshape(shape)
        wide.append(x)
    return list(np.broadcast_arrays(*wide))


def _reference(name: str) -> Callable[..., Array]:
    """Returns the reference of a broadcasting op: that of the op without broadcasting, after broadcasting."""

    def reference(op: Op, *arrays: Array) -> Array:
        inner = OPS.get(f"stablehlo.{name}") or OPS[f"chlo.{name}"]
        assert inner.reference is not None
        return inner.reference(op, *_spread(op, arrays))

    return reference


def _infer_same(op: Op) -> list[Type]:
    types = operand_types(op)
    for t in types[1:]:
        if not compatible_elements(t.dtype, types[0].dtype):
            raise Violation("C1", f"mismatched operand types, got {types_text(types)}")
    stated = op.results[0].type
    if isinstance(stated, TensorType) and not compatible_elements(stated.dtype, types[0].dtype):
        raise Violation("C1", "requires compatible element types for all operands and results")
    return [broadcast_types(op, types, types[0].dtype)]


def _infer_compare(op: Op) -> list[Type]:
    types = operand_types(op)
    if not compatible_elements(types[0].dtype, types[1].dtype):
        raise Violation("C1", f"mismatched operand types, got {types_text(types)}")
    return [broadcast_types(op, types, I1)]


def _infer_complex(op: Op) -> list[Type]:
    types = operand_types(op)
    if types[0].dtype != types[1].dtype:
        raise Violation("C1", f"mismatched operand types, got {types_text(types)}")
    return [broadcast_types(op, types, C64 if str(types[0].dtype) == "f32" else C128)]


def _infer_select(op: Op) -> list[Type]:
    types = operand_types(op)
    if not compatible_elements(types[1].dtype, types[2].dtype):
        raise Violation("C1", f"mismatched operand types, got {types_text(types[1:])}")
    return [broadcast_types(op, types, types[1].dtype)]


_DIMENSIONS = {"broadcast_dimensions": optional("ints")}
ANY = "tensor|unranked"

_ELEMENTS = {
    ANY: "add multiply maximum minimum",
    "int|float|complex|quant|unranked": "subtract divide remainder power",
    "float|complex|quant|unranked": "atan2",
    "float|unranked": "next_after polygamma zeta",
    "pred|int|unranked": "and or xor",
    "int|unranked": "shift_left shift_right_arithmetic shift_right_logical",
}
"""Kinds of operands -> ops that take them, as for the ops without broadcasting."""
for _kind, _names in _ELEMENTS.items():
    for _name in _names.split():
        define(
            f"chlo.broadcast_{_name}", operands=(f"lhs: {_kind}", f"rhs: {_kind}"), results=(f"result: {_kind}",),
            attributes=_DIMENSIONS, infer=_infer_same, reference=_reference(_name),
        )  # fmt: skip
define(
    "chlo.broadcast_compare", operands=(f"lhs: {ANY}", f"rhs: {ANY}"), results=("result: pred|unranked",),
    attributes={
        **_DIMENSIONS,
        "comparison_direction": required("enum comparison_direction"),
        "compare_type": optional("enum comparison_type"),
    },
    infer=_infer_compare, reference=_reference("compare"),
)  # fmt: skip
define(
    "chlo.broadcast_complex", operands=("lhs: f32|f64|unranked", "rhs: f32|f64|unranked"),
    results=("result: complex|unranked",), attributes=_DIMENSIONS, infer=_infer_complex,
    reference=_reference("complex"),
)  # fmt: skip
define(
    "chlo.broadcast_select", operands=("pred: pred|unranked", f"on_true: {ANY}", f"on_false: {ANY}"),
    results=(f"result: {ANY}",), infer=_infer_select, reference=_reference("select"),
)  # fmt: skip
