"""broadcast and broadcast_in_dim (specification, "broadcast_in_dim")."""

from __future__ import annotations

import numpy as np

from shlo_jit.ir.core import Op
from shlo_jit.ir.index import ZERO, At, Places
from shlo_jit.ir.types import QuantizedType, TensorType, Type
from shlo_jit.ops.numeric import Array, result_type
from shlo_jit.ops.record import Violation, define, required
from shlo_jit.ops.shape import MOVES, check_known_shape, same_elements
from shlo_jit.ops.type_algebra import (
    Shape,
    bounds_of,
    operand_type,
    per_axis,
    same_dim,
    stated_result,
    types_text,
    with_bounds,
)
from shlo_jit.sizes import equal


def _infer_broadcast(op: Op) -> list[Type]:
    t, sizes = operand_type(op, 0), op.ints("broadcast_sizes")
    for n in sizes:
        if n < 0:
            raise Violation("C1", f"Broadcast with negative dimension size {n}")
    assert t.shape is not None
    return [with_bounds((*sizes, *t.shape), t.dtype, [None] * len(sizes) + bounds_of(t))]


def check_broadcast(op: Op, dims: tuple[int, ...], result_shape: Shape, mismatch: str) -> None:
    """Checks C2 to C5 of broadcast_in_dim for a shape that may be partly unknown. `mismatch` is the message for C5."""
    t = operand_type(op, 0)
    if t.shape is None:
        return
    rank = len(result_shape)
    if len(dims) != t.rank:
        raise Violation("C2", f"broadcast_dimensions size ({len(dims)}) does not match operand rank ({t.rank})")
    if len(set(dims)) != len(dims):
        raise Violation("C4", f"broadcast_dimensions should not have duplicates, got {list(dims)}")
    for i, d in enumerate(dims):
        if not 0 <= d < rank:
            raise Violation("C3", f"broadcast_dimensions contains invalid value {d} for result with rank {rank}")
        n, m = t.shape[i], result_shape[d]
        if n is not None and not same_dim(n, m) and n != 1:
            raise Violation("C5", f"size of operand dimension {i} ({n}) {mismatch.format(d=d, m=m)}")


def _verify_broadcast_in_dim(op: Op) -> None:
    result, t, dims = stated_result(op), operand_type(op, 0), op.ints("broadcast_dimensions")
    if result.shape is None:
        return
    same_elements(op, spreads=True)
    check_broadcast(op, dims, result.shape, "is not equal to 1 or size of result dimension {d} ({m})")
    check_known_shape(result)
    if per_axis(result):
        check_broadcast_axis(t, result, dims)


def check_broadcast_axis(t: TensorType, result: TensorType, dims: tuple[int, ...]) -> None:
    """Checks C6: the quantization dimension follows the broadcast."""
    x, y = t.dtype, result.dtype
    assert isinstance(x, QuantizedType) and isinstance(y, QuantizedType) and t.shape is not None
    assert x.axis is not None and y.axis is not None
    if dims[x.axis] != y.axis:
        raise Violation(
            "C6",
            f"result quantization_dimension {y.axis} not same as broadcast_dimensions[{x.axis}] = {dims[x.axis]}",
        )
    if t.shape[x.axis] == 1:
        for i, (scale, zero) in enumerate(zip(y.scales, y.zero_points, strict=True)):
            if scale != x.scales[0]:
                raise Violation("C6", f"mismatch result scale {i} ({scale:e}) and operand scale 0 ({x.scales[0]:e})")
            if zero != x.zero_points[0]:
                raise Violation(
                    "C6", f"mismatch result zero_point {i} ({zero}) and operand zero_point 0 ({x.zero_points[0]})"
                )
    elif (x.scales, x.zero_points) != (y.scales, y.zero_points):
        raise Violation("C6", f"expect same quantization scales and zero_points, got {types_text([t, result])}")


def broadcast_in_dim(x: Array, shape: tuple[int, ...], dims: tuple[int, ...]) -> Array:
    order = np.argsort(np.asarray(dims, np.int64), kind="stable")
    extents = [1] * len(shape)
    for i, d in enumerate(dims):
        extents[d] = x.shape[i]
    return np.broadcast_to(x.transpose(order).reshape(extents), shape)


def _places(op: Op, at: At, extents: list[int]) -> Places:
    (operand,) = op.operands
    shape = operand.tensor.extents
    index = tuple(ZERO if equal(shape[i], 1) else at.index[d] for i, d in enumerate(op.ints("broadcast_dimensions")))
    return [(operand, At(index, at.conditions))]


define(
    "stablehlo.broadcast", section="",
    operands=("operand: any_tensor",), results=("result: any_tensor",),
    attributes={"broadcast_sizes": required("ints")}, traits=MOVES, infer=_infer_broadcast,
    reference=lambda op, x: np.broadcast_to(x, op.ints("broadcast_sizes") + x.shape),
)  # fmt: skip
define(
    "stablehlo.broadcast_in_dim", section="broadcast_in_dim",
    operands=("operand: any_tensor",), results=("result: any_tensor",),
    attributes={"broadcast_dimensions": required("ints")},
    traits={*MOVES, "chooses_result"}, verify=_verify_broadcast_in_dim, index_map=_places,
    reference=lambda op, x: broadcast_in_dim(x, result_type(op).extents, op.ints("broadcast_dimensions")),
)  # fmt: skip
