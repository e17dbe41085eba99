"""Rewrite scatters of one window to a known place as updates of a slice: frontends write `x.at[1:-1].add(y)` so.

Needs: static shapes; bodies on scalars. Guarantees: nothing. The resulting ops can be fused into loops.

    scatter(x, [1], y, body = add)   ->   dynamic_update_slice(x, slice(x, [1:9]) + y, 1)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ir.types import I32, tensor
from shlo_jit.ops import is_elementwise
from shlo_jit.ops.contract import dims_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.sizes import Size

SCATTER = "stablehlo.scatter"


def window_scatters(function: Op, _: Context) -> Op:
    """The function with such scatters rewritten as updates of slices."""
    if not any(op.name == SCATTER for op in walk(function.block())):
        return function
    return rewrite(function, _visit)


def _visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    if op.name != SCATTER or len(operands) != 3:
        return None
    corner, body = _corner(op), body_of(op)
    if corner is None or body is None:
        return None
    x, _, update = operands
    window = mk.reshape(rw, update, window_of(op))
    if body.results:
        old = _slice(rw, x, corner, window)
        mine, given = op.block().arguments
        pair = [{mine: old, given: window}[v] for v in body.operands]
        window = rw.emit1(body.name, pair, window.type, body.attributes)
    starts = [mk.constant(rw, tensor((), I32), start) for start in corner]
    return [rw.emit1("stablehlo.dynamic_update_slice", [x, window, *starts], x.type)]


def _slice(rw: Rewriter, x: Value, corner: tuple[int, ...], window: Value) -> Value:
    limits = [start + n for start, n in zip(corner, mk.shape_of(window), strict=True)]
    attributes = {
        "start_indices": mk.dims(corner),
        "limit_indices": mk.dims(limits),
        "strides": mk.dims([1] * len(limits)),
    }
    return rw.emit1("stablehlo.slice", [x], window.type, attributes)


def body_of(op: Op) -> Op | None:
    """Returns the op that combines an element with its update, or the terminator if the update replaces the element.
    None for any other body."""
    block = op.block()
    (result,) = block.terminator.operands
    if result is block.arguments[1]:
        return block.terminator
    inner = result.op
    if len(block.ops) != 2 or inner is None or not is_elementwise(inner):
        return None
    if len(inner.operands) != 2 or not all(v in block.arguments for v in inner.operands):
        return None
    return inner


def window_of(op: Op) -> tuple[int, ...]:
    """Returns the shape of the update with all dimensions of the operand."""
    numbers, update = op.attributes["scatter_dimension_numbers"], op.operands[2].tensor.extents
    sizes = iter([update[d] for d in dims_of(numbers, "update_window_dims")])
    thin = dims_of(numbers, "inserted_window_dims")
    return tuple(1 if d in thin else next(sizes) for d in range(op.operands[0].tensor.rank))


def _corner(op: Op) -> tuple[int, ...] | None:
    """Returns the start of the only window if it is known and the window is within the operand, else None."""
    x, indices, update = op.operands
    numbers = op.attributes["scatter_dimension_numbers"]
    if dims_of(numbers, "input_batching_dims") or indices.op is None or indices.op.name != "stablehlo.constant":
        return None
    extents = [n for v in op.operands for n in v.tensor.extents]
    places = indices.op.constant.array.reshape(-1)
    named = dims_of(numbers, "scatter_dims_to_operand_dims")
    if any(isinstance(n, Size) or n == 0 for n in extents) or len(places) != len(named):
        return None
    window = window_of(op)
    if np.prod(window) != update.tensor.size:
        return None
    corner = [0] * x.tensor.rank
    for d, start in zip(named, places.tolist(), strict=True):
        corner[d] = int(start)
    if any(start < 0 or start + k > n for start, k, n in zip(corner, window, x.tensor.extents, strict=True)):
        return None
    return tuple(corner)
