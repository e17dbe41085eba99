"""Let loops over groups of a few adjacent elements have their vector lanes across the groups.

    sum(x[s, g, e]) over s, e   ->   sum over e (sum(x[s, g, e]) over s)
    broadcast(v[g]) to [s, g, e]   ->   broadcast(broadcast(v[g]) to [g, e]) to [s, g, e]

A norm of groups of features, which are last in memory, reduces over pixels and the few features of a group, and reads
the group's result at each of them. Lanes along the features of one group are few. The sum over pixels alone has lanes
across all features of all groups, and so has the loop that reads the results of groups, if these are repeated in memory
for each feature (`fuse/recompute.py`: `repeated-in-lanes`).

Needs: transposes at the borders of what is computed (`moved_transposes`). Guarantees: nothing. The order in which a
reduction combines its elements is open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from shlo_jit import tuning
from shlo_jit.ir.core import Op, Value, walk
from shlo_jit.ops import OPS, is_elementwise
from shlo_jit.passes import build
from shlo_jit.passes.context import Context
from shlo_jit.passes.rewriter import Rewriter, rewrite
from shlo_jit.sizes import Size

REDUCE, BROADCAST = "stablehlo.reduce", "stablehlo.broadcast_in_dim"


def short_lanes(function: Op, _: Context) -> Op:
    """The function whose reductions and broadcasts along a few adjacent elements are in two steps."""
    chosen: dict[Op, tuple[int, ...]] = {}
    for op in walk(function.block()):
        outer = _outer_sums(op) if op.name == REDUCE else _outer_repeats(op) if op.name == BROADCAST else ()
        if outer:
            chosen[op] = outer
    if not any(op.name == REDUCE for op in chosen):
        return function

    def visit(rw: Rewriter, op: Op, operands: list[Value]) -> Sequence[Value] | None:
        outer = chosen.get(op)
        if outer is None:
            return None
        if op.name == REDUCE:
            combined, storage = op.block().ops[0], op.result.tensor.storage
            name, start = combined.name.removeprefix("stablehlo."), _start(op)
            partial = build.reduce(rw, name, operands[0], OPS[combined.name].neutral_on(storage), outer)
            rest = [d for d in op.ints("dimensions") if d not in outer]
            kept = [d for d in range(op.operands[0].tensor.rank) if d not in outer]
            return [build.reduce(rw, name, partial, start, tuple(kept.index(d) for d in rest))]
        shape, places = op.result.tensor.extents, op.ints("broadcast_dimensions")
        kept = [d for d in range(len(shape)) if d not in outer]
        repeated = build.broadcast(rw, operands[0], [shape[d] for d in kept], [kept.index(d) for d in places])
        return [build.broadcast(rw, repeated, shape, kept)]

    return rewrite(function, visit)


def _outer_sums(op: Op) -> tuple[int, ...]:
    """The dimensions of a reduction before groups of a few adjacent elements that it also reduces."""
    if len(op.operands) != 2 or len(op.block().ops) != 2 or _start(op) is None:
        return ()
    reduced, shape = op.ints("dimensions"), op.operands[0].tensor.extents
    outer = tuple(d for d in reduced if d < len(shape) - 2)
    is_grouped = len(shape) - 1 in reduced and len(shape) - 2 not in reduced
    return outer if is_grouped and _is_worth(shape, outer) and not _is_transposed(op.operands[0]) else ()


def _outer_repeats(op: Op) -> tuple[int, ...]:
    """The dimensions along which a broadcast repeats groups of a few equal adjacent elements."""
    places, shape = op.ints("broadcast_dimensions"), op.result.tensor.extents
    outer = tuple(d for d in range(len(shape) - 2) if d not in places)
    is_grouped = bool(places) and len(shape) - 1 not in places and len(shape) - 2 in places
    source = op.operands[0].op
    is_constant = source is not None and source.name == "stablehlo.constant"
    return outer if is_grouped and not is_constant and _is_worth(shape, outer) else ()


def _is_worth(shape: Sequence[int], outer: Sequence[int]) -> bool:
    """Whether there are few elements in a group, several groups, and many times as much outside."""
    if len(shape) < 3 or any(isinstance(n, Size) for n in shape):
        return False
    few = 1 < shape[-1] < tuning.GROUP_LANES and shape[-2] > 1
    return few and math.prod(shape[d] for d in outer) >= tuning.GROUP_REPEATS


def _start(op: Op) -> Any:
    """The number with which a reduction by one op begins, if that is neutral (up to the sign of a zero); or None."""
    combined = op.block().ops[0]
    record = OPS[combined.name]
    source = op.operands[1].op
    if not is_elementwise(combined) or len(combined.operands) != 2 or source is None:
        return None
    if set(combined.operands) != set(op.block().arguments) or source.name != "stablehlo.constant":
        return None
    storage = op.result.tensor.storage
    neutral = record.neutral_on(storage)
    if neutral is None or not record.has("commutative"):
        return None
    given, wanted = source.attributes["value"].array.reshape(-1)[0], storage.numpy.type(neutral)
    return given if given == wanted else None


def _is_transposed(value: Value) -> bool:
    """Whether elementwise ops compute a value from a transpose, so that other elements are adjacent in memory."""
    todo, seen = [value], set[Value]()
    while todo and len(seen) < tuning.NEST_TWICE_OPS:
        v = todo.pop()
        if v in seen or v.op is None:
            continue
        seen.add(v)
        if v.op.name == "stablehlo.transpose" and v.tensor.size == value.tensor.size:
            return True
        if is_elementwise(v.op) or v.op.name == "stablehlo.reshape":
            todo += v.op.operands
    return False
