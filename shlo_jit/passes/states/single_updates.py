"""Rewrite scatters of one window at a place known at run time as updates of a slice: `x.at[i].set(u)` with a scalar i.

Needs: static shapes; bodies on scalars. Guarantees: nothing. The resulting ops are fused into loops, with their indices
and elements in registers. A window that a scatter skips, because it is outside, keeps its elements. Gathers of one
small window become slices, so that a row is read the way it is written.

    scatter(x, [i], u, body = add)   ->   old = dynamic_slice(x, i)
                                          dynamic_update_slice(x, select(0 <= i < n, old + u, old), i)
    gather(x, [i])                   ->   dynamic_slice(x, i)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ir.types import I1, TensorType, tensor
from shlo_jit.ops.contract import dims_of
from shlo_jit.passes import build as mk
from shlo_jit.passes.canonical.window_scatters import body_of, window_of
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.passes.states.updates import SCATTER, UPDATE, is_partial, is_small_part
from shlo_jit.sizes import Size

GATHER = "stablehlo.gather"


def single_updates(function: Op, _: Context) -> Op:
    """The function with such scatters and gathers rewritten."""
    if not any(op.name in (SCATTER, GATHER) for op in walk(function.block())):
        return function
    return rewrite(function, _visit)


def _visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    if op.name == GATHER:
        return _read(rw, op, operands)
    if op.name != SCATTER or not is_partial(op) or not _has_one_window(op):
        return None
    body = body_of(op)
    if body is None:
        return None
    x, indices, update = operands
    window = mk.reshape(rw, update, window_of(op))
    named = dims_of(op.attributes["scatter_dimension_numbers"], "scatter_dims_to_operand_dims")
    parts = dict(zip(named, _components(rw, indices), strict=True))
    starts = _starts(rw, x, indices, parts)
    inside = _inside(rw, parts, mk.shape_of(x))
    old = mk.window(rw, x, starts, mk.shape_of(window))
    if body.results:
        mine, given = op.block().arguments
        pair = [{mine: old, given: window}[v] for v in body.operands]
        window = rw.emit1(body.name, pair, window.type, body.attributes)
    if inside is not None:
        window = rw.emit1("stablehlo.select", [inside, window, old], window.type)
    return [rw.emit1(UPDATE, [x, window, *starts], x.type)]


def _read(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
    """Returns the window that a gather with one index vector reads. A window that is outside is moved inside, as that
    of a dynamic_slice."""
    x, indices = operands
    numbers = op.attributes["dimension_numbers"]
    named = dims_of(numbers, "start_index_map")
    if not named or dims_of(numbers, "operand_batching_dims") or not is_small_part(op.result, op.operands[0]):
        return None
    if any(isinstance(n, Size) for n in indices.tensor.extents) or indices.tensor.size != len(named):
        return None
    starts = _starts(rw, x, indices, dict(zip(named, _components(rw, indices), strict=True)))
    return [mk.reshape(rw, mk.window(rw, x, starts, op.ints("slice_sizes")), mk.shape_of(op.result))]


def _starts(rw: Rewriter, x: Value, indices: Value, parts: dict[int, Value]) -> list[Value]:
    """The first index of a window along each dimension."""
    zero = mk.constant(rw, tensor((), indices.tensor.dtype), 0)
    return [parts.get(d, zero) for d in range(x.tensor.rank)]


def _has_one_window(op: Op) -> bool:
    """Whether a scatter has one index vector, which moves its window only along dimensions of which the window has one
    element: it is inside or outside as a whole."""
    numbers = op.attributes["scatter_dimension_numbers"]
    named = dims_of(numbers, "scatter_dims_to_operand_dims")
    if dims_of(numbers, "input_batching_dims") or not named or op.operands[1].tensor.size != len(named):
        return False
    window, indices = window_of(op), op.operands[1].tensor.storage
    return np.prod(window) == op.operands[2].tensor.size and all(window[d] == 1 for d in named) and indices.bits >= 32


def _components(rw: Rewriter, indices: Value) -> list[Value]:
    """The components of the only index vector, as scalars."""
    count = indices.tensor.size
    flat = mk.reshape(rw, indices, (count,))
    return [mk.reshape(rw, mk.slice_dim(rw, flat, 0, k, k + 1), ()) for k in range(count)]


def _inside(rw: Rewriter, parts: dict[int, Value], shape: tuple[int, ...]) -> Value | None:
    """Whether each index is within its dimension."""
    found: Value | None = None
    for d, index in parts.items():
        t: TensorType = index.tensor
        checks = [mk.compare(rw, "LT", index, mk.constant(rw, t, shape[d]))]
        if t.storage.kind != "u":
            checks.append(mk.compare(rw, "GE", index, mk.constant(rw, t, 0)))
        for check in checks:
            found = check if found is None else rw.emit1("stablehlo.and", [found, check], tensor((), I1))
    return found
